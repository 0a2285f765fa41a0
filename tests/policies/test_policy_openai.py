"""The OpenAI-compatible policy against a server in this process that keeps the rules of a real one.

What these tests pin:

1. native calls become the environment's wire format, and results go back under the ids of their calls;
2. arguments that are no JSON reach the environment as written and never the server again;
3. an overflow, an empty answer and a broken server each have their stop reason;
4. one client per event loop, closed with it.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest

from agent_envs import Problem
from agent_envs.episodes.record import StopReason
from agent_envs.errors import ConfigError, MissingExtraError
from agent_envs.rollout.many import run_episodes
from agent_envs.rollout.one import arun_episode, run_episode
from agent_envs.tasks import ListedTasks
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolRegistry, tool
from tests.fake_chat_server import broken_rule, completion
from tests.helpers import own_package

pytest.importorskip("openai")
pytest.importorskip("aiohttp")

from agent_envs.policies import OpenAIPolicy
from agent_envs.policies.openai.fields import is_overflow


@tool
def add(a: int, b: int) -> str:
    """Add two integers."""
    return str(a + b)


class SumEnv(ToolEnv):
    """The answer to every task is 5."""

    instructions = "Add with the tool, then answer with the number."

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(tools=ToolRegistry([add]), **kwargs)

    def open_tasks(self) -> ListedTasks[Problem]:
        problems = [Problem(f"sum/{i}", f"What is 2 + 3? (sum/{i})", "5") for i in range(10)]
        return ListedTasks(problems, "generated", "train")

    def begin(self, task: Problem) -> tuple[str, Any]:
        return task.question, None

    def answer(self, text: str) -> Outcome:
        won = text.strip() == "5"
        return Outcome("", float(won), True, success=won)


gym.register("Test/Sum-v0", SumEnv, max_episode_steps=6)


def call(arguments: str = '{"a": 2, "b": 3}', call_id: str = "x", name: str = "add") -> dict[str, Any]:
    return {"id": call_id, "name": name, "arguments": arguments}


def sums(request: dict[str, Any]) -> Any:
    """A model that adds with the tool and answers with the tool's result."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return last["content"]
    return completion([call(call_id=f"id-{len(request['messages'])}")], "Let me add.")


