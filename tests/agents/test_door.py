"""The door: programs ask an episode's model over HTTP, with the SDK that they have.

Behaviours pinned here:
1. A loop of tools on the SDK, streamed or not, gives the tokens of the plain loop: one conversation, sampled text kept.
2. What the SDK re-spells is found again: arguments of calls, white space, ids, dropped reasoning.
3. A retry that says so is one call, equal requests are two, and a client that leaves is not waited for.
4. A stream whose reply takes long begins with comments; a failure then is an event, before that a status.
5. Parallel requests draw the same random numbers in whatever order they arrive.
6. Roles and untrained calls by the model's name; settings that the run decides are listed.
7. Bad requests are answered with a sentence and status 400; an episode that is over with 404; no key reaches another's.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import json
import random
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.agents import door
from agent_envs.episodes.record import Episode, StopReason

openai = pytest.importorskip("openai")
pytest.importorskip("aiohttp")
pytest.importorskip("transformers")

ENV = "AgentR1/GSM8KTool-v0"
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>'
ODD = 'Let me see. <tool_call>\n{"name":  "calculator", "arguments": {"expression":   "2*\\u0033"}}\n</tool_call>'


@pytest.fixture(scope="module")
def scripted(load_file):
    return load_file("tests/agents/test_agents.py").Scripted


def play(scripted: Any, agent: Any, *texts: str, **settings: Any) -> Episode:
    policy = scripted(*texts, **settings)
    episode = agent_envs.run_episode(gym.make(ENV), policy, seed=0, agent=agent)
    recorded = [(s.prompt_ids, s.response_ids) for s in episode.steps if s.response_ids]
    assert sorted(recorded) == sorted(policy.sampled)
    return episode


def solver(odd: bool = False):
    """The loop of tools that agents on OpenAI's SDK have; every second reply is streamed."""

    def solve(env, model):
        with openai.OpenAI(base_url=model.url + "/v1", api_key=model.key, max_retries=0) as client:
            messages: list[Any] = [
                {"role": "system", "content": env.instructions}, {"role": "user", "content": env.observation},
            ]  # fmt: skip
            while not env.over:
                if len(messages) % 4:
                    asked = client.chat.completions.create(model="policy", messages=messages, tools=env.tools)
                    message = asked.choices[0].message
                else:
                    asked = client.chat.completions.stream(model="policy", messages=messages, tools=env.tools)
                    with asked as events:
                        message = events.get_final_completion().choices[0].message
                said = message.model_dump(exclude_none=True, exclude={"parsed", "reasoning_content"})
                for call in said.get("tool_calls", ()):
                    call["function"].pop("parsed_arguments", None)
                    if odd:  # spelled anew, under another id
                        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=2)
                        call["id"] = "mine"
                messages.append(said)
                for call in message.tool_calls or ():
                    result = env.call(call.function.name, json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": "mine" if odd else call.id, "content": result})
                if not message.tool_calls:
                    env.step(message.content)

    return solve


def anthropic_solver():
    """The same on Anthropic's messages."""
    anthropic = pytest.importorskip("anthropic")

    def solve(env, model):
        tools = [
            {"name": tool["function"]["name"], "description": tool["function"]["description"],
             "input_schema": tool["function"]["parameters"]}
            for tool in env.tools
        ]  # fmt: skip
        system = [{"type": "text", "text": "x-anthropic-billing-header: 7"}, {"type": "text", "text": env.instructions}]
        with anthropic.Anthropic(base_url=model.url, api_key=model.key, max_retries=0) as client:
            messages: list[Any] = [{"role": "user", "content": env.observation}]
            while not env.over:
                asked: Any = {
                    "model": "policy", "max_tokens": 64, "system": system, "messages": messages, "tools": tools,
                }  # fmt: skip
                if len(messages) % 4 == 3:
                    with client.messages.stream(**asked) as events:
                        message = events.get_final_message()
                else:
                    message = client.messages.create(**asked)
                del asked["max_tokens"]
                assert client.messages.count_tokens(**asked).input_tokens == message.usage.input_tokens
                messages.append({"role": "assistant", "content": [block.model_dump() for block in message.content]})
                results = [
                    {"type": "tool_result", "tool_use_id": block.id, "content": env.call(block.name, block.input)}
                    for block in message.content if block.type == "tool_use"
                ]  # fmt: skip
                assert (message.stop_reason == "tool_use") == bool(results)
                if not results:
                    env.step("".join(block.text for block in message.content if block.type == "text"))
                messages.append({"role": "user", "content": results or "?"})

    return solve


def responding(chained: bool = False):
    """The same on OpenAI's responses, with the whole conversation or its next part in each request."""

    def solve(env, model):
        tools = [{"type": "function", **tool["function"]} for tool in env.tools]
        with openai.OpenAI(base_url=model.url + "/v1", api_key=model.key, max_retries=0) as client:
            items: list[Any] = [{"role": "user", "content": env.observation}]
            before, stream = None, False
            while not env.over:
                asked: Any = {"model": "policy", "instructions": env.instructions, "tools": tools, "input": items}
                asked |= {"previous_response_id": before} if before else {}
                if stream:
                    with client.responses.stream(**asked) as events:
                        reply = events.get_final_response()
                else:
                    reply = client.responses.create(**asked)
                calls = [item for item in reply.output if item.type == "function_call"]
                said = [item.model_dump(exclude={"parsed_arguments"}) for item in reply.output]
                results = [
                    {"type": "function_call_output", "call_id": call.call_id,
                     "output": env.call(call.name, json.loads(call.arguments))}
                    for call in calls
                ]  # fmt: skip
                if not calls:
                    env.step(reply.output_text)
                stream = not stream
                items, before = (results, reply.id) if chained else ([*items, *said, *results], None)

    return solve


@pytest.mark.parametrize(
    "agent", [solver, partial(solver, odd=True), anthropic_solver, responding, partial(responding, chained=True)]
)
def test_a_loop_on_an_sdk_is_the_plain_loop(scripted, agent):
    texts = [CALL, ODD, CALL, "#### 7"]
    loop, played = play(scripted, None, *texts), play(scripted, agent(), *texts)
    assert played.error is None and played.stop_reason is StopReason.TERMINATED
    assert [s.after for s in played.steps] == [None, 0, 1, 2]
    for one, other in zip(loop.steps, played.steps, strict=True):
        for name in ("prompt_ids", "response_ids", "response_logprobs", "reward", "terminated", "action"):
            assert getattr(one, name) == getattr(other, name), name
    assert loop.calls == played.calls == 3


def post(url: str, body: Any, headers: Any = (), timeout: float = 30) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **dict(headers)})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


