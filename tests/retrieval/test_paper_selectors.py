"""Scores from services: the released `/classify`, and a judge with the chat API.

1. Requests have the shape the servers take; answers are put in place by their index.
2. A pair of query and paper is asked about once; a failure, or an answer in another shape, is not remembered.
3. Papers with braces, instructions or broken characters are text like any other.
4. The released request: one text without activation, the paper whole; a failure is 0, and asked again.
"""

from __future__ import annotations

import copy
import json
import time

import pytest

from agent_envs.errors import BackendError, BackendReplyError, ConfigError, DataError, NotRecordedError
from agent_envs.retrieval.papers import CachedSelector, Paper, Selector, open_selector
from agent_envs.retrieval.papers.selectors import ClassifierSelector, JudgeSelector, read_score

PAPERS = [Paper("1", "Graphs", "On {query} graphs."), Paper("2", "Seas"), Paper("3", "Moons \ud800", "x " * 500)]


def classify(asked, number):
    """Graphs fit, others do not."""
    texts = json.loads(asked.body)["input"]
    probs = [[0.9, 0.1] if "Graphs" in text else [0.25, 0.75] for text in texts]
    data = [{"index": i, "label": "LABEL_0", "probs": p, "num_classes": 2} for i, p in enumerate(probs)]
    return 200, {"id": "classify-1", "object": "list", "data": data[::-1]}


def test_classifier(fake_service):
    service = fake_service(classify)
    served = open_selector(f"classify:{service.url}#model=selector&parallel=1")
    assert isinstance(served, Selector) and copy.deepcopy(served) is served
    selector = CachedSelector(served)
    assert selector.scores("which graphs?", PAPERS) == [0.9, 0.25, 0.25]
    bodies = [json.loads(asked.body) for asked in service.asked]
    assert service.asked[0].path == "/classify" and bodies[0]["model"] == "selector"
    (first,), (second,), (third,) = (body["input"] for body in bodies)
    assert "which graphs?" in first and "Title: Graphs\n" in first and "On {query} graphs." in first
    assert "Abstract: (none)" in second and third.count("x ") < 410
    assert selector.scores("which graphs?", PAPERS[:2]) == [0.9, 0.25] and len(service.asked) == 3  # remembered
    assert selector.scores("another", PAPERS[:1]) == [0.9] and len(service.asked) == 4
    assert selector.scores("another", []) == []
    open_selector(service.url).scores("q", PAPERS[:1])
    assert "model" not in json.loads(service.asked[-1].body)


def test_classifier_with_its_own_prompt(fake_service, tmp_path):
    service = fake_service(classify)
    (tmp_path / "prompt.txt").write_text("Q={query} T={title}")
    selector = ClassifierSelector(f"{service.url}/classify", prompt=f"{tmp_path}/prompt.txt")
    selector.scores("a\nb", PAPERS[:1])
    assert json.loads(service.asked[0].body)["input"] == ["Q=a b T=Graphs"]
    (tmp_path / "prompt.txt").write_text("Q={query}")
    with pytest.raises(ConfigError, match=r"lacks \{title\}"):
        ClassifierSelector(service.url, prompt=f"{tmp_path}/prompt.txt")
    with pytest.raises(DataError, match="cannot be read"):
        ClassifierSelector(service.url, prompt=f"{tmp_path}/none.txt")


def test_the_released_request(fake_service, tmp_path):
    broken = [True]

    def answer(asked, n):
        if broken[0] and "Seas" in json.loads(asked.body)["input"]:
            return 503, {"error": "loading"}
        return 200, {"data": [{"index": 0, "probs": [2.5, -1.5]}]}  # not probabilities

    service = fake_service(answer)
    (tmp_path / "prompt.txt").write_text("{query}|{title}|{abstract}|")
    options = f"model=m&prompt={tmp_path}/prompt.txt&backoff=0&retries=3"
    selector = CachedSelector(open_selector(f"{service.url}#{options}&released=1"))
    assert selector.scores("a\nb", PAPERS) == [2.5, 0.0, 2.5]
    bodies = [json.loads(asked.body) for asked in service.asked]
    assert {"input": "a\nb|Graphs|On {query} graphs.|", "activation": False, "model": "m"} in bodies
    assert sum(body["input"] == "a\nb|Seas||" for body in bodies) == 4  # 3 retries
    assert any(body["input"].endswith("|" + "x " * 500 + "|") for body in bodies)
    broken[0] = False
    assert selector.scores("a\nb", PAPERS) == [2.5, 2.5, 2.5] and len(service.asked) == 7  # the failure was not kept
    service.stop()
    with pytest.raises(BackendError):
        open_selector(f"{service.url}#{options}").scores("c", PAPERS)
    with pytest.raises(NotRecordedError):  # what was not recorded is no failure of the server
        open_selector(f"{service.url}#released=1&offline=1&cache={tmp_path}/none").scores("c", PAPERS)


