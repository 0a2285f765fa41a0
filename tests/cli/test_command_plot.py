"""`agentr1 plot`: runs and evaluations as figures and tables.

Behaviours pinned here:
1. Runs that differ in their seed alone are one configuration; its values are those of the files.
2. Every mix of what a run may lack is drawn: no held-out tasks, no episodes, a torn last line, nothing but nulls.
3. Axes of reward, turns and length begin at 0; names with formulas, tags and control characters are text.
4. Correlations are Pearson's with Fisher's intervals, and none where nothing changes.
5. Intervals of evaluations are those that `agentr1 eval` and `rescore` print.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agent_envs
from agent_envs.episodes.curves import correlation, group_runs, read_run, spread
from agent_envs.episodes.record import StopReason, read_episodes, write_episodes
from agent_envs.policies import ExpertPolicy

pytest.importorskip("matplotlib")


def _record(step: int, success: float, **more: Any) -> dict[str, Any]:
    return {
        "step": step, "env/success": success, "env/return/mean": 2 * success, "env/num_steps/mean": 5 - success,
        "env/tokens/response_per_episode": 100 + step % 3, **more,
    }  # fmt: skip


def _run(folder: Path, records: list[dict[str, Any]], torn: str = "", **settings: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + torn)
    if settings:
        (folder / "run.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    held_out = {"val/success": 0.5, "val/return/mean": 1.0, "val/num_steps/mean": 4.0, "val/episodes": 64}
    return [
        _run(
            tmp_path / f"{algo}-{seed}",
            [{"step": 0, **held_out}, *(_record(s, 0.1 * s + 0.01 * seed) for s in range(1, 6)),
             _record(6, 0.6, **held_out)],
            env="AgentR1/GSM8KTool-v0", algo=algo, seed=seed, steps=6, out=str(seed),
        )
        for algo in ("grpo", "ppo") for seed in range(3)
    ]  # fmt: skip


def test_runs_are_grouped_over_seeds(runs: list[Path], tmp_path: Path, agentr1: Any) -> None:
    configurations = group_runs(map(read_run, runs))
    assert [(c.label, len(c.runs)) for c in configurations] == [("algo grpo", 3), ("algo ppo", 3)]
    assert configurations[0].curve("training", "success")[2] == pytest.approx([0.2, 0.21, 0.22])
    assert configurations[0].curve("held-out", "turns") == {0: [4.0] * 3, 6: [4.0] * 3}
    assert len(configurations[0].over_steps("length")) == 18
    for name, head in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")):
        said = agentr1("plot", *runs, "--out", tmp_path / name, "--smooth", 2)
        assert said.strip().endswith(name) and (tmp_path / name).read_bytes().startswith(head)
        assert "algo grpo" in said and "success 0.600" in said and "1.000, " not in said.partition("correlation")[2]


def test_shares_over_seeds_stay_between_0_and_1(tmp_path: Path, agentr1: Any) -> None:
    low = [_run(tmp_path / f"low-seed{i}", [_record(1, 0.05 * i)]) for i in range(3)]
    high = [_run(tmp_path / f"high-seed{i}", [_record(1, 1 - 0.05 * i)]) for i in range(3)]
    said = agentr1("plot", *low, *high, "--out", tmp_path / "a.svg")
    assert "success 0.050 [0.000, 0.174] of 3 seeds  reward 0.100 [-0.148, 0.348] of 3 seeds" in said
    assert "success 0.950 [0.826, 1.000] of 3 seeds" in said
    assert "correlation" not in said  # of one step there is none


def test_correlations_that_say_nothing_are_left_out(tmp_path: Path, agentr1: Any) -> None:
    steps = [_record(s, s % 7 / 10, **{"env/num_steps/mean": 3.0, "env/calls/mean": s % 5}) for s in range(60)]
    run, flat = _run(tmp_path / "run", steps), _run(tmp_path / "flat", [_record(s, 0.5) for s in range(60)])
    said = agentr1("plot", run, flat, "--out", tmp_path / "a.svg")
    head, row = said.partition("correlation with success")[2].splitlines()[:2]
    assert head.split() == ["over", "n", "calls", "length"]  # the reward is success, and turns are all the same
    assert row.split()[:3] == ["run", "steps", "60"]


def test_names_group_where_there_are_no_settings(tmp_path: Path) -> None:
    names = ("big-seed0", "big-seed1", "small_seed0", "small s1", "runs1")
    paths = [_run(tmp_path / name, [_record(1, 0.1)]) for name in names]
    configurations = group_runs([read_run(path / "metrics.jsonl") for path in paths])
    assert [(c.label, len(c.runs)) for c in configurations] == [("big", 2), ("small", 2), ("runs1", 1)]


def test_what_a_run_may_lack(tmp_path: Path, agentr1: Any) -> None:
    training = [
        [_record(1, 0.5)],
        [_record(s, 0.5) for s in range(8)],  # nothing changes
        [{"step": 1, "env/success": None, "env/return/mean": None}, _record(2, 0.5)],
        [{"step": s, "env/success": 0.1, "env/return/mean": -5.0 + s} for s in range(3)],
    ]
    held_out = [{"step": s, "val/success": 0.5, "val/return/mean": 2.0 * s - 3} for s in (1, 2)]
    for name, runs in (("training", training), ("held-out", [held_out])):
        out, odd, torn = tmp_path / f"{name}.svg", f"{name} $x_{{ \x1b[31m <b>", '{"step": 9, "env/suc'
        paths = [_run(tmp_path / f"{odd} {number}", records, torn) for number, records in enumerate(runs)]
        said = agentr1("plot", *paths, "--out", out)
        assert out.read_text().startswith("<?xml") and "\x1b" not in out.read_text() and "\x1b" not in said


def test_axes_begin_at_zero(tmp_path: Path) -> None:
    from agent_envs.episodes.figures import from_zero, new_figure

    axes = new_figure(2, 2).subplots()
    for values, expected in (([3.0, 4.0], 0), ([-4.0, -3.0], 1), ([-1.0, 1.0], None)):
        axes.clear()
        axes.plot([0, 1], values)
        from_zero(axes)
        low, high = axes.get_ylim()
        assert low <= min(values) and high >= max(values)
        assert expected is None or (low, high)[expected] == 0


def test_evaluations(tmp_path: Path, agentr1: Any) -> None:
    for name, noise in (("base", 0.5), ("trained", 0.1)):
        policy = ExpertPolicy(noise=noise)
        episodes = agent_envs.run_episodes("AgentR1/GSM8KTool-v0", policy, 30, progress=False)
        (tmp_path / name).mkdir()
        write_episodes(tmp_path / name / "episodes.jsonl", episodes)
    rate = sum(episode.success for episode in episodes) / 30
    paths = (tmp_path / "base", tmp_path / "trained" / "episodes.jsonl")
    said = agentr1("plot", *paths, "--out", tmp_path / "a.png")
    assert f"trained  30 episodes  success {rate:.3f}" in said and "  reward  " not in said.partition("correlation")[2]
    run = _run(tmp_path / "run", [_record(1, 0.5)])
    assert "and evaluations separately" in agentr1("plot", *paths, run, "--out", tmp_path / "b.png", status=2)


def test_intervals_are_those_of_the_evaluation(tmp_path: Path, agentr1: Any) -> None:
    """Several episodes of a task are no independent ones, and those that an error ended say nothing."""
    options = ("--n", 30, "--samples", 4, "--demo-noise", 0.3, "--quiet", "--json", "--out", tmp_path / "run")
    said = json.loads(agentr1("eval", "--env", "AgentR1/GSM8KTool-v0", "--policy", "expert", *options))
    episodes = list(read_episodes(tmp_path / "run" / "episodes.jsonl"))
    broken = replace(episodes[0], stop_reason=StopReason.ERROR, error="the server is down")
    write_episodes(tmp_path / "more.jsonl", [*episodes, broken])
    (configuration,) = group_runs([read_run(tmp_path / "more.jsonl")])
    for name in ("success", "reward"):
        shown = said[name]
        assert configuration.estimate(name) == pytest.approx((shown["value"], shown["low"], shown["high"]))
    printed = agentr1("score", tmp_path / "run", "--out", tmp_path / "new.jsonl", "--quiet")
    value, low, high = configuration.estimate("reward")
    assert f"{value:.3f} [{low:.3f}, {high:.3f}]" in printed


def test_episodes_named_by_steps_are_curves(tmp_path: Path) -> None:
    (tmp_path / "run" / "episodes").mkdir(parents=True)
    for step, noise in ((1, 0.6), (2, 0.0)):
        episodes = agent_envs.run_episodes("AgentR1/GSM8KTool-v0", ExpertPolicy(noise=noise), 12, progress=False)
        for phase in ("train", "val"):
            write_episodes(tmp_path / "run" / "episodes" / f"{phase}-{step:06d}.jsonl", episodes)
    run = read_run(tmp_path / "run")
    assert [step for step, _ in run.curves["training"]["success"]] == [1, 2]
    assert run.curves["training"] == run.curves["held-out"] and run.curves["training"]["success"][1][1] == 1.0
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(_record(1, 0.5)) + "\n")
    run = read_run(tmp_path / "run")
    assert run.curves["training"]["success"] == [(1, 0.5)] and len(run.episodes["turns"]) == 24  # training alone
    assert read_run(tmp_path / "run", episodes=False).episodes["turns"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such file or folder"),
        (["empty"], "no .jsonl file"),
        (["odd.jsonl"], "line 2: expected the metrics of a step"),
        (["odd.jsonl", "--out", "a.gif"], ".png, .svg, .pdf"),
        (["odd.jsonl", "--smooth", "0"], "--smooth"),
        (["none.jsonl"], "the file is empty"),
        (["cut.jsonl"], "cut.jsonl: there are no metrics yet"),
        (["step.jsonl"], "an episode lacks a field"),
        (["words.jsonl"], "line 1: expected the metrics of a step"),
    ],
)
def test_bad_input(tmp_path: Path, monkeypatch, agentr1: Any, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name, text in {
        "cut": '{"step": 1, "val/succ',
        "odd": '{"step": 1}\n{"x": 1}\n',
        "none": "",
        "step": '{"steps": [{"reward": 1}]}\n',
        "words": '{"step": 1, "val/episodes": "many"}\n',
    }.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    before = sorted(tmp_path.iterdir())
    assert message in agentr1("plot", *arguments, status=2)
    assert sorted(tmp_path.iterdir()) == before


def test_correlation_agrees_with_numpy() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=200)
    y = 0.5 * x + rng.normal(size=200)
    found = correlation(x, [*y[:-1], math.nan])
    assert found is not None
    assert found.value == pytest.approx(np.corrcoef(x[:-1], y[:-1])[0, 1])
    assert found.low < 0.447 < found.high  # 0.5 / sqrt(1.25)
    rising = [float(i) for i in range(100)]
    assert correlation(rising, [2 * x for x in rising]) is None  # the same in another unit
    for few, why in (([1, 1, 1, 1, 1], "constant"), ([1, 2], "two points"), ([0.1 + 0.2, 0.3, 0.3, 0.3], "rounding")):
        assert correlation(few, rising[: len(few)]) is None, why
    assert correlation([0.0] * 99 + [1.0], rising) is None  # hangs on one point
    noise = rng.normal(size=(2, 100))
    for count in (5, 10, 15):  # the interval reaches from one sign's strong correlation to the other's
        assert correlation(noise[0, :count], noise[1, :count]) is None
    assert correlation(noise[0], noise[1]) is not None  # enough to tell that there is none
    assert spread([2.0]) == (2.0, 0.0)
