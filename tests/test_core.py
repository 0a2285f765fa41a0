"""Spaces, records, parsers, tools and the base classes of environments."""

import asyncio
import copy
import json
import pickle
import threading
import time
from typing import Literal, TypedDict

import gymnasium as gym
import numpy as np
import pytest

from agent_envs import Problem
from agent_envs.episodes.record import Episode, Step, StopReason, read_episodes, write_episodes
from agent_envs.errors import BackendError, ConfigError, DataError, MissingExtraError, TaskIndexError, ToolError
from agent_envs.messages import ParseFailure, ToolCall, observation_messages
from agent_envs.parsers import HermesParser
from agent_envs.spaces import UnicodeText
from agent_envs.tasks import ListedTasks
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import Tool, ToolRegistry, tool

# -- spaces ----------------------------------------------------------------------------------------------------------


class EchoEnv(gym.Env):
    """Says back what it hears, within a Dict."""

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        self.action_space = UnicodeText(50)
        self.observation_space = gym.spaces.Dict(text=UnicodeText(50), n=gym.spaces.Discrete(9))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"text": f"début 中😀 {self.np_random.integers(100)}", "n": 3}, {}

    def step(self, action):
        return {"text": action, "n": 3}, 0.0, False, False, {}


@pytest.mark.parametrize("vector", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
def test_vectors_carry_text_within_other_spaces(vector):
    envs = vector([EchoEnv] * 3)
    try:
        first, _ = envs.reset(seed=4)
        kept = copy.deepcopy(first)
        for actions in (("a", "", "\x00 中\n😀"), ("x" * 50, "\ud800", " b ")):
            assert tuple(envs.step(actions)[0]["text"]) == actions
        assert first["text"][0] == EchoEnv().reset(seed=4)[0]["text"]
        assert str(first) == str(kept)  # an observation handed out earlier does not change
    finally:
        envs.close()


def test_unicode_text_holds_any_string_up_to_its_length():
    space = UnicodeText(4)
    assert all(space.contains(x) for x in ("", "a\n b", "\x00" * 4, "\ud800", "😀😀😀😀"))
    assert not any(space.contains(x) for x in ("abcde", None, 3, b"ab"))
    assert space == UnicodeText(4) and space != UnicodeText(5) and hash(space) == hash(UnicodeText(4))
    assert pickle.loads(pickle.dumps(space)) == space
    space.seed(1)
    samples = [space.sample() for _ in range(20)]
    space.seed(1)
    assert samples == [space.sample() for _ in range(20)]
    assert all(space.contains(s) for s in samples)


# -- episodes --------------------------------------------------------------------------------------------------------


def _episode(**changes):
    step = Step("obs", "act \ud800 😀", 0.5, True, False, {"success": True, "score": np.float64(1.0), "n": np.int64(2)})
    with_tokens = Step("o", "a", 0.25, False, True, {}, (1, 2), (3,), (-0.125,))
    values = {
        "env_id": "Test/Env-v0", "episode_id": "e", "group_id": "g", "seed": 1, "index": 2, "instructions": "do",
        "tools": (), "reset_info": {"task_id": "t"}, "steps": (with_tokens, step), "final_observation": "end",
        "stop_reason": StopReason.TERMINATED,
    }  # fmt: skip
    return Episode(**{**values, **changes})


def test_episodes_survive_json(tmp_path):
    episode = _episode()
    assert (episode.reward, episode.success, episode.score) == (0.75, True, 1.0)
    path = tmp_path / "deep" / "episodes.jsonl"
    write_episodes(path, [episode, episode])
    loaded = list(read_episodes(path))
    assert loaded == [episode, episode]
    assert loaded[0].steps[0].response_ids == (3,) and loaded[0].steps[0].response_logprobs == (-0.125,)
    assert json.loads(path.read_text().splitlines()[0])["schema_version"] == 1
    assert [p.name for p in path.parent.iterdir()] == ["episodes.jsonl"]


def test_a_broken_episode_line_names_file_and_line(tmp_path):
    path = tmp_path / "episodes.jsonl"
    path.write_text(_episode().to_json() + '\n{"schema_version": 99}\n')
    with pytest.raises(DataError, match=r"episodes\.jsonl, line 2.*schema_version 1, got 99"):
        list(read_episodes(path))
    with pytest.raises(DataError, match="no JSON form"):
        write_episodes(tmp_path / "x.jsonl", [_episode(reset_info={"f": object()})])
    assert not (tmp_path / "x.jsonl").exists()


# -- parsers ---------------------------------------------------------------------------------------------------------

CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "rest", "names"),
    [
        ("no call", "no call", []),  # a text without a call is the answer
        ("  spaced  ", "  spaced  ", []),  # and is left alone
        (CALL, "", ["f"]),
        ("a" + CALL + "b", "ab", ["f"]),
        (CALL + CALL, "", ["f", "f"]),  # calls side by side
        ('<tool_call>\n{"name": "f"}\n</tool_call>', "", ["f"]),  # no arguments: none
        ('<tool_call>{"name": "f", "arguments": "{\\"x\\": 2}"}</tool_call>', "", ["f"]),  # arguments encoded twice
        (f"<think>{CALL}</think>{CALL}<think>{CALL}</think>so", "so", ["f"]),  # reasoning between calls
        (f"<think>never closed {CALL}", "<think>never closed", ["f"]),
        ('<tool_call>{"name": "f", "arguments": {"x": "</tool_call></think><tool_call>"}}</tool_call>ok', "ok", ["f"]),
        ('<tool_call>{"name": "f"} and more</tool_call>', "", [None]),
        (CALL + "</tool_call>", "", ["f"]),  # a closing tag too many
        ("<tool_call>", "", [None]),
        ("<tool_call>{", "", [None]),
        ("</tool_call>", "", [None]),  # a lone closing tag is a call gone wrong, not an answer
        (CALL + '<tool_call>{"name": "f"', "", ["f", None]),
        ("<tool_call>[1]</tool_call>", "", [None]),
        ('<tool_call>{"arguments": {}}</tool_call>', "", [None]),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "", [None]),
        ("<tool_call>" + "[" * 200_000 + "</tool_call>", "", [None]),  # deeper than the interpreter's stack
        ("<tool_call>{'name': 'f'}</tool_call>", "", [None]),
    ],
)
def test_hermes_reads(text, rest, names):
    parsed = HermesParser().parse(text)
    assert parsed.text == rest
    assert [c.name if isinstance(c, ToolCall) else None for c in parsed.calls] == names
    assert all(c.error for c in parsed.calls if isinstance(c, ParseFailure))


