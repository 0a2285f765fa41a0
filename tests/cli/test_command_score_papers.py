"""`agentr1 score --by papers`: the released table from stored episodes, computed by hand here."""

import gzip
import json
from functools import partial

import gymnasium as gym
import pytest

from agent_envs import Episode, StopReason, run_episodes, write_episodes
from agent_envs.cli.score_papers import DEPTHS, THRESHOLDS, paper_episode, paper_table
from agent_envs.policies import ExpertPolicy

ENV = "AgentR1/PaperSearch-v0"


def episode(*steps, answers=("A", "B"), task="t", stop="terminated"):
    """A line of an episodes.jsonl with these papers found, step by step."""
    info = {"task_id": task, "answers": list(answers), "found": []}
    found = [[{"id": title, "title": title, "score": score} for title, score in step] for step in steps]
    return {"env_id": ENV, "reset_info": info, "stop_reason": stop, "steps": [{"info": {"found": f}} for f in found]}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def by_papers(agentr1):
    """Runs the command: what it says."""
    return partial(agentr1, "score", "--by", "papers")


@pytest.fixture
def table(by_papers):
    """Runs the command: its report, and the rows of the table by threshold and depth."""

    def run(*arguments):
        report = json.loads(by_papers(*arguments, "--json"))
        return report, {(row["threshold"], row["top_k"]): row for row in report["table"]}

    return run


def test_a_table_by_hand(tmp_path, table):
    # A 0.9 (an answer), x 0.8, B 0.4 (an answer, found twice), y 0.05
    first = episode([("a!", 0.9), ("x", 0.8)], [("B", 0.4), ("y", 0.05), ("b.", 0.3)])
    second = episode([("z", 0.2)], answers=("C",), task="u")
    report, cells = table(write(tmp_path / "episodes.jsonl", first, second))
    assert (report["episodes"], report["tasks"], report["errors"]) == (2, 2, 0)
    assert set(cells) == {(threshold, depth) for threshold in THRESHOLDS for depth in DEPTHS} and len(cells) == 40
    # threshold 0: precision (2/4 + 0/1) / 2, recall (2/2 + 0) / 2, f1 (2/3 + 0) / 2
    row = cells[0.0, 10000]
    assert row["precision"] == 0.25 and row["recall"] == 0.5 and row["f1"] == pytest.approx(1 / 3)
    assert row["papers"] == 2.5
    # from 0.1 on y is out, from 0.3 on z too
    assert cells[0.1, 100]["precision"] == pytest.approx(1 / 3) and cells[0.3, 100]["papers"] == 1.5
    # from 0.4 on: A, x, B; the threshold itself counts
    assert cells[0.4, 25]["recall"] == 0.5 and cells[0.5, 25]["recall"] == 0.25
    # 0.9: A alone
    row = cells[0.9, 50]
    assert row["precision"] == 0.5 and row["recall"] == 0.25 and row["f1"] == pytest.approx((2 / 3) / 2)


def test_answers_with_arxiv_ids_are_met_by_them():
    row = episode([("A", 0.9), ("other words", 0.8), ("no id", 0.7)], answers=("A", "B", "no id"))
    row["steps"][0]["info"]["found"][0]["id"] = "2001.00009"  # the title of an answer, but another paper
    row["steps"][0]["info"]["found"][1]["id"] = "arXiv:2001.00002v3"
    for ids, hits in (
        (["2001.00001v1", "2001.00002", ""], [False, True, True]),  # by title where one has no id
        (["2001.00002"], [False, True, False]),  # not one for each title: ids alone
        ([], [True, False, True]),
    ):
        row["reset_info"]["answer_ids"] = ids
        scored = paper_episode(row, "")
        assert [key in scored.answers for _, key in scored.found] == hits


def test_depths_cut_the_ranking(tmp_path, table):
    found = [(f"paper {chr(97 + i // 26)}{chr(97 + i % 26)}", 1 - i / 1000) for i in range(120)]
    answers = [title for title, _ in found[20:110]]
    _, cells = table(write(tmp_path / "episodes.jsonl", episode(found[::-1], answers=answers)))
    kept = {depth: cells[0.0, depth] for depth in DEPTHS}
    assert [kept[depth]["papers"] for depth in DEPTHS] == [120, 100, 50, 25]
    assert kept[25]["precision"] == 5 / 25 and kept[25]["recall"] == pytest.approx(5 / 90)
    assert kept[50]["precision"] == 30 / 50 and kept[100]["precision"] == 80 / 100
    assert kept[10000]["recall"] == 1.0


def test_own_thresholds_and_depths_as_text(tmp_path, by_papers):
    path = write(tmp_path / "episodes.jsonl", episode([("A", 0.9)]))
    assert by_papers(path, "--thresholds", "0.5", "--top-k", "10,1") == (
        "1 episode of 1 task\n\n"
        "threshold    top_k  precision  recall      f1  papers\n"
        "      0.5       10     1.0000  0.5000  0.6667    1.00\n"
        "      0.5        1     1.0000  0.5000  0.6667    1.00\n"
    )
    for bad in (("--thresholds", "x"), ("--thresholds", ""), ("--thresholds", "nan"), ("--top-k", 0), ("--top-k", 1.5)):
        assert bad[0] in by_papers(path, *bad, status=2)


