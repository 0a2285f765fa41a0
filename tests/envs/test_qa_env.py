"""HotpotQA-v0, TwoWikiMultihopQA-v0 and MuSiQue-v0, by scripted episodes.

1. The expert wins in every style, at every number of hops, and not without a supporting article; guessing does not.
2. Answers are judged by exact match over aliases; every reward and info key is what it says.
3. What is searched can be given: a corpus, an index, a server, a retriever; broken ones are typed errors.
4. Bad actions and hostile queries are observations; max_calls, passage_chars, top_k and force_first_search hold.
5. Golden transcripts of the three styles.
"""

import copy
import importlib.util
import json
import pickle
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.datasets.qa.corpus import generated_retriever
from agent_envs.datasets.qa.generated.encyclopaedia import encyclopaedia
from agent_envs.episodes.record import StopReason
from agent_envs.errors import BackendError, ConfigError, DataError
from agent_envs.messages import observation_messages
from agent_envs.policies import ExpertPolicy
from agent_envs.retrieval import BM25Retriever, StaticRetriever
from agent_envs.testing import check_text_env
from tests.helpers import tool_call

HOTPOT, WIKI, MUSIQUE = "AgentR1/HotpotQA-v0", "AgentR1/TwoWikiMultihopQA-v0", "AgentR1/MuSiQue-v0"
STYLES = ("tool", "react", "search_r1")


def base(env: gym.Env[str, str]) -> Any:
    return env.unwrapped


def search(query: str) -> str:
    return tool_call("search", query=query)


# -- the expert ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "style", "hops"),
    [
        *((HOTPOT, style, hops) for style in STYLES for hops in (2, 3, 4)),
        *((WIKI, "tool", 3), (WIKI, "react", 4), (MUSIQUE, "tool", 4), (MUSIQUE, "search_r1", 3)),  # the same classes
    ],
)
def test_the_expert_wins_with_what_it_is_shown(env_id, style, hops, play):
    # the expert tries up to five words for a fact, a lookup each
    limit = {"max_episode_steps": 20} if (style, hops) == ("react", 4) else {}
    env = gym.make(env_id, style=style, hops=hops, **limit)
    wins = 0.0
    for index in range(12):
        reward, steps, info = play(env, index)
        wins += reward
        assert reward == info["score"] == float(info["success"])
        assert steps >= 2
        assert info["hops"] == hops
        if info["success"] and not (style == "search_r1" or info["question_type"] == "yesno"):
            assert info["supporting_recall"] == 1.0
    assert wins >= 11


@pytest.mark.parametrize("style", STYLES)
def test_an_episode_counts_its_calls_in_every_style(style):
    options = {"env_kwargs": {"style": style, "max_calls": 1}, "options": [{"index": 3}], "progress": False}
    (episode,) = agent_envs.run_episodes(HOTPOT, ExpertPolicy(), 1, **options)
    assert episode.calls == len(episode.steps) - 1 > 0


class Without:
    """A retriever that has lost an article."""

    def __init__(self, inner: BM25Retriever, title: str) -> None:
        self.inner, self.title = inner, title

    def search(self, query: str, k: int = 10) -> list[tuple[str, float]]:
        hits = self.inner.search(query, k + 1)
        return [hit for hit in hits if self.inner.document(hit[0])["title"] != self.title][:k]

    def search_many(self, queries: list[str], k: int = 10) -> list[list[tuple[str, float]]]:
        return [self.search(query, k) for query in queries]

    def document(self, doc_id: str) -> dict[str, Any]:
        return self.inner.document(doc_id)


