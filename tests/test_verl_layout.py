"""Rows, layout, sampling settings, episode rows and files of the verl adapter: what needs neither verl nor a
model.

1. every row is laid out once; mini-batches hold whole trajectories, equally many; their number does not
   depend on lengths
2. an episode's rows: per-step rewards, a value row first, broken and empty episodes masked
3. sampling settings: verl's dictionary is read, what is not implemented is refused
4. dataset rows and files appear whole
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from agent_envs.adapters.verl.episode_files import episode_path, write_lines
from agent_envs.adapters.verl.episode_metrics import training_metrics, validation_metrics
from agent_envs.adapters.verl.episode_rows import episode_record, episode_rows
from agent_envs.adapters.verl.layout import plan_layout
from agent_envs.adapters.verl.rows import make_rows, write_rows
from agent_envs.episode import Episode, Step, StopReason
from agent_envs.errors import ConfigError


@pytest.mark.parametrize(("ranks", "mini_batches", "multiple"), [(1, 1, 1), (1, 2, 1), (2, 4, 1), (2, 2, 8), (3, 1, 4)])
def test_layout_keeps_every_row_and_whole_trajectories(ranks, mini_batches, multiple):
    rng = np.random.default_rng(ranks + mini_batches)
    trajectories = [t for t in range(37) for _ in range(int(rng.integers(1, 11)))]
    lengths = rng.integers(5, 300, len(trajectories)).tolist()
    layout = plan_layout(trajectories, lengths, mini_batches=mini_batches, ranks=ranks, row_multiple=multiple)
    rows = [row for row in layout.order if row is not None]
    assert sorted(rows) == list(range(len(trajectories)))
    assert layout.mini_batches == mini_batches
    assert layout.rows_per_part % multiple == 0
    assert len(layout.order) == ranks * mini_batches * layout.rows_per_part
    home: dict[int, set[int]] = {}
    for position, row in enumerate(layout.order):
        if row is not None:
            home.setdefault(trajectories[row], set()).add(layout.mini_batch_of(position, mini_batches))
    assert all(len(batches) == 1 for batches in home.values())
    counts = np.bincount([next(iter(b)) for b in home.values()], minlength=mini_batches)
    assert counts.max() - counts.min() <= 1
    assert len(layout.order) - len(rows) < ranks * mini_batches * (multiple + 10)  # little padding


def test_layout_order_within_a_part_is_longest_first():
    layout = plan_layout([0, 1, 2, 3], [5, 9, 7, 1], mini_batches=1, ranks=1, row_multiple=3)
    assert layout.order == (1, 2, 0, 3, None, None)


def test_layout_with_fewer_trajectories_than_mini_batches():
    layout = plan_layout([0, 0, 1, 2], [1, 1, 1, 1], mini_batches=4, ranks=1)
    assert layout.mini_batches == 1
    coarse = plan_layout(list(range(8)), [1] * 8, mini_batches=4, ranks=2)
    assert [coarse.mini_batch_of(i, 2) for i in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]


def make_episode(steps, stop_reason, error=None):
    return Episode("Toy-v0", "e", "g", 1, 0, "", (), {}, tuple(steps), "the end", stop_reason, error=error)


def make_step(i, reward, *, terminated=False, truncated=False, success=False):
    return Step(
        f"o{i}", f"a{i}", reward, terminated, truncated, {"success": success, "invalid_action": i == 0},
        prompt_ids=tuple(range(3 + i)), response_ids=(7, 8), response_logprobs=(-0.5, -0.25),
    )  # fmt: skip


def test_rows_of_a_terminated_episode():
    episode = make_episode(
        [make_step(0, 0.25), make_step(1, 1.0, terminated=True, success=True)], StopReason.TERMINATED
    )
    rows = episode_rows(episode, filler_id=2, final_prompt_ids=[1, 2])
    assert [(r.kind, r.step_index, r.reward, r.response_mask) for r in rows] == [
        ("step", 0, 0.25, [1, 1]),
        ("step", 1, 1.0, [1, 1]),
    ]
    assert rows[1].prompt_ids == [0, 1, 2, 3]
    assert rows[1].response_logprobs == [-0.5, -0.25]


def test_value_row_of_a_cut_episode_comes_first():
    episode = make_episode([make_step(0, 0.5, truncated=True)], StopReason.TRUNCATED)
    value, step = episode_rows(episode, filler_id=2, final_prompt_ids=[5, 6, 7])
    assert (value.kind, value.step_index, value.prompt_ids, value.response_mask) == ("value", 1, [5, 6, 7], [0])
    assert (step.kind, step.truncated) == ("step", True)
    assert len(episode_rows(episode, filler_id=2)) == 1


@pytest.mark.parametrize("reason", [StopReason.ERROR, StopReason.STEP_TIMEOUT, StopReason.EPISODE_TIMEOUT])
def test_broken_episodes_are_masked(reason):
    episode = make_episode([make_step(0, 0.5), make_step(1, 0.5, truncated=True)], reason)
    rows = episode_rows(episode, filler_id=2, final_prompt_ids=[5])
    assert [(r.kind, sum(r.response_mask)) for r in rows] == [("masked", 0), ("masked", 0)]


def test_an_episode_without_steps_is_one_masked_row():
    episode = make_episode([], StopReason.CONTEXT_LENGTH)
    (row,) = episode_rows(episode, filler_id=2)
    assert (row.kind, row.prompt_ids, row.response_ids, row.response_mask) == ("masked", [2], [2], [0])
    metrics = training_metrics([episode_record(episode)])
    assert metrics["env/zero_step_episodes"] == 1
    assert metrics["env/stop/context_length"] == 1.0


def test_metrics_count_episodes_not_rows():
    long = make_episode([make_step(i, 0.0) for i in range(3)], StopReason.TRUNCATED)
    short = make_episode([make_step(0, 1.0, terminated=True, success=True)], StopReason.TERMINATED)
    metrics = training_metrics([episode_record(long), episode_record(short)])
    assert metrics["env/success"] == 0.5
    assert metrics["env/return/mean"] == 0.5
    assert metrics["env/num_steps/mean"] == 2.0
    assert metrics["env/invalid_action_rate"] == 0.5  # 2 of 4 steps
    assert metrics["env/stop/terminated"] == metrics["env/stop/truncated"] == 0.5


def test_validation_counts_lost_episodes_as_failures():
    record = episode_record(make_episode([make_step(0, 1.0, success=True)], StopReason.TERMINATED))
    metrics = validation_metrics([record, record], expected=4)
    assert metrics["val/success"] == 0.5
    assert metrics["val/success_stderr"] == 0.25
    assert metrics["val/lost_episodes"] == 2


def test_rows_name_the_environment():
    row = make_rows(
        "AgentR1/GSM8K-v0", [5], phase="validation", env_kwargs={"split": "test"}, wrappers=["W()"], seed=3
    )[0]
    assert row["extra_info"] == {"index": 5, "phase": "validation", "seed": 3}
    assert (row["agent_name"], json.loads(row["env_kwargs"])) == ("agentr1_env", {"split": "test"})
    assert json.loads(row["wrappers"]) == ["W()"]


@pytest.mark.parametrize("bad", [{"phase": "test"}, {"env_kwargs": {"x": object()}}])
def test_bad_rows(bad):
    with pytest.raises(ConfigError):
        make_rows("AgentR1/GSM8K-v0", [0], **bad)


def test_parquet_is_written_whole(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    rows = make_rows("AgentR1/GSM8K-v0", range(3))
    write_rows(tmp_path / "deep" / "rows.parquet", rows)
    assert pq.read_table(tmp_path / "deep" / "rows.parquet").to_pylist() == rows
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["rows.parquet"]


def test_episode_files_are_replaced_whole(tmp_path):
    path = episode_path(tmp_path, "train", 12)
    write_lines(path, ["a", "b"])
    write_lines(path, ["c"])
    assert path.read_text() == "c\n"
    assert [p.name for p in tmp_path.iterdir()] == ["train-000012.jsonl"]
