"""Requests that come through and replies that are read: what `OpenAIPolicy` takes from servers as they are.

Behaviours pinned here:
1. A reply is read whatever optional fields it has, streamed or whole alike; one that is none is named.
2. A rate limit holds every request back and is no failure; a spent quota and a wrong key are not asked for again.
3. What servers get wrong and a client can bear is borne: odd chunks, half characters, bodies without end.
4. Keys and passwords are no part of an error.
5. Stalls end at the silence, requests in flight are limited, tokens are recorded where a server returns them.
6. In native mode a prompt that is given as a list has the calls, ids and results that a strict server wants.
"""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.errors import BackendRefusedError, BackendReplyError
from agent_envs.http.pool import retry_after
from agent_envs.policies.openai.reply import read_reply
from agent_envs.policies.openai.stream import Events, StreamedCompletion
from agent_envs.wrapping.specs import apply_wrappers
from tests.fake_chat_server import broken_rule, completion, streamed

pytest.importorskip("openai")
pytest.importorskip("aiohttp")

from agent_envs.policies import OpenAIPolicy
from agent_envs.policies.openai import client as openai_server

ENV = "AgentR1/GSM8KTool-v0"
CALL = {"name": "calculator", "arguments": {"expression": "6*7"}}


@pytest.fixture
def client() -> Iterator[Any]:
    """Makes policies that ask a server, and closes them with the test."""
    made: list[OpenAIPolicy] = []

    def make(server: Any, **settings: Any) -> OpenAIPolicy:
        made.append(OpenAIPolicy("m", base_url=server.url, **settings))
        return made[-1]

    yield make
    for policy in made:
        policy.close()


def play(policy: OpenAIPolicy) -> Episode:
    return agent_envs.run_episode(gym.make(ENV), policy, seed=0)


def _delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}


def _choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": "hm", **fields.pop("message", {})}, **fields}]}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (_choice(), {"text": "hm", "calls": (), "finish_reason": None, "usage": {}}),
        (_choice(message={"content": None, "refusal": "no"}), {"text": "no"}),
        (_choice(message={"content": [{"type": "text", "text": "a"}, {"text": "b"}]}), {"text": "ab"}),  # parts
        (_choice(message={"reasoning_content": "so"}), {"text": "hm", "reasoning": "so"}),  # vLLM, SGLang, DeepSeek
        (_choice(message={"reasoning": "so"}), {"reasoning": "so"}),
        ({**_choice(), "usage": {"prompt_tokens": 7, "completion_tokens": "x"}}, {"usage": {"prompt_tokens": 7}}),
        (
            {**_choice(), "usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}}},
            {"usage": {"prompt_tokens": 7, "cached_tokens": 5}},
        ),
        (
            {**_choice(), "usage": {"prompt_tokens": 7, "prompt_cache_hit_tokens": 5}},  # DeepSeek
            {"usage": {"prompt_tokens": 7, "cached_tokens": 5}},
        ),
        (
            {**_choice(), "usage": {"prompt_tokens": -1, "completion_tokens": 10**30, "prompt_cache_hit_tokens": 5}},
            {"usage": {}},  # counts that cannot be true
        ),
        (_choice(message={"content": [{"type": "text", "text": None}, {"text": "b"}]}), {"text": "b"}),
    ],
)
def test_replies_that_are_read(data: dict[str, Any], expected: dict[str, Any]) -> None:
    reply = read_reply(data)
    assert {name: getattr(reply, name) for name in expected} == expected