@pytest.mark.parametrize("hops", [2, 3, 4])
def test_without_any_one_supporting_article_the_expert_does_not_answer(hops, play):
    tasks = gym.make(WIKI, hops=hops)
    retriever = generated_retriever(encyclopaedia("train", 1000))
    for index in range(10):
        tasks.reset(options={"index": index})
        for title in base(tasks).task.supporting:
            env = gym.make(WIKI, hops=hops, retriever=Without(retriever, title), disable_env_checker=True)
            reward, _, info = play(env, index)
            assert (reward, info["success"]) == (0.0, False), (base(tasks).task, title)
            assert info["answer"] in ("unknown", "")
            assert info["supporting_recall"] < 1.0


# -- answers, rewards, info ------------------------------------------------------------------------------------------

DOCUMENTS = [
    {"id": "1", "title": "Korvath", "text": "Korvath, also known as Tamsel, is a town. Its mayor is Adan Orvel."},
    {"id": "2", "title": "Adan Orvel", "text": "Adan Orvel was a painter. She was born in Pigam. " * 40},
    {"id": "3", "title": "Pigam", "text": "Pigam is a town."},
]
ROWS = [
    {
        "_id": "q1", "question": "Where was the mayor of Korvath born?", "answer": "Pigam", "type": "bridge",
        "level": "easy", "answer_aliases": ["the Old Town of Pigam"],
        "supporting_facts": [["Korvath", 1], ["Adan Orvel", 1], ["Korvath", 0]],
        "context": [[d["title"], [d["text"]]] for d in DOCUMENTS],
    },
    {
        "_id": "q2", "question": "Is Pigam a town?", "answer": "yes", "type": "comparison", "level": "hard",
        "supporting_facts": [["Pigam", 0]], "context": [["Pigam", ["Pigam is a town."]]],
    },
]  # fmt: skip


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(ROWS))
    return str(path)


ANSWERS = [  # exact match, F1, and whether the answer is a part; whether the action was invalid
    ("<answer>Pigam</answer>", 1.0, 1.0, 1.0, False),
    ("<answer> the old town of Pigam! </answer>", 1.0, 1.0, 1.0, False),
    ("<ANSWER>**Pigam**</ANSWER>", 1.0, 1.0, 1.0, False),
    (r"\boxed{\text{Pigam}}", 1.0, 1.0, 1.0, False),
    ("Pigam", 1.0, 1.0, 1.0, False),  # a text without a call is the answer
    ("<think>Adan?</think>Pigam", 1.0, 1.0, 1.0, False),
    ("I think it is <answer>Pigam</answer>.", 1.0, 1.0, 1.0, False),
    ("<answer>Korvath</answer> no, <answer>Pigam</answer>", 1.0, 1.0, 1.0, False),  # the last one
    ("It is in Pigam.", 0.0, 0.4, 1.0, False),
    ("<answer>Korvath</answer>", 0.0, 0.0, 0.0, False),
    ("Korvath", 0.0, 0.0, 0.0, True),  # without tags, and without the answer
    ("I do not know yet.", 0.0, 0.0, 0.0, True),
    ("<answer>Korvath", 0.0, 0.0, 0.0, True),
    ("<answer></answer>", 0.0, 0.0, 0.0, True),
    ("<think>Pigam</think>\u200b<answer>\n</answer>", 0.0, 0.0, 0.0, True),
]


@pytest.mark.parametrize(("text", "em", "overlap", "sub", "invalid"), ANSWERS)
def test_answers(rows, text, em, overlap, sub, invalid):
    scores = {"em": em, "f1": pytest.approx(overlap), "sub_em": sub}
    for reward in scores:
        env = gym.make(HOTPOT, data=rows, reward=reward)
        env.reset(options={"index": 0})
        observation, paid, terminated, truncated, info = env.step(text)
        assert (terminated, truncated, info["invalid_action"]) == (True, False, invalid)
        assert {key: info[key] for key in scores} == scores
        assert paid == scores[reward]
        assert info["reward_components"] == {reward: paid}
        assert (info["score"], info["success"]) == (em, em == 1.0)  # whatever the reward
        if not em:
            assert "Pigam" not in observation.replace(text, "")
    assert (observation == "No answer was given.") == ("\n</answer>" in text or "<answer></" in text)