@pytest.mark.parametrize(
    "payload",
    [None, [], {}, {"data": []}, {"data": [3]}, {"data": [{}]}, {"data": [{"probs": []}]}, {"data": [{"probs": "x"}]},
     {"data": [{"probs": [None]}]}, {"data": [{"probs": [7.5, -3.0]}]}, {"data": [{"probs": [0.5], "index": 3}]},
     {"data": [{"probs": [0.5]}] * 2}, {"data": [{"probs": [True]}]}, {"data": [{"probs": [10**400]}]},
     {"error": {"message": "no model"}}],
)  # fmt: skip
def test_classifier_in_another_shape(fake_service, tmp_path, payload):
    service = fake_service(lambda asked, n: (200, payload) if n < 2 else classify(asked, n))
    selector = CachedSelector(ClassifierSelector(service.url, cache=f"{tmp_path}/kept"))
    with pytest.raises(BackendReplyError):
        selector.scores("q", PAPERS[:1])
    assert not (tmp_path / "kept").exists()
    assert selector.scores("q", PAPERS[:1]) == [0.9]  # asked again


def test_scores_replay_from_a_folder(fake_service, tmp_path):
    service = fake_service(classify)
    said = ClassifierSelector(service.url, cache=str(tmp_path)).scores("q", PAPERS)
    service.stop()
    offline = ClassifierSelector(service.url, cache=str(tmp_path), offline=True)
    assert offline.scores("q", PAPERS) == said
    assert offline.scores("q", PAPERS[1:]) == said[1:]  # kept paper by paper
    with pytest.raises(NotRecordedError):
        offline.scores("other", PAPERS)


def test_judge(fake_service, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")

    def answer(asked, n):
        prompt = json.loads(asked.body)["messages"][0]["content"]
        time.sleep(0.05)
        return 200, {"choices": [{"message": {"content": f"Score: {85 if 'Graphs' in prompt else 5}/100"}}]}

    service = fake_service(answer)
    selector = CachedSelector(open_selector(f"judge:{service.url}/v1#model=m&max_tokens=32"))
    assert selector.scores("which graphs?", PAPERS) == [0.85, 0.05, 0.05]
    assert {asked.path for asked in service.asked} == {"/v1/chat/completions"}
    body = json.loads(service.asked[0].body)
    assert body["model"] == "m" and body["temperature"] == 0 and body["max_tokens"] == 32
    assert service.asked[0].headers["Authorization"] == "Bearer not-a-real-key"
    assert max(a.time for a in service.asked) - min(a.time for a in service.asked) < 0.05  # side by side
    assert selector.scores("which graphs?", PAPERS[::-1]) == [0.05, 0.05, 0.85] and len(service.asked) == 3


@pytest.mark.parametrize(
    "payload",
    [None, {}, {"choices": []}, {"choices": [{"message": {"content": None}}]},
     {"choices": [{"message": {"content": "It depends."}}]}, {"choices": [{"message": {"content": "Score: 250"}}]}],
)  # fmt: skip
def test_judge_without_a_score(fake_service, payload):
    service = fake_service(lambda asked, n: (200, payload))
    with pytest.raises(BackendReplyError):
        JudgeSelector(f"{service.url}/v1", model="m").scores("q", PAPERS[:1])


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("85", 0.85),
        ("Score: 85.5", 0.855),
        ("Score: 3/5", 0.6),
        ("score = 40\nand then\nSCORE: 60", 0.6),  # the last one
        ('{"score": 20}', 0.2),
        ("<think>Score: 90", None),  # never came to an answer
        ("Score: -5", None),
        ("Score: 1/0", None),
        ("", None),
        ("Score: " + "9" * 5000, None),
    ],
)
def test_scores_are_read(text, score):
    assert read_score(text) == score


@pytest.mark.parametrize(
    "name", ["golden", "judge:", "judge:http://x", "judge:http://x#model=m&parallel=0", "classify:", "classify:http://x#parallel=0",
             "judge:http://x#model=m&key_env=NO_SUCH_KEY", "classify:http://x#mode=1", "clasify:http://x",
             "classify:http://x#released=2", "judge:http://x#model=m&released=1"],
)  # fmt: skip
def test_bad_names(name):
    with pytest.raises(ConfigError):
        open_selector(name)