# -- tools -----------------------------------------------------------------------------------------------------------


class Filter(TypedDict):
    field: str
    values: list[int]


@tool
def search(query: str, top_k: int = 5, where: Filter | None = None, mode: Literal["any", "all"] = "any") -> str:
    """Search the
    catalogue.

    More about it.

    Args:
        query: What to look for,
            in words.
        where: A filter.
    """
    return f"{query}|{top_k}|{where}|{mode}"


def test_a_typed_function_becomes_a_tool_with_its_full_schema():
    values = {"type": "array", "items": {"type": "integer"}}
    where = {
        "type": "object", "properties": {"field": {"type": "string"}, "values": values},
        "required": ["field", "values"], "additionalProperties": False,
    }  # fmt: skip
    function = search.spec["function"]
    assert (function["name"], function["description"]) == ("search", "Search the catalogue.")
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in words."},
            "top_k": {"type": "integer", "default": 5},
            "where": {"anyOf": [where, {"type": "null"}], "default": None, "description": "A filter."},
            "mode": {"enum": ["any", "all"], "default": "any"},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert search("q") == "q|5|None|any"


def test_functions_that_cannot_be_tools_are_refused():
    def thread(x: threading.Thread) -> str:
        """Do."""

    def without_words(x: int) -> str: ...

    for tools, said in (
        ([lambda x: x], "'x' needs a type"),
        ([thread], "cannot be written as JSON"),
        ([without_words], "needs a docstring"),
        ([search, search], "two tools are named 'search'"),
        (["double"], "must be a Tool or a typed function, got 'double'"),
    ):
        with pytest.raises(ConfigError, match=said):
            ToolRegistry(tools)


class Counter(Tool):
    """A tool with state."""

    name = "count"
    description = "Counts its calls."
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}

    def __init__(self) -> None:
        self.calls = 0
        self.closed = False

    def call(self) -> int:
        self.calls += 1
        if self.calls == 3:
            raise ToolError("three is too many")
        return self.calls

    def close(self) -> None:
        self.closed = True


def _results(registry, *calls, **kwargs):
    return [(r.content, r.error, r.invalid) for r in registry.run(calls, **kwargs)]


