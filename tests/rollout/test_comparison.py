"""Comparisons of evaluations: paired by task, reproducible, and refused where the panels differ.

Behaviours pinned here:
1. Differences are paired: what tasks have in common cancels out. With one run a side the interval is the usual one.
2. Samples of a task are not independent of each other, nor are the episodes of a run.
3. The same episodes give the same interval, in any order.
4. Other panels are refused, and what differs is named; `--common` takes the tasks that both have.
5. Episodes that an error ended, and tasks that one side has not played, do not count and are mentioned.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_envs.cli.main import main
from agent_envs.episodes.statistics import clustered_mean, share
from agent_envs.errors import ConfigError
from agent_envs.rollout.comparison import MEASURES, Difference, EvaluatedRun, compare_runs
from agent_envs.rollout.panel import Panel

TOOL = "AgentR1/GSM8KTool-v0"


def run(values: Any, name: str = "run", panel: Panel | None = None) -> EvaluatedRun:
    """An evaluation with these values of every measure, shape [tasks, samples]."""
    scores = {i: [[float(x)] * len(MEASURES) for x in samples] for i, samples in enumerate(values)}
    tasks = {i: (f"task/{i}", "digest") for i in scores}
    return EvaluatedRun(name, panel or Panel("X-v0", {}, [], {"arguments": {}}, tasks), scores, 0)


def score(first: Any, second: Any) -> Difference:
    return compare_runs(first, second).measures["score"]


def test_differences_are_paired():
    values = np.random.default_rng(0).random((50, 1))
    row = score([run(values)], [run(values + 0.1)])
    assert row.difference == pytest.approx((0.1, 0.1, 0.1)) and row.first == pytest.approx(values.mean())


@pytest.mark.parametrize("samples", [1, 4])
def test_one_run_a_side_has_the_interval_of_a_paired_mean(samples):
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(60, samples)), rng.normal(0.3, 1, size=(60, samples))
    expected = clustered_mean([[d] for d in second.mean(axis=1) - first.mean(axis=1)])
    got = score([run(first)], [run(second)]).difference
    width = expected.high - expected.low
    assert got.value == pytest.approx(expected.value)
    assert abs(got.low - expected.low) < 0.06 * width and abs(got.high - expected.high) < 0.06 * width


def test_repeated_samples_add_nothing():
    rng = np.random.default_rng(2)
    first, second = rng.random((40, 1)), rng.random((40, 1))
    once = score([run(first)], [run(second)]).difference
    assert score([run(first.repeat(8, axis=1))], [run(second.repeat(8, axis=1))]).difference == pytest.approx(once)


def test_runs_are_a_level():
    """Five runs that differ as wholes: more tasks do not make the difference surer, more runs do."""
    rng = np.random.default_rng(3)

    def width(runs: int) -> float:
        first, second = (
            [run(rng.normal(0, 0.01, (100, 1)) + offset) for offset in np.linspace(-1, 1, runs)] for _ in range(2)
        )
        low, high = score(first, second).difference[1:]
        return high - low

    few, many = width(4), width(40)
    deviation = np.linspace(-1, 1, 4).std(ddof=1) * math.sqrt(2 / 4)
    assert few == pytest.approx(2 * 1.96 * deviation, rel=0.1) and few > 2.5 * many


def test_the_same_episodes_give_the_same_interval():
    rng = np.random.default_rng(4)
    first, second = run(rng.random((30, 2))), run(rng.random((30, 2)))
    shuffled = EvaluatedRun("run", second.panel, dict(reversed(second.scores.items())), 0)
    assert compare_runs([first], [second]).measures == compare_runs([first], [shuffled]).measures
    assert score([first], [second]).difference[1:] != score([second], [first]).difference[1:]
    seeds = [run(rng.random((30, 2))) for _ in range(3)]
    assert compare_runs([first], seeds).measures == compare_runs([first], seeds[::-1]).measures


def test_equal_success_is_no_certainty():
    rows = compare_runs([run(np.zeros((20, 1)))], [run(np.zeros((20, 1)))]).measures
    most = share(0, 20).high
    assert rows["success"].difference == pytest.approx((0.0, -most, most))
    assert rows["score"] == rows["reward"] == rows["success"]  # a score of zeros and ones is a share, too
    one = compare_runs([run([[0.0]])], [run([[1.0]])]).measures
    assert one["success"].difference.high == 1.0
    assert score([run([[0.0]])], [run([[0.5]])]).difference[1:] == (-math.inf, math.inf)


def test_tasks_that_one_side_has_not_played_are_left_out():
    first = run(np.arange(10.0)[:, None])
    second = EvaluatedRun("second", first.panel, {i: s for i, s in first.scores.items() if i != 9}, 1)
    comparison = compare_runs([first], [second])
    assert (comparison.tasks, comparison.left_out) == (9, 1) and comparison.measures["score"].difference.value == 0
    with pytest.raises(ConfigError, match="no task was played by all of run, third"):
        compare_runs([first], [EvaluatedRun("third", first.panel, {}, 10)])


# -- the command ---------------------------------------------------------------------------------------------------


EXPERT = ("eval", "--policy", "expert", "--quiet", "--demo-noise")
TASKS = ("--env", TOOL, "--n", "12")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A folder with evaluations of an expert with mistakes, `first`, and without, `second`."""
    folder = tmp_path_factory.mktemp("evaluated")
    for name, noise in (("first", "0.3"), ("second", "0")):
        assert main([*EXPERT, noise, "--out", str(folder / name), *TASKS]) == 0
    return folder