def test_info_of_an_episode(rows):
    env = gym.make(HOTPOT, data=rows)
    question, info = env.reset(options={"index": 0})
    assert question == ROWS[0]["question"] == info["anchor"]
    first = {"answer": "", "em": 0.0, "f1": 0.0, "sub_em": 0.0, "supporting_recall": 0.0, "searches": 0}
    first |= {"question_type": "bridge", "hops": 2}
    assert {key: info[key] for key in first} == first
    assert (info["task_id"], info["split"], info["source"]) == ("hotpotqa/all/0", "all", rows)
    observation, reward, terminated, _, info = env.step(search("Korvath mayor") + search("Pigam"))
    assert (reward, terminated, info["searches"]) == (0.0, False, 2)
    assert [r["name"] for r in info["tool_results"]] == ["search", "search"]
    assert all(type(r["content"]) is str for r in info["tool_results"])
    assert type(observation) is str
    assert [m["role"] for m in observation_messages(observation, info)] == ["tool", "tool"]
    assert observation.startswith("[1] Korvath\nKorvath, also known as Tamsel, is a town.")
    assert info["supporting_recall"] == 1.0  # Adan Orvel was found by "Korvath mayor" or "Pigam"
    assert info["anchor"].splitlines() == [question, "Adan Orvel", "Korvath", "Pigam"]
    *_, info = env.step("<answer>Pigam</answer>")
    assert (info["answer"], info["searches"], info["tool_results"]) == ("Pigam", 2, [])


@pytest.mark.parametrize("style", STYLES)
def test_the_expert_of_rows_searches_what_they_name_as_supporting(rows, style, tmp_path):
    env = gym.make(HOTPOT, data=rows, style=style)
    env.reset(options={"index": 0})
    over, steps = False, 0
    while not over:
        _, reward, terminated, truncated, info = env.step(base(env).expert_action())
        over, steps = terminated or truncated, steps + 1
    assert (reward, info["supporting_recall"], info["searches"]) == (1.0, 1.0, 2)
    assert steps == 3  # a bridge is crossed once its far side was named, even where two searches fit into a step
    unnamed = tmp_path / "unnamed.json"
    unnamed.write_text(json.dumps([row | {"supporting_facts": []} for row in ROWS]))
    env = gym.make(HOTPOT, data=str(unnamed), style=style)
    env.reset(options={"index": 0})
    assert base(env).expert_action() is None


def test_the_released_format_reward(rows):
    env = gym.make(HOTPOT, data=rows, reward="qa_format")
    env.reset(options={"index": 0})
    _, reward, *_ = env.step("<think>Who?</think>" + search("Korvath"))
    assert reward == 0.0
    _, reward, _, _, info = env.step("<think>So.</think><answer>in Pigam</answer>")
    assert (reward, info["success"]) == (1.0, False)
    env.reset(options={"index": 0})
    env.step("<think>Where?</think>" + search("Pigam"))
    assert env.step("<think>So.</think><answer>Rome</answer>")[1] == pytest.approx(0.2)  # it was in the results
    env.reset(options={"index": 0})
    assert env.step("Pigam")[1] == -1.0


# -- what is searched ------------------------------------------------------------------------------------------------