ASKED = [{"role": "user", "content": "2 + 2?"}]


def test_roles_and_calls_that_are_not_trained_by_the_models_name(scripted):
    def agent(env, model):
        url = f"{model.url}/v1/chat/completions"
        for name in ("policy", "policy/judge", "policy:untrained", "gpt-5"):
            status, reply = post(url, {"model": name, "messages": ASKED, "temperature": 0.2, "max_tokens": 9})
            assert status == 200 and reply["choices"][0]["finish_reason"] == "stop" and reply["model"] == name

    steps = play(scripted, agent, "a", "b", "c", "d").steps
    assert [(s.role, s.trained) for s in steps] == [("", True), ("judge", True), ("", False), ("", True)]
    assert all(step.info["ignored"] == ["temperature"] for step in steps)


def test_a_retry_is_one_call_and_equal_requests_are_two(scripted):
    def agent(env, model):
        url, body = f"{model.url}/v1/chat/completions", {"messages": ASKED, "n": 2}
        with ThreadPoolExecutor(4) as pool:
            both = list(pool.map(lambda _: post(url, body), range(2)))
        again = post(url, body, {"x-stainless-retry-count": "1"})
        assert again in both and both[0] != both[1]
        assert [len(reply["choices"]) for _, reply in both] == [2, 2]

    assert len(play(scripted, agent, *"abcd").steps) == 4


def leave(url: str, body: Any, seconds: float = 0.3) -> None:
    with pytest.raises(TimeoutError):
        post(url, body, timeout=seconds)


