"""The recording proxy, with the official client before it and a server that behaves like vLLM behind it.

1. An agent gets through the proxy what it would get from the server, and nothing that it did not ask for.
2. Each call is a step with the server's tokens, in the order in which the calls came.
3. What was answered survives a restart (kills: tests/attacks/test_recorder.py); what was not is in nobody's way.
"""

import asyncio
import base64
import contextlib
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from agent_envs.adapters.batches import build_batch
from agent_envs.episodes.record import StopReason, read_episodes
from agent_envs.errors import ConfigError
from agent_envs.policies.openai.reply import read_tokens

aiohttp = pytest.importorskip("aiohttp")
openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")

from agent_envs.recording import EpisodeStore, EpisodeVerdict, RecordingServer  # noqa: E402
from tests.helpers import until  # noqa: E402

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
WORDS = ["Well", ",", " it", " is", " four", ".", "</s>"]


IDS = [10_000 + i for i in range(len(WORDS))]
JSON = {"Content-Type": "application/json"}


class FakeVllm:
    """Answers chat completions with vLLM's fields: prompts grow by the response's tokens and the new words'."""

    def __init__(self, fake_service, *, knows=("logprobs", "return_token_ids"), delay=0.0):
        self.knows, self.delay = knows, delay
        self.requests, self.headers, self.queries = [], [], []
        self.closed_early = 0
        self.fail = []  # statuses of the next answers
        self.break_off = False
        self.url = f"{fake_service(self._answer).url}/v1"

    def prompt_ids(self, messages):
        """A token per character of what is no assistant's, and for those the tokens that were sampled."""
        ids = []
        for message in messages:
            ids += IDS if message["role"] == "assistant" else [1, *(ord(c) for c in str(message["content"]))]
        return ids

    def _answer(self, asked, number):
        if asked.path != "/v1/chat/completions":
            return 200, {"object": "list", "data": [{"id": "tiny", "object": "model"}]}, JSON
        body = json.loads(asked.body)
        self.requests.append(body)
        self.headers.append(asked.headers)
        self.queries.append(asked.params)
        if self.fail:
            status = self.fail.pop(0)
            elsewhere = {"Location": "http://elsewhere.example/v1"} if status == 307 else {}
            return status, {"error": {"message": "overloaded", "code": status}}, {**JSON, **elsewhere}
        for field in ("logprobs", "return_token_ids"):
            if field in body and field not in self.knows:
                message = f"Unrecognized request argument supplied: {field}"
                return 400, {"error": {"message": message, "type": "invalid_request_error"}}, JSON
        time.sleep(self.delay)
        if body.get("stream"):
            return 200, self._chunks(body), {"Content-Type": "text/event-stream"}
        prompt, told = self.prompt_ids(body["messages"]), body.get("return_token_ids")
        message = {"role": "assistant", "content": "".join(WORDS[:-1])}
        if calls := _calls(body):
            message |= {"content": None, "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        logged = {"content": list(map(_logged, range(len(WORDS))))} if body.get("logprobs") else None
        choice |= {"logprobs": logged, "token_ids": IDS if told else None}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(IDS), "total_tokens": len(prompt) + len(IDS)}
        content = {"id": "c1", "created": 1, "model": body["model"], "object": "chat.completion", "choices": [choice]}
        return 200, {**content, "usage": usage, "prompt_token_ids": prompt if told else None}, JSON

    def _chunks(self, body):
        told, calls, last = body.get("return_token_ids"), _calls(body), len(WORDS) - 1
        try:
            for i, word in enumerate(WORDS):
                delta = {"content": word} if i < last else {}
                if calls and not i:
                    function = {**calls[0]["function"], "arguments": ""}
                    delta = {"tool_calls": [{"index": 0, **calls[0], "function": function}]}
                elif calls:
                    piece = calls[0]["function"]["arguments"][3 * (i - 1) : 3 * i if i < last else None]
                    delta = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
                choice = {"index": 0, "delta": delta, "finish_reason": "stop" if i == last else None}
                choice |= {"logprobs": {"content": [_logged(i)]} if body.get("logprobs") else None}
                choice |= {"token_ids": [IDS[i]]} if told else {}
                chunk = {"id": "c1", "created": 1, "model": body["model"], "object": "chat.completion.chunk"}
                chunk |= {"prompt_token_ids": self.prompt_ids(body["messages"])} if told and i == 0 else {}
                yield f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode()
                time.sleep(self.delay)
                if self.break_off and i == 2:
                    raise ConnectionError
            yield b"data: [DONE]\n\n"
        except GeneratorExit:
            self.closed_early += 1
            raise


def _logged(i):
    return {"token": WORDS[i], "logprob": -0.1 * i, "bytes": None, "top_logprobs": []}


def _calls(body):
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
    return [call] if body.get("tools") and body["messages"][-1]["role"] != "tool" else []


@pytest.fixture
def serving(fake_service):
    """Starts servers and proxies, which end with the test."""
    with contextlib.ExitStack() as stack:

        def start(folder, **kwargs):
            vllm = FakeVllm(fake_service, **{k: kwargs.pop(k) for k in ("knows", "delay") if k in kwargs})
            return vllm, stack.enter_context(RecordingServer(vllm.url, str(folder), **kwargs))

        yield start


