"""Levels in verl's batches.

1. each prompt of a step is played at a level that follows from the seed, the step and the success in the steps before
2. what a checkpoint keeps of it is all that a resumed run needs
3. `agentr1 train --levels` names them, trains on tasks that all levels have, and refuses what does not go with them
"""

from __future__ import annotations

import json

import pytest
from composing import ENV, composed
from verl.utils.tensordict_utils import get_tensordict

from agent_envs.adapters.curriculum import Curriculum
from agent_envs.adapters.verl.batch.columns import Levels
from agent_envs.adapters.verl.batch.metrics import training_metrics
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.adapters.verl.run.tasks import choose_tasks
from agent_envs.cli.main import main
from agent_envs.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore")
LEARNABLE = Curriculum({"level": [1, 2, 4]}, "learnable")


def played(levels: Levels, step: int) -> tuple[list[int], dict[str, float]]:
    """The levels of a step's prompts, of which the first is always solved, the second half, the third never."""
    uids = [f"u{step}-{i}" for i in range(12)]
    batch = get_tensordict({"uid": uids, "env_kwargs": ['{"level": 8, "split": "train"}'] * 12})
    levels.choose(batch, step, 40)
    found = [json.loads(row) for row in batch["env_kwargs"]]
    assert all(row["split"] == "train" for row in found)
    record = {"return": 0.0, "score": 0.0, "num_steps": 1.0, "calls": 0.0, "response_tokens": 1.0, "prompt_tokens": 1.0,
              "cached_tokens": 0.0, "invalid_actions": 0.0, "env": ENV, "stop_reason": "terminated"}  # fmt: skip
    records = [
        {**record, "level": name, "success": row["level"] + session < 3}
        for row, name in zip(found, batch["level"], strict=True) for session in (0, 1)
    ]  # fmt: skip
    metrics = training_metrics([*records, {**records[0], "success": True, "stop_reason": "error"}])
    levels.note(metrics, step)
    return [row["level"] for row in found], metrics


def test_levels_follow_success_and_a_resumed_run_goes_on_exactly() -> None:
    whole = Levels(LEARNABLE, seed=3)
    drawn = [played(whole, step)[0] for step in range(1, 31)]
    last = [level for step in drawn[15:] for level in step]
    assert set(drawn[0]) == {1, 2, 4} and last.count(2) > 0.8 * len(last)
    parts = Levels(LEARNABLE, seed=3)
    for step in range(1, 6):
        _, metrics = played(parts, step)
        assert sum(metrics.get(f"env/level/{level}/episodes", 0.0) for level in (1, 2, 4)) == 24
        assert metrics.get("env/level/2/success", 0.5) == 0.5 and metrics.get("env/level/1/success", 1.0) == 1.0
    resumed = Levels(LEARNABLE, seed=3)
    resumed.records = json.loads(json.dumps(parts.records))  # what the checkpoint has
    assert [played(resumed, step)[0] for step in range(6, 31)] == drawn[5:]


def test_the_command_names_levels_and_trains_on_tasks_that_all_of_them_have(
    tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["train", "--env", ENV, "--out", str(tmp_path / "run"), "--dry-run"]
    assert main([*given, "--levels", '{"level": [1, 2]}', "--curriculum", "learnable"]) == 0
    assert "learnable" in capsys.readouterr().out
    run = composed("++agentr1.levels='{\"split_size\": [40, 30]}'", steps=5)
    levels = read_settings(run.verl()).chosen
    assert levels is not None and levels.names == ["split_size/40", "split_size/30"]
    with pytest.raises(ConfigError, match="split_size"):
        choose_tasks(run.run, tasks_per_step=4, validation_tasks=8, levels=levels)