def test_a_corpus_an_index_and_a_server_find_the_same(rows, tmp_path):
    passages = tmp_path / "passages.jsonl"
    passages.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    contents = tmp_path / "contents.jsonl"
    contents.write_text(
        "".join(json.dumps({"id": d["id"], "contents": f'"{d["title"]}"\n{d["text"]}'}) + "\n" for d in DOCUMENTS)
    )
    index = BM25Retriever.build(DOCUMENTS, tmp_path / "index")
    static = StaticRetriever({}, DOCUMENTS, default=["1", "2"])
    pytest.importorskip("aiohttp")
    from agent_envs.serving import SearchServer

    with SearchServer(index, port=0) as server:
        sources: list[dict[str, Any]] = [
            {"corpus": str(passages)}, {"corpus": passages}, {"corpus": str(contents)},
            {"corpus": str(tmp_path / "index")}, {"retriever": str(tmp_path / "index")}, {"retriever": server.url},
            {"retriever": index}, {"retriever": static}, {"corpus": str(passages), "retriever": "bm25"},
        ]  # fmt: skip
        seen = []
        for source in sources:
            env = gym.make(HOTPOT, data=rows, **source)
            env.reset(options={"index": 0})
            seen.append(env.step(search("Korvath Adan"))[0])
        assert len(set(seen)) == 1
        assert seen[0].startswith("[1] Korvath\nKorvath, also")