def client(proxy, episode=None, **headers):
    headers = {k.replace("_", "-"): str(v) for k, v in headers.items()}
    if episode is not None:
        headers["X-Episode-Id"] = episode
    return openai.OpenAI(base_url=proxy.url, api_key="sk-secret", default_headers=headers, max_retries=0)


def ask(agent, *texts, **kwargs):
    """A completion after some turns of user and assistant."""
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]
    return agent.chat.completions.create(model="tiny", messages=messages, **kwargs)


def post(proxy, path, body, headers=None):
    url = proxy.url.removesuffix("/v1") + path
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    judge = {"X-Judge-Token": proxy.judge} if hasattr(proxy, "judge") else {}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **judge, **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as e:
        with e:
            return e.code, json.load(e)


def episodes(folder):
    return list(read_episodes(folder / "episodes.jsonl"))


def test_calls_become_an_episode_that_the_adapters_take(serving, tmp_path):
    vllm, proxy = serving(tmp_path)
    for name in ("a", "b"):
        with client(proxy, name, X_Group_Id="g", X_Task_Index=3) as agent:
            first = ask(agent, "2+2?")
            said = first.choices[0].message.content
            assert said == "Well, it is four." and first.choices[0].logprobs is None
            assert "token_ids" not in first.choices[0].model_extra and "prompt_token_ids" not in first.model_extra
            ask(agent, "2+2?", said, "Sure?", logprobs=True)
        status, reply = post(proxy, f"/episodes/{name}/reward", {"reward": float(name == "a"), "info": {"judge": 1}})
        assert (status, reply["steps"], reply["reward"]) == (200, 2, float(name == "a"))
    one, other = episodes(tmp_path)
    assert (one.episode_id, one.group_id, one.index, one.stop_reason) == ("a", "g", 3, StopReason.TERMINATED)
    assert one.success and not other.success and one.reward == 1.0 and one.steps[-1].info["judge"] == 1
    assert [s.terminated for s in one.steps] == [False, True] and not any(s.truncated for s in one.steps)
    assert one.reset_info["anchor"] == "2+2?" and one.steps[0].info["anchor"] == "Sure?"
    step = one.steps[1]
    assert step.observation[-1] == {"role": "user", "content": "Sure?"} and step.action == "Well, it is four."
    assert list(step.prompt_ids) == vllm.prompt_ids(vllm.requests[1]["messages"])
    assert step.response_ids == tuple(10_000 + i for i in range(7)) and step.info["tokens"] == "server"
    assert step.response_logprobs == pytest.approx([-0.1 * i for i in range(7)])

    batch = build_batch([one, other])
    assert len(batch.offsets) - 1 == 2  # both steps of an episode share a row: the prompts grow
    assert (batch.step_ids >= 0).sum() == 4 * 7 and batch.rewards.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_streams_pass_as_they_come_and_are_recorded_whole(serving, tmp_path):
    vllm, proxy = serving(tmp_path, delay=0.05)
    times, texts = [], []
    with client(proxy, "s") as agent:
        for chunk in ask(agent, "2+2?", stream=True):
            times.append(time.monotonic())
            texts.append(chunk.choices[0].delta.content or "")
            assert chunk.choices[0].logprobs is None and "token_ids" not in chunk.choices[0].model_extra
            assert "prompt_token_ids" not in chunk.model_extra
        assert "".join(texts) == "Well, it is four." and times[-1] - times[0] > 0.2  # not all at the end
        calls = []
        for chunk in ask(agent, "2+2?", stream=True, tools=TOOLS):
            calls += chunk.choices[0].delta.tool_calls or []
    assert "".join(call.function.arguments for call in calls) == '{"a": 2, "b": 2}'
    assert post(proxy, "/episodes/s/reward", {"reward": 0.5, "success": True})[0] == 200
    (episode,) = episodes(tmp_path)
    first, second = episode.steps
    assert first.action == "Well, it is four." and len(first.response_ids) == len(first.response_logprobs) == 7
    assert list(first.prompt_ids) == vllm.prompt_ids(vllm.requests[0]["messages"])
    assert second.action == '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call>'
    assert second.info["message"]["tool_calls"][0]["id"] == "call_1"
    assert [tool["function"]["name"] for tool in episode.tools] == ["add"] and episode.success


def test_what_the_client_asks_for_it_gets(serving, tmp_path):
    _, proxy = serving(tmp_path)
    with client(proxy, "x") as agent:
        reply = ask(agent, "?", logprobs=True, extra_body={"return_token_ids": True})
        assert reply.choices[0].model_extra["token_ids"] and reply.model_extra["prompt_token_ids"]
        assert len(reply.choices[0].logprobs.content) == 7
        chunks = list(ask(agent, "?", stream=True, logprobs=True, extra_body={"return_token_ids": True}))
    assert chunks[0].model_extra["prompt_token_ids"] and chunks[0].choices[0].model_extra["token_ids"] == [10_000]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("knows", [("logprobs",), ()])
