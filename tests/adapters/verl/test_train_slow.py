"""Training runs with verl's own trainers: real optimiser steps on real rows, stopped, killed and continued.

Behaviours pinned here:
1. Two steps on released GSM8K rows have a gradient above 0 and change the weights. Without lookahead, asynchronous
   training is the synchronous one: the same tokens, the same weights up to rounding.
2. Every file of a run is there, and readable: metrics, episodes with tokens and rewards, the curve, checkpoints.
3. With the preset `cpu-llm` two environments share a run whose groups branch: what the trees share is trained once. It
   computes in bfloat16 where the CPU does, keeps its weights in float32, and says its memory.
4. A run that is killed without warning leaves nothing running. Started again, it trains every prompt once: with
   lookahead, update s trains the prompts of batch s, and no token is older than the lookahead.
5. A run whose environments break too often is stopped. The same command continues it, with a critic and on prefix
   trees, from its last whole checkpoint, whose number a kill may have left unwritten: one line per step.
6. With devices of its own for generation, a step's two updates train its prompts in order, and lose no record.
7. A run whose worker stands still is stopped, and names the phase.
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

import pyarrow.parquet as pq
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


def _trained(out: Path) -> list[list[Any]]:
    """The episodes of each update."""
    from agent_envs import read_episodes

    return [list(read_episodes(path)) for path in sorted((out / "episodes").glob("train-*.jsonl"))]


def _check_tasks(out: Path, steps: int) -> None:
    """Each update trained a batch of the rows that verl read, in their order."""
    indices = [row["index"] for row in pq.read_table(out / "data" / "train.parquet")["extra_info"].to_pylist()]
    batches = [sorted(4 * indices[begin : begin + 4]) for begin in range(0, 4 * steps, 4)]
    assert [sorted(episode.index for episode in step) for step in _trained(out)] == batches


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


def test_a_language_models_preset_trains_two_environments_whose_groups_branch(
    tiny_model, tmp_path, no_ray_left, capsys
):
    house, out = "AgentR1/ALFWorld-v0", tmp_path / "run"
    own = {ENV: {"level": 2}, house: {"size": 1, "max_episode_steps": 4}}
    command = ["--preset", "cpu-llm", "--model", str(tiny_model), "--env", f"{house}=1", "--steps", "2"]
    command += ["--algo", "rloo", "--branch", "1-2:1", "--wrapper", "StepPenalty(penalty=0.1)"]
    command += ["--env-kwargs", json.dumps(own)]
    settings = ("run.validation_tasks=8", "trainer.val_before_train=False")
    assert _train(out, *command, *settings, env=f"{ENV}=3") == 0
    assert "memory: about 4." in capsys.readouterr().err
    kind = torch.bfloat16 if computes_bfloat16(torch.device("cpu")) else torch.float32
    assert f"param_dtype: {str(kind).removeprefix('torch.')}" in next(out.glob("starts/*.yaml")).read_text()
    assert {weights.dtype for weights in _trained_weights(out, 2).values()} == {torch.float32}
    assert _changed(_weights(tiny_model), _trained_weights(out, 2))
    records = _records(out)
    assert {"val/GSM8KTool-v0/validation/success", "val/ALFWorld-v0/valid_seen/success"} <= records[-1].keys()
    for record, episodes in zip(records, _trained(out), strict=True):
        assert record["actor/grad_norm"] > 0 and record["actor/ratio/mean"] == pytest.approx(1, abs=0.02)
        assert record["env/episodes"] == len(episodes) > 8
        for env_id in (ENV, house):
            name = env_id.partition("/")[2]
            assert record[f"env/{name}/episodes"] == sum(episode.env_id == env_id for episode in episodes) > 0
            assert 0 <= record[f"env/{name}/success"] <= 1
        groups: dict[str, dict[int, Any]] = {}
        for episode in episodes:
            groups.setdefault(episode.group_id, {})[int(episode.episode_id.rpartition("_")[2])] = episode
        assert len(groups) == 4 and all({0, 2} <= set(group) <= {0, 1, 2, 3} for group in groups.values())
        branched = 0
        for trunk, other in ((group[i], group[i + 1]) for group in groups.values() for i in (0, 2) if i + 1 in group):
            own_steps = [step.info.get("response_mask") is not None for step in other.steps]
            shared = own_steps.index(True)  # what is shared is trained as the trunk's, which begins alike
            assert all(own_steps[shared:]) and 1 <= shared <= 2 and all(s.info["response_mask"] for s in trunk.steps)
            same = [(s.prompt_ids, s.response_ids) for s in trunk.steps[:shared]]
            assert same == [(s.prompt_ids, s.response_ids) for s in other.steps[:shared]]
            branched += 1
        # one more group for each state; a trunk that ended before has none
        assert branched and record["env/groups_compared"] == 4 + branched


def test_two_steps_on_released_rows_train_and_are_the_same_without_lookahead(
    tiny_model, data_dir, tmp_path, no_ray_left, capsys
):
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
    for record, episodes in zip(records[1:], _trained(out), strict=True):
        _check_rewards(record, episodes)
    _check_tasks(out, 2)
    held_out = {e.index for e in read_episodes(out / "episodes" / "validation-000002.jsonl")}
    assert not held_out & {e.index for episodes in _trained(out) for e in episodes}
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "on 8 held-out tasks" in said and str(out / "curve.png") in said
    assert _train(out, *command) == 0  # done: nothing is trained
    assert _records(out) == records

    ahead = tmp_path / "ahead"  # whose layout is merged rows, and not trees
    assert _train(ahead, *command, "agentr1.mode=colocate", "agentr1.lookahead=0") == 0
    for ours, theirs in zip(_trained(ahead), _trained(out), strict=True):
        responses = [sorted((e.index, [s.response_ids for s in e.steps]) for e in step) for step in (ours, theirs)]
        assert responses[0] == responses[1]
    for step in (1, 2):
        after = _trained_weights(out, step)
        for name, value in _trained_weights(ahead, step).items():
            assert torch.allclose(value, after[name], atol=2e-5), name  # a step is 3e-4
    for ours, theirs in zip(_records(ahead)[1:], records[1:], strict=True):
        assert ours["actor/grad_norm"] == pytest.approx(theirs["actor/grad_norm"], rel=1e-3)
        assert ours["critic/rewards/mean"] == theirs["critic/rewards/mean"]
        assert ours["env/async/staleness/max"] == 0.0 and ours["env/merge_factor"] > 1


def test_a_killed_run_leaves_nothing_running_and_trains_every_prompt_once(
    tiny_model, tmp_path, no_ray_left, monkeypatch
):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "cache"))  # where the converted checkpoint is kept
    out = tmp_path / "run"
    arguments = ["train", "--env", ENV, "--out", str(out), "--model", str(tiny_model), "--steps", "5", *SMALL]
    arguments += ["agentr1.mode=colocate", "agentr1.lookahead=2"]
    latest = out / "checkpoints" / "latest_checkpointed_iteration.txt"
    said = tmp_path / "said.txt"
    with said.open("w") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "agent_envs", *arguments], stderr=stderr)
    deadline = time.monotonic() + 400
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
    assert 2 <= saved < 5
    assert main(arguments) == 0
    records = _records(out)
    assert [r["step"] for r in records] == list(range(6)) and int(latest.read_text()) == 5
    starts = sorted(path.name for path in (out / "starts").glob("*.jsonl"))
    assert starts == ["000-from-0.jsonl", f"001-from-{saved}.jsonl"]
    assert not list(out.rglob("*.partial"))
    _check_tasks(out, 5)
    names = [episode.episode_id for step in _trained(out) for episode in step]
    assert len(set(names)) == len(names) == 16 * 5
    # a kill may come between a step's checkpoint and its line of metrics
    trained = [record for record in records[1:] if "env/async/staleness/max" in record]
    assert len(trained) >= 4
    lags = [record["env/async/staleness/max"] for record in trained]
    assert lags[0] == 0.0 and max(lags) == 2.0
    assert all(record["rollout_corr/rollout_is_mean"] > 0.5 for record in trained)
    evaluate = ["eval", "--env", ENV, "--checkpoint", str(out), "--device", "cpu", "--max-tokens", "16", "--n", "4"]
    assert main([*evaluate, "--out", str(tmp_path / "eval"), "--quiet"]) == 0
    episodes = [json.loads(line) for line in (tmp_path / "eval" / "episodes.jsonl").read_text().splitlines()]
    assert len(episodes) == 4 and all(e["error"] is None and e["steps"] for e in episodes)


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """A module of faulty wrappers, which every process of a run finds."""
    (tmp_path / "faulty.py").write_text(
        "import os, signal\n"
        "from pathlib import Path\n"
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
        "        if self.number % 3 == 0 and not Path(__file__).with_name('mended').exists():\n"
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


def test_environments_that_break_too_often_stop_a_run_which_goes_on_with_its_critic_and_trees(
    tiny_model, tmp_path, no_ray_left, capsys, faulty
):
    out = tmp_path / "run"
    command = ["--steps", "4", "--algo", "steppo", "--seed", "3", "--model", str(tiny_model)]
    command += ["--wrapper", f"{faulty}:Down", "trainer.val_before_train=False"]
    assert _train(out, *command) == 1
    said = capsys.readouterr().err
    assert "episodes of the last 3 steps broke, and 20% are allowed" in said and str(out / "train.log") in said
    assert "BackendDownError: no search server answers" in (out / "train.log").read_text()
    records = _records(out)
    assert [r["step"] for r in records] == [1, 2]  # the third step stops the run before it trains
    assert all(r["env/broken/BackendDownError"] == r["env/broken"] > 0 for r in records)
    latest = out / "checkpoints" / "latest_checkpointed_iteration.txt"
    assert int(latest.read_text()) == 2
    latest.write_text("")  # as a kill in the middle of a save does
    (tmp_path / "mended").touch()
    assert _train(out, *command) == 0
    records = _records(out)
    assert [r["step"] for r in records] == [1, 2, 3, 4]
    assert {record["step"] for record in read_log(out / "starts" / "001-from-2.jsonl")[0]} == {3, 4}
    assert len(_trained(out)) == 4
    for record in records:
        assert record["actor/grad_norm"] > 0 and record["critic/grad_norm"] > 0 and record["actor/ratio/moved"] > 0
        assert math.isfinite(record["critic/vf_loss"]) and record["critic/vf_loss"] >= 0
    for record in records[2:]:
        assert record["env/merge_factor"] > 1.5 and record["env/episodes"] == 16  # trees are the default on a CPU
    assert _changed(_weights(tiny_model), _trained_weights(out, 4))
    assert (out / "checkpoints" / "global_step_4" / "agentr1.json").is_file()


def test_two_updates_of_a_step_train_all_of_it_on_devices_of_their_own(tiny_model, tmp_path):
    out = tmp_path / "run"
    command = ("--steps", "3", "--model", str(tiny_model), "trainer.val_before_train=False")
    assert _train(out, *command, "agentr1.mode=separate", "agentr1.lookahead=1") == 0
    _check_tasks(out, 3)
    records = _records(out)
    for record, episodes in zip(records, _trained(out), strict=True):
        assert record["env/episodes"] == len(episodes) == 16
        assert record["env/trained_steps"] == sum(len(episode.steps) for episode in episodes)
        assert record["actor/ratio/moved"] > 0  # of the second update, against weights from before the first
    assert [record["env/async/staleness/max"] for record in records] == [0.0, 1.0, 1.0]
    assert _changed(_trained_weights(out, 1), _trained_weights(out, 3))
