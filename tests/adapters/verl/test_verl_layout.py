"""Layout, metrics, dataset rows and files of the verl adapter: what needs neither verl nor a model.

1. every row is laid out once; mini-batches hold whole trajectories, equally many; their number does not
   depend on lengths
2. metrics are of episodes and steps, whatever rows hold them; broken episodes are left out, lost ones are failures
3. a dataset row names its environment and task; files of episodes appear whole
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from agent_envs.adapters.trained import calls_made
from agent_envs.adapters.verl.batch.layout import plan_layout
from agent_envs.adapters.verl.batch.metrics import BatchPart, step_metrics, training_metrics, validation_metrics
from agent_envs.adapters.verl.config.settings import Settings
from agent_envs.adapters.verl.rollout.episode_rows import episode_record, episode_rows
from agent_envs.adapters.verl.run.tasks import make_rows
from agent_envs.episodes.record import Episode, Step, StopReason
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
            home.setdefault(trajectories[row], set()).add(int(layout.mini_batches_of_rows(mini_batches)[position]))
    assert all(len(batches) == 1 for batches in home.values())
    counts = np.bincount([next(iter(b)) for b in home.values()], minlength=mini_batches)
    assert counts.max() - counts.min() <= 1
    tokens = np.zeros((ranks, mini_batches))
    for position, row in enumerate(layout.order):
        if row is not None:
            part = position // layout.rows_per_part
            tokens[part // mini_batches, part % mini_batches] += lengths[row]
    spread = tokens.max(axis=0) - tokens.min(axis=0)  # [mini-batches] between ranks
    assert (spread <= 300).all()  # no more than a row


def test_tokens_are_balanced_where_rows_are_not():
    """One long row weighs as much as ten short ones: the ranks get different numbers of rows, and about equal work."""
    layout = plan_layout(list(range(11)), [1000, *[100] * 10], mini_batches=1, ranks=2)
    assert layout.rows_per_part == 10
    assert sorted(layout.order[:10], key=lambda r: r is not None)[-1] == 0 and layout.order[:10].count(None) == 9


def test_layout_order_within_a_part_is_longest_first():
    layout = plan_layout([0, 1, 2, 3], [5, 9, 7, 1], mini_batches=1, ranks=1, row_multiple=3)
    assert layout.order == (1, 2, 0, 3, None, None)


def test_layout_with_fewer_trajectories_than_mini_batches():
    layout = plan_layout([0, 0, 1, 2], [1, 1, 1, 1], mini_batches=4, ranks=1)
    assert layout.mini_batches == 1
    coarse = plan_layout(list(range(12)), [1] * 12, mini_batches=6, ranks=2)
    assert coarse.mini_batches_of_rows(3).tolist() == [0, 0, 1, 1, 2, 2] * 2


def make_episode(steps, stop_reason, error=None):
    return Episode("Toy-v0", "e", "g", 1, 0, "", (), {"anchor": "s0"}, tuple(steps), "the end", stop_reason,
                   error=error)  # fmt: skip


def make_step(i, reward, *, terminated=False, truncated=False, success=False, rebuilt=False):
    """Step i of a chat that grows by the two tokens of the response and one more; ``rebuilt`` begins with another."""
    info = {"success": success, "invalid_action": i == 0, "reward_components": {"format": 0.5}, "anchor": f"s{i + 1}"}
    prompt = [9] if rebuilt else [1]
    for _ in range(i):
        prompt += [7, 8, 5]
    return Step(
        f"o{i}", f"a{i}", reward, terminated, truncated, info,
        prompt_ids=tuple(prompt), response_ids=(7, 8), response_logprobs=(-0.5, -0.25),
    )  # fmt: skip


def test_calls_are_counted_where_an_agent_plays():
    episode = make_episode([make_step(0, 0.5), make_step(1, 0.5, truncated=True)], StopReason.AGENT_ERROR, "why")
    record = episode_record(episode)
    assert not [name for name in training_metrics([record]) if name.startswith("agent/")]
    asked = replace(episode.steps[0], info={"call": 0})  # the other step acted without asking
    metrics = training_metrics([{**record, **calls_made(replace(episode, steps=(asked, *episode.steps[1:])))}])
    assert metrics["env/agent/calls"] == 1.0 and metrics["env/stop/agent_error"] == 1.0


def test_metrics_of_rows_and_what_merging_saved():
    steps = [make_step(0, 0.5), make_step(1, 0.5), make_step(2, 0.5, rebuilt=True, truncated=True)]
    episode = make_episode(steps, StopReason.TRUNCATED)
    final = [*steps[2].prompt_ids, 7, 8, 5]
    expected = {"prompt_length/mean": 4.0, "prompt_length/clip_ratio": 1 / 3, "response_length/max": 2.0,
                "response_length/clip_ratio": 1.0, "response_length_non_aborted/clip_ratio": 1.0,
                "env/trained_steps": 3.0}  # fmt: skip
    tokens = {}
    for merge in (True, False):
        rows = [
            {"kind": row.kind, "steps": row.steps, "value_at": row.value_at, "n": len(row.tokens.prompt_ids) +
             len(row.tokens.response_ids)}
            for row in episode_rows(episode, filler_id=2, final_prompt_ids=final, merge=merge)
        ]  # fmt: skip
        padding = {"kind": "padding", "steps": [], "value_at": -1, "n": 2}
        lengths = [row["n"] for row in rows] + [2]
        limits = SimpleNamespace(max_prompt_length=1, max_response_length=2)
        metrics = step_metrics([BatchPart([*rows, padding], lengths, [], 6, None, [])], limits)
        assert {name: metrics[name] for name in expected} == expected
        tokens[merge] = sum(row["n"] for row in rows)
        assert metrics["env/merge_factor"] == pytest.approx(tokens[False] / tokens[merge] if not merge else 29 / 17)
        assert metrics["env/pad_row_share"] == 1 / (len(rows) + 1)
        assert metrics["env/tokens/trained_share"] == 6 / (tokens[merge] + 2)
    assert tokens == {True: 6 + 11, False: 3 + 6 + 9 + 11}


def test_metrics_count_episodes_not_rows():
    long = make_episode([make_step(i, 0.0) for i in range(3)], StopReason.TRUNCATED)
    short = make_episode([make_step(0, 1.0, terminated=True, success=True)], StopReason.TERMINATED)
    metrics = training_metrics([episode_record(long), episode_record(short)])
    assert metrics["env/success"] == 0.5
    assert metrics["env/return/mean"] == 0.5
    assert metrics["env/num_steps/mean"] == 2.0
    assert metrics["env/invalid_action_rate"] == 0.5  # 2 of 4 steps
    assert metrics["env/stop/terminated"] == metrics["env/stop/truncated"] == 0.5


def test_broken_episodes_are_no_failures_of_the_policy_and_lost_ones_are():
    good = make_episode([make_step(0, 1.0, terminated=True, success=True)], StopReason.TERMINATED)
    broken = make_episode([make_step(0, 0.0)], StopReason.STEP_TIMEOUT)
    records = [episode_record(episode) for episode in (good, broken, broken)]
    for metrics, of in ((training_metrics(records), "env"), (validation_metrics(records, expected=4), "val")):
        assert metrics[f"{of}/success"] == (1.0 if of == "env" else 0.5)  # one of the four did not come back
        assert metrics[f"{of}/return/mean"] == 1.0 and metrics[f"{of}/episodes"] == 1.0
        assert metrics[f"{of}/stop/step_timeout"] == pytest.approx(2 / 3)
    lost = validation_metrics([records[0]] * 2, expected=4)
    assert (lost["val/success"], lost["val/success_stderr"], lost["val/lost_episodes"]) == (0.5, 0.25, 2)


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


def test_episode_files_are_replaced_whole(tmp_path):
    trainer = object.__new__(pytest.importorskip("agent_envs.adapters.verl.batch.trainer").EnvTrainer)
    trainer.settings, trainer.global_steps = Settings(episodes_dir=str(tmp_path)), 12
    trainer.write_lines("train", ["a", "b"])
    trainer.write_lines("train", ["c"])
    assert (tmp_path / "train-000012.jsonl").read_text() == "c\n"
    assert [p.name for p in tmp_path.iterdir()] == ["train-000012.jsonl"]