def test_a_server_that_refuses_our_fields_is_asked_with_fewer(serving, tmp_path, knows, stream, caplog):
    vllm, proxy = serving(tmp_path, knows=knows)
    with client(proxy, "x") as agent:
        for _ in range(2):
            reply = ask(agent, "?", stream=stream)
            text = "".join(c.choices[0].delta.content or "" for c in reply) if stream else ""
            assert not stream or text == "Well, it is four."
        assert len(vllm.requests) == 2 + (2 - len(knows))  # the second call knows
        if not knows:
            with pytest.raises(openai.BadRequestError, match="logprobs"):  # what the agent asks for is not left out
                ask(agent, "?", stream=stream, logprobs=True)
    (warning,) = caplog.messages
    assert "the server refuses " in warning and "return_token_ids" in warning and "no longer asked" in warning
    post(proxy, "/episodes/x/reward", {"reward": 1})
    (episode,) = episodes(tmp_path)
    for step in episode.steps:
        assert step.prompt_ids is None and step.response_ids is None and step.info["tokens"] == "none"
        assert (step.response_logprobs is None) == (knows == ())
    assert len(build_batch([episode]).episode) == 0  # steps without tokens are left out


def test_tokens_are_read_from_where_servers_put_them():
    ids, logged = [3, 2], [{"token": "a", "logprob": -1.0}, {"token": "b", "logprob": -2.0}]
    for completion, choice, expected in [
        ({"prompt_token_ids": [1]}, {"token_ids": ids, "logprobs": {"content": logged}}, ((1,), (3, 2), (-1.0, -2.0))),
        ({}, {"prompt_token_ids": [1], "token_ids": ids}, ((1,), (3, 2), None)),  # SGLang
        ({}, {"prompt_token_ids": [1], "response_token_ids": ids}, ((1,), (3, 2), None)),
        ({}, {"logprobs": {"content": [{"id": 7, "logprob": -1}]}}, (None, (7,), (-1.0,))),  # llama.cpp
        ({}, {"logprobs": {"content": [{"token": "token_id:7", "logprob": -1}]}}, (None, (7,), (-1.0,))),
        ({}, {"token_ids": [3], "logprobs": {"content": logged}}, (None, (3,), None)),  # which is whose?
        ({}, {"logprobs": {"content": logged}}, (None, None, (-1.0, -2.0))),  # OpenAI
        ({"prompt_token_ids": "1"}, {"token_ids": [True], "logprobs": {"content": [3]}}, (None, None, None)),
        ({"prompt_token_ids": []}, {"token_ids": None, "logprobs": None}, (None, None, None)),
        ({}, {"logprobs": {"content": [{"logprob": None}]}}, (None, None, None)),
        ({}, {"logprobs": [1, 2]}, (None, None, None)),
        ({}, {"logprobs": {"content": [{"token": "token_id:x", "logprob": float("nan")}]}}, (None, None, None)),
        ({"prompt_token_ids": [1 << 63]}, {"logprobs": {"content": [{"logprob": -(10**400)}]}}, (None, None, None)),
    ]:
        assert tuple(read_tokens(completion, choice)) == expected, choice


def test_parallel_calls_of_an_episode_are_steps_in_the_order_they_came(serving, tmp_path):
    _, proxy = serving(tmp_path, delay=0.02)

    async def agents():
        headers = {"X-Episode-Id": "p"}
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key="k", default_headers=headers, max_retries=0) as one:
            tasks = []
            for i in range(6):
                message = [{"role": "user", "content": f"sub-agent {i}"}]
                named = {"X-Agent-Id": f"sub-{i}"}
                tasks.append(one.chat.completions.with_raw_response.create(
                    model="tiny", messages=message, extra_headers=named))  # fmt: skip
            return [int(reply.headers["X-Call-Index"]) for reply in await asyncio.gather(*tasks)]

    numbers = asyncio.run(agents())
    assert sorted(numbers) == list(range(6))
    status, _ = post(proxy, "/episodes/p/reward", {"rewards": {str(numbers[2]): 2.0, str(numbers[0]): 1.0}})
    assert status == 200
    (episode,) = episodes(tmp_path)
    assert [step.info["call"] for step in episode.steps] == list(range(6))
    for i, number in enumerate(numbers):
        step = episode.steps[number]
        assert step.observation[0]["content"] == f"sub-agent {i}" and step.info["agent"] == f"sub-{i}"
    assert episode.reward == 3.0 and episode.steps[numbers[2]].reward == 2.0


def test_failures_of_the_server_reach_the_agent_and_the_record(serving, tmp_path):
    vllm, proxy = serving(tmp_path)
    with client(proxy, "f") as agent:
        vllm.fail = [503]
        with pytest.raises(openai.InternalServerError, match="overloaded"):
            ask(agent, "?")
        vllm.fail = [429]
        with pytest.raises(openai.RateLimitError):
            ask(agent, "?", stream=True)
        vllm.break_off = True
        heard = []
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            for chunk in ask(agent, "?", stream=True):
                heard.append(chunk.choices[0].delta.content)
        assert "".join(heard) == "Well, it"
        vllm.break_off = False
        ask(agent, "?")
    assert post(proxy, "/episodes/f/reward", {"reward": 1.0})[0] == 200
    (episode,) = episodes(tmp_path)
    failed = episode.reset_info["failed_calls"]
    assert [f["call"] for f in failed] == [0, 1, 2] and [s.info["call"] for s in episode.steps] == [3]
    assert "503" in failed[0]["error"] and "429" in failed[1]["error"] and failed[2]["partial"] == "Well, it"