def test_calls_are_validated_and_answered_in_order():
    counter = Counter()
    registry = ToolRegistry([search, counter])
    results = registry.run(
        [
            ToolCall("count", {}),
            ToolCall("search", {"query": 3}),
            ToolCall("serch", {}),
            ParseFailure("the tool call is not valid JSON: x"),
            ToolCall("search", {"query": "a", "where": {"field": "f", "values": [1, "x"]}}),
            ToolCall("count", {}),
            ToolCall("count", {}),
            ToolCall("count", {}),
        ],
        max_calls=7,
    )
    assert [*[r.content for r in results][:1], results[5].content] == ["1", "2"]
    assert results[1].invalid and "['query']" in results[1].content and "'string'" in results[1].content
    assert results[2].invalid and "Did you mean 'search'" in results[2].content
    assert results[3].invalid and "not valid JSON" in results[3].content
    assert results[4].invalid
    assert (results[6].content, results[6].error, results[6].invalid) == ("error: three is too many", True, False)
    assert results[7].invalid and "at most 7 calls" in results[7].content
    assert counter.calls == 3
    registry.close()
    assert counter.closed


def test_blocking_and_async_calls_run_side_by_side():
    @tool(blocking=True)
    def wait(seconds: float) -> str:
        """Wait."""
        time.sleep(seconds)
        return "thread"

    @tool
    async def wait_async(seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "async"

    registry = ToolRegistry([wait, wait_async])
    calls = [ToolCall(name, {"seconds": 0.2}) for name in ("wait", "wait_async", "wait", "wait_async")]
    start = time.monotonic()
    assert [c for c, _, _ in _results(registry, *calls)] == ["thread", "async", "thread", "async"]
    assert time.monotonic() - start < 0.6  # one after the other would take 0.8 s

    async def inside_a_loop():
        return _results(registry, calls[1])

    assert asyncio.run(inside_a_loop()) == [("async", False, False)]


@pytest.mark.parametrize("kind", ["thread", "plain", "async", "async that blocks"])
def test_the_time_limit_of_a_call_is_enforced(kind):
    released = threading.Event()
    if "async" not in kind:

        @tool(name="slow", blocking=kind == "thread", timeout=0.1)
        def slow() -> str:
            """Hang."""
            released.wait(20)
            return ""
    else:

        @tool(name="slow", timeout=0.1)
        async def slow() -> str:
            """Hang."""
            if kind == "async":
                await asyncio.sleep(20)
            released.wait(20)
            return ""

    @tool
    async def quick() -> str:
        """Answer."""
        return "here"

    registry = ToolRegistry([slow, quick])
    start = time.monotonic()
    ((content, error, invalid),) = _results(registry, ToolCall("slow", {}), timeout=30)
    assert time.monotonic() - start < 5
    assert (content, error, invalid) == ("error: slow took longer than 0.1 s and was stopped", True, False)
    assert _results(registry, ToolCall("quick", {})) == [("here", False, False)]
    released.set()


def test_numbers_arrive_as_the_schema_says():
    @tool
    def repeat(n: int, xs: list[int], scale: float) -> str:
        """Repeat."""
        return f"{n!r} {xs!r} {scale!r}"

    registry = ToolRegistry([repeat])
    assert _results(registry, ToolCall("repeat", {"n": 3.0, "xs": [1.0, 2], "scale": 2.0})) == [
        ("3 [1, 2] 2.0", False, False)
    ]
    ((content, _, invalid),) = _results(registry, ToolCall("repeat", {"n": 3.5, "xs": [], "scale": 1}))
    assert invalid and "3.5 is not of type 'integer'" in content


def test_what_a_plain_call_returns_may_be_awaited():
    class Delegates(Tool):
        name, description = "delegate", "Hands on."
        parameters = {"type": "object", "properties": {}}

        def call(self):
            return self.inner()

        async def inner(self):
            await asyncio.sleep(0.01)
            return "awaited"

    assert _results(ToolRegistry([Delegates()]), ToolCall("delegate", {})) == [("awaited", False, False)]


def test_a_tool_that_breaks_raises_a_typed_error():
    @tool
    def broken() -> str:
        """Break."""
        return {}["x"]

    with pytest.raises(BackendError, match="tool 'broken' failed: KeyError"):
        ToolRegistry([broken]).run([ToolCall("broken", {})])


# -- environments ----------------------------------------------------------------------------------------------------


class GuessEnv(TextEnv):
    """Guess the number of the task."""

    instructions = "Say a number."

    def open_tasks(self):
        tasks = [Problem(f"guess/{i}", f"Which number? (task guess/{i})", str(i)) for i in range(5)]
        return ListedTasks(tasks, "generated", "train")

    def begin(self, task):
        return task.question, {"guesses": []}

    def act(self, action):
        self.state["guesses"].append(action)
        right = action == self.task.answer
        return Outcome(f"{action!r}: {'yes' if right else 'no'}", reward=float(right), terminated=right,
                       score=float(right), success=right, invalid_action=not action.isdigit())  # fmt: skip

    def expert_action(self):
        return self.task.answer


class AnswerEnv(ToolEnv):
    """Answers after tool calls."""

    instructions = "Answer."

    def __init__(self, **kwargs):
        super().__init__(tools=ToolRegistry([search]), **kwargs)

    def open_tasks(self):
        return ListedTasks([Problem("answer/0", "question", "")], "generated", "train")

    def begin(self, task):
        return task.question, None

    def answer(self, text):
        return Outcome("over", reward=1.0, terminated=True, success=True, score=1.0)


def test_tasks_by_index_and_by_seed():
    env = GuessEnv()
    assert env.num_tasks == 5
    observation, info = env.reset(options={"index": 3})
    assert info["task_id"] == "guess/3" and info["anchor"] == observation and info["index"] == 3
    with pytest.raises(TaskIndexError, match="tasks 0 to 4, got index 5"):
        env.reset(options={"index": 5})
    with pytest.raises(IndexError):
        env.reset(options={"index": -1})
    with pytest.raises(ConfigError, match="must be an integer, got 'x'"):
        env.reset(options={"index": "x"})
    with pytest.raises(ConfigError, match="'idx'"):
        env.reset(options={"idx": 1})
    drawn = [env.reset(seed=0)[1]["index"]] + [env.reset()[1]["index"] for _ in range(30)]
    assert set(drawn) == set(range(5))


def test_steps_outside_an_episode_are_refused():
    env = GuessEnv()
    with pytest.raises(gym.error.ResetNeeded):
        env.step("1")
    env.reset(options={"index": 1})
    with pytest.raises(TypeError, match="an action must be a string, got int"):
        env.step(1)
    assert env.step("1")[2]
    with pytest.raises(gym.error.ResetNeeded):
        env.step("1")


def test_observations_are_cleaned_cut_and_shown_without_escapes():
    env = GuessEnv(render_mode="ansi", max_observation_length=200)
    env.reset(options={"index": 0})
    observation, _, _, _, info = env.step("\ud800" + "x" * 500)
    assert len(observation) <= 200 and observation.endswith("at most 200 are shown]") and info["invalid_action"]
    observation.encode()
    env.step("\x1b[31m")
    assert "\\x1b[31m" in env.render()


def test_tool_steps_show_results_and_end_with_an_answer():
    env = AnswerEnv(max_parallel_calls=2)
    env.reset(seed=0)
    observation, reward, terminated, _, info = env.step(env.format_call("search", {"query": "a"}))
    assert (observation, reward, terminated, info["invalid_action"]) == ("a|5|None|any", 0.0, False, False)
    assert observation_messages(observation, info) == [{"role": "tool", "name": "search", "content": observation}]
    assert observation_messages("rewritten", info) == [{"role": "user", "content": "rewritten"}]
    calls = "".join(env.format_call("search", {"query": q}) for q in "abc")
    observation, _, _, _, info = env.step("Looking. #### 3" + calls)
    assert [r["error"] for r in info["tool_results"]] == [False, False, True] and info["invalid_action"]
    assert observation.splitlines()[2] == "error: not run: at most 2 calls per step"
    observation, _, terminated, _, info = env.step("  ")
    assert "<tool_call>" in observation and info["invalid_action"] and not terminated
    observation, reward, terminated, _, info = env.step("done")
    assert (reward, terminated, info["success"], info["tool_results"]) == (1.0, True, True, [])
    assert env.tools[0]["function"]["parameters"]["properties"]["where"]["anyOf"]  # nested types are kept


def test_missing_extras_say_what_to_install():
    error = pickle.loads(pickle.dumps(MissingExtraError("openai", extra="openai")))
    assert isinstance(error, ImportError) and "pip install 'agent-envs[openai]'" in str(error)
