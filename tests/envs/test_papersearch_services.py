"""Paper search over services: an episode over HTTP, with a backend and a classifier, goes as offline ones do.

A service that fails in the middle is a typed error, and the episode goes on from the pool as it was. Which errors there
are is in tests/retrieval, what becomes of an episode in test_papersearch_env.py.
"""

import json

import gymnasium as gym
import pytest

from agent_envs import StopReason, run_episodes
from agent_envs.errors import BackendReplyError
from agent_envs.policies import ScriptedPolicy
from tests.helpers import tool_call as call

ENV = "AgentR1/PaperSearch-v0"
ROW = {"question": "Which papers study waves?", "answer": ["Waves B", "Waves D"], "answer_arxiv_id": []}
ROW |= {"source_meta": {"published_time": "20230601"}}
FAST = "retries=0&backoff=0.01"


SCRIPT = [
    call("search", query="waves") + call("search", query="tides"),
    call("expand", paper_id="1") + call("expand", paper_id="nope"),
    call("finish"),
]


def papers(asked, number):
    """Papers 0 to 5, of which each refers to the next one; 4 comes after the query's date, 5 has no date."""
    rows = [{"paperId": str(i), "title": f"Waves {chr(65 + i)}", "abstract": f"On {i}."} for i in range(6)]
    for month, row in enumerate(rows, start=1):
        row["publicationDate"] = f"2022-0{month}-01"
    rows[4]["publicationDate"], rows[5]["publicationDate"] = "2023-06-02", None
    if asked.path == "/paper/search":
        return 200, {"data": rows[:3] if asked.params["query"] == "waves" else []}
    _, _, name, kind = asked.path.split("/")
    return 200, {"data": rows[2:] if kind == "references" else [rows[int(name)]]}


def fits(asked, number):
    """Odd papers fit."""
    texts = json.loads(asked.body)["input"]
    odd = [text.partition("Title: Waves ")[2][0] in "BDF" for text in texts]
    return 200, {"data": [{"index": i, "probs": [0.75, 0.25] if o else [0.005, 0.995]} for i, o in enumerate(odd)]}


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    return str(tmp_path / "rows.jsonl")


def test_an_episode_over_services(fake_service, rows):
    search, score = fake_service(papers), fake_service(fits)
    services = {"backend": f"{search.url}#{FAST}", "selector": f"classify:{score.url}#{FAST}"}
    (episode,) = run_episodes(
        ENV, ScriptedPolicy(SCRIPT), 1, options=[{"index": 0}], env_kwargs={"data": rows, **services}, progress=False
    )
    assert episode.stop_reason is StopReason.TERMINATED
    first, second, last = episode.steps
    assert [paper["id"] for paper in first.info["found"]] == ["1"] and first.reward == 0.75
    # paper 4 came later than the query was asked; 5 has no date
    assert [paper["id"] for paper in second.info["found"]] == ["3", "5"] and second.reward == 1.0
    assert second.info["invalid_action"]  # "nope" is not in the pool, which costs 0.5
    assert last.info["metrics"]["recall"] == 1.0 and last.info["metrics"]["precision"] == pytest.approx(2 / 3)
    texts = [text for asked in score.asked for text in json.loads(asked.body)["input"]]
    assert len(texts) == len(set(texts)) == 5  # each paper once


def test_a_service_that_fails_midway_leaves_the_pool_as_it_was(fake_service, rows):
    state = {"well": True}
    search = fake_service(lambda asked, n: papers(asked, n) if state["well"] else (500, b"oops"))
    env = gym.make(ENV, data=rows, backend=f"{search.url}#{FAST}")
    env.reset(options={"index": 0})
    env.step(SCRIPT[0])
    state["well"] = False
    with pytest.raises(BackendReplyError, match="500"):
        env.step(call("search", query="other") + SCRIPT[1])
    state["well"] = True
    _, reward, _, _, info = env.step(call("search", query="other") + SCRIPT[1])
    assert reward == 0.5 and not info["tool_results"][0]["error"] and info["pool"] == 2