GOOD = {"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
NO_COMPLETIONS = [
    *(b"", b"<html>", b"null", b"[" * 5000),
    *({"choices": choices} for choices in ([], [None], [{"message": "a"}], {"0": GOOD})),
]
ODD_COMPLETIONS = [
    {"choices": [{**GOOD, "token_ids": "abc", "logprobs": {"content": [None]}}], "prompt_token_ids": [-1]},
    {"choices": [{**GOOD, "message": {"content": ["a", {"text": 3}, {"type": "x"}], "tool_calls": "none"}}]},
    {"choices": [{**GOOD, "message": {"content": 5, "tool_calls": [None, {"function": {"arguments": {}}}]}}]},
    {"choices": [{**GOOD, "message": {"content": "\ud800", "tool_calls": [{"function": {"name": None}}]}}]},
    {"choices": [GOOD, GOOD], "usage": "much", "model": ["m"]},
]


def recorded_replies(fake_service, folder, bodies, kind, request):
    """What an agent gets and what is recorded where a server answers with each body, in an episode of its own."""
    service = fake_service(lambda asked, number: (200, bodies[number - 1], {"Content-Type": kind}))
    told = []
    with RecordingServer(service.url, str(folder)) as proxy:
        for number in range(len(bodies)):
            url = f"{proxy.url.replace('/v1', f'/episodes/{number}/v1')}/chat/completions"
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(request).encode()), timeout=10) as reply:
                told.append(reply.read())
            assert post(proxy, f"/episodes/{number}/reward", {"reward": 1.0})[0] == 200, bodies[number]
    return zip(bodies, told, episodes(folder), strict=True)


def test_odd_replies_of_a_server_pass_and_break_nothing(fake_service, tmp_path):
    odd = {"role": "robot", "content": [{"type": "text"}, 7, None], "name": 3, "tool_calls": "x"}
    asked = {"messages": [odd, {"content": "\ud800"}], "tools": [None, {"function": {}}], "model": None, "logprobs": 1}
    replies = recorded_replies(fake_service, tmp_path, [*NO_COMPLETIONS, *ODD_COMPLETIONS], "application/json", asked)
    for body, told, episode in replies:
        recorded = body in ODD_COMPLETIONS
        assert recorded or told == (body if isinstance(body, bytes) else json.dumps(body).encode())
        assert len(episode.steps) == (len(body["choices"]) if recorded else 0), body
        assert len(episode.reset_info["failed_calls"]) == (not recorded), body
        assert isinstance(repr(episode), str) and isinstance(episode.to_html(), str)


def test_odd_streams_pass_and_break_nothing(fake_service, tmp_path):
    streams = (
        [b"data: {", b"data: []", b"data: null", b": comment", b"event: x", b"data: [DONE]"],
        [b'data: {"choices": [null, {"index": [], "delta": {"tool_calls": [null, {}]}}]}', b"data: [DONE]"],
        [b'data: {"choices": 3}', b'data: {"choices": {"index": 0}}', b"data: [DONE]"],
        [b'data: {"error": {"message": "out of memory"}}', b"data: [DONE]"],
        [b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}'],  # without [DONE]
        [b"no lines"],
    )
    asked = {"messages": [{"role": "user", "content": "?"}], "stream": True}
    bodies = [b"\r\n\r\n".join(lines) for lines in streams]
    for body, told, episode in recorded_replies(fake_service, tmp_path, bodies, "text/event-stream", asked):
        assert told.count(b"data:") == body.count(b"data:") and told.endswith(body[-6:])
        finished = b"finish_reason" in body
        assert (len(episode.steps), len(episode.reset_info["failed_calls"])) == (finished, not finished), body


def test_nobody_behind_the_proxy(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with RecordingServer(url, str(tmp_path)) as proxy, client(proxy, "n") as agent:
            with pytest.raises(openai.InternalServerError, match="upstream server failed"):
                ask(agent, "?")
            with pytest.raises(openai.InternalServerError, match="upstream server failed"):
                agent.models.list()
            assert post(proxy, "/episodes/n/reward", {"reward": 0})[0] == 200
    (episode,) = episodes(tmp_path)
    assert episode.steps == () and len(episode.reset_info["failed_calls"]) == 1


def test_a_slow_server_is_given_up(serving, tmp_path):
    _, proxy = serving(tmp_path, delay=1.0, call_timeout=0.2)
    with client(proxy, "n") as agent, pytest.raises(openai.InternalServerError, match="in time"):
        ask(agent, "?")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_stops_its_call(serving, tmp_path, stream):
    vllm, proxy = serving(tmp_path, delay=0.2)
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "?"}], "stream": stream}).encode()
    lines = ["POST /episodes/c/v1/chat/completions HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", "", ""]
    head = "\r\n".join(lines)
    host, port = proxy.url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((host, int(port))) as door:
        door.sendall(head.encode() + body)
        if stream:
            assert b"Well" in door.recv(65536) + door.recv(65536)
        else:
            assert until(lambda: vllm.requests)
    assert until(lambda: not proxy.store.open["c"].running)
    assert post(proxy, "/episodes/c/reward", {"reward": 0.0})[0] == 200
    (episode,) = episodes(tmp_path)
    assert episode.steps == ()
    (failed,) = episode.reset_info["failed_calls"]
    assert "client went away" in failed["error"] and until(lambda: vllm.closed_early == stream)