def test_several_files_and_compressed_ones(tmp_path, table, by_papers):
    one = write(tmp_path / "a.jsonl", episode([("A", 1)]))
    two = tmp_path / "b.jsonl.gz"
    two.write_bytes(gzip.compress((json.dumps(episode([], task="u")) + "\n").encode()))
    report, cells = table(one, two)
    assert report["episodes"] == 2 and cells[0.0, 25]["precision"] == 0.5
    whole = two.read_bytes()
    for broken in (whole[:-9], whole[:20] + b"\xff" * 20, b"not packed"):
        two.write_bytes(broken)
        assert "b.jsonl.gz cannot be read" in by_papers(two, status=2)


def test_folders_and_a_last_line_that_was_cut_off(tmp_path, table):
    path = write(tmp_path / "episodes.jsonl", episode([("A", 1)]))
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"env_id": "Age')
    report, _ = table(tmp_path)
    assert report["episodes"] == 1


def test_episodes_that_an_error_ended(tmp_path, table, by_papers):
    broken = {"env_id": ENV, "reset_info": {}, "steps": [], "stop_reason": "error"}
    path = write(tmp_path / "a.jsonl", episode([("A", 1)]), episode([], stop="error"), broken)
    report, cells = table(path)
    assert report["errors"] == 2 and report["episodes"] == 3 and cells[0.0, 25]["recall"] == pytest.approx(0.5 / 3)
    report, cells = table(path, "--skip-errors")
    assert report["errors"] == 2 and report["episodes"] == 1 and cells[0.0, 25]["recall"] == 0.5
    assert "2 ended with an error and are left out" in by_papers(path, "--skip-errors")


@pytest.mark.parametrize(
    "line",
    ["{", "3", "[]", "{}", '{"env_id": "x", "reset_info": {}, "steps": [], "stop_reason": "terminated"}',
     json.dumps({**episode(), "steps": 3}), json.dumps(episode([("A", None)])), json.dumps(episode([("A", "1")])),
     json.dumps(episode([(3, 1.0)])), json.dumps(episode(answers=[3])), json.dumps(episode([("A", float("nan"))])),
     json.dumps(episode([("A", 10**400)])),
     json.dumps({**episode(), "reset_info": {"task_id": "t", "answers": "\x1b[31mred"}})],
)  # fmt: skip
def test_other_lines_are_named(tmp_path, line, by_papers):
    path = write(tmp_path / "a.jsonl", episode([("A", 1)]), line)
    said = by_papers(path, status=2)
    what = {"{": "not valid JSON", "3": "expected a JSON object", "[]": "expected a JSON object"}
    assert f"a.jsonl, line 2: {what.get(line, 'not an episode of paper search')}" in said and "\x1b" not in said


def test_episodes_without_answers_are_told(tmp_path, by_papers):
    path = write(tmp_path / "a.jsonl", episode([("A", 1)]), episode([("A", 1)], answers=()))
    assert "2 episodes of 1 task; 1 have no answers" in by_papers(path)


def test_no_episodes(tmp_path, by_papers):
    assert "no episodes" in by_papers(write(tmp_path / "a.jsonl"), status=2)
    by_papers(tmp_path / "none.jsonl", status=2)


def test_it_says_what_the_environment_says(tmp_path, by_papers):
    """Of episodes of the environment itself, also of one that the step limit ended."""
    episodes = run_episodes(ENV, ExpertPolicy(), 4, seeds=[0, 1, 2, 3], env_kwargs={"papers": 300}, progress=False)
    cut = Episode.from_dict({**episodes[0].to_dict(), "stop_reason": StopReason.TRUNCATED.value})
    write_episodes(tmp_path / "episodes.jsonl", [*episodes, cut])
    scored = [paper_episode(each.to_dict(), "") for each in (*episodes, cut)]
    for before, after in zip(episodes, scored, strict=False):
        (row,) = paper_table([after], [0.0], [10000])
        metrics = before.steps[-1].info["metrics"]
        assert (row["precision"], row["recall"]) == (metrics["precision"], metrics["recall"])
        assert row["papers"] <= before.steps[-1].info["pool"]
    assert scored[4] == scored[0]
    assert "5 episodes of 4 tasks" in by_papers(tmp_path / "episodes.jsonl")


def test_info_has_each_paper_once_and_the_answers():
    env = gym.make(ENV, papers=300)
    _, info = env.reset(seed=1)
    assert info["found"] == [] and info["answers"] == list(env.unwrapped.task.titles)
    seen = []
    for _ in range(3):
        _, _, over, _, info = env.step(env.unwrapped.expert_action())
        seen += [paper["id"] for paper in info["found"]]
        assert len(seen) == len(set(seen)) == info["pool"]
        if over:
            break
