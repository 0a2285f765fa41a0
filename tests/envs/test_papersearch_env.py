"""The environment of paper search.

1. what is shown: new papers by score, once; errors in words; nothing published after the query's date
2. the end: finish, a text without a call, the limit; metrics at every step
3. broken backends and selectors end the episode with an error, not with a bad reward
4. the rebuilt prompt, and actors that begin anew with it
5. papers of a corpus on disk: cycles, self-citations, unknown ids, no abstract, no date
6. transcripts
"""

import json

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.datasets.papersearch.rows import PaperTask
from agent_envs.episodes.record import StopReason
from agent_envs.errors import BackendError
from agent_envs.messages import observation_messages
from agent_envs.retrieval.papers import Paper
from agent_envs.wrappers import RebuildPrompt
from tests.envs.paper_fakes import Backend, Judge, make
from tests.helpers import tool_call

ENV = "AgentR1/PaperSearch-v0"


def search(query):
    return tool_call("search", query=query)


def expand(paper_id):
    return tool_call("expand", paper_id=paper_id)


FINISH = tool_call("finish")

A = Paper("a", "Deep A", "All about a. And more.", "2020-01-01")
B = Paper("b", "Deep B\nin two lines", "", "2023-06-30")
C = Paper("c", "Deep C", "Too late.", "2023-07-01")
D = Paper("d", "Shallow D", "No date.")


def test_new_papers_are_shown_once_and_by_score():
    env = make(Backend(A, B, C, D, edges={"a": "bcd"}), selector=Judge(a=0.3, b=0.874), abstract_words=3)
    observation, reward, *_, info = env.step(search("Deep"))
    assert observation == (
        "[Search] Deep: 2 found, 2 new\n"
        "[b] (0.87) [NEW] Deep B in two lines\nAbstract: (none)\n"
        "[a] (0.30) [NEW] Deep A\nAbstract: All about a. ..."
    )
    assert reward == pytest.approx(1.174) and not info["invalid_action"]
    observation, *_ = env.step(expand("a") + search("Deep A"))
    assert observation == (
        "[Expand] a: 2 found, 1 new\n[d] (0.50) [NEW] Shallow D\nAbstract: No date.\n[Search] Deep A: 1 found, 0 new"
    )  # c is too late, b was there


def test_only_so_many_are_shown_and_all_are_kept():
    papers = [Paper(f"p{n}", f"Deep {n}") for n in range(30)]
    env = make(Backend(*papers), shown=3, top_k=20, selector=Judge(p7=0.9))
    observation, *_, info = env.step(search("Deep"))
    assert observation.count("[NEW]") == 3 and "20 found, 20 new" in observation and info["pool"] == 20
    assert observation.splitlines()[1].startswith("[p7] (0.90)")


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (search(" "), "the query is empty"),
        (search("x" * 5000), "5000 characters"),
        (expand("zz"), "the pool has no paper 'zz'"),
        (expand(""), "the pool has no paper ''"),
        (expand("\ud800" * 9), "the pool has no paper"),
        ("<tool_call>{</tool_call>", "error:"),
        ('<tool_call>{"name": "search", "arguments": {"q": 1}}</tool_call>', "wrong arguments"),
        ('<tool_call>{"name": "serach", "arguments": {}}</tool_call>', "Did you mean 'search'"),
        (search("Deep") * 6, "not run: at most 5 calls"),
        (search("Deep") * 2, "searched for before: 'Deep'"),
        ("", "The text is empty"),
    ],
)
def test_bad_calls_are_told_in_words(action, said):
    env = make(Backend(A, B))
    observation, _, terminated, truncated, info = env.step(action)
    assert said in observation and info["invalid_action"] and not terminated and not truncated
    observation.encode()