def test_the_reward_waits_for_calls_under_way(serving, tmp_path):
    _, proxy = serving(tmp_path, delay=0.3)
    with client(proxy, "w") as agent:
        thread = threading.Thread(target=lambda: ask(agent, "?"))
        thread.start()
        while "w" not in proxy.store.open:
            time.sleep(0.01)
        status, reply = post(proxy, "/episodes/w/reward", {"reward": 1})
        thread.join()
    assert (status, reply["steps"]) == (200, 1)


def test_other_wires_are_recorded_by_translation(serving, tmp_path):
    anthropic = pytest.importorskip("anthropic")
    _, proxy = serving(tmp_path)
    add = {"type": "object", "properties": {"a": {"type": "number"}}}
    with anthropic.Anthropic(base_url=f"{proxy.url.removesuffix('/v1')}/episodes/one%20agent", api_key="k") as agent:
        tools = [{"name": "add", "input_schema": add}]
        asked = {"model": "tiny", "max_tokens": 9, "system": "Use tools.", "tools": tools}
        messages = [{"role": "user", "content": "2 + 2?"}]
        for stream in (False, True):
            if stream:
                with agent.messages.stream(**asked, messages=messages) as events:
                    said = events.get_final_message()
            else:
                said = agent.messages.create(**asked, messages=messages)
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "4"}
                for block in said.content if block.type == "tool_use"
            ]  # fmt: skip
            messages += [{"role": "assistant", "content": [block.model_dump() for block in said.content]}]
            messages += [{"role": "user", "content": results}]
        assert said.stop_reason == "end_turn"
    with client(proxy, "two") as agent:
        first = agent.responses.create(model="tiny", input="2 + 2?")
        agent.responses.create(model="tiny", input="Sure?", previous_response_id=first.id)
        with pytest.raises(openai.BadRequestError, match="there is no response"):
            agent.responses.create(model="tiny", input="Sure?", previous_response_id="resp_other")
    for name in ("one%20agent", "two"):
        assert post(proxy, f"/episodes/{name}/reward", {"reward": 1.0})[0] == 200
    one, two = episodes(tmp_path)
    assert one.episode_id == "one agent" and one.instructions == "Use tools."
    assert [step.observation[-1]["role"] for step in one.steps] == ["user", "tool"]
    assert [len(step.observation) for step in (*one.steps, *two.steps)] == [2, 4, 1, 3]
    assert "<tool_call>" in one.steps[0].action and one.steps[1].prompt_ids is not None