def test_calls_that_are_read() -> None:
    entries = [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "a", "function": {"name": "g", "arguments": {"x": 1}}},  # an id twice; arguments as an object
        {"function": {"name": "h"}},  # no id, no arguments
    ]
    calls = read_reply(_choice(message={"content": None, "tool_calls": entries})).calls
    assert [(call.name, call.arguments) for call in calls] == [("f", "{}"), ("g", '{"x": 1}'), ("h", "")]
    assert calls[0].id == "a" and len({call.id for call in calls}) == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "as a JSON object"),
        ({}, "with choices"),
        ({"choices": {}}, "with choices"),
        ({"choices": []}, "with choices"),
        ({"choices": [None]}, "with choices"),
        ({"choices": [{"text": "a"}]}, "with a message"),
        (_choice(message={"content": 5}), "content as a string, got 5"),
        (_choice(message={"content": [5]}), "content as a string"),
        (_choice(message={"tool_calls": "f()"}), "tool_calls as a list"),
        (_choice(message={"tool_calls": [{"function": {"name": 5}}]}), "a function and its name"),
        ({"error": {"message": "overloaded"}}, "overloaded"),
    ],
)
def test_replies_that_are_none(data: Any, message: str) -> None:
    with pytest.raises(BackendReplyError, match=message):
        read_reply(data)
    for error in ({"message": "no such model", "code": 404}, "`inputs` must have less than 9 tokens. Given: 10"):
        with pytest.raises(BackendRefusedError):
            read_reply({"error": error})


def test_a_stream_is_the_whole_reply_in_pieces() -> None:
    for said in ("some words", [CALL, {**CALL, "name": "other"}]):
        whole = completion(said)
        reply = StreamedCompletion()
        for chunk in streamed(whole):
            reply.add(chunk)
        assert read_reply(reply.completion()) == read_reply(whole)
    broken = StreamedCompletion()
    broken.add(streamed(completion("some words"))[1])
    assert not broken.finished
    for chunk in (
        5,
        {"choices": 5},
        {"choices": [5]},
        {"choices": [{"delta": {"tool_calls": [5]}}]},
        {},
        _delta(tool_calls=7),
    ):
        with pytest.raises(BackendReplyError):
            StreamedCompletion().add(chunk)
    tokens = StreamedCompletion()  # vLLM sends the prompt's with the first chunk, the others as they come
    tokens.add({"prompt_token_ids": [1], "choices": [{"delta": {"content": "a"}, "token_ids": [5]}]})
    tokens.add({"choices": [{"delta": {"content": "b"}, "token_ids": [6], "finish_reason": "stop"}]})
    read = read_reply(tokens.completion())
    assert (read.text, *read.tokens) == ("ab", (1,), (5, 6), None)


