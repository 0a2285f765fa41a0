"""The results page: cells are paired by task, go stale with what they depend on, and survive kills and failures.

Behaviours pinned here:
1. Every committed cell is of today's tasks, settings and tiny-base.
2. A cell of other tasks or settings is no result; runs that share no tasks are not compared.
3. Every page with a table of results is what the cells say; there is no line for what was not measured.
4. A failed cell does not keep the others from running; a wrong name is refused.
5. What a run wrote of its episodes is read back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_envs.errors import ConfigError


@pytest.fixture(scope="module")
def results(load_file):
    """The script's module; a script finds what lies beside it, as does the study's summary."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
        yield load_file("benchmarks/results.py")


@pytest.fixture
def cells(results, tmp_path, monkeypatch):
    """The module with an empty folder of cells, three cells and training that takes no time."""
    monkeypatch.setattr(results, "CELLS", tmp_path / "cells")
    three = [results.Cell("GSM8K", "expert"), results.Cell("GSM8K", "grpo", 0), results.Cell("GSM8K", "grpo", 1)]
    monkeypatch.setattr(results, "cells", lambda: three)
    monkeypatch.setattr(results, "play", lambda cell: {"after": {"0": [1, 1.0]}})
    monkeypatch.setattr(results, "train", lambda cell, folder: {"before": {"0": [0, 0.0]}, "after": {"0": [1, 1.0]}})
    return results


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="GSM8KCode needs the sandbox")
def test_committed_cells_are_current(results):
    stale = [str(cell) for cell in results.cells() if cell.path.exists() and results._read(cell) is None]
    assert not stale, "python benchmarks/results.py run, or remove them; then python benchmarks/results.py page"


def test_a_cell_of_other_tasks_or_settings_is_missing(cells, tmp_path):
    cells.run(["GSM8K/grpo/0"], False, tmp_path)
    cell = cells.Cell("GSM8K", "grpo", 0)
    found = cells._read(cell)
    assert found["settings"]["env_kwargs"] == {"level": 1} and found["settings"]["learning_rate"] == 3e-4
    for part in ("panel", "base", "settings"):
        cell.path.write_text(json.dumps(found | {part: "other"}))
        assert cells._read(cell) is None
    cells.run([], False, tmp_path)
    assert cells._read(cell) == found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="GSM8KCode needs the sandbox")
def test_pages_say_what_the_cells_say(results, root):
    old = [path.name for path, text in results.pages() if path.read_text(encoding="utf-8") != text]
    assert not old, "python benchmarks/results.py page"
    played = json.loads(results.Cell("GSM8KTool", "grpo", 0).path.read_text(encoding="utf-8"))["default"]["after"]
    for name in results.HEADS:  # what `make train` reaches on the id's defaults
        text = (root / name).read_text(encoding="utf-8")
        assert (
            f" {results._average(success for success, _ in played.values()):.3f}" in text and str(len(played)) in text
        )


def test_a_page_has_no_lines_for_what_was_not_measured(cells):
    cells.CELLS.mkdir()
    tables = (cells._real_table, cells._estimators_table, cells._default_table)
    assert [list(table()) for table in tables] == [[], [], []]
    row = {"success": 0.25, "low": 0.2, "high": 0.31, "calls": 4.5, "length": 160}
    about = {"env": "AgentR1/HotpotQA-v0", "env_kwargs": {"hops": 2}, "wrappers": ["FormatReward(weight=0.1)"]}
    about |= {"loop": {"warm_start": 200, "demo_noise": 0.3}, "seed": 0, "device": "NVIDIA H100 80GB", "minutes": 9.5}
    about["rows"] = [{"what": "warm start", **row}, {"what": "trained", **row, "calls": 2.0}]
    (cells.CELLS / "smollm2.HotpotQA.0.json").write_text(json.dumps(about))
    success = "0.250 [0.200, 0.310]"
    assert list(cells._real_table())[2:] == [
        "| HotpotQA-v0, `hops=2`, `FormatReward(weight=0.1)` | 200 steps, 30% wrong | 0 |  | "
        f"{success} | {success} | 4.5 → 2.0 | 10, H100 |"
    ]


def test_runs_of_other_tasks_are_not_compared(results):
    values = {str(index): [1, 1.0] for index in range(5)}
    other = {str(index + 100): [1, 1.0] for index in range(5)}
    assert results._compared([{"before": values, "after": values}]).measures["success"].first == 1.0
    with pytest.raises(ConfigError, match="played different panels"):
        results._compared([{"before": values, "after": other}])


def test_a_failed_cell_does_not_keep_the_others_from_running(cells, tmp_path, monkeypatch, capsys):
    train = cells.train

    def fails(cell: Any, folder: Path) -> Any:
        assert folder.is_absolute()
        if cell.seed == 0:
            raise subprocess.CalledProcessError(1, ["agentr1"])
        return train(cell, folder)

    monkeypatch.setattr(cells, "train", fails)
    with pytest.raises(SystemExit, match="failed: GSM8K/grpo/0; run it again"):
        cells.run([], False, Path("runs"))
    assert sorted(path.name for path in cells.CELLS.iterdir()) == ["GSM8K.expert.json", "GSM8K.grpo.1.json"]
    assert "GSM8K/grpo/0: " in capsys.readouterr().err


def test_a_wrong_name_is_refused(cells, tmp_path):
    with pytest.raises(SystemExit, match="there is no cell Nope; there are GSM8K/expert, GSM8K/grpo/0"):
        cells.run(["GSM8K/expert", "Nope"], False, tmp_path)
    assert not cells.CELLS.exists()


def test_values_come_from_the_run_s_files_of_episodes(results, tmp_path, monkeypatch):
    played = results.run_episodes("AgentR1/GSM8K-v0", results.ExpertPolicy(), 3, progress=False)
    values = {"val/success": 1.0, "val/score/mean": 1.0, "val/calls/mean": 0.0, "val/tokens/response_per_episode": 9.0}
    ends = [{"step": step, **values, "env/tokens/processed": 5, "timing_s/step": 2.0} for step in (0, 20)]

    def trained(command, **_):
        (folder := Path(command[-1])).mkdir()
        (folder / "metrics.jsonl").write_text("".join(json.dumps(end) + "\n" for end in ends))
        for part, some in (("a-000000", played[:1]), ("b-000000", played[1:]), ("a-000020", played)):
            write(folder / "episodes" / f"val-{part}.jsonl", some)

    def write(file, episodes):
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(episode.to_dict()) + "\n" for episode in episodes))

    monkeypatch.setattr(results.subprocess, "run", trained)
    monkeypatch.setattr(results, "on_default", lambda cell, folder: {})
    found = results.train(results.Cell("GSM8K", "grpo", 0), tmp_path / "run")
    assert found["before"] == found["after"] == results._values(played) and len(found["after"]) == 3
    assert found["steps"] == 20 and found["cost"] == {"tokens": 5.0, "seconds": 2.0}