@pytest.fixture
def played(evaluated, tmp_path, monkeypatch, agentr1):
    """Evaluates an expert with mistakes in a folder, beside copies of `evaluated`."""
    shutil.copytree(evaluated, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def play(out: str, *more: object, noise: float = 0.3) -> str:
        agentr1(*EXPERT, noise, "--out", out, *(more if "--panel" in more else (*TASKS, *more)))
        return out

    return play


@pytest.fixture
def change(played, evaluated):
    """Writes other rows than were played as the episodes of `second`."""

    def write(changed: Callable[[list[dict[str, Any]]], Iterable[dict[str, Any]]]) -> None:
        rows = [json.loads(line) for line in (evaluated / "second" / "episodes.jsonl").read_text().splitlines()]
        Path("second", "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed(rows)))

    return write


def test_the_command(played, agentr1):
    noisy = played("noisy", "--samples", 3)
    right = played("right", "--panel", noisy, noise=0.0)
    for seed in (1, 2):
        played(f"seeds/{seed}", "--panel", noisy, "--seed", seed)
    said = agentr1("compare", noisy, right, "seeds")
    assert said.startswith(f"{TOOL}, split test, panel ") and "right against noisy: 12 tasks\n" in said
    assert "seeds against noisy: 12 tasks, 2 runs against 1\n" in said and said.count("success ") == 2
    found = json.loads(agentr1("compare", noisy, right, "seeds/1,seeds/2", "--json"))["comparisons"]
    assert [c["second"] for c in found] == [["right"], ["seeds/1", "seeds/2"]]
    summaries = [json.loads(Path(name, "summary.json").read_text()) for name in (noisy, right)]
    for name in ("success", "score", "reward"):
        row = found[0]["measures"][name]
        assert row["first"] == pytest.approx(summaries[0][name]["value"]) and row["second"] == 1.0
        assert row["low"] < row["difference"] < row["high"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--seed", "9"], "12 tasks"),
        (["--env-kwargs", '{"level": 2}'], "argument level: '1-8' in first, 2 in other; the content of 12 tasks"),
        (["--wrapper", "StepPenalty(penalty=0.1)"], "wrappers: [] in first, ['StepPenalty(penalty=0.1)'] in other"),
    ],
)
def test_other_panels_are_refused(played, more, said, agentr1):
    error = agentr1("compare", "first", played("other", *more), status=2)
    assert said in error and ("--common compares on the tasks" in error) == (more[0] == "--seed")


def test_common_tasks(played, agentr1):
    more, level = played("more", "--n", 20), played("level", "--env-kwargs", '{"level": 2}')
    assert "8 tasks (" in agentr1("compare", "first", more, status=2)
    assert "more against first: 12 tasks\n" in agentr1("compare", "first", more, "--common")
    assert "argument level" in agentr1("compare", "first", level, "--common", status=2)


def test_episodes_that_an_error_ended_do_not_count(change, agentr1):
    change(lambda rows: [rows[0] | {"stop_reason": "error", "error": "it broke"}, *rows[1:]])
    assert "11 tasks; 1 more not played by all runs" in agentr1("compare", "first", "second")


@pytest.mark.parametrize("place", ["score", "reward"])
def test_scores_that_are_no_numbers_are_refused(place, change, capsys):
    def spoil(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        spoilt = rows[0]["steps"][-1]["info"] if place == "score" else rows[0]["steps"][0]
        spoilt[place] = value
        names.append(rows[0]["episode_id"])
        return rows

    names: list[str] = []
    for value in (math.nan, math.inf, -1e308):
        change(spoil)
        assert main(["compare", "first", "second", "--json"]) == 2, value
        said = capsys.readouterr()
        assert "must be finite" in said.err and names[0] in said.err and not said.out


def test_a_line_that_was_written_twice_counts_once(change, agentr1):
    once = agentr1("compare", "first", "second")
    change(lambda rows: [*rows, rows[0]])
    assert agentr1("compare", "first", "second") == once


def test_what_is_no_evaluation(played, tmp_path, agentr1):
    (tmp_path / "empty").mkdir()
    for argv, said in (
        (["first"], "give at least two runs"),
        (["first", "empty"], "panel.json: there is no such file"),
        (["first", "nowhere"], "nowhere: there is no such file"),
        (["first", "first,first"], "names a run twice"),
        (["first", f"first,{tmp_path / 'first'}"], "names a run twice"),
    ):
        assert said in agentr1("compare", *argv, status=2)