@pytest.fixture
def server(chat_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server with a model that adds, or says what `says` is given; it refuses what a strict one would."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    answers: list[Any] = []

    def think(request: dict[str, Any]) -> Any:
        if problem := broken_rule(request["messages"]):
            return 400, {"error": {"message": problem}}
        return answers.pop(0) if answers else sums(request)

    server = chat_server(think)
    server.says = lambda *said: answers.extend(said)
    return server


def make() -> gym.Env[str, str]:
    return gym.make("Test/Sum-v0")


@pytest.fixture
def policy(server: Any) -> Iterator[OpenAIPolicy]:
    policy = OpenAIPolicy("m", base_url=server.url, max_retries=1, max_wait=1)
    yield policy
    policy.close()


def test_native_calls_are_played_as_text(server: Any, policy: OpenAIPolicy) -> None:
    episode = run_episode(make(), policy, options={"index": 4})
    assert episode.error is None and episode.success
    expected = make().unwrapped.format_call("add", {"a": 2, "b": 3})  # type: ignore[attr-defined]
    assert [step.action for step in episode.steps] == ["Let me add.\n" + expected, "5"]
    first, second = server.requests
    assert first["messages"] == [
        {"role": "system", "content": "Add with the tool, then answer with the number."},
        {"role": "user", "content": "What is 2 + 3? (sum/4)"},
    ]
    assert first["tools"][0]["function"]["name"] == "add" and first["model"] == "m"
    assert "temperature" not in first and "max_tokens" not in first
    assert second["messages"][2:] == [
        completion([call(call_id="id-2")], "Let me add.")["choices"][0]["message"],
        {"role": "tool", "tool_call_id": "id-2", "content": "5"},
    ]


def test_parallel_calls_are_answered_in_order(server: Any, policy: OpenAIPolicy) -> None:
    server.says([call('{"a": 1, "b": 1}', "x"), call("{}", "y", "nothing"), call("", "z")], "5")
    episode = run_episode(make(), policy, seed=0)
    assert episode.success and episode.steps[0].info["invalid_action"]
    results = [m for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["x", "y", "z"]
    assert results[0]["content"] == "2" and "no tool 'nothing'" in results[1]["content"]
    assert "wrong arguments" in results[2]["content"]


def test_malformed_arguments_stay_as_written(server: Any, policy: OpenAIPolicy) -> None:
    raw = '{"a": 2, "b"'  # what else is no object: test_native_calls.py
    server.says(completion([call(raw, "bad"), call(call_id="good")], "Hm."), "5")
    episode = run_episode(make(), policy, seed=0)
    assert episode.success, episode.error
    assert raw in episode.steps[0].action and episode.steps[0].info["invalid_action"]
    assert [r["error"] for r in episode.steps[0].info["tool_results"]] == [True, False]
    assistant, result, rest = server.requests[1]["messages"][2:]
    assert raw in assistant["content"] and [c["id"] for c in assistant["tool_calls"]] == ["good"]
    assert (result["tool_call_id"], result["content"]) == ("good", "5")
    assert rest == {"role": "user", "content": episode.steps[0].info["tool_results"][0]["content"]}


def test_calls_written_as_text_too_leave_no_id_without_an_answer(server: Any, policy: OpenAIPolicy) -> None:
    text = make().unwrapped.format_call("add", {"a": 7, "b": 1})  # type: ignore[attr-defined]
    server.says(completion([call()], text), "5")
    episode = run_episode(make(), policy, seed=0)
    assert episode.success and episode.steps[0].info["tool_results"][0]["content"] == "8"
    assert server.requests[1]["messages"][-1] == {"role": "tool", "tool_call_id": "x", "content": "8\n5"}


def test_text_mode_sends_no_tools(server: Any) -> None:
    policy = OpenAIPolicy("m", base_url=server.url, tool_mode="text", temperature=0.5, max_tokens=9)
    text = make().unwrapped.format_call("add", {"a": 2, "b": 3})  # type: ignore[attr-defined]
    server.says(text, "5")
    episode = run_episode(make(), policy, seed=0)
    assert episode.success and episode.steps[0].action == text
    assert all("tools" not in request for request in server.requests)
    assert server.requests[1]["messages"][-2:] == [
        {"role": "assistant", "content": text},
        {"role": "user", "content": "5"},
    ]
    assert (server.requests[0]["temperature"], server.requests[0]["max_tokens"]) == (0.5, 9)
    policy.close()


def test_a_wrapper_that_changes_the_observation(server: Any, policy: OpenAIPolicy) -> None:
    env = gym.wrappers.TransformObservation(make(), lambda o: f"[{o}]", make().observation_space)
    server.says([call(call_id=i) for i in "xy"], "5")
    assert run_episode(env, policy, seed=0).success
    assert [m["content"] for m in server.requests[1]["messages"][-2:]] == ["[5\n5]", "(shown with the first call)"]


class Rebuilt(gym.Wrapper[str, str, str, str]):
    """Shows the state instead of what is new."""

    def step(self, action: str) -> Any:
        _, *rest, info = self.env.step(action)
        return "all there is to know", *rest, {**info, "rebuilt": True, "tool_results": []}


def test_a_rebuilt_observation_begins_the_conversation_anew(server: Any, policy: OpenAIPolicy) -> None:
    server.says([call()], "5")
    assert run_episode(Rebuilt(make()), policy, seed=0).success
    first, second = (request["messages"] for request in server.requests)
    assert [m["role"] for m in first] == [m["role"] for m in second] and first[0] == second[0]
    assert second[-1] == {"role": "user", "content": "all there is to know"}


TOO_LONG = {
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "vLLM": "This model's maximum context length is 16 tokens. However, you requested 20 tokens",
    "vLLM, pictures": "The decoder prompt (length 201) is longer than the maximum model length of 164. Make sure ...",
    "vLLM 0.7, pictures": "The prompt (total length 201) is too long to fit into the model (context length 164).",
    "vLLM, no room": "max_tokens must be at least 1, got -186.",
    "SGLang": "The input (99 tokens) is longer than the model's context length (16 tokens).",
    "SGLang, response": "Requested token count exceeds the model's maximum context length of 16 tokens.",
    "TGI": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "TGI, response": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 and 20",
    "Anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "Anthropic, response": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "lmdeploy": "The request exceeds the model context length.",
    "llama.cpp": "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "Ollama": "prompt too long; exceeded max context length by 12 tokens",
    "Mistral": "Prompt contains 300000 tokens, too large for model with 262144 maximum context length",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Bedrock": "Input is too long for requested model.",
    "Cohere": "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs.",
    "DashScope": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
}
OTHER_REFUSALS = (
    "Rate limit reached on tokens per min (TPM): Limit 30000, Requested 40000.",
    "max_tokens is too large: 100000. This model supports at most 4096 completion tokens",
    "string too long. Expected a string with maximum length 64",
    "The encoder prompt (length 9000) is longer than the maximum model length of 8192",
    "Invalid context: the model does not exist",
    "At most 1 image(s) may be provided in one prompt.",
    "Request Entity Too Large",
)


def test_the_words_for_a_prompt_that_does_not_fit() -> None:
    assert [name for name, words in TOO_LONG.items() if not is_overflow(words)] == []
    assert [words for words in OTHER_REFUSALS if is_overflow(words)] == []


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
        (400, {"object": "error", "message": TOO_LONG["vLLM, pictures"], "code": 400}),
        (422, {"error": TOO_LONG["TGI"], "error_type": "validation"}),
        (400, [{"error": {"code": 400, "message": TOO_LONG["Gemini"], "status": "INVALID_ARGUMENT"}}]),
        (500, {"error": {"message": TOO_LONG["llama.cpp"], "type": "exceed_context_size_error"}}),
    ],
)
def test_a_prompt_that_does_not_fit(server: Any, policy: OpenAIPolicy, status: int, error: Any) -> None:
    server.says([call()], (status, error))
    episode = run_episode(make(), policy, seed=0)
    assert episode.stop_reason is StopReason.CONTEXT_LENGTH
    assert len(episode.steps) == 1 and episode.steps[0].truncated
    assert len(server.requests) == 2  # it is not tried again
    assert episode.error is not None and re.search("too long|longer|tokens", episode.error)