def test_requests_that_cannot_be_recorded_say_why(serving, tmp_path):
    _, proxy = serving(tmp_path, max_request=4096)
    with client(proxy) as agent:
        with pytest.raises(openai.BadRequestError, match="X-Episode-Id"):
            ask(agent, "?")
        assert agent.models.list().data[0].id == "tiny"  # passed through
        assert agent.embeddings.with_raw_response.create(model="tiny", input="x").status_code == 200
    with client(proxy, "x") as agent:
        with pytest.raises(openai.NotFoundError, match="only /v1/chat/completions is recorded"):
            agent.completions.create(model="tiny", prompt="x")
        with pytest.raises(openai.APIStatusError, match="more than 4096 bytes"):
            ask(agent, "?" * 5000)
    for path, body, status, said in [
        ("/v1/chat/completions", b"{", 400, "not JSON"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/episodes/%0A/v1/chat/completions", {"messages": [{}]}, 400, "printable"),
        ("/episodes/nobody/reward", {"reward": 1}, 404, "no episode 'nobody'"),
        ("/nothing", {}, 404, "the paths are /v1"),
        ("/v1/%2e%2e/secret", {}, 404, ""),
        ("/v1/chat/completions2", {"messages": [{}]}, 404, "only /v1/chat/completions is recorded"),
    ]:
        headers = {"X-Episode-Id": "x"} if path.startswith("/v1/chat") else {}
        got, reply = post(proxy, path, body, headers)
        assert got == status and said in reply["error"]["message"], (path, reply)
    with client(proxy, "y", X_Group_Id="one") as agent:
        ask(agent, "?")
        with pytest.raises(openai.BadRequestError, match="began with the group 'one'"):
            ask(agent, "?", extra_headers={"X-Group-Id": "two"})
        with pytest.raises(openai.BadRequestError, match="X-Task-Index"):
            ask(agent, "?", extra_headers={"X-Task-Index": "-1"})
    for body, said in [
        ([], "an object"),
        ({"rewrad": 1}, "Did you mean 'reward'"),
        ({}, "either 'reward'"),
        ({"reward": 1, "rewards": [1]}, "either 'reward'"),
        ({"reward": float("nan")}, "must be a number"),
        ({"reward": True}, "must be a number"),
        (b'{"reward": 1%s}' % (b"0" * 400), "must be a number"),
        ({"rewards": [1, 2]}, "has 1 steps, got 2 rewards"),
        ({"rewards": {"7": 1}}, "no step of call 7"),
        ({"reward": 1, "success": "yes"}, "must be True or False"),
        ({"reward": 1, "stop_reason": "tired"}, "unknown stop reason 'tired'"),
        ({"reward": 1, "info": [1]}, "'info' must be an object"),
        ({"reward": 1, "info": {"score": [1]}}, "'score' is a field of its own"),
    ]:
        status, reply = post(proxy, "/episodes/y/reward", body)
        assert status == 400 and said in reply["error"]["message"], (body, reply)
    assert post(proxy, "/episodes/y/reward", {"reward": 1})[0] == 200
    assert post(proxy, "/episodes/y/reward", {"reward": 1}) == (200, {"episode_id": "y", "ended": True, "again": True})
    assert post(proxy, "/episodes/y/reward", {"reward": 2})[0] == 409
    with client(proxy, "y") as agent, pytest.raises(openai.ConflictError, match="is finished"):
        ask(agent, "?")


@pytest.mark.parametrize("named", ["/episodes/e/v1/", "/v1/"])
def test_what_means_a_completion_is_recorded_and_the_rest_refused(fake_service, tmp_path, named):
    service = fake_service(lambda asked, number: (200, {"choices": [GOOD]}, {"Content-Type": "application/json"}))
    body = {"messages": [{"role": "user", "content": "?"}]}
    header = {"X-Episode-Id": "e"} if named == "/v1/" else {}
    means = [
        "chat/completions",
        "./chat//completions",
        "%2e/chat/completions/",
        "chat%2fcompletions",
        "chat/%63ompletions",
    ]
    other = (
        *("chat", "completions", "response", "embeddings", "x/completions", "../chat/completions"),
        *("chat/x/../completions", "%2e%2e/v1/chat/completions", "Chat/Completions", "chat/completions;x", "models"),
        *("%2563hat/completions", "chat\\completions", "chat/completions%00", "models/../chat/completions", ""),
    )
    with RecordingServer(f"{service.url}/v1", str(tmp_path)) as proxy:
        for tail in means:
            assert post(proxy, named + tail, body, header)[0] == 200, tail
        assert {asked.path for asked in service.asked} == {"/v1/chat/completions"}
        for tail in other:
            assert post(proxy, named + tail, body, header)[0] == 404, tail
        assert len(service.asked) == len(means) == proxy.store.open["e"].steps
        assert named == "/v1/" or post(proxy, "/episodes/e//v1/chat/completions", body)[0] == 404
        post(proxy, "/v1/embeddings", {"input": "?"})
        overridden = {"X-HTTP-Method-Override": "POST", "X-Original-URL": "/v1/chat/completions", **header}
        for tail in ("models", "models/Qwen%2FQwen3"):
            url = proxy.url.removesuffix("/v1") + named + tail
            urllib.request.urlopen(urllib.request.Request(url, headers=overridden)).close()
    assert [asked.path for asked in service.asked[len(means) :]] == [
        "/v1/embeddings",
        "/v1/models",
        "/v1/models/Qwen/Qwen3",
    ]
    assert not {"x-http-method-override", "x-original-url"} & {name.lower() for name in service.asked[-1].headers}


def test_keys_are_passed_on_and_never_written(fake_service, tmp_path, caplog):
    """Nor what a server repeats of them: in an error, an answer, a stream, a header, or where it redirects to."""
    keys = ("sk-agent-secret", "xk/other+secret", "query&secret==", "sk-upstream-secret", "sk-judge-secret")

    def answer(asked, number):
        told = f"{asked.headers['Authorization']} {asked.headers['X-Api-Key']} {asked.path} query&secret=="
        message = {"role": "assistant", "content": told, "tool_calls": [{"function": {"name": "f", "arguments": told}}]}
        whole = {"choices": [{"message": message, "finish_reason": "stop", "token_ids": [1]}], "prompt_token_ids": [2]}
        chunk = {"choices": [{"delta": message, "finish_reason": "stop"}]}
        kinds = {
            "whole": (200, whole, {"Content-Type": "application/json", "X-Request-Id": told}),
            "stream": (200, f"data: {json.dumps(chunk)}\n\n".encode(), {"Content-Type": "text/event-stream"}),
            "broken": (200, f"data: {json.dumps({'error': told})}\n\n".encode(), {"Content-Type": "text/event-stream"}),
            "refused": (401, {"error": {"message": told.replace("/", "\\/")}}, {"Content-Type": "application/json"}),
            "blamed": (400, {"error": f"unknown parameter logprobs for {told}"}, {"Content-Type": "application/json"}),
            "moved": (307, "", {"Location": f"http://me:sk-upstream-secret@x/v1?key={keys[2]}"}),
        }
        return kinds[json.loads(asked.body)["model"]]

    service = fake_service(answer)
    sent = {"Authorization": f"Bearer {keys[0]}", "X-Api-Key": keys[1], "Content-Type": "application/json"}
    with RecordingServer(service.url, str(tmp_path), upstream_key=keys[3]) as proxy:
        url = f"{proxy.url.replace('/v1', '/episodes/e/v1')}/chat/completions?key={urllib.parse.quote(keys[2])}"
        for model in ("whole", "stream", "broken", "refused", "blamed", "moved"):
            body = json.dumps({"model": model, "messages": [{"role": "user", "content": "?"}]}).encode()
            try:
                with urllib.request.urlopen(urllib.request.Request(url, body, sent), timeout=10) as reply:
                    got = str(reply.headers).encode() + reply.read()
            except urllib.error.HTTPError as e:
                with e:
                    got = e.read()
            assert b"sk-upstream-secret" not in got, model  # which is not the agent's
        verdict = {"reward": 1, "error": f"at {url}", "info": {"key": keys[4]}}
        assert post(proxy, "/episodes/e/reward", verdict, {"X-Api-Key": keys[4]})[0] == 200
    assert service.asked[0].headers["Authorization"] == "Bearer sk-upstream-secret"
    assert service.asked[0].headers["X-Api-Key"] == keys[1]
    text = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file()) + caplog.text
    for key in keys:
        for written in (key, urllib.parse.quote(key, safe=""), key.replace("/", "\\/")):
            assert written not in text, key
    (episode,) = episodes(tmp_path)
    assert len(episode.steps) == 2 and len(episode.reset_info["failed_calls"]) == 4
    step = episode.steps[0]
    assert "(the key)" in step.action and step.prompt_ids is None and "has a key" in step.info["tokens_error"]