def test_a_paper_is_expanded_once():
    env = make(Backend(A, B, edges={"a": "b"}))
    env.step(search("Deep A"))
    assert "1 found, 1 new" in env.step(expand("a"))[0]
    observation, reward, *_, info = env.step(expand("a"))
    assert observation == "error: the paper 'a' was expanded before"
    assert reward == -0.5 and info["invalid_action"] and info["expansions"] == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[x]", "[x]"),
        (" sp ", "sp"),
        ("two\nlines] (1.00) [NEW] Other\nAbstract: no", "two lines] (1.00) [NEW] Other Abstract: no"),
        ("half\ud800", "half\ufffd"),
        ("<tool_call>", "<tool_call>"),
    ],
)
def test_odd_ids_stay_in_their_line_and_can_be_expanded_as_shown(name, shown):
    for form in (shown, f"[{shown}]"):
        env = make(Backend(Paper(name, "Deep\nA"), B, edges={name: "b"}))
        observation, *_ = env.step(search("Deep\nA"))
        assert observation.split("\n")[1:] == [f"[{shown}] (0.50) [NEW] Deep A", "Abstract: (none)"]
        assert env.step(expand(form))[0].startswith(f"[Expand] {shown}: 1 found, 1 new")


def test_papers_are_judged_together_and_new_ones_only():
    judge = Judge()
    env = make(Backend(A, B, D, edges={"a": "bd"}), selector=judge)
    env.step(search("Deep A") + search("Deep") + search("Shallow"))
    env.step(expand("a") + search("Deep B"))
    assert judge.asked == [["a", "b", "d"]]


def test_a_given_selector_is_asked_once_per_query_and_paper():
    judge = Judge(a=0.001)
    env = make(Backend(A, B), selector=judge)
    env.step(search("Deep A"))
    env.step(search("Deep"))
    env.reset(options={"index": 0})
    env.step(search("Deep"))
    assert judge.asked == [["a"], ["b"]]


@pytest.mark.parametrize("ending", [FINISH, "That is all.", search("Shallow") + FINISH])
def test_the_ways_to_finish(ending):
    task = PaperTask("t", "q", ("deep a", "DEEP B in two lines"))
    env = make(Backend(A, B, D), task, reward="f1")
    env.step(search("Deep"))
    _, reward, terminated, truncated, info = env.step(ending)
    assert terminated and not truncated and info["success"] and not info["invalid_action"]
    f1 = 1.0 if ending != search("Shallow") + FINISH else 0.8
    assert reward == info["score"] == info["metrics"]["f1"] == info["reward_components"]["f1"] == pytest.approx(f1)


def test_a_bad_call_beside_the_end_is_marked():
    *_, terminated, _, info = make(Backend(A, B)).step(expand("zz") + FINISH)
    assert terminated and info["invalid_action"]


def test_metrics_are_there_from_the_start():
    env = make(Backend(A, B))
    names = {"precision", "recall", "recall_at_20", "recall_at_50", "recall_at_100", "f1"}
    for info in (env.reset(seed=0)[1], env.step(search("Deep A"))[-1], env.step("Done.")[-1]):
        assert set(info["metrics"]) == names and all(type(value) is float for value in info["metrics"].values())
    assert info["metrics"] == {**dict.fromkeys(names, 0.5), "precision": 1.0, "f1": pytest.approx(2 / 3)}
    assert not info["success"]


def test_the_limit_pays_no_f1():
    env = gym.make(ENV, reward="f1")
    env.reset(seed=0)
    for _ in range(5):
        *_, reward, terminated, truncated, info = env.step(search("nothing"))
    assert truncated and not terminated and reward == 0.0 and not info["success"]


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("error", [BackendError("the service is down"), RuntimeError("a bug")])
def test_a_broken_backend_marks_the_episode(monkeypatch, blocking, error):
    backend = Backend(A)
    backend.blocking, backend.broken = blocking, error
    policy = agent_envs.policies.ScriptedPolicy([search("Deep")])
    (episode,) = agent_envs.run_episodes(
        ENV, policy, 1, env_kwargs={"backend": backend}, on_error="record", progress=False
    )
    assert episode.stop_reason is StopReason.ERROR and str(error) in episode.error