def _pieces(*pieces: tuple[Any, ...]) -> list[dict[str, Any]]:
    """A chunk per piece of a call: index (or `...` for none), id, name, arguments."""
    chunks = []
    for index, call_id, name, arguments in pieces:
        function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
        piece = {"id": call_id, "function": function} | ({} if index is ... else {"index": index})
        chunks.append({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


TWO = [("f", '{"x": 1}'), ("g", '{"y": 2}')]
STREAMED_CALLS = {
    "by the book": (
        [
            *((0, "a", "f", ""), (0, None, None, '{"x"'), (1, "b", "g", "")),
            *((0, None, None, ": 1}"), (1, None, None, '{"y": 2}')),
        ],
        TWO,
    ),
    "no index, in pieces": ([(..., "a", "f", '{"x"'), (..., None, None, ": 1}"), (..., "b", "g", '{"y": 2}')], TWO),
    "no index, ids tell": (
        [(..., "a", "f", ""), (..., "b", "f", ""), (..., "a", None, "{}"), (..., "b", None, "[]")],
        [("f", "{}"), ("f", "[]")],
    ),
    "null as index": ([(None, "a", "f", '{"x"'), (None, None, None, ": 1}"), (None, "b", "g", '{"y": 2}')], TWO),
    "index always 0": ([(0, "a", "f", '{"x": 1}'), (0, "b", "g", '{"y": 2}')], TWO),
    "index always 0, one tool": (
        [(0, "a", "f", '{"x": "}{"}'), (0, "b", "f", "{}")],
        [("f", '{"x": "}{"}'), ("f", "{}")],
    ),
    "index always 0, no ids": ([(0, None, "f", "{}"), (0, None, "f", "{}")], [("f", "{}"), ("f", "{}")]),
    "index always 0, one id": ([(0, "a", "f", "{}"), (0, "a", "f", "{}")], [("f", "{}"), ("f", "{}")]),
    "index always 0, in pieces": (
        [(0, "a", "f", ""), (0, None, None, '{"x": 1}'), (0, "b", "g", ""), (0, None, None, '{"y": 2}')],
        TWO,
    ),
    "one id, two indices": ([(0, "a", "f", '{"x": 1}'), (1, "a", "g", '{"y": 2}')], TWO),
    "an id that changes": ([(0, "a", "f", '{"x"'), (0, "b", None, ": 1}"), (0, "c", None, "")], TWO[:1]),
    "an id that changes, no index": ([(..., "a", "f", '{"x"'), (..., "b", None, ": 1}")], TWO[:1]),
    "an index that changes": ([(0, "a", "f", '{"x"'), (1, "a", None, ": "), (2, None, None, "1}")], TWO[:1]),
    "id and name with each piece": ([(0, "a", "f", '{"x"'), (0, "a", "f", ": 1}"), (0, "a", "f", "")], TWO[:1]),
    "new id and name with each piece": (
        [(0, "a", "f", '{"x": "\\'), (0, "b", "f", '"}'), (0, "c", "f", '{"}')],
        [("f", '{"x": "\\"}{"}')],
    ),
    "a name in pieces": ([(0, "a", "add", ""), (0, None, "ition", ""), (0, None, None, "{}")], [("addition", "{}")]),
    "an object as arguments": ([(0, "a", "f", {"x": 1}), (1, "b", "g", {"y": 2})], TWO),
    "no arguments": ([(0, "a", "f", None), (0, "b", "g", None)], [("f", ""), ("g", "")]),
}


@pytest.mark.parametrize("pieces", STREAMED_CALLS)
def test_streamed_calls_are_the_servers(pieces: str) -> None:
    chunks, expected = STREAMED_CALLS[pieces]
    reply = StreamedCompletion()
    for chunk in _pieces(*chunks):
        reply.add(chunk)
    calls = read_reply(reply.completion()).calls
    assert [(call.name, call.arguments) for call in calls] == expected
    assert chunks[0][1] in (None, calls[0].id)


def test_a_long_stream_takes_time_linear_in_its_length() -> None:
    began = time.process_time()
    for pieces in (
        [(i, str(i), "f", "{}") for i in range(10_000)],
        [(..., str(i), "f", "{}") for i in range(10_000)],
        [(0, None, "f", "{}")] * 10_000,
        [(0, str(i), "f", '{"a":{' if i == 0 else '"b":{},') for i in range(10_000)],
    ):
        reply = StreamedCompletion()
        for chunk in _pieces(*pieces):
            reply.add(chunk)
        assert read_reply(reply.completion()).calls
    reply, events = StreamedCompletion(), Events()
    for i in range(30_000):
        reply.add({"choices": [{"index": i % 10_000, "delta": {"content": "word"}}]})
        assert not reply.finished and not events.add(b"data: x")
    assert len(reply.completion()["choices"]) == 10_000 and time.process_time() - began < 8  # quadratic: more than ten


def test_streams_of_other_servers() -> None:
    for chunks, expected in (
        ([{"choices": [{"index": None, "delta": {"content": "a"}}]}, _delta(content="b")], {"content": "ab"}),
        ([{**_delta(content="a"), "error": {}}, {"choices": None, "usage": {"x": 1}}], {"content": "a"}),
        ([{"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}], {"content": "a"}),
        (
            [_delta(content=[{"type": "thinking", "thinking": "hm"}]), _delta(content="a")],  # Mistral
            {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]},
        ),
        (
            [  # OpenRouter
                _delta(reasoning_details=[{"index": 0, "type": "reasoning.text", "text": "so", "format": "x"}]),
                _delta(reasoning_details=[{"index": 0, "type": "reasoning.text", "text": " it", "format": "x"}]),
                _delta(reasoning_details=[{"index": 0, "type": "reasoning.encrypted", "data": "y"}]),
            ],
            {
                "content": None,
                "reasoning_details": [
                    {"index": 0, "type": "reasoning.text", "text": "so it", "format": "x"},
                    {"index": 0, "type": "reasoning.encrypted", "data": "y"},
                ],
            },
        ),
        (
            # Gemini
            [_delta(tool_calls=[{"id": "a", "function": {"name": "f"}, "extra_content": {"signature": "z"}}])],
            {
                "content": None,
                "tool_calls": [
                    {
                        "id": "a", "type": "function", "extra_content": {"signature": "z"},
                        "function": {"name": "f", "arguments": ""},
                    }
                ],
            },
        ),
    ):  # fmt: skip
        reply = StreamedCompletion()
        for chunk in chunks:
            reply.add(chunk)
        assert reply.finished and reply.completion()["choices"][0]["message"] == {"role": "assistant", **expected}


def _refusal(status: int, said: Any) -> bytes:
    data = json.dumps(said).encode()
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(data)) + data


REFUSALS = [
    (422, {"message": {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}}),
    (400, {"error": {"message": "Unknown parameter", "param": "stream_options"}}),
    (500, "unexpected keyword argument 'stream_options'"),
    (400, [{"error": {"code": 400, "message": "unsupported field", "status": "INVALID_ARGUMENT"}}]),  # names none
]


@pytest.mark.parametrize(("status", "said"), REFUSALS)
def test_a_field_that_a_server_refuses_is_left_out_and_remembered(
    chat_server: Any, client: Any, status: int, said: Any
) -> None:
    server = chat_server(lambda request: "#### 1")
    server.plan = lambda number, request: _refusal(status, said) if "stream_options" in request else "ok"
    policy = client(server, stream=True, max_retries=0)
    for _ in range(2):
        assert play(policy).stop_reason is StopReason.TERMINATED
    assert ["stream_options" in request for request in server.requests] == [True, False, False]
    told = client(server, stream=True, request={"stream_options": {}}, max_retries=0)
    episode = play(told)  # what the user asks for is not left out
    assert episode.stop_reason is StopReason.ERROR
    named = status < 500 and "stream_options" in json.dumps(said)
    assert len(server.requests) == 4 and ("told to send stream_options" in str(episode.error)) == named


@pytest.mark.parametrize("refused", [None, "reasoning_content", "extra_content"])
def test_what_a_server_said_is_sent_back_whole(chat_server: Any, client: Any, refused: str | None) -> None:
    extra: dict[str, Any] = {"reasoning_content": "So.", "extra_content": {"google": {"thought_signature": "abc"}}}

    def think(request: dict[str, Any]) -> dict[str, Any]:
        whole = completion([CALL] if len(server.requests) < 3 else "#### 42")
        message = whole["choices"][0]["message"]
        message |= {"reasoning_content": extra["reasoning_content"], "refusal": None, "annotations": []}
        for call in message.get("tool_calls", []):
            call["extra_content"] = extra["extra_content"]
        return whole

    server = chat_server(think)
    if refused is not None:
        error = {"detail": [{"loc": ["body", "messages", 2, "assistant", refused], "type": "extra_forbidden"}]}
        server.plan = lambda number, request: _refusal(422, error) if refused in json.dumps(request) else "ok"
    episode = play(client(server, max_retries=0))
    assert episode.stop_reason is StopReason.TERMINATED, episode.error
    said = server.requests[-1]["messages"][2]
    further = {**said, **said["tool_calls"][0]}
    for usual in ("role", "content", "tool_calls", "id", "type", "function"):
        del further[usual]
    assert further == {name: value for name, value in extra.items() if name != refused}


def _body(*chunks: Any, mark: str = "data: ") -> bytes:
    """A stream, its JSON as vLLM writes it: characters as they are."""
    lines = [*(json.dumps(chunk, ensure_ascii=False) for chunk in chunks), "[DONE]"]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return head + "".join(f"{mark}{line}\n\n" for line in lines).encode()


def test_lines_of_a_stream_end_at_line_feeds_alone(chat_server: Any, client: Any) -> None:
    said = "a\u2028b\x85c #### 1"
    for mark in ("data: ", ": alive\nevent: x\ndata:"):
        server = chat_server(
            lambda request: "", lambda number, request, mark=mark: _body(_delta(content=said), mark=mark)
        )
        episode = play(client(server, stream=True, max_retries=0))
        assert [step.action for step in episode.steps] == [said], episode.error


def test_half_characters_do_not_end_an_episode(chat_server: Any, client: Any) -> None:
    call = {"name": "calculator", "arguments": {"expression": "1+1"}}
    server = chat_server(lambda request: [call] if len(request["messages"]) < 3 else "#### 1")
    half = '"call-0\\ud83d"'

    def plan(number: int, request: dict[str, Any]) -> str | bytes:
        body = json.dumps(completion([call])).replace('"call-0"', half).encode()
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        return "ok" if number else head + body

    server.plan = plan
    episode = play(client(server, max_retries=0))
    assert episode.stop_reason is StopReason.TERMINATED, episode.error
    assert server.requests[1]["messages"][-1]["tool_call_id"] == "call-0\ufffd"
    assert "headers cannot be sent" in str(play(client(server, api_key="schl\xfcssel")).error)


def test_calls_that_nobody_offered_are_played(chat_server: Any, client: Any) -> None:
    """A server may return calls where the tools were told in the prompt: they are calls all the same, shown as text."""
    server = chat_server(lambda request: [CALL] if len(request["messages"]) < 3 else "#### 42")
    policy = client(server, tool_mode="text", max_retries=0)
    env = gym.make(ENV)
    episode = agent_envs.run_episode(env, policy, seed=0)
    assert [step.action for step in episode.steps] == [
        env.get_wrapper_attr("format_call")(CALL["name"], CALL["arguments"]), "#### 42",
    ]  # fmt: skip
    shown = server.requests[1]["messages"]
    assert shown[2:] == [
        {"role": "assistant", "content": episode.steps[0].action},
        {"role": "user", "content": "42"},
    ]


def test_a_reply_larger_than_any_is_not_read(chat_server: Any, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_envs.policies.openai.stream._LONGEST", 1 << 20)
    packed = gzip.compress(b" " * (3 << 20) + b"{}")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    server = chat_server(lambda request: "", lambda number, request: head + packed)
    for stream in (False, True):
        assert "more than 1 MiB" in str(play(client(server, stream=stream, max_retries=0)).error)


def test_keys_and_passwords_are_no_part_of_an_error(chat_server: Any, client: Any) -> None:
    key = "sk-0123456789"
    said = json.dumps({"error": {"message": f"{key} is wrong", "code": "invalid_api_key", "headers": [key]}}).encode()
    head = b"HTTP/1.1 401 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said)
    server = chat_server(lambda request: "", lambda number, request: head + said)
    error = str(play(client(server, api_key=key)).error)
    assert "(the key) is wrong" in error and key not in error


def test_a_rate_limit_holds_all_requests_back(chat_server: Any, client: Any) -> None:
    times = []

    def plan(number: int, request: dict[str, Any]) -> str:
        times.append(time.monotonic())
        return "rate" if number == 0 else "ok"

    server = chat_server(lambda request: "#### 1", plan, retry_after="0.6")
    policy = client(server, max_retries=0)
    result = agent_envs.evaluate(ENV, policy, 6, concurrency=1)
    assert result.errors == 0 and policy.server.retries == 1 and times[1] - times[0] > 0.55

    async def two() -> list[Any]:
        policy.server._closed_until = time.monotonic() + 0.3
        began = time.monotonic()
        await asyncio.gather(*(policy.complete([{"role": "user", "content": "?"}]) for _ in range(2)))
        return [time.monotonic() - began]

    assert asyncio.run(two())[0] > 0.25
    limited = chat_server(lambda request: "", lambda number, request: "rate", retry_after="30")
    episode = play(client(limited, max_wait=5))
    assert "BackendBusyError" in str(episode.error) and "slow down" in str(episode.error)


def test_a_date_until_which_to_wait() -> None:
    """What else Retry-After may hold: the examples of `retry_after`."""
    soon = email.utils.formatdate(time.time() + 20, usegmt=True)
    assert 15 < retry_after({"retry-after": soon}) <= 21 and retry_after({"retry-after": "-5"}) == 0


def test_a_server_of_pages_is_told_in_one_line(chat_server: Any, client: Any) -> None:
    episode = play(client(chat_server(lambda request: "", lambda number, request: "page"), max_retries=0))
    assert str(episode.error).splitlines()[-1].endswith("status 501: <html> <p>Unsupported method </html>")


def test_a_spent_quota_is_not_asked_for_again(chat_server: Any, client: Any) -> None:
    server = chat_server(lambda request: "", lambda number, request: "quota")
    episode = play(client(server))
    assert "insufficient_quota" in str(episode.error) and len(server.requests) == 1


def test_a_silent_stream_ends_at_the_silence(chat_server: Any, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_server, "_FIRST_PAUSE", 0.01)
    server = chat_server(lambda request: "#### 12345678", lambda number, request: "stall" if number == 0 else "ok")
    policy = client(server, stream=True, stall_timeout=0.3)
    began = time.monotonic()
    assert play(policy).stop_reason is StopReason.TERMINATED
    assert 0.25 < time.monotonic() - began < 5 and policy.server.retries == 1


def test_requests_in_flight_are_limited(chat_server: Any, client: Any) -> None:
    server = chat_server(lambda request: "#### 1")
    policy = client(server, max_in_flight=3)
    agent_envs.evaluate(ENV, policy, 40, concurrency=20)
    assert 1 <= server.most_in_flight <= 3


def test_reasoning_is_kept_where_asked_and_sent_back_in_its_field(chat_server: Any, client: Any) -> None:
    def think(request: dict[str, Any]) -> dict[str, Any]:
        said = [CALL] if request["messages"][-1]["role"] != "tool" else "#### 42"
        return completion(said, message={"reasoning_content": "I think."})

    server = chat_server(think)
    for keep in (False, True):
        episode = play(client(server, keep_reasoning=keep))
        assert [("<think>\nI think.\n</think>\n" in step.action) for step in episode.steps] == [keep, keep]
        assert episode.stop_reason is StopReason.TERMINATED and not episode.steps[0].info["invalid_action"]
        said = server.requests[-1]["messages"][2]
        assert said["reasoning_content"] == "I think." and "think" not in (said["content"] or "")


def test_calls_are_restored_where_reasoning_was_taken_out(chat_server: Any, client: Any) -> None:
    def think(request: dict[str, Any]) -> dict[str, Any]:
        return completion([CALL] if len(server.requests) < 3 else "#### 42", message={"reasoning": "Deep."})

    server = chat_server(think)
    policy = client(server, keep_reasoning=True, max_retries=0)
    episode = agent_envs.run_episode(apply_wrappers(gym.make(ENV), ["ChatMessages(reasoning='strip')"]), policy, seed=0)
    assert episode.stop_reason is StopReason.TERMINATED and "Deep" in episode.steps[0].action
    last = server.requests[-1]["messages"]
    assert [m["role"] for m in last] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert broken_rule(last) is None
    assert "Deep" not in json.dumps(last) and all(m["tool_calls"] for m in last if m["role"] == "assistant")


@pytest.mark.parametrize("wrappers", [["ChatMessages"], ["ChatMessages", "SlidingWindow(k=2)"], []])
@pytest.mark.parametrize("mode", ["native", "text"])
def test_prompts_that_are_lists(chat_server: Any, client: Any, wrappers: list[str], mode: Any) -> None:
    env = apply_wrappers(gym.make(ENV), wrappers)
    text = env.get_wrapper_attr("format_call")

    def think(request: dict[str, Any]) -> Any:
        assert broken_rule(request["messages"]) is None
        calls = sum("6*7" in json.dumps(message) for message in request["messages"] if message["role"] == "assistant")
        if len(server.requests) > 4:
            return "#### 42"
        two = [CALL, {**CALL, "arguments": {"expression": f"1+{calls}"}}]
        return two if request.get("tools") else "\n".join(text(c["name"], c["arguments"]) for c in two)

    server = chat_server(think)
    policy = client(server, tool_mode=mode, max_retries=0)
    episode = agent_envs.run_episode(env, policy, seed=0)
    assert episode.stop_reason is StopReason.TERMINATED, episode.error
    assert len(episode.steps) == 5 and not any(step.info["invalid_action"] for step in episode.steps)
    for request in server.requests:
        messages = request["messages"]
        assert messages[0]["role"] == "system" and ("tools" in request) == (mode == "native")
        if mode == "native":
            made = [m for m in messages if m["role"] == "assistant"]
            assert all(len(m["tool_calls"]) == 2 for m in made)
            assert sum(m["role"] == "tool" for m in messages) == 2 * len(made)
    if "SlidingWindow(k=2)" in wrappers:
        assert len(server.requests[-1]["messages"]) < len(server.requests[0]["messages"]) + 4 * 3
