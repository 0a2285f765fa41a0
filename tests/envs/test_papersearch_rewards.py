"""Rewards of paper search, computed by hand for every preset.

1. new papers, papers of the pool, repeated calls, unknown papers, calls that fail, nothing kept
2. the calls of one turn count in the order they are written: who brings a paper first earns it
3. F1 at the end alone; metrics by the letters of titles, every gold once
"""

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401
from agent_envs.datasets.papersearch.rows import PaperTask
from agent_envs.envs.papersearch.reward import (
    CALL_REWARDS,
    ERROR,
    OK,
    REPEATED,
    UNKNOWN,
    ScoredCall,
    agentr1,
    f1,
    paperscout,
    retrieval_metrics,
)
from agent_envs.retrieval.papers import Paper
from tests.envs.paper_fakes import Backend, Judge, make

TABLE = [
    # call, agentr1, paperscout
    (ScoredCall("search", OK, (0.9,)), 0.9, 1 - 0.1),
    (ScoredCall("search", OK, (0.9, 0.8, 0.7, 0.6)), 2.4, 3 - 0.1),  # the three best
    (ScoredCall("search", OK, (0.1, 0.5, 0.39, 0.4)), 1.29, 2 - 0.1),  # 0.4 is relevant
    (ScoredCall("search", OK, (0.01, 0.02)), 0.03, -0.1),
    (ScoredCall("search", OK, ()), 0.0, 0.0),  # nothing kept
    (ScoredCall("search", REPEATED), -0.5, -0.5),
    (ScoredCall("search", ERROR), 0.0, 0.0),
    (ScoredCall("expand", OK, (1.0, 1.0)), 2.0, 2 - 0.05),
    (ScoredCall("expand", OK, ()), 0.0, 0.0),
    (ScoredCall("expand", REPEATED), -0.5, -0.5),
    (ScoredCall("expand", UNKNOWN), -0.5, -0.5),
    (ScoredCall("expand", ERROR), 0.0, 0.0),
    (ScoredCall("no_such_tool", ERROR), 0.0, 0.0),
]


@pytest.mark.parametrize(("call", "first", "second"), TABLE)
def test_calls(call, first, second):
    assert agentr1(call) == pytest.approx(first)
    assert paperscout(call) == pytest.approx(second)
    assert CALL_REWARDS["f1"](call) == 0.0


def test_costs_are_for_calls_that_bring_something():
    assert agentr1(ScoredCall("search", OK, (0.9,)), cost=0.2) == pytest.approx(0.7)
    assert agentr1(ScoredCall("search", OK), cost=0.2) == 0.0
    assert agentr1(ScoredCall("search", REPEATED), cost=0.2) == -0.5


# Scores of the papers a to g; h is below what is kept.
SCORES = {"a": 0.9, "b": 0.8, "c": 0.5, "d": 0.4, "e": 0.3, "f": 0.02, "g": 1.0, "h": 0.009}
SEARCHES = {"first": "abcd", "First ": "abcd", "second": "bcef", "faint": "h", "none": ""}
EDGES = {"a": "bgh", "b": "", "c": "ag"}
PAPERS = [Paper(name, f"Paper {name}") for name in SCORES]
TASK = PaperTask("papersearch/train/0", "first things", ("Paper: a", "paper G", "Never Found"))
TOOLS = {"s": ("search", "query"), "e": ("expand", "paper_id"), "f": ("finish", "")}


def play(reward, *turns):
    """The components of each turn's calls; calls are written "s first" or "e a"."""
    backend = Backend(*PAPERS, edges=EDGES, searches=SEARCHES)
    env = gym.wrappers.TimeLimit(make(backend, TASK, selector=Judge(**SCORES), reward=reward), 10)
    env.reset(options={"index": 0})
    base, found = env.unwrapped, []
    for turn in turns:
        texts = []
        for call in turn:
            tool, _, asked = call.partition(" ")
            name, argument = TOOLS.get(tool, (tool, "x"))
            texts.append(base.format_call(name, {argument: asked} if argument else {}))
        _, total, _, _, info = env.step("\n".join(texts))
        components = list(info["reward_components"].values())
        assert total == pytest.approx(sum(components))
        found.append(components)
    return found