def test_a_client_that_leaves_is_waited_for_and_its_retry_joins(scripted, monkeypatch):
    monkeypatch.setattr(door, "_LEAVE", door._LEAVE / 4)  # two seconds
    ended = []

    class Slow(scripted):
        async def sample(self, prompt_ids, max_tokens, seed, pictures=()):
            try:
                await asyncio.sleep(1.5)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            ended.append("sampled")
            return await super().sample(prompt_ids, max_tokens, seed, pictures)

    def agent(env, model):
        url = f"{model.url}/v1/chat/completions"
        leave(url, {"messages": ASKED})
        status, _ = post(url, {"messages": ASKED}, {"x-stainless-retry-count": "1"})
        assert status == 200 and ended == ["sampled"]
        leave(url, {"messages": ASKED})
        time.sleep(1)
        assert ended == ["sampled", "cancelled"]

    episode = play(Slow, agent, "a")
    assert episode.error is None and len(episode.steps) == 1


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("wire", ["chat/completions", "messages", "responses"])
def test_a_stream_says_that_it_lives(scripted, monkeypatch, wire, fails):
    monkeypatch.setattr("agent_envs.agents.door._COMMENT", 0.05)

    class Slow(scripted):
        async def sample(self, prompt_ids, max_tokens, seed, pictures=()):
            await asyncio.sleep(0.3)
            return await super().sample(prompt_ids, max_tokens, seed, pictures)

    def agent(env, model):
        body = {"input" if wire == "responses" else "messages": ASKED, "stream": True, "max_tokens": 9}
        request = urllib.request.Request(f"{model.url}/v1/{wire}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as reply:
            comments, _, told = reply.read().decode().rpartition(": sampling\n\n")
        assert comments.count(": sampling") > 1
        if fails:
            assert told.startswith("event: error\n") and "it is gone" in told
        else:
            assert "four" in told and "error" not in told.partition("\n")[0]

    episode = play(Slow, agent, agent_envs.errors.BackendError("it is gone") if fails else "four")
    assert len(episode.steps) == (not fails)


def test_seeds_do_not_depend_on_which_request_comes_first(scripted):
    class Seeded(scripted):
        async def sample(self, prompt_ids, max_tokens, seed, pictures=()):
            self.seeds.append((tuple(prompt_ids), seed))
            return await super().sample(prompt_ids, max_tokens, seed, pictures)

    def seeds(*questions):
        def agent(env, model):
            for question in questions:
                post(f"{model.url}/v1/chat/completions", {"messages": [{"role": "user", "content": question}]})

        policy = Seeded()
        policy.seeds = []
        agent_envs.run_episode(gym.make(ENV), policy, seed=0, agent=agent)
        return policy.seeds

    assert sorted(seeds("a", "b", "b")) == sorted(seeds("b", "a", "b"))
    assert len({seed for _, seed in seeds("a", "b", "b")}) == 3


def test_a_retry_of_what_failed_is_sampled_again(scripted):
    def agent(env, model):
        url = f"{model.url}/v1/chat/completions"
        assert post(url, {"messages": ASKED})[0] == 502
        assert post(url, {"messages": ASKED}, {"x-stainless-retry-count": "1"})[0] == 200

    episode = play(scripted, agent, agent_envs.errors.BackendError("it is gone"), "a")
    assert episode.error is None and [s.action for s in episode.steps] == ["a"]


def test_bad_requests_are_answered_with_a_sentence(scripted):
    addresses = []

    def agent(env, model):
        addresses.append(model.url)
        assert model.url == addresses[0] and model.key == model.url.rpartition("/")[2] and len(model.key) == 32
        url = f"{model.url}/v1/chat/completions"
        tool = {"type": "web_search"}
        broken = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
        for body, says in (
            (b"{", "not JSON"),
            ({"messages": ASKED, "tools": 3}, "tools must be a list, got 3"),
            ([], "must be an object"),
            ({}, "'messages', a list"),
            ({"messages": [{"role": "narrator", "content": ""}]}, "the role must be"),
            ({"messages": [*ASKED, {"role": "assistant", "content": "4"}]}, "the last message is the assistant's"),
            ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "'input_audio' cannot be shown"),
            ({"messages": ASKED, "tools": [tool]}, "the tool type 'web_search' runs at a provider"),
            ({"messages": ASKED, "max_tokens": 0}, "max_tokens must be an integer of at least 1"),
            ({"messages": ASKED, "n": 99}, "n must be at most 16"),
            ({"messages": ASKED, "tools": [{"type": "function", "function": 3}]}, "a tool needs a function"),
            ({"messages": [broken, *ASKED]}, "the arguments of f are not JSON"),
            ({"messages": [{"role": "user", "content": "word " * 9000}]}, "leaves no room in a context"),
        ):  # fmt: skip
            status, reply = post(url, body)
            assert status == 400 and says in reply["error"]["message"], reply
        assert reply["error"]["code"] == "context_length_exceeded"
        for wire, body in (("responses", {"input": "x", "tools": 3}), ("responses", {"previous_response_id": []}),
                           ("messages", {"messages": [{"role": "user", "content": "x"}], "tools": 3})):  # fmt: skip
            status, reply = post(f"{model.url}/v1/{wire}", body)
            assert status == 400 and "malformed" in reply["error"]["message"], reply
        assert post(url, b'{"messages": [{"role": "user", "content": "\\ud800"}]}')[0] == 200
        other = addresses[0].replace(model.key, "0" * 32)
        assert post(f"{other}/v1/chat/completions", {"messages": ASKED})[0] == 404
        assert post(url, {"messages": ASKED}, {"Host": "evil.example"})[0] == 403
        with urllib.request.urlopen(f"{model.url}/v1/models", timeout=30) as reply:
            assert json.load(reply)["data"][0]["id"] == "policy"
        for path in ("", "/", "/api/hello"):  # where programs look whether anybody is there
            with urllib.request.urlopen(urllib.request.Request(model.url + path, method="HEAD"), timeout=30) as reply:
                assert reply.status == 200 and reply.read() == b""

    episode = play(scripted, agent)
    assert episode.error is None and len(episode.steps) == 1
    status, reply = post(f"{addresses[0]}/v1/chat/completions", {"messages": ASKED})
    assert status == 404 and reply["error"]["message"] == "this episode is over: its address no longer answers"