def test_whatever_an_agent_sends_as_its_key_the_record_stays_one(fake_service, tmp_path):
    """The names and words of a record, digits of its numbers, and what looks like its marks."""
    agents = ["observation", "stop_reason", "episode_id", "assistant", "terminated", "function", "tool_calls"]
    agents += ["12345678", '"reward":', '"content"', "e-of-this-agent"]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "I am an assistant", "tool_calls": [call]}
    whole = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1234567890}}
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
    service = fake_service(lambda asked, number: (200, whole, {"Content-Type": "application/json"}))
    with RecordingServer(service.url, str(tmp_path)) as proxy:
        for number, key in enumerate(agents):
            name = key if key.startswith("e-") else f"e{number}"
            assert post(proxy, f"/episodes/{name}/v1/chat/completions", body, {"X-Api-Key": key})[0] == 200, key
            assert post(proxy, f"/episodes/{name}/reward", {"reward": 1, "error": f"by {key}"})[0] == 200, key
    for key, episode in zip(agents, episodes(tmp_path), strict=True):
        (step,) = episode.steps
        assert step.terminated and episode.error == "by (the key)", key
        assert step.info["message"]["role"] == "assistant" and step.info["usage"] == whole["usage"], key
    with RecordingServer("http://localhost:1/v1", str(tmp_path)) as proxy:
        assert len(proxy.store.finished) == len(agents) and "e-of-this-agent" in proxy.store.finished


def test_an_answer_without_end_is_left(fake_service, tmp_path, monkeypatch):
    monkeypatch.setattr("agent_envs.policies.openai.stream._LONGEST", 1 << 16)
    event = b'data: {"choices": [{"delta": {"content": "word"}}]}\n\n'
    for kind, body in (("application/json", b" " * (1 << 17)), ("text/event-stream", event * 2400)):
        service = fake_service(lambda asked, number, kind=kind, body=body: (200, body, {"Content-Type": kind}))
        folder = tmp_path / kind[:4]
        with RecordingServer(service.url, str(folder)) as proxy, client(proxy, "x") as agent:
            with pytest.raises((openai.APIError, httpx.HTTPError)):
                list(ask(agent, "?", stream=True))
            assert post(proxy, "/episodes/x/reward", {"reward": 0})[0] == 200
        assert "got more than" in episodes(folder)[0].reset_info["failed_calls"][0]["error"]


