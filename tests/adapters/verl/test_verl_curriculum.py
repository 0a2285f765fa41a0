"""Levels in verl's batches.

1. each prompt of a step is played at a level that follows from the seed, the step and the success in the steps before
2. what a checkpoint keeps of it is all that a resumed run needs
3. `agentr1 train --levels` names them, trains on tasks that all levels have, and refuses what does not go with them
"""

from __future__ import annotations

import json
import warnings

import pytest

pytest.importorskip("torch")
with warnings.catch_warnings():  # verl warns of every engine that is not installed
    warnings.simplefilter("ignore")
    pytest.importorskip("verl")
    from verl.utils.tensordict_utils import get_tensordict

    from agent_envs.adapters.verl.batch.levels import Levels
    from agent_envs.adapters.verl.batch.metrics import BatchPart

from composing import ENV, composed

from agent_envs.adapters.curriculum import Curriculum
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
    rows = [
        {
            "kind": "step", "trajectory": f"{uid}_{session}",
            "record": {"success": row["level"] + session < 3, "stop_reason": "terminated"},
        }
        for uid, row in zip(uids, found, strict=True) for session in (0, 1)
    ]  # fmt: skip
    broken = {**rows[0], "trajectory": f"{uids[0]}_2",
              "record": {"success": True, "stop_reason": "error"}}  # fmt: skip
    metrics = levels.note([BatchPart([*rows, broken, {"kind": "padding"}], [], [], 0, None, [])], step)
    return [row["level"] for row in found], metrics


def test_levels_follow_success_and_a_resumed_run_goes_on_exactly() -> None:
    whole = Levels(LEARNABLE, seed=3)
    drawn = [played(whole, step)[0] for step in range(1, 31)]
    last = [level for step in drawn[15:] for level in step]
    assert set(drawn[0]) == {1, 2, 4} and last.count(2) > 0.8 * len(last)
    parts = Levels(LEARNABLE, seed=3)
    for step in range(1, 6):
        _, metrics = played(parts, step)
        assert sum(v for name, v in metrics.items() if name.endswith("/episodes")) == 24
        assert metrics.get("env/level/2/success", 0.5) == 0.5 and metrics.get("env/level/1/success", 1.0) == 1.0
    resumed = Levels(LEARNABLE, seed=3)
    resumed.records = json.loads(json.dumps(parts.records))  # what the checkpoint has
    assert [played(resumed, step)[0] for step in range(6, 31)] == drawn[5:]


def test_no_levels_change_nothing() -> None:
    batch = get_tensordict({"uid": ["u"], "env_kwargs": ['{"level": 8}']})
    none = Levels(None, seed=0)
    none.choose(batch, 1, 2)
    assert list(batch["env_kwargs"]) == ['{"level": 8}'] and none.note([], 1) == {} and none.records == []


def test_the_command_names_levels_and_trains_on_tasks_that_all_of_them_have(
    tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["train", "--env", ENV, "--out", str(tmp_path / "run"), "--dry-run"]
    assert main([*given, "--levels", '{"level": [1, 2]}', "--curriculum", "learnable"]) == 0
    assert "learnable" in capsys.readouterr().out
    for wrong, message in (
        (["--curriculum", "fixed"], "chooses among levels: add agentr1.levels"),
        (["--levels", '{"level": 1}'], "levels are several different values of one argument"),
        (
            ["--levels", '{"level": [1, 2]}', "algorithm.filter_groups.enable=True"],
            "agentr1.levels needs the episodes of all groups",
        ),
        (["--levels", '{"level": [1, 2]}', "+agentr1.mode=colocate"], "agentr1.levels needs agentr1.mode=sync"),
    ):
        assert main([*given, *wrong]) != 0
        assert message in capsys.readouterr().err
    with pytest.raises(ConfigError, match="from one --env"):
        composed("++agentr1.levels='{\"level\": [1, 2]}'", env=[f"{ENV}=1", "AgentR1/GSM8K-v0=1"])
    run = composed("++agentr1.levels='{\"split_size\": [40, 30]}'", steps=5)
    levels = read_settings(run.verl()).chosen
    assert levels is not None and levels.names == ["split_size/40", "split_size/30"]
    with pytest.raises(ConfigError, match="split_size"):
        choose_tasks(run.run, tasks_per_step=4, validation_tasks=8, levels=levels)