@pytest.mark.lucene
@pytest.mark.skipif(importlib.util.find_spec("pyserini") is None, reason="pyserini is not installed: make lucene")
def test_lucene_searches_the_same_corpora(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    passages = tmp_path / "passages.jsonl"
    passages.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    for kwargs in ({"data": rows}, {"data": rows, "corpus": str(passages)}, {"articles": 200}):
        seen = []
        for retriever in ("bm25", "lucene"):
            env = gym.make(HOTPOT, retriever=retriever, **kwargs)
            env.reset(options={"index": 0})
            seen.append([env.step(search(query))[0] for query in ("Korvath Adan", "a town and its mayor", "zzz")])
        assert seen[0] == seen[1]


def test_a_broken_search_is_an_error_and_not_an_observation(rows, tmp_path, fake_service):
    service = fake_service(lambda asked, number: (200, b"<html>no</html>"))
    env = gym.make(HOTPOT, data=rows, retriever=service.url)
    env.reset(options={"index": 0})
    with pytest.raises(BackendError):
        env.step(search("Korvath"))
    policy = agent_envs.policies.ScriptedPolicy([search("Korvath"), "Pigam"])
    episode = agent_envs.run_episode(env, policy, options={"index": 0})
    assert episode.stop_reason is StopReason.ERROR
    assert "BackendReplyError" in str(episode.error)
    for corpus in (tmp_path / "missing", tmp_path):
        with pytest.raises(DataError):
            gym.make(HOTPOT, data=rows, corpus=str(corpus)).reset(seed=0)


def test_copies_and_snapshots_share_the_index(rows):
    retriever = BM25Retriever.build(DOCUMENTS)
    for style in STYLES:
        env = gym.make(HOTPOT, data=rows, style=style, retriever=retriever)
        env.reset(options={"index": 0})
        call = base(env).format_call("search", {"entity" if style == "react" else "query": "Korvath"})
        other = copy.deepcopy(base(env))
        assert other.registry["search"].retriever is retriever
        assert other.step(call)[0] == env.step(call)[0]
        snapshot = pickle.loads(pickle.dumps(base(env).snapshot()))
        assert base(env).restore(snapshot)[1]["searches"] == 1


# -- bad input -------------------------------------------------------------------------------------------------------

QUERIES = ["", " \n", "x" * 100_000, 'AND "', "(a OR b) AND NOT c:d^2~*?", "\x00\x01\xff", "\ud800", "é中😀\U00010ffff"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("query", [*QUERIES, "the of and"])
def test_any_query_is_answered(style, query):
    env = gym.make(HOTPOT, style=style)
    env.reset(options={"index": 0})
    action = base(env).format_call("search", {"entity" if style == "react" else "query": query})
    observation, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["invalid_action"] == (not query.strip() or len(query) > 4096)
    observation.encode()
    assert len(observation) < 10_000


@pytest.mark.parametrize("style", ["react", "search_r1"])
def test_the_other_styles_keep_the_contract(style):
    check_text_env(HOTPOT, env_kwargs={"style": style}, tasks=5, vectors=False)  # the three ids have one class


def test_real_rows_keep_the_contract(rows):
    check_text_env(HOTPOT, env_kwargs={"data": rows}, vectors=False)


def test_what_is_searched_and_shown_can_be_set(rows):
    env = gym.make(HOTPOT, data=rows, max_calls=2)
    env.reset(options={"index": 0})
    *_, info = env.step(search("a town") * 3)
    assert [r["error"] for r in info["tool_results"]] == [False, False, True]
    assert (info["invalid_action"], info["searches"]) == (True, 2)
    env = gym.make(HOTPOT, data=rows, top_k=1, passage_chars=20)
    env.reset(options={"index": 0})
    assert env.step(search("Adan Orvel"))[0] == "[1] Adan Orvel\nAdan Orvel was a pai"
    env = gym.make(HOTPOT, data=rows)
    env.reset(options={"index": 0})
    assert len(env.step(search("painter"))[0]) == len("[1] Adan Orvel\n") + 1200
    assert env.step(search("zzz"))[0] == "No passage matches the query; try other words."


def test_a_forced_first_search(rows, play):
    env = gym.make(HOTPOT, data=rows, force_first_search=True)
    observation, info = env.reset(options={"index": 0})
    question, _, results = observation.partition("\n\n")
    assert question == ROWS[0]["question"]
    assert "[1] Korvath\n" in results
    assert (info["searches"], info["tool_results"], info["invalid_action"]) == (1, [], False)
    assert info["supporting_recall"] > 0
    env = gym.make(HOTPOT, force_first_search=True)
    assert sum(play(env, index)[0] for index in range(30)) == 30


def test_rows_have_no_hops_to_choose(rows):
    for kwargs in ({"hops": 2}, {"articles": 2000}):
        with pytest.raises(ConfigError, match="apply only to data='generated'"):
            gym.make(HOTPOT, data=rows, **kwargs)


# -- ReAct -----------------------------------------------------------------------------------------------------------

PAGE = "Dorvik is a town. " + " ".join(f"Sentence {n} has the word {'amber' if n % 2 else 'jade'}." for n in range(8))


def test_pages_open_and_are_looked_up():
    documents = [{"id": "1", "title": "Dorvik", "text": PAGE}, {"id": "2", "title": "Dorvik (film)", "text": "A film."},
                 {"id": "3", "title": "Selm", "text": "Selm, also known as Lower Dorn, is a town."}]  # fmt: skip
    env = gym.make(HOTPOT, style="react", retriever=StaticRetriever({}, documents, default=["2", "1", "3"]))
    env.reset(options={"index": 0})

    def say(text: str) -> str:
        return env.step(text)[0]

    assert say("lookup[amber]") == "error: no page is open; open one with search[entity]"
    assert say("search[dorvik]") == " ".join(PAGE.split(". ")[n] + "." for n in range(5))
    assert say("lookup[Amber]") == "(Result 1 / 4) Sentence 1 has the word amber."
    assert say("lookup[Amber]") == "(Result 2 / 4) Sentence 3 has the word amber."
    assert say("lookup[jade]").startswith("(Result 1 / 4) Sentence 0")
    assert say("lookup[ruby]") == "No more results."
    assert say("search[Nowhere]") == "Could not find [Nowhere]. Similar: 'Dorvik (film)', 'Dorvik', 'Selm'."
    assert say("lookup[jade]").startswith("(Result 1 / 4)")  # the page stays open, the look-up begins anew
    assert say("search[Dorvik (film)]") == "A film."
    assert say("search[Lower Dorn]").startswith("Selm,")  # by its other name


# -- transcripts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "index"), [("tool", 1), ("react", 4), ("search_r1", 3)])
def test_golden_transcripts(style, index, root, play):
    """A change here is a change of the environments: it needs a new version (-v1)."""
    env = gym.make(HOTPOT, split="test", style=style, hops=2, render_mode="ansi")
    play(env, index)
    assert env.render() == (root / "tests" / "golden" / f"qa_{style}.txt").read_text(encoding="utf-8")