@pytest.mark.parametrize(
    ("max_tokens", "used", "reason"),
    [
        (None, 4, StopReason.CONTEXT_LENGTH),  # nobody asked for a limit
        (8, 4, StopReason.CONTEXT_LENGTH),  # it was cut before the limit
        (4, 4, StopReason.TERMINATED),  # the limit cut it: the text is the action
    ],
)
def test_a_response_that_was_cut(server: Any, max_tokens: int | None, used: int, reason: StopReason) -> None:
    policy = OpenAIPolicy("m", base_url=server.url, max_tokens=max_tokens)
    server.says(completion("5", finish_reason="length", used=used))
    assert run_episode(make(), policy, seed=0).stop_reason is reason
    policy.close()


@pytest.mark.parametrize("content", [None, ""])
def test_an_empty_answer(server: Any, policy: OpenAIPolicy, content: str | None) -> None:
    server.says(completion(content))
    episode = run_episode(make(), policy, seed=0)
    assert episode.stop_reason is StopReason.EMPTY_GENERATION and episode.steps == ()


@pytest.mark.parametrize(
    ("status", "attempts", "name"),
    [(500, 2, "Down"), (429, 2, "Busy"), (401, 1, "Refused"), (400, 1, "Refused")],
)
def test_a_server_that_fails(server: Any, policy: OpenAIPolicy, status: int, attempts: int, name: str) -> None:
    server.think = lambda request: (status, {"error": {"message": "no luck"}})
    episode = run_episode(make(), policy, seed=0)
    assert episode.stop_reason is StopReason.ERROR and len(server.requests) >= attempts
    assert status == 429 or len(server.requests) == attempts
    assert episode.error is not None
    assert f"Backend{name}Error: model 'm' at http://127.0.0.1" in episode.error and "no luck" in episode.error


def test_a_server_that_is_not_there() -> None:
    policy = OpenAIPolicy("m", base_url="http://127.0.0.1:9/v1", max_retries=0)
    episode = run_episode(make(), policy, seed=0)
    assert episode.stop_reason is StopReason.ERROR
    assert episode.error is not None and "Cannot connect to host 127.0.0.1:9" in episode.error
    policy.close()


