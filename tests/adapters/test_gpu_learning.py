"""The script of the GPU curve: it makes its model, stops in time, goes on, and leaves a curve.

1. a call goes on where the last one stopped, while the model is made and afterwards
2. the minutes are the wall time of all calls that did something
3. the command is kept whole, without a folder of this machine
4. another seed or size in the same folder is refused
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")

from agent_envs.adapters.run import write_records
from agent_envs.episodes import run_folder
from benchmarks.pretraining.language import OutOfTime

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(load_file: Callable[[str], ModuleType]) -> ModuleType:
    return load_file("benchmarks/gpu_learning.py")


class Work:
    """In the place of a model and its training: a clock, and parts of known length, each of which is done once."""

    def __init__(self, script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.left, self.step, self.deadlines = 1000.0, [90.0, 60.0], 0, list[float]()
        for module in (script, run_folder):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(script, "pretrain", self.pretrain)
        monkeypatch.setattr(script, "save_model", lambda model, tokenizer, folder: folder.mkdir())
        monkeypatch.setattr(script, "train", self.train)
        monkeypatch.setattr(script, "_parameters", lambda folder: 7)

    def pretrain(self, folder: Path, recipes: Any, *, deadline: float, **_: Any) -> tuple[str, str]:
        folder.mkdir(exist_ok=True)
        self.deadlines.append(deadline)
        while self.left:
            self.now += self.left.pop()
            if self.now > deadline and self.left:
                raise OutOfTime("time is up after a part")
        return "model", "tokenizer"

    def train(self, config: Any) -> list[dict[str, float]]:
        self.now += 60 if self.step == 0 else 0  # the first evaluation
        stop = self.now + 60 * config.minutes
        while self.step < config.steps:
            self.now, self.step = self.now + 30, self.step + 1
            if self.now > stop:
                break
        numbers = dict.fromkeys(("success", "success_low", "success_high", "calls", "length", "episodes"), 1.0)
        val = {f"val/{name}": value for name, value in numbers.items()}
        records = [{"step": step, **(val if step % 2 == 0 else {})} for step in range(self.step + 1)]
        Path(config.out).mkdir(exist_ok=True)
        write_records(Path(config.out, "metrics.jsonl"), records)
        return records


def test_calls_add_up_and_say_how_they_were_made(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Work(script, monkeypatch)
    words = ["--env", "HotpotQA", f"--out={tmp_path}", "--toy", "--minutes", "0.5"]
    ends = []
    for _ in range(5):
        assert script.main(words) == 0
        ends.append(capsys.readouterr().out.splitlines()[-1])
    assert ends[0] == "the model is not made yet: time is up after a part; call it again"
    assert ends[1] == "time is up before the first step: call it again"
    assert ends[2].endswith("stopped at step 2: call it again")
    assert ends[3].endswith("done") and ends[4] == ends[3]
    assert work.deadlines == [1000 + 30, 1060 + 30]
    found = json.loads((tmp_path / "HotpotQA.json").read_text())
    assert found["minutes"] == (60 + 90 + 60 + 4 * 30) / 60
    assert [point["step"] for point in found["curve"]] == [0, 2, 4]
    command = f"--env HotpotQA --out=runs/{tmp_path.name} --toy --minutes 0.5"
    assert found["command"] == f"python -m benchmarks.gpu_learning {command}"


@pytest.mark.parametrize(
    ("out", "shown"),
    [
        ("runs/gpu", "runs/gpu"),
        ("gpu", "gpu"),
        ("/home/someone/gpu", "runs/gpu"),
        ("/home/someone/a folder/", "'runs/a folder'"),
        ("../../someone/gpu", "runs/gpu"),
    ],
)
def test_the_kept_command_names_no_folder_of_this_machine(script: ModuleType, out: str, shown: str) -> None:
    words = ["--env", "ALFWorld", "--out", out, "--seed", "1"]
    assert script._command(words, out) == f"python -m benchmarks.gpu_learning --env ALFWorld --out {shown} --seed 1"
    assert len(shlex.split(script._command(words, out))) == 3 + len(words)


def test_a_folder_of_another_size_or_seed_is_refused(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Work(script, monkeypatch)
    words = ["--env", "HotpotQA", "--out", str(tmp_path)]
    assert script.main([*words, "--toy"]) == 0
    for given, message in (([], "toy was True, now False"), (["--toy", "--seed", "1"], "seed was 0, now 1")):
        assert script.main([*words, *given]) == 2
        assert f"holds a run with other settings ({message}); choose another folder" in capsys.readouterr().err
    (tmp_path / "HotpotQA" / "settings.json").unlink()
    assert script.main([*words, "--toy"]) == 2
    assert "holds files of an unknown run" in capsys.readouterr().err
    assert script.main(["--env", "ALFWorld", "--out", str(tmp_path)]) == 0  # another environment has its own


@pytest.mark.gpu
@pytest.mark.slow
def test_the_script_of_the_gpu_curve_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_learning", "--env", "HotpotQA", "--out", str(tmp_path), "--toy"]
    ends = []
    for minutes in ("0.001", "10", "10"):  # the tokenizer; the rest; nothing
        done = subprocess.run([*command, "--minutes", minutes], cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        ends.append(done.stdout.splitlines()[-1])
    assert ends[0] == "the model is not made yet: time is up after the tokenizer; call it again"
    assert ends[1].endswith("done") and ends[2] == ends[1]
    text = (tmp_path / "HotpotQA.json").read_text()
    found = json.loads(text)
    assert str(tmp_path) not in text and found["minutes"] > 0
    assert [point["step"] for point in found["curve"]] == [0, 2, 4]
    assert all(point["success_low"] <= point["success"] <= point["success_high"] for point in found["curve"])