def test_tools_of_the_programs_own_are_shown_and_read(scripted):
    function = {"name": "ask_a_friend", "description": "Ask.", "parameters": {"type": "object"}}
    own = {"type": "function", "function": function}

    def agent(env, model):
        with openai.OpenAI(base_url=model.url + "/v1", api_key=model.key) as client:
            reply = client.chat.completions.create(model="policy", messages=ASKED, tools=[own])
            (call,) = reply.choices[0].message.tool_calls
            assert (call.function.name, json.loads(call.function.arguments)) == ("ask_a_friend", {"who": "Ann"})

    text = '<tool_call>\n{"name": "ask_a_friend", "arguments": {"who": "Ann"}}\n</tool_call>'
    policy = scripted(text)
    episode = agent_envs.run_episode(gym.make(ENV), policy, seed=0, agent=agent)
    assert episode.error is None and "ask_a_friend" in policy.tokenizer.decode(episode.steps[0].prompt_ids)


def test_replies_that_are_spelled_alike_keep_their_own_tokens(scripted):
    wide = CALL.replace('": "', '":  "')

    def agent(env, model):
        url = f"{model.url}/v1/chat/completions"
        talks = [[{"role": "user", "content": f"talk {i}"}] for i in range(2)]
        for talk in talks:
            talk.append(post(url, {"messages": talk, "tools": env.tools})[1]["choices"][0]["message"])
            talk.append({"role": "tool", "tool_call_id": talk[-1]["tool_calls"][0]["id"], "content": "2"})
        for talk in talks:
            post(url, {"messages": talk, "tools": env.tools})

    steps = play(scripted, agent, CALL, wide, "a", "b").steps
    assert [step.after for step in steps] == [None, None, 0, 1]
    for step, before in ((steps[2], steps[0]), (steps[3], steps[1])):
        grown = before.prompt_ids + before.response_ids
        assert step.prompt_ids[: len(grown)] == grown


def test_a_reply_that_a_limit_cut_says_so(scripted):
    class Cut(scripted):
        async def sample(self, prompt_ids, max_tokens, seed, pictures=()):
            sampled = await super().sample(prompt_ids, max_tokens, seed, pictures)
            return sampled._replace(token_ids=sampled.token_ids[:max_tokens], log_probs=sampled.log_probs[:max_tokens])

    def agent(env, model):
        for wire, limit, body in (
            ("chat/completions", "max_tokens", {"messages": ASKED}),
            ("messages", "max_tokens", {"messages": ASKED}),
            ("responses", "max_output_tokens", {"input": "2 + 2?"}),
        ):
            said.append([post(f"{model.url}/v1/{wire}", {**body, limit: most})[1] for most in (3, 50)])

    said: list[Any] = []
    agent_envs.run_episode(gym.make(ENV), Cut(*["four and more"] * 6), seed=0, agent=agent)
    chat, message, response = said
    assert [reply["choices"][0]["finish_reason"] for reply in chat] == ["length", "stop"]
    assert [reply["stop_reason"] for reply in message] == ["max_tokens", "end_turn"]
    assert [reply["status"] for reply in response] == ["incomplete", "completed"]


