"""Training runs with verl's own trainer: real optimiser steps on real rows, a critic, a killed run continued.

Behaviours pinned here:
1. Two steps on released GSM8K rows have a gradient above 0 and change the weights; ALFWorld trains beside GSM8K too.
2. Every file of a run is there, and readable: metrics, episodes with tokens and rewards, the curve, checkpoints.
3. `--algo steppo` trains actor and critic on prefix trees, `--algo remax` plays a greedy episode more per prompt and
   trains over merged rows; `--branch` plays trees, whose shared steps are trained once.
4. A run killed without warning leaves nothing running, and the same command continues it, with one line per step; a
   run with a critic goes on from its last checkpoint too, whose number a kill may have left unwritten.
5. The preset `cpu-llm` computes in bfloat16 where the CPU does, keeps its weights in float32, and says its memory.
6. A run whose worker dies in a phase is stopped, and names the phase; so is one whose environments break too often.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_envs.adapters.tiny.supervised import computes_bfloat16
from agent_envs.adapters.verl.run.folder import read_log
from agent_envs.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.ray]

ENV = "AgentR1/GSM8KTool-v0"
MARK = "AGENT_ENVS_TESTED_BY"
"""In the environment of everything that a test starts."""
# A step of 4 tasks x 4 episodes, 8 held-out tasks: what is tested is the path, not learning.
SMALL = (
    "data.train_batch_size=4",
    "data.val_max_samples=8",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "critic.ppo_mini_batch_size=2",
    "trainer.save_freq=1",
    "trainer.test_freq=100",
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """One model for all runs: it makes calls, some of them right."""
    from agent_envs.adapters.tiny.warm_start import make_warm_model

    folder = tmp_path_factory.mktemp("tiny") / "model"
    make_warm_model(folder, ENV, steps=0, noise=0.0, seed=0)
    return folder


def _train(out: Path, *arguments: str, env: str = ENV) -> int:
    return main(["train", "--env", env, "--out", str(out), *arguments, *SMALL])


def _records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def _weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def _trained_weights(out: Path, step: int) -> dict[str, Any]:
    path = out / "checkpoints" / f"global_step_{step}" / "actor" / "model_world_size_1_rank_0.pt"
    state = torch.load(path, map_location="cpu", weights_only=False)
    return {name: getattr(value, "full_tensor", lambda value=value: value)() for name, value in state.items()}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return any(not torch.equal(before[name], after[name].to(before[name].dtype)) for name in before)


def _check_rewards(record: dict[str, Any], episodes: list[Any]) -> None:
    """What was logged of rewards and GRPO advantages is what the written episodes give."""
    returns = [sum(s.reward for s in e.steps) for e in episodes]
    assert record["critic/rewards/mean"] == pytest.approx(sum(returns) / len(returns), abs=1e-5)
    assert record["env/return/mean"] == pytest.approx(sum(returns) / len(returns), abs=1e-5)
    per_token = []
    for e, total in zip(episodes, returns, strict=True):
        group = torch.tensor([r for o, r in zip(episodes, returns, strict=True) if o.group_id == e.group_id])
        assert len(group) == 4
        advantage = (total - group.mean()) / (group.std() + 1e-6)
        per_token += [float(advantage)] * sum(len(s.response_ids) for s in e.steps)
    advantages = torch.tensor(per_token)
    assert float(advantages.abs().max()) > 0.1
    for name in ("mean", "max", "min"):
        assert record[f"critic/advantages/{name}"] == pytest.approx(float(getattr(advantages, name)()), abs=1e-4), name


@pytest.fixture
def no_ray_left(monkeypatch):
    monkeypatch.setenv(MARK, str(os.getpid()))  # other runs on this machine are none of ours
    yield
    deadline = time.monotonic() + 30
    while (left := _ray_processes()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left, f"still running: {left}"


def _ray_processes() -> set[int]:
    """Processes of clusters that a test began, in folders as `agentr1 train` makes them."""
    ours, found = f"\0{MARK}={os.getpid()}\0".encode(), set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = b"\0" + path.read_bytes()
            if ours in environment and re.search(rb"\0RAY_TMPDIR=[^\0]*/agentr1-", environment):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_language_models_preset_trains_in_the_cpus_precision(tiny_model, tmp_path, no_ray_left, capsys):
    out = tmp_path / "run"
    command = ("--preset", "cpu-llm", "--model", str(tiny_model), "--steps", "1", "--warm-start", "0")
    assert _train(out, *command, "trainer.val_before_train=False") == 0
    assert "memory: about 4." in capsys.readouterr().err
    record = _records(out)[-1]
    assert record["actor/grad_norm"] > 0 and record["actor/ratio/mean"] == pytest.approx(1, abs=0.02)
    kind = torch.bfloat16 if computes_bfloat16(torch.device("cpu")) else torch.float32
    assert f"param_dtype: {str(kind).removeprefix('torch.')}" in next(out.glob("starts/*.yaml")).read_text()
    assert {weights.dtype for weights in _trained_weights(out, 1).values()} == {torch.float32}
    assert _changed(_weights(tiny_model), _trained_weights(out, 1))


def test_groups_branch(tiny_model, tmp_path, no_ray_left):
    from agent_envs import read_episodes

    out = tmp_path / "run"
    command = ("--steps", "2", "--algo", "rloo", "--branch", "1-2:1", "--model", str(tiny_model))
    assert _train(out, *command, "--wrapper", "StepPenalty(penalty=0.1)", "--env-kwargs", '{"level": 2}') == 0
    for record in _records(out)[1:]:
        episodes = list(read_episodes(out / "episodes" / f"train-{record['step']:06d}.jsonl"))
        assert record["env/episodes"] == len(episodes) > 8 and record["actor/grad_norm"] > 0
        groups: dict[str, dict[int, Any]] = {}
        for episode in episodes:
            groups.setdefault(episode.group_id, {})[int(episode.episode_id.rpartition("_")[2])] = episode
        assert len(groups) == 4 and all({0, 2} <= set(group) <= {0, 1, 2, 3} for group in groups.values())
        branched = 0
        for trunk, other in ((group[i], group[i + 1]) for group in groups.values() for i in (0, 2) if i + 1 in group):
            own = [step.info.get("response_mask") is not None for step in other.steps]
            shared = own.index(True)  # what is shared is trained as the trunk's, which begins alike
            assert all(own[shared:]) and 1 <= shared <= 2 and all(s.info["response_mask"] for s in trunk.steps)
            same = [(s.prompt_ids, s.response_ids) for s in trunk.steps[:shared]]
            assert same == [(s.prompt_ids, s.response_ids) for s in other.steps[:shared]]
            branched += 1
        # one more group for each state; a trunk that ended before has none
        assert branched and record["env/groups_compared"] == 4 + branched


def test_two_steps_on_released_rows_train(tiny_model, data_dir, tmp_path, no_ray_left, capsys):
    from agent_envs import read_episodes

    out = tmp_path / "run"
    rows = data_dir / "gsm8k" / "train_2000.jsonl"
    # the model solves next to none of them, but its episodes differ in length
    command = ("--data", str(rows), "--steps", "2", "--model", str(tiny_model), "--wrapper", "StepPenalty(penalty=0.1)")
    assert _train(out, *command) == 0
    records = _records(out)
    assert [r["step"] for r in records] == [0, 1, 2]
    assert all(r["actor/grad_norm"] > 0 for r in records[1:])
    assert all(r["val/episodes"] == 8 for r in (records[0], records[2]))
    assert _changed(_weights(tiny_model), _trained_weights(out, 2))
    for name in ("train-000001.jsonl", "train-000002.jsonl", "validation-000000.jsonl", "validation-000002.jsonl"):
        episodes = list(read_episodes(out / "episodes" / name))
        assert len(episodes) == (16 if name.startswith("train") else 8)
        assert all(e.reset_info["source"] == str(rows.resolve()) for e in episodes)
        assert all(len(s.response_ids or ()) == len(s.response_logprobs or ()) > 0 for e in episodes for s in e.steps)
    for record in records[1:]:
        _check_rewards(record, list(read_episodes(out / "episodes" / f"train-{record['step']:06d}.jsonl")))
    held_out = {e.index for e in read_episodes(out / "episodes" / "validation-000002.jsonl")}
    trained = {e.index for k in (1, 2) for e in read_episodes(out / "episodes" / f"train-00000{k}.jsonl")}
    assert not held_out & trained
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "on 8 held-out tasks" in said and str(out / "curve.png") in said
    assert _train(out, *command) == 0  # done: nothing is trained
    assert _records(out) == records


def test_a_critic_trains_on_prefix_trees_and_goes_on(tiny_model, tmp_path, no_ray_left):
    out = tmp_path / "run"
    command = ("--algo", "steppo", "--model", str(tiny_model), "--seed", "3")
    assert _train(out, *command, "--steps", "2") == 0
    records = _records(out)
    assert _changed(_weights(tiny_model), _trained_weights(out, 2))
    assert (out / "checkpoints" / "global_step_2" / "agentr1.json").is_file()
    assert [record["step"] for record in records] == [0, 1, 2]
    for record in records[1:]:
        assert record["actor/grad_norm"] > 0 and record["critic/grad_norm"] > 0
        assert record["env/merge_factor"] > 1.5 and record["env/episodes"] == 16  # trees are the default on a CPU
        assert math.isfinite(record["critic/vf_loss"]) and record["critic/vf_loss"] >= 0
        assert record["actor/ratio/moved"] > 0
    (out / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("")  # as a kill in the middle of a save does
    assert _train(out, *command, "--steps", "3") == 0
    assert [record["step"] for record in _records(out)] == [0, 1, 2, 3] and _records(out)[3]["critic/grad_norm"] > 0
    assert {record["step"] for record in read_log(out / "starts" / "001-from-2.jsonl")[0]} == {3}
    assert {path.name for path in (out / "episodes").glob("train-*")} == {f"train-00000{n}.jsonl" for n in (1, 2, 3)}


def test_a_greedy_baseline_over_merged_rows(tiny_model, tmp_path, no_ray_left):
    out = tmp_path / "run"
    merged = ("--algo", "remax", "--steps", "2", "--model", str(tiny_model), "+agentr1.layout=merged")
    assert _train(out, *merged) == 0
    records = _records(out)
    assert [r["step"] for r in records] == [0, 1, 2]
    assert _changed(_weights(tiny_model), _trained_weights(out, 2))
    for record in records[1:]:
        assert record["actor/grad_norm"] > 0 and record["env/baselines_missing"] == 0
        assert record["env/merge_factor"] > 0.999 and record["env/episodes"] == 16  # greedy episodes are not among them


def test_a_killed_run_continues(tiny_model, tmp_path, no_ray_left, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "cache"))  # where the converted checkpoint is kept
    out = tmp_path / "run"
    arguments = ["train", "--env", ENV, "--out", str(out), "--model", str(tiny_model), *SMALL]
    latest = out / "checkpoints" / "latest_checkpointed_iteration.txt"
    said = tmp_path / "said.txt"
    with said.open("w") as stderr:  # of so many steps that it cannot end before it is killed
        command = [sys.executable, "-m", "agent_envs", *arguments, "--steps", "1000"]
        process = subprocess.Popen(command, stderr=stderr)
    deadline = time.monotonic() + 300
    while not (latest.exists() and latest.read_text() >= "2") and time.monotonic() < deadline:
        assert process.poll() is None, said.read_text()
        time.sleep(0.05)
    assert _ray_processes()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while _ray_processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    saved = int(latest.read_text())
    assert saved >= 2
    assert main([*arguments, "--steps", str(saved + 2)]) == 0
    assert [r["step"] for r in _records(out)] == list(range(saved + 3))
    assert int(latest.read_text()) == saved + 2
    starts = sorted(path.name for path in (out / "starts").glob("*.jsonl"))
    assert starts == ["000-from-0.jsonl", f"001-from-{saved}.jsonl"]
    assert not list(out.rglob("*.partial"))
    evaluate = ["eval", "--env", ENV, "--checkpoint", str(out), "--device", "cpu", "--max-tokens", "16", "--n", "4"]
    assert main([*evaluate, "--out", str(tmp_path / "eval"), "--quiet"]) == 0
    episodes = [json.loads(line) for line in (tmp_path / "eval" / "episodes.jsonl").read_text().splitlines()]
    assert len(episodes) == 4 and all(e["error"] is None and e["steps"] for e in episodes)


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """A module of faulty wrappers, which every process of a run finds."""
    (tmp_path / "faulty.py").write_text(
        "import os, signal\n"
        "import gymnasium as gym\n"
        "from agent_envs.errors import BackendDownError\n"
        "class Faulty(gym.Wrapper):\n"
        "    episodes = 0\n"
        "    def reset(self, **how):\n"
        "        Faulty.episodes += 1\n"
        "        self.number = Faulty.episodes\n"
        "        return self.env.reset(**how)\n"
        "class Down(Faulty):\n"
        "    def step(self, action):\n"
        "        if self.number % 3 == 0:\n"
        "            raise BackendDownError('no search server answers')\n"
        "        return self.env.step(action)\n"
        "class Still(Faulty):\n"
        "    def step(self, action):\n"
        "        if self.number == 5:\n"
        "            os.kill(os.getpid(), signal.SIGSTOP)\n"
        "        return self.env.step(action)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return "faulty"


def test_a_worker_that_stands_still_is_noticed_by_its_phase(tiny_model, tmp_path, no_ray_left, capsys, faulty):
    """Nothing else would notice: verl waits for its episodes for ever."""
    out = tmp_path / "run"
    settings = ["--wrapper", f"{faulty}:Still", "trainer.val_before_train=False", "+agentr1.stall_timeout=30"]
    assert _train(out, "--steps", "2", "--model", str(tiny_model), *settings) == 1
    said = capsys.readouterr().err
    assert "verl has been generating (step 1) for" in said and str(out / "train.log") in said
    assert not (out / "phase.json").exists()


def test_environments_that_break_too_often_stop_a_run(tiny_model, tmp_path, no_ray_left, capsys, faulty):
    out = tmp_path / "run"
    settings = ["--wrapper", f"{faulty}:Down", "trainer.val_before_train=False"]
    assert _train(out, "--steps", "9", "--model", str(tiny_model), *settings) == 1
    said = capsys.readouterr().err
    assert "episodes of the last 3 steps broke, and 20% are allowed" in said and str(out / "train.log") in said
    log = (out / "train.log").read_text()
    assert "BackendDownError: no search server answers" in log
    records = _records(out)
    assert [r["step"] for r in records] == [1, 2]  # the third step stops the run before it trains
    assert all(r["env/broken/BackendDownError"] == r["env/broken"] > 0 for r in records)


def test_two_environments_train_in_one_run(tmp_path, tiny_model):
    house, out = "AgentR1/ALFWorld-v0", tmp_path / "run"
    given = ("--env", f"{house}=0.5", "--steps", "1", "--model", str(tiny_model))
    assert _train(out, *given, "run.validation_tasks=8", "trainer.test_freq=1", env=f"{ENV}=0.5") == 0
    records = _records(out)
    for name in ("GSM8KTool-v0", "ALFWorld-v0"):
        assert records[-1][f"env/{name}/episodes"] == 8 and 0 <= records[-1][f"env/{name}/success"] <= 1
    assert {"val/GSM8KTool-v0/validation/success", "val/ALFWorld-v0/valid_seen/success"} <= records[-1].keys()