def test_a_token_guards_what_other_machines_can_reach(serving, tmp_path):
    with pytest.raises(ConfigError, match="pass judge_token="):
        RecordingServer("http://x/v1", str(tmp_path), token="open-sesame", judge_token="open-sesame")
    vllm, proxy = serving(tmp_path, token="open-sesame", judge_token="judge-dredd", upstream_key="sk-upstream")
    with client(proxy, "t") as agent, pytest.raises(openai.AuthenticationError, match="server's token"):
        ask(agent, "?")
    with client(proxy, "t", X_Record_Token="open-sesame") as agent:
        ask(agent, "?")
    with openai.OpenAI(base_url=proxy.url, api_key="open-sesame", default_headers={"X-Episode-Id": "t"}) as agent:
        ask(agent, "?")
    assert [h["Authorization"] for h in vllm.headers] == ["Bearer sk-upstream"] * 2
    assert all("X-Record-Token" not in h for h in vllm.headers)
    other, behind = serving(tmp_path / "behind", token="open-sesame", judge_token="judge-dredd")
    basic = base64.b64encode(b"any:open-sesame").decode()
    for header in ("Bearer open-sesame", "bearer open-sesame", "Bearer  open-sesame", f"Basic {basic}"):
        body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}]}
        assert post(behind, "/episodes/t/v1/chat/completions", body, {"Authorization": header})[0] == 200
    assert len(other.headers) == 4 and all(
        "Authorization" not in h for h in other.headers
    )  # the server has no use for it
    for headers, status in (
        ({}, 401),
        ({"X-Record-Token": "close-sesame"}, 401),
        ({"X-Record-Token": "open-sesame"}, 403),  # what agents hold ends no episode
        ({"X-Judge-Token": "judge-dredd"}, 401),
        ({"X-Record-Token": "open-sesame", "X-Judge-Token": "open-sesame"}, 403),
        ({"X-Record-Token": "open-sesame", "X-Judge-Token": "judge-dredd"}, 200),
    ):
        assert post(proxy, "/episodes/t/reward", {"reward": 1}, headers)[0] == status, headers


def test_episodes_that_nobody_ends(serving, tmp_path):
    _, proxy = serving(tmp_path, episode_timeout=0.4)
    with client(proxy, "idle") as agent:
        ask(agent, "?")
    assert until(lambda: "idle" in proxy.store.finished)
    with client(proxy, "late") as agent:
        ask(agent, "?")
    proxy.close()
    idle, late = episodes(tmp_path)
    assert idle.stop_reason is StopReason.EPISODE_TIMEOUT and idle.steps[-1].truncated and "0.4 seconds" in idle.error
    assert late.stop_reason is StopReason.ERROR and "stopped before" in late.error


def test_what_comes_after_the_end_is_refused(tmp_path):
    store = EpisodeStore(tmp_path)
    episode = store.episode("x")
    store.finish(episode, EpisodeVerdict(reward=1.0))
    with pytest.raises(ConfigError, match="has been finished"):
        store.add_steps(episode, 0, [], [])
    with pytest.raises(ConfigError, match="has been finished"):
        store.finish(episode, EpisodeVerdict(reward=2.0))
    store.add_failure(episode, 1, "too late")
    assert not episode.path.exists()
    store.close()
    assert len(episodes(tmp_path)) == 1


def test_an_episode_is_ended_once_it_is_in_the_file_of_episodes(tmp_path):
    """The process died before it removed the file with the episode's calls."""
    store = EpisodeStore(tmp_path)
    episode = store.episode("x", index=4)
    row = {"observation": [], "action": "a", "info": {"call": 0}}
    row |= {"prompt_ids": None, "response_ids": None, "response_logprobs": None}
    store.add_steps(episode, 0, [row], [])
    calls = episode.path.read_bytes()
    store.finish(episode, EpisodeVerdict(reward=3.0))
    episode.path.write_bytes(calls)
    with pytest.raises(ConfigError, match="another process is using"):
        EpisodeStore(tmp_path)
    store.close()
    again = EpisodeStore(tmp_path)
    assert again.open == {} and "x" in again.finished and not episode.path.exists()
    again.close()
    (record,) = episodes(tmp_path)
    assert record.reward == 3.0 and record.group_id == "recorded:4"


def test_a_server_that_has_moved_is_named(serving, tmp_path):
    """The official client would follow, and go on unrecorded."""
    vllm, proxy = serving(tmp_path)
    vllm.fail = [307]
    with client(proxy, "m") as agent, pytest.raises(openai.InternalServerError, match="redirects to 'http://elsewhere"):
        ask(agent, "?")
    with openai.OpenAI(
        base_url=proxy.url, api_key="k", default_headers={"X-Episode-Id": "m"}, default_query={"api-version": "7"}
    ) as agent:
        ask(agent, "?")
    assert vllm.queries[-1] == {"api-version": "7"}


def test_a_taken_port_and_an_address_that_is_none(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], 99_999):
            with pytest.raises(ConfigError, match="cannot listen"):
                RecordingServer("http://x/v1", str(tmp_path), port=port).start()
    with pytest.raises(ConfigError, match="without a login") as caught:  # the others: tests/test_addresses.py
        RecordingServer("http://me:secret@x/v1", str(tmp_path))
    assert "secret" not in str(caught.value)
    for wrong in ({"max_request": 0}, {"call_timeout": 0}, {"episode_timeout": float("nan")}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            RecordingServer("http://x/v1", str(tmp_path), **wrong)


def test_the_pages_example_runs(root, fake_service, monkeypatch, capsys):
    monkeypatch.setenv("UPSTREAM", FakeVllm(fake_service).url)
    text = (root / "docs" / "recording.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    exec(compile(block, "docs/recording.md", "exec"), {"__name__": "page"})
    assert "4 steps, rewards [0.0, 1.0, 0.0, 1.0]" in capsys.readouterr().out