TEXT = {"type": "text"}


def broken(body: Any, draw: random.Random) -> Any:
    """Return a request with another value, or none, somewhere in it."""
    body = copy.deepcopy(body)
    inner: list[Any] = [body]
    for place in inner:
        inner += [
            x for x in (place.values() if isinstance(place, dict) else place) if isinstance(x, (dict, list)) and x
        ]
    place = draw.choice(inner)
    key = draw.choice([*place] if isinstance(place, dict) else range(len(place)))
    place[key] = draw.choice([None, True, -1, 10**30, "", "x", "\ud800", [], {}, [None], [[]], ["x"], [{}], TEXT])
    if draw.random() < 0.2:
        del place[key]
    return body


def test_no_request_is_an_error_of_the_server(scripted):
    tool = {"name": "calculator", "description": "Adds.", "parameters": {"type": "object", "properties": {"e": {}}}}
    call = {"id": "a", "type": "function", "function": {"name": "calculator", "arguments": '{"e": 1}'}}
    chat = {
        "messages": [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "2"}]}],
        "tools": [{"type": "function", "function": tool}], "stream": True, "stream_options": {"include_usage": True},
        "n": 2, "max_tokens": 5, "temperature": 0.3, "model": "policy/a",
    }  # fmt: skip
    parts = [{"type": "tool_reference", "tool_name": "c"}, {"type": "text", "text": "t"}]
    message = {
        "system": [{"type": "text", "text": "b"}], "stream": True, "stop_sequences": ["x"], "max_tokens": 5,
        "messages": [*ASKED, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "q", "name": "c", "input": {"e": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "q", "content": parts}]}],
        "tools": [{"name": "c", "input_schema": {"type": "object"}, "defer_loading": True}],
    }  # fmt: skip
    response = {
        "instructions": "I", "stream": True, "metadata": {}, "max_output_tokens": 9, "previous_response_id": None,
        "input": [*ASKED, {"type": "function_call", "namespace": "n", "name": "c", "arguments": "{}", "call_id": "a"},
                  {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "a"}]}],
        "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", **tool}]}],
    }  # fmt: skip
    statuses = collections.Counter[tuple[str, int]]()

    def agent(env, model):
        draw = random.Random(0)
        for _ in range(120):
            for wire, body in (("chat/completions", chat), ("messages", message), ("responses", response)):
                asked = json.dumps(broken(body, draw)).encode()
                request = urllib.request.Request(f"{model.url}/v1/{wire}", asked, {"Content-Type": "application/json"})
                try:
                    with urllib.request.urlopen(request, timeout=30) as reply:
                        assert reply.read(), asked
                        statuses[wire, reply.status] += 1
                except urllib.error.HTTPError as e:
                    assert e.code == 400 and len(json.load(e)["error"]["message"]) > 10, asked
                    statuses[wire, e.code] += 1

    assert play(scripted, agent, *[CALL.replace("calculator", name) for name in ("n__c", "c")] * 99).error is None
    assert len(statuses) == 6 and min(statuses.values()) > 9  # three wires, answered and refused


def test_tools_of_a_namespace_have_its_name_before_theirs(scripted):
    tool = {"type": "function", "name": "calculator", "description": "Adds.", "parameters": {"type": "object"}}
    asked = {"tools": [{"type": "namespace", "name": "mcp__environment", "tools": [tool]}], "input": [*ASKED]}

    def agent(env, model):
        for _ in range(2):
            reply = post(f"{model.url}/v1/responses", asked)[1]
            asked["input"] += reply["output"]
            asked["input"].append(
                {"type": "function_call_output", "call_id": reply["output"][-1]["call_id"], "output": "2"}
            )
            called = reply["output"][-1]
            assert (called["namespace"], called["name"]) == ("mcp__environment", "calculator")
        post(f"{model.url}/v1/responses", asked)

    wide = CALL.replace('": "', '":  "').replace("calculator", "mcp__environment__calculator")
    steps = play(scripted, agent, wide, wide, "a").steps
    assert [step.after for step in steps] == [None, 0, 1]