@pytest.mark.parametrize(
    ("turns", "first", "second"),
    [
        ([["s first"]], [[0.9 + 0.8 + 0.5]], [[3 - 0.1]]),
        # b and c are in the pool already
        ([["s first"], ["s second"]], [[2.2], [0.3 + 0.02]], [[2.9], [-0.1]]),
        ([["s first"], ["s first"]], [[2.2], [-0.5]], [[2.9], [-0.5]]),  # the same search
        ([["s first"], ["s First "]], [[2.2], [0.0]], [[2.9], [0.0]]),  # another: it finds the same
        ([["s faint"]], [[0.0]], [[0.0]]),  # found and not kept
        ([["s none"]], [[0.0]], [[0.0]]),
        ([["s  "]], [[0.0]], [[0.0]]),  # an empty query
        ([["e a"]], [[-0.5]], [[-0.5]]),  # not in the pool
        ([["s faint"], ["e h"]], [[0.0], [-0.5]], [[0.0], [-0.5]]),  # found and not kept: not in the pool
        ([["s first"], ["e a"]], [[2.2], [1.0]], [[2.9], [1 - 0.05]]),  # b known, g new, h too low
        ([["s first"], ["e [a]"]], [[2.2], [1.0]], [[2.9], [1 - 0.05]]),  # the id as it is shown
        ([["s first"], ["e b"], ["e b"]], [[2.2], [0.0], [-0.5]], [[2.9], [0.0], [-0.5]]),
        ([["s first"], ["e d"]], [[2.2], [0.0]], [[2.9], [0.0]]),  # the citation service does not know it
        # one turn: who is first earns it
        ([["s first", "s second"]], [[2.2, 0.32]], [[2.9, -0.1]]),
        ([["s second", "s first"]], [[0.8 + 0.5 + 0.3, 0.9 + 0.4]], [[2 - 0.1, 2 - 0.1]]),
        ([["s first", "s first"]], [[2.2, -0.5]], [[2.9, -0.5]]),
        ([["s first", "e a"]], [[2.2, -0.5]], [[2.9, -0.5]]),  # the pool had no a when this was written
        ([["s first"], ["e a", "e c", "e a"]], [[2.2], [1.0, 0.0, -0.5]], [[2.9], [0.95, 0.0, -0.5]]),
        ([["s first"], ["e c", "e a"]], [[2.2], [1.0, 0.0]], [[2.9], [0.95, 0.0]]),
        ([["x first", "s first"]], [[0.0, 2.2]], [[0.0, 2.9]]),  # no such tool
        # the sixth call does not run, and earns nothing
        ([["s none"] + ["s  "] * 4 + ["s first"], ["s first"]], [[0.0] * 5, [2.2]], [[0.0] * 5, [2.9]]),
        ([["s first", "f"]], [[2.2, 0.0]], [[2.9, 0.0]]),  # calls beside the end run
        ([["f", "s first"]], [[0.0, 2.2]], [[0.0, 2.9]]),
    ],
)
def test_turns(turns, first, second):
    assert play("agentr1", *turns) == [pytest.approx(turn) for turn in first]
    assert play("paperscout", *turns) == [pytest.approx(turn) for turn in second]
    calls = [len(turn) for turn in first]
    end = [[] for _ in turns]
    if any("f" in turn for turn in turns):
        end[-1] = [2 * (1 / 4) * (1 / 3) / (1 / 4 + 1 / 3)]  # a of a, b, c, d; a of a, g, never found
    assert play("f1", *turns) == [[0.0] * n + tail for n, tail in zip(calls, end, strict=True)]


def test_metrics_by_hand():
    golds = ["Deep Parsing", "On Seas", "ON  SEAS!", "Third"]  # two of them are one
    metrics = retrieval_metrics(["x", "deep parsing", "Deep-Parsing (v2)", "seas", "on seas"], golds)
    assert metrics["precision"] == pytest.approx(2 / 5)
    assert metrics["recall"] == metrics["recall_at_20"] == pytest.approx(2 / 3)
    assert metrics["f1"] == pytest.approx(2 * (2 / 5) * (2 / 3) / (2 / 5 + 2 / 3))


def test_recall_at_a_depth_goes_by_rank():
    ranked = [f"other {'x' * n}" for n in range(1, 120)]
    for place in (19, 20, 49, 50, 99, 100):
        metrics = retrieval_metrics([*ranked[:place], "gold", *ranked[place:]], ["Gold"])
        assert [metrics[f"recall_at_{k}"] for k in (20, 50, 100)] == [float(place < k) for k in (20, 50, 100)]
        assert metrics["recall"] == 1.0


def test_nothing_found_or_asked_for():
    assert set(retrieval_metrics([], ["a"]).values()) == set(retrieval_metrics(["a"], []).values()) == {0.0}
    assert f1(0.0, 0.0) == 0.0
