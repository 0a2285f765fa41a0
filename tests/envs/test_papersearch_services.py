"""Paper search over services: whole episodes, with services that fail, and played again without them.

1. An episode over HTTP, with a backend and a classifier, goes as offline ones do.
2. A service that fails ends the episode with an error that is typed and marked; the next episode is not touched by it.
3. A recorded episode is played again byte for byte.
"""

import json

import gymnasium as gym
import pytest

from agent_envs import StopReason, run_episodes
from agent_envs.errors import BackendDownError, BackendReplyError
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


def play(**kwargs):
    (episode,) = run_episodes(
        ENV, ScriptedPolicy(SCRIPT), 1, options=[{"index": 0}], env_kwargs=kwargs, on_error="record", progress=False
    )
    return episode


def said(episode):
    """What is left of an episode when its name and the backend's are not compared."""
    row = episode.to_dict()
    row.pop("episode_id"), row.pop("group_id")
    return row


def test_an_episode_over_services(fake_service, rows):
    search, score = fake_service(papers), fake_service(fits)
    episode = play(data=rows, backend=f"{search.url}#{FAST}", selector=f"classify:{score.url}#{FAST}")
    assert episode.stop_reason is StopReason.TERMINATED
    first, second, last = episode.steps
    assert [paper["id"] for paper in first.info["found"]] == ["1"] and first.reward == 0.75
    # paper 4 came later than the query was asked; 5 has no date
    assert [paper["id"] for paper in second.info["found"]] == ["3", "5"] and second.reward == 1.0
    assert second.info["invalid_action"]  # "nope" is not in the pool, which costs 0.5
    assert last.info["metrics"]["recall"] == 1.0 and last.info["metrics"]["precision"] == pytest.approx(2 / 3)
    texts = [text for asked in score.asked for text in json.loads(asked.body)["input"]]
    assert len(texts) == len(set(texts)) == 5  # each paper once


@pytest.mark.parametrize("broken", ["backend", "selector"])
@pytest.mark.parametrize("how", ["down", "busy", "odd"])
def test_a_service_that_fails_marks_the_episode(fake_service, rows, broken, how):
    state = {"well": False}
    reply = {"down": None, "busy": (429, b"wait"), "odd": (200, {"message": "hello"})}[how]

    def breaking(answer):
        return lambda asked, n: answer(asked, n) if state["well"] else reply

    search = fake_service(breaking(papers) if broken == "backend" else papers)
    score = fake_service(breaking(fits) if broken == "selector" else fits)
    kwargs = {"data": rows, "backend": f"{search.url}#{FAST}", "selector": f"classify:{score.url}#{FAST}"}
    episode = play(**kwargs)
    assert episode.stop_reason is StopReason.ERROR and not episode.steps
    kind = {"down": "BackendDownError", "busy": "BackendBusyError", "odd": "BackendReplyError"}[how]
    assert kind in episode.error
    state["well"] = True
    assert play(**kwargs).steps[-1].info["metrics"]["recall"] == 1.0


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


def test_a_recorded_episode_is_played_again(fake_service, rows, tmp_path):
    search, score = fake_service(papers), fake_service(fits)
    selector = f"classify:{score.url}#{FAST}&cache={tmp_path}/scores"
    backend = f"{search.url}#{FAST}&cache={tmp_path}/papers"
    recorded = play(data=rows, backend=backend, selector=selector)
    search.stop()
    score.stop()
    replayed = play(data=rows, backend=f"{backend}&offline=1", selector=f"{selector}&offline=1")
    assert said(replayed) == said(recorded) and recorded.stop_reason is StopReason.TERMINATED
    with pytest.raises(BackendDownError):
        env = gym.make(ENV, data=rows, backend=f"{search.url}#{FAST}")
        env.reset(options={"index": 0})
        env.step(SCRIPT[0])