def test_a_tool_is_shown_where_it_was_searched_for(scripted):
    tool = {"name": "adds", "description": "Adds two.", "input_schema": {"type": "object"}, "defer_loading": True}
    asked: dict[str, Any] = {"messages": [*ASKED], "tools": [tool], "max_tokens": 9}

    def agent(env, model):
        said = post(f"{model.url}/v1/messages", asked)[1]["content"]
        content = [{"type": "tool_reference", "tool_name": "adds"}]
        found = {"type": "tool_result", "tool_use_id": "a", "content": content}
        asked["messages"] += [{"role": "assistant", "content": said}, {"role": "user", "content": [found]}]
        post(f"{model.url}/v1/messages", asked)
        content[0]["tool_name"] = "else"
        assert post(f"{model.url}/v1/messages", asked)[0] == 400

    first, second = play(scripted, agent, "I search.", "a").steps
    assert second.after == 0 and "Adds two." not in str(first.observation)
    shown = second.observation[-1]["content"]
    assert shown.startswith("<function>") and json.loads(shown[10:-12])["description"] == "Adds two."


@pytest.mark.parametrize("env", [ENV, "AgentR1/ALFWorld-v0"])
def test_a_call_over_mcp_belongs_to_the_reply_that_asked(scripted, env):
    name, arguments = {
        ENV: ("calculator", [{"expression": "1+1"}, {"expression": "2+2"}]),
        "AgentR1/ALFWorld-v0": ("act", [{"action": "look"}, {"action": "inventory"}]),
    }[env]
    calls = [
        f"<tool_call>{json.dumps({'name': f'mcp__environment__{name}', 'arguments': a})}</tool_call>" for a in arguments
    ]

    async def agent(env, model):
        for _ in calls:
            await asyncio.to_thread(post, f"{model.url}/v1/chat/completions", {"messages": ASKED})
        for a in reversed(arguments):
            params = {"name": name, "arguments": a}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            results.append((await asyncio.to_thread(post, f"{model.url}/mcp", body))[1]["result"]["content"][0]["text"])

    results: list[str] = []
    steps = agent_envs.run_episode(gym.make(env), scripted(*calls), seed=0, agent=agent).steps
    assert [step.action for step in steps] == calls and [step.info["env_steps"] for step in steps] == [1, 1]
    assert len({*results}) == 2
    for step, result in zip(steps, reversed(results), strict=True):
        assert result in str(step.info)


def test_texts_are_actions_over_mcp(scripted):
    async def agent(env, model):
        async def ask(method, **params):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return (await asyncio.to_thread(post, f"{model.url}/mcp", body))[1]

        (tool,) = (await ask("tools/list"))["result"]["tools"]
        result = (await ask("tools/call", name=tool["name"], arguments={"action": "look"}))["result"]
        assert result["content"][0]["text"] and not result["isError"]
        assert "there is no tool" in (await ask("tools/call", name="nothing", arguments={}))["error"]["message"]

    episode = agent_envs.run_episode(gym.make("AgentR1/ALFWorld-v0"), scripted(), seed=0, agent=agent)
    assert episode.error is None and [step.action for step in episode.steps] == ["look"]


def test_many_episodes_ask_at_once(scripted):
    policy = scripted()
    episodes = agent_envs.run_episodes(ENV, policy, 12, agent=solver(), concurrency=12, progress=False)
    assert all(e.stop_reason is StopReason.TERMINATED and len(e.steps) == 1 for e in episodes)


def test_a_limit_is_never_above_the_policys():
    policy = agent_envs.policies.OpenAIPolicy("m", base_url="http://127.0.0.1:9", max_tokens=9)
    assert [policy.limited(limit) for limit in (0, 5, 20)] == [{}, {"max_tokens": 5}, {}]
    policy.close()


def test_arguments_that_a_model_has_malformed_are_passed_on():
    from agent_envs.agents.messages_wire import as_message

    function = {"name": "f", "arguments": "[1"}
    said = {"content": None, "tool_calls": [{"id": "a", "function": function}]}
    reply = {"id": "c", "model": "m", "choices": [{"message": said, "finish_reason": "tool_calls"}]}
    assert as_message(reply)["content"][0]["input"] == {"arguments": "[1"}