class Liar:
    def __init__(self, scores):
        self.answer = scores

    def scores(self, query, papers):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "scores", [BackendError("down"), [], [0.5] * 7, [float("nan")] * 2, None, ["high"] * 2, [10**400] * 2]
)
def test_a_broken_selector_marks_the_episode(scores):
    env = make(Backend(A, B), selector=Liar(scores))
    with pytest.raises(BackendError):
        env.step(search("Deep"))
    assert not env.state.pool


def test_blocking_backends_run_side_by_side():
    import threading

    backend, together = Backend(A, B, D), threading.Barrier(3, timeout=20)
    backend.blocking = True
    plain = backend.search
    backend.search = lambda *args: together.wait() >= 0 and plain(*args)
    env = make(backend)
    env.step(search("Deep A") + search("Deep B") + search("Shallow"))
    assert list(env.state.pool) == ["a", "b", "d"]


def test_long_results_are_shown_in_full():
    papers = [Paper(f"p{n:02d}", f"{'ABCDE'[n // 10]} {n}", "lengthy " * 400) for n in range(50)]
    env = make(Backend(*papers))
    observation, *_, info = env.step("".join(map(search, "ABCDE")))
    assert observation.count("[NEW]") == 50 and observation.endswith("lengthy")
    assert len(observation_messages(observation, info)) == 5


def test_the_rebuilt_prompt_has_query_history_and_pool():
    env = RebuildPrompt(make(Backend(A, B, D, edges={"a": "d"}), shown=1, selector=Judge(a=0.3, b=0.2, d=0.9)))
    first, info = env.reset(options={"index": 0})
    assert first == "Query: deep things\n\nHistory:\n(none)\n\nPapers (0 in the pool):\n(none)" and info["rebuilt"]
    env.step(search("Deep"))
    observation, *_, info = env.step(expand("a") + expand("x"))
    assert observation == (
        "Query: deep things\n\nHistory:\n[Search] Deep\n[Expand] a\n\nPapers (3 in the pool):\n"
        "[a] (0.30) [EXP] Deep A\nAbstract: All about a. And more.\n"
        "[d] (0.90) [NEW] Shallow D\nAbstract: No date.\n\n"
        "Problems:\nerror: the pool has no paper 'x'; expected the id of one that was shown"
    )
    assert observation_messages(observation, info) == [{"role": "user", "content": observation}]
    assert "Problems" not in env.step(search("Shallow"))[0]


@pytest.fixture
def corpus(tmp_path):
    rows = [
        {"id": "1", "title": "Odd Graphs", "abstract": "On odd graphs.", "date": "2020", "references": ["1", "2"]},
        {"id": 2, "title": "Even Graphs", "citations": ["3", "3", "nowhere"], "references": ["1"]},
        {"id": "3", "title": "Odd and Even", "abstract": None, "date": None},
        {"id": "1", "title": "Odd Graphs again", "citations": ["4"]},
        {"id": "4", "title": "", "date": "2021"},
    ]
    path = tmp_path / "papers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_corpus_with_everything_that_goes_wrong(corpus):
    env = gym.make(ENV, corpus=str(corpus), selector=Judge()).unwrapped
    env.reset(seed=0)
    env._task = PaperTask("t", "graphs", ("Odd graphs",))
    assert "2 found, 2 new" in env.step(search("graphs"))[0]
    observation, *_ = env.step(expand("1") + expand("2"))
    assert observation.startswith("[Expand] 1: 2 found, 1 new\n[4] (0.50) [NEW] \nAbstract: (none)")
    assert "[Expand] 2: 2 found, 1 new\n[3]" in observation
    assert env.step("Done.")[-1]["metrics"]["precision"] == 0.25


def test_a_golden_transcript(root, play):
    """A change here is a change of the environment: it needs a new version (-v1)."""
    env = gym.make(ENV, split="test", render_mode="ansi", top_k=2, max_calls=2)
    assert play(env, 170)[2]["metrics"]["recall"] == 1.0
    assert env.render() == (root / "tests" / "golden" / "papers.txt").read_text(encoding="utf-8")
