"""Whole runs of the other trainers, beside a synchronous one: what an update trains, how old it is, what a kill costs.

Behaviours pinned here:
1. Without lookahead, asynchronous training is the synchronous one: the same tokens, the same weights up to rounding.
2. With lookahead, update s trains the prompts that synchronous training trains in update s, and no token is older than
   the lookahead.
3. A run that is killed and started again trains every prompt once.
4. With devices of its own for generation, a step's two updates train its prompts in order, and lose no record.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_envs.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.ray]

STEPS = 5
SMALL = (
    "data.train_batch_size=4",
    "data.val_max_samples=8",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "trainer.save_freq=1",
    "trainer.test_freq=100",
)


def arguments(out: Path, steps: int, *more: str) -> list[str]:
    return ["train", "--env", "AgentR1/GSM8KTool-v0", "--out", str(out), "--steps", str(steps), *SMALL, *more]


def episodes(out: Path) -> list[list[dict[str, Any]]]:
    """The episodes of each update."""
    files = sorted((out / "episodes").glob("train-*.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]


def tasks(out: Path) -> list[list[int]]:
    """The tasks of each update, one for each episode."""
    return [sorted(episode["index"] for episode in step) for step in episodes(out)]


def responses(step: list[dict[str, Any]]) -> list[tuple[int, list[Any]]]:
    """The task and the responses' tokens of each episode of an update."""
    return sorted((episode["index"], [each["response_ids"] for each in episode["steps"]]) for episode in step)


def advantages(step: list[dict[str, Any]]) -> list[tuple[int, list[Any]]]:
    """The task and the advantages of the responses' tokens of each episode of an update."""
    return sorted(
        (episode["index"], [x for each in episode["steps"] for x in each["info"]["response_advantages"]])
        for episode in step
    )


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights(out: Path, step: int) -> dict[str, Any]:
    path = out / "checkpoints" / f"global_step_{step}" / "actor" / "model_world_size_1_rank_0.pt"
    state = torch.load(path, map_location="cpu", weights_only=False)
    return {name: value.to_local() if hasattr(value, "to_local") else value for name, value in state.items()}


@pytest.fixture(scope="module")
def synchronous(tmp_path_factory):
    out = tmp_path_factory.mktemp("sync") / "run"
    assert main(arguments(out, STEPS)) == 0
    return out


def test_without_lookahead_it_is_synchronous_training(synchronous, tmp_path):
    out = tmp_path / "run"
    assert main(arguments(out, 2, "agentr1.mode=colocate", "agentr1.lookahead=0")) == 0
    for ours, theirs in zip(episodes(out), episodes(synchronous)[:2], strict=True):
        assert responses(ours) == responses(theirs)
    for step in (1, 2):
        after = weights(synchronous, step)
        for name, value in weights(out, step).items():
            assert torch.allclose(value, after[name], atol=2e-5), name  # a step is 3e-4
    for ours, theirs in zip(records(out)[1:], records(synchronous)[1:], strict=False):
        assert ours["actor/grad_norm"] == pytest.approx(theirs["actor/grad_norm"], rel=1e-3)
        assert ours["critic/rewards/mean"] == theirs["critic/rewards/mean"]
    assert [r["env/async/staleness/max"] for r in records(out)[1:]] == [0.0, 0.0]


def test_a_killed_run_trains_every_prompt_once_and_in_order(synchronous, tmp_path):
    out = tmp_path / "run"
    command = arguments(out, STEPS, "agentr1.mode=colocate", "agentr1.lookahead=2")
    latest = out / "checkpoints" / "latest_checkpointed_iteration.txt"
    with (tmp_path / "said.txt").open("w") as said:
        process = subprocess.Popen([sys.executable, "-m", "agent_envs", *command], stderr=said)
    deadline = time.monotonic() + 400
    while not (latest.exists() and latest.read_text() >= "2") and time.monotonic() < deadline:
        assert process.poll() is None, (tmp_path / "said.txt").read_text()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    saved = int(latest.read_text())
    assert 2 <= saved < STEPS
    assert main(command) == 0
    assert [r["step"] for r in records(out)] == list(range(STEPS + 1))
    assert tasks(out) == tasks(synchronous)
    names = [[episode["episode_id"] for episode in step] for step in episodes(out)]
    assert len({name for step in names for name in step}) == sum(map(len, names)) == 16 * STEPS
    # a kill may come between a step's checkpoint and its line of metrics
    trained = [record for record in records(out)[1:] if "env/async/staleness/max" in record]
    assert len(trained) >= STEPS - 1
    lags = [record["env/async/staleness/max"] for record in trained]
    assert lags[0] == 0.0 and max(lags) == 2.0
    assert all(record["rollout_corr/rollout_is_mean"] > 0.5 for record in trained)


def test_two_updates_of_a_step_train_all_of_it_on_devices_of_their_own(synchronous, tmp_path):
    out = tmp_path / "run"
    assert main(arguments(out, 3, "agentr1.mode=separate", "agentr1.lookahead=1")) == 0
    assert tasks(out) == tasks(synchronous)[:3]
    for ours, theirs in zip(records(out)[1:], records(synchronous)[1:], strict=False):
        assert ours["env/episodes"] == theirs["env/episodes"] == 16
        assert ours["env/trained_steps"] == sum(len(each["steps"]) for each in episodes(out)[int(ours["step"]) - 1])
        assert ours["actor/ratio/moved"] > 0  # of the second update, against weights from before the first
    assert [record["env/async/staleness/max"] for record in records(out)[1:]] == [0.0, 1.0, 1.0]
    first, last = weights(out, 1), weights(out, 3)
    assert any(not torch.equal(first[name], last[name]) for name in first)
