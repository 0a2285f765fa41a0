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
            [run(rng.normal(0, 0.01, (400, 1)) + offset) for offset in np.linspace(-1, 1, runs)] for _ in range(2)
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


@pytest.fixture
def played(tmp_path, monkeypatch, capsys):
    """Evaluates an expert with mistakes in a folder."""
    monkeypatch.chdir(tmp_path)

    def play(out: str, *more: str, noise: float = 0.3) -> str:
        command = ["eval", "--policy", "expert", "--demo-noise", str(noise), "--out", out, "--quiet"]
        assert main([*command, *(more if "--panel" in more else ["--env", TOOL, "--n", "12", *more])]) == 0
        capsys.readouterr()
        return out

    return play


def test_the_command(played, capsys):
    first = played("first", "--samples", "3")
    second = played("second", "--panel", first, noise=0.0)
    for seed in (1, 2):
        played(f"seeds/{seed}", "--panel", first, "--seed", str(seed))
    assert main(["compare", first, second, "seeds"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{TOOL}, split test, panel ") and "second against first: 12 tasks\n" in said
    assert "seeds against first: 12 tasks, 2 runs against 1\n" in said and said.count("success ") == 2
    assert main(["compare", first, second, "seeds/1,seeds/2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"]
    assert [c["second"] for c in found] == [["second"], ["seeds/1", "seeds/2"]]
    summaries = [json.loads(Path(name, "summary.json").read_text()) for name in (first, second)]
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
def test_other_panels_are_refused(played, more, said, capsys):
    first, other = played("first"), played("other", *more)
    assert main(["compare", first, other]) == 2
    error = capsys.readouterr().err
    assert said in error and ("--common compares on the tasks" in error) == (more[0] == "--seed")


def test_common_tasks(played, capsys):
    first, more, level = played("first"), played("more", "--n", "20"), played("level", "--env-kwargs", '{"level": 2}')
    assert main(["compare", first, more]) == 2 and "8 tasks (" in capsys.readouterr().err
    assert (
        main(["compare", first, more, "--common"]) == 0 and "more against first: 12 tasks\n" in capsys.readouterr().out
    )
    assert main(["compare", first, level, "--common"]) == 2 and "argument level" in capsys.readouterr().err


def test_episodes_that_an_error_ended_do_not_count(played, capsys):
    first, second = played("first"), played("second")
    file = Path(second, "episodes.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[0] |= {"stop_reason": "error", "error": "it broke"}
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["compare", first, second]) == 0
    assert "11 tasks; 1 more not played by all runs" in capsys.readouterr().out


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e308])
def test_scores_that_are_no_numbers_are_refused(value, played, capsys):
    first, second = played("first"), played("second")
    file = Path(second, "episodes.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[0]["steps"][-1]["info"]["score"] = value
    rows[1]["steps"][0]["reward"] = value
    for bad in rows[:2]:
        file.write_text("".join(json.dumps(row) + "\n" for row in (bad, *rows[2:])))
        assert main(["compare", first, second, "--json"]) == 2
        said = capsys.readouterr()
        assert "must be finite" in said.err and bad["episode_id"] in said.err and not said.out


def test_a_line_that_was_written_twice_counts_once(played, capsys):
    first, second = played("first"), played("second", noise=0.0)
    assert main(["compare", first, second]) == 0
    once = capsys.readouterr().out
    file = Path(second, "episodes.jsonl")
    file.write_text(file.read_text() + file.read_text().splitlines()[0] + "\n")
    assert main(["compare", first, second]) == 0 and capsys.readouterr().out == once


def test_names_in_a_panel_move_no_cursor(played, capsys):
    first, second = played("first"), played("second")
    for folder in (first, second):
        file = Path(folder, "panel.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "env": "\x1b[31mEVIL\x1b]0;title\x07"}))
    assert main(["compare", first, second]) == 0
    said = capsys.readouterr().out
    assert said.startswith(r"\x1b[31mEVIL") and "\x1b" not in said and "\x07" not in said


def test_what_is_no_evaluation(played, tmp_path, capsys):
    first = played("first")
    (tmp_path / "empty").mkdir()
    for argv, said in (
        ([first], "give at least two runs"),
        ([first, "empty"], "panel.json: there is no such file"),
        ([first, "nowhere"], "nowhere: there is no such file"),
        ([first, f"{first},{first}"], "names a run twice"),
        ([first, f"{first},{tmp_path / first}"], "names a run twice"),
    ):
        assert main(["compare", *argv]) == 2
        assert said in capsys.readouterr().err
