"""The OpenAI-compatible policy against a server in this process that keeps the rules of a real one.

What these tests pin:

1. native calls become the environment's wire format, and results go back under the ids of their calls;
2. arguments that are no JSON reach the environment as written and never the server again;
3. an overflow, an empty answer and a broken server each have their stop reason;
4. one client per event loop, closed with it.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.episodes.record import StopReason
from agent_envs.errors import ConfigError, MissingExtraError
from agent_envs.rollout.many import run_episodes
from agent_envs.rollout.one import arun_episode, run_episode
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolRegistry, tool
from tests.fake_chat_server import broken_rule

pytest.importorskip("openai")
pytest.importorskip("aiohttp")

from agent_envs.policies import OpenAIPolicy
from agent_envs.policies.openai.overflow import is_overflow


@dataclass(frozen=True)
class Task:
    task_id: str


class Tasks:
    name = "generated"
    split = "train"

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Task:
        return Task(f"sum/{index}")


@tool
def add(a: int, b: int) -> str:
    """Add two integers."""
    return str(a + b)


class SumEnv(ToolEnv):
    """The answer to every task is 5."""

    instructions = "Add with the tool, then answer with the number."

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(tools=ToolRegistry([add]), **kwargs)

    def open_tasks(self) -> Tasks:
        return Tasks()

    def begin(self, task: Task) -> tuple[str, Any]:
        return f"What is 2 + 3? ({task.task_id})", None

    def answer(self, text: str) -> Outcome:
        won = text.strip() == "5"
        return Outcome("", float(won), True, success=won)


gym.register("Test/Sum-v0", SumEnv, max_episode_steps=6)

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


def call(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def say(content: str | None, calls: list[dict[str, Any]] | None = None, **more: Any) -> tuple[int, dict[str, Any]]:
    """A chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": more.pop("finish_reason", "stop"), "logprobs": None}
    choice.update({key: more.pop(key) for key in ("logprobs",) if key in more})
    usage = {"prompt_tokens": 9, "completion_tokens": more.pop("completion_tokens", 4), "total_tokens": 13}
    return 200, {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


class Server(ThreadingHTTPServer):
    """Answers with what ``answer`` makes of a request; keeps every request."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Answer = sums
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of these tests."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        self.server.keys.append(self.headers["Authorization"])
        problem = broken_rule(request["messages"])
        status, body = (400, {"error": {"message": problem}}) if problem else self.server.answer(request)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Quiet."""


def sums(request: dict[str, Any]) -> tuple[int, Any]:
    """A model that adds with the tool and answers with the tool's result."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return say(last["content"])
    return say("Let me add.", [call("add", '{"a": 2, "b": 3}', f"id-{len(request['messages'])}")])


def in_turn(*answers: tuple[int, Any]) -> Answer:
    remaining = list(answers)
    return lambda request: remaining.pop(0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def make() -> gym.Env[str, str]:
    return gym.make("Test/Sum-v0")


@pytest.fixture
def policy(server: Server) -> Iterator[OpenAIPolicy]:
    policy = OpenAIPolicy("m", base_url=server.url, max_retries=1, max_wait=1)
    yield policy
    policy.close()


def test_native_calls_are_played_as_text(server: Server, policy: OpenAIPolicy) -> None:
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
        {"role": "assistant", "content": "Let me add.", "tool_calls": [call("add", '{"a": 2, "b": 3}', "id-2")]},
        {"role": "tool", "tool_call_id": "id-2", "content": "5"},
    ]


def test_parallel_calls_are_answered_in_order(server: Server, policy: OpenAIPolicy) -> None:
    calls = [call("add", '{"a": 1, "b": 1}', "x"), call("nothing", "{}", "y"), call("add", "", "z")]
    server.answer = in_turn(say(None, calls), say("5"))
    episode = run_episode(make(), policy, seed=0)
    assert episode.success and episode.steps[0].info["invalid_action"]
    results = [m for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["x", "y", "z"]
    assert results[0]["content"] == "2" and "no tool 'nothing'" in results[1]["content"]
    assert "wrong arguments" in results[2]["content"]


def test_calls_over_the_cap_are_answered_too(server: Server, policy: OpenAIPolicy) -> None:
    server.answer = in_turn(say(None, [call("add", '{"a": 1, "b": 1}', str(i)) for i in range(6)]), say("5"))
    assert run_episode(make(), policy, seed=0).success
    results = [m for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == list("012345") and "at most 4" in results[-1]["content"]


@pytest.mark.parametrize("raw", ['{"a": 2, "b"', "[1, 2]", "not json"])
def test_malformed_arguments_stay_as_written(server: Server, policy: OpenAIPolicy, raw: str) -> None:
    calls = [call("add", raw, "bad"), call("add", '{"a": 2, "b": 3}', "good")]
    server.answer = in_turn(say("Hm.", calls), say("5"))
    episode = run_episode(make(), policy, seed=0)
    assert episode.success, episode.error
    assert raw in episode.steps[0].action and episode.steps[0].info["invalid_action"]
    assert [r["error"] for r in episode.steps[0].info["tool_results"]] == [True, False]
    assistant, result, rest = server.requests[1]["messages"][2:]
    assert raw in assistant["content"] and [c["id"] for c in assistant["tool_calls"]] == ["good"]
    assert (result["tool_call_id"], result["content"]) == ("good", "5")
    assert rest == {"role": "user", "content": episode.steps[0].info["tool_results"][0]["content"]}


def test_calls_written_as_text_too_leave_no_id_without_an_answer(server: Server, policy: OpenAIPolicy) -> None:
    text = make().unwrapped.format_call("add", {"a": 7, "b": 1})  # type: ignore[attr-defined]
    server.answer = in_turn(say(text, [call("add", '{"a": 2, "b": 3}', "x")]), say("5"))
    episode = run_episode(make(), policy, seed=0)
    assert episode.success and episode.steps[0].info["tool_results"][0]["content"] == "8"
    assert server.requests[1]["messages"][-1] == {"role": "tool", "tool_call_id": "x", "content": "8\n5"}


def test_text_mode_sends_no_tools(server: Server) -> None:
    policy = OpenAIPolicy("m", base_url=server.url, tool_mode="text", temperature=0.5, max_tokens=9)
    text = make().unwrapped.format_call("add", {"a": 2, "b": 3})  # type: ignore[attr-defined]
    server.answer = in_turn(say(text), say("5"))
    episode = run_episode(make(), policy, seed=0)
    assert episode.success and episode.steps[0].action == text
    assert all("tools" not in request for request in server.requests)
    assert server.requests[1]["messages"][-2:] == [
        {"role": "assistant", "content": text},
        {"role": "user", "content": "5"},
    ]
    assert (server.requests[0]["temperature"], server.requests[0]["max_tokens"]) == (0.5, 9)
    policy.close()


def test_a_wrapper_that_changes_the_observation(server: Server, policy: OpenAIPolicy) -> None:
    env = gym.wrappers.TransformObservation(make(), lambda o: f"[{o}]", make().observation_space)
    server.answer = in_turn(say(None, [call("add", '{"a": 2, "b": 3}', i) for i in "xy"]), say("5"))
    assert run_episode(env, policy, seed=0).success
    assert [m["content"] for m in server.requests[1]["messages"][-2:]] == ["[5\n5]", "(shown with the first call)"]


class Rebuilt(gym.Wrapper[str, str, str, str]):
    """Shows the state instead of what is new."""

    def step(self, action: str) -> Any:
        _, *rest, info = self.env.step(action)
        return "all there is to know", *rest, {**info, "rebuilt": True, "tool_results": []}


def test_a_rebuilt_observation_begins_the_conversation_anew(server: Server, policy: OpenAIPolicy) -> None:
    server.answer = in_turn(say(None, [call("add", '{"a": 2, "b": 3}', "x")]), say("5"))
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
def test_a_prompt_that_does_not_fit(server: Server, policy: OpenAIPolicy, status: int, error: Any) -> None:
    first = say(None, [call("add", '{"a": 2, "b": 3}', "x")])
    server.answer = in_turn(first, (status, error))
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
def test_a_response_that_was_cut(server: Server, max_tokens: int | None, used: int, reason: StopReason) -> None:
    policy = OpenAIPolicy("m", base_url=server.url, max_tokens=max_tokens)
    server.answer = in_turn(say("5", finish_reason="length", completion_tokens=used))
    assert run_episode(make(), policy, seed=0).stop_reason is reason
    policy.close()


@pytest.mark.parametrize("content", [None, ""])
def test_an_empty_answer(server: Server, policy: OpenAIPolicy, content: str | None) -> None:
    server.answer = in_turn(say(content))
    episode = run_episode(make(), policy, seed=0)
    assert episode.stop_reason is StopReason.EMPTY_GENERATION and episode.steps == ()


def test_a_server_that_recovers_is_asked_again(server: Server, policy: OpenAIPolicy) -> None:
    server.answer = in_turn((503, {"error": {"message": "busy"}}), say("5"))
    assert run_episode(make(), policy, seed=0).success
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "attempts", "name"),
    [(500, 2, "Down"), (429, 2, "Busy"), (401, 1, "Refused"), (400, 1, "Refused")],
)
def test_a_server_that_fails(server: Server, policy: OpenAIPolicy, status: int, attempts: int, name: str) -> None:
    server.answer = lambda request: (status, {"error": {"message": "no luck"}})
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


def test_a_completion_without_choices(server: Server, policy: OpenAIPolicy) -> None:
    server.answer = lambda request: (200, {**say("")[1], "choices": []})
    episode = run_episode(make(), policy, seed=0)
    assert episode.error is not None and "with choices" in episode.error


def test_logprobs_and_further_arguments(server: Server) -> None:
    policy = OpenAIPolicy("m", base_url=server.url, logprobs=True, request={"top_p": 0.5, "extra_body": {"top_k": 7}})
    content = [{"token": "5", "logprob": -0.25, "bytes": None, "top_logprobs": []}]
    server.answer = in_turn(say("5", logprobs={"content": content, "refusal": None}))
    episode = run_episode(make(), policy, seed=0)
    assert episode.steps[0].response_logprobs == (-0.25,) and episode.steps[0].response_ids is None
    request = server.requests[0]
    assert (request["logprobs"], request["top_p"], request["top_k"]) == (True, 0.5, 7)
    policy.close()


def test_a_hung_server_is_left_at_the_time_out(server: Server, policy: OpenAIPolicy) -> None:
    release = threading.Event()

    def hang(request: dict[str, Any]) -> tuple[int, Any]:
        if "sum/0" in request["messages"][1]["content"]:
            release.wait(30.0)
        return sums(request)

    server.answer = hang
    options = [{"index": i} for i in range(4)]
    start = time.monotonic()
    episodes = run_episodes("Test/Sum-v0", policy, 4, options=options, step_timeout=2.0, progress=False)
    assert time.monotonic() - start < 10.0
    assert [e.stop_reason is StopReason.STEP_TIMEOUT for e in episodes] == [True, False, False, False]
    assert all(e.success for e in episodes[1:])
    release.set()


def test_many_episodes_at_once_share_a_client(server: Server, policy: OpenAIPolicy) -> None:
    eight = threading.Barrier(8)  # none of eight first requests is answered before all are there

    def together(request: dict[str, Any]) -> tuple[int, Any]:
        if request["messages"][-1]["role"] == "user":
            eight.wait(30.0)
        return sums(request)

    server.answer = together
    episodes = run_episodes("Test/Sum-v0", policy, 32, concurrency=32, progress=False)
    assert all(e.success for e in episodes)
    server.answer = sums
    assert server.connections <= 32
    run_episodes("Test/Sum-v0", policy, 2, concurrency=1, progress=False)
    assert server.connections <= 32  # the next rollout uses the same ones


def test_all_event_loops_share_a_client(server: Server) -> None:
    policy = OpenAIPolicy("m", base_url=server.url)
    for _ in range(2):
        assert asyncio.run(arun_episode(make(), policy, seed=0)).success
    assert server.connections == 1
    policy.close()


def test_nothing_is_left_open_at_exit(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "play.py"
    script.write_text(
        textwrap.dedent(f"""
        import asyncio, sys, warnings
        warnings.simplefilter("error")
        sys.path.insert(0, {str(Path(agent_envs.__file__).parents[1])!r})
        import agent_envs, openai
        from agent_envs.policies import OpenAIPolicy
        from agent_envs.rollout.one import arun_episode, run_episode
        from agent_envs.text_env import Outcome, TextEnv

        class Tasks(list):
            name = split = "generated"
        class Task:
            task_id = "t"
        class Env(TextEnv):
            def open_tasks(self):
                return Tasks([Task()])
            def begin(self, task):
                return "go", None
            def act(self, action):
                return Outcome("done", 1.0, True, success=True)

        policy = OpenAIPolicy("m", base_url={server.url!r})
        print(run_episode(Env(), policy).stop_reason.value)
        print(asyncio.run(arun_episode(Env(), policy)).stop_reason.value)
        """)
    )
    server.answer = lambda request: say("hello")
    done = subprocess.run(
        [sys.executable, "-X", "dev", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "terminated\nterminated\n"), done.stderr
    assert "Unclosed" not in done.stderr and "Error" not in done.stderr, done.stderr


def test_the_key_comes_from_the_argument_or_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for argument, variable in ((None, None), (None, "from-env"), ("given", "from-env")):
        if variable is not None:
            monkeypatch.setenv("OPENAI_API_KEY", variable)
        policy = OpenAIPolicy("m", base_url=server.url, api_key=argument)
        run_episode(make(), policy, seed=0)
        policy.close()
        assert server.keys[-1] == f"Bearer {argument or variable or 'none'}"


def test_arguments_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="no API key: set OPENAI_API_KEY.*--base-url"):
        OpenAIPolicy("m")
    with pytest.raises(ConfigError, match="tool_mode must be one of 'native', 'text', got 'both'"):
        OpenAIPolicy("m", api_key="k", tool_mode="both")  # type: ignore[arg-type]


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtraError, match=r"agent-envs\[openai\]"):
        OpenAIPolicy("m", api_key="k")