def test_logprobs_and_further_arguments(server: Any) -> None:
    more = {"top_p": 0.5, "extra_body": {"top_k": 7}}
    policy = OpenAIPolicy("m", base_url=server.url, logprobs=True, token_ids=True, request=more)
    content = [{"token": "5", "logprob": -0.25, "bytes": None, "top_logprobs": []}]
    server.says(completion("5", logprobs={"content": content, "refusal": None}))
    episode = run_episode(make(), policy, seed=0)
    assert episode.steps[0].response_logprobs == (-0.25,) and episode.steps[0].response_ids is None
    request = server.requests[0]
    assert (request["logprobs"], request["return_token_ids"]) == (True, True)
    assert (request["top_p"], request["top_k"]) == (0.5, 7)
    policy.close()


def test_a_hung_server_is_left_at_the_time_out(server: Any, policy: OpenAIPolicy) -> None:
    server.plan = lambda number, request: "stall" if "sum/0" in request["messages"][1]["content"] else "ok"
    options = [{"index": i} for i in range(4)]
    start = time.monotonic()
    episodes = run_episodes("Test/Sum-v0", policy, 4, options=options, step_timeout=1.0, progress=False)
    assert time.monotonic() - start < 10.0
    assert [e.stop_reason is StopReason.STEP_TIMEOUT for e in episodes] == [True, False, False, False]
    assert all(e.success for e in episodes[1:])


def test_many_episodes_at_once_share_a_client(server: Any, policy: OpenAIPolicy) -> None:
    server.plan = lambda number, request: "slow"
    episodes = run_episodes("Test/Sum-v0", policy, 32, concurrency=32, progress=False)
    assert all(e.success for e in episodes) and server.most_in_flight >= 8
    assert server.connections <= 32
    run_episodes("Test/Sum-v0", policy, 2, concurrency=1, progress=False)
    assert server.connections <= 32  # the next rollout uses the same ones


def test_all_event_loops_share_a_client(server: Any) -> None:
    policy = OpenAIPolicy("m", base_url=server.url)
    for _ in range(2):
        assert asyncio.run(arun_episode(make(), policy, seed=0)).success
    assert server.connections == 1
    policy.close()


_PLAYS = """
import asyncio, sys, warnings
warnings.simplefilter("error")
import agent_envs, openai
from agent_envs.envs.gsm8k.env import GSM8KEnv
from agent_envs.policies import OpenAIPolicy
from agent_envs.rollout.one import arun_episode, run_episode

policy = OpenAIPolicy("m", base_url=sys.argv[1])
print(run_episode(GSM8KEnv(), policy).stop_reason.value)
print(asyncio.run(arun_episode(GSM8KEnv(), policy)).stop_reason.value)
"""


def test_nothing_is_left_open_at_exit(server: Any) -> None:
    server.think = lambda request: "hello"
    command = [sys.executable, "-X", "dev", "-c", _PLAYS, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=own_package(), check=False)
    assert (done.returncode, done.stdout) == (0, "terminated\nterminated\n"), done.stderr
    assert "Unclosed" not in done.stderr and "Error" not in done.stderr, done.stderr


def test_the_key_comes_from_the_argument_or_the_environment(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for argument, variable in ((None, None), (None, "from-env"), ("given", "from-env")):
        if variable is not None:
            monkeypatch.setenv("OPENAI_API_KEY", variable)
        policy = OpenAIPolicy("m", base_url=server.url, api_key=argument)
        run_episode(make(), policy, seed=0)
        policy.close()
        assert server.keys[-1] == f"Bearer {argument or variable or 'none'}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_url": None}, "no API key: set OPENAI_API_KEY.*--base-url"),
        ({"tool_mode": "both"}, "tool_mode must be one of 'native', 'text', got 'both'"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_retries": -1}, "max_retries"),
        ({"timeout": 0}, "timeout"),
        ({"stall_timeout": -1.0}, "stall_timeout"),
        ({"base_url": "http://me:secret@h/v1"}, "without a login, a query"),
        ({"base_url": "http://h/v1?key=secret"}, "without a login, a query"),
    ],
)
def test_arguments_that_do_not_fit(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], message: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match=message) as refused:
        OpenAIPolicy("m", **{"base_url": "http://127.0.0.1:9/v1", **arguments})
    assert "secret" not in str(refused.value)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtraError, match=r"agent-envs\[openai\]"):
        OpenAIPolicy("m", api_key="k")
