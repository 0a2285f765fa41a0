"""The export to verifiers, against the real package: its rollouts, client and rubric before a server that is fake."""

import asyncio
import contextlib
import importlib
import json
import threading

import gymnasium as gym
import pytest

from agent_envs.adapters.by_hand import EpisodeByHand
from agent_envs.errors import BackendError, ConfigError
from agent_envs.parsers import get_parser
from agent_envs.policies.openai.calls import answer_calls
from agent_envs.prompts.conversation import Conversation
from agent_envs.wrapping.specs import apply_wrappers

vf = pytest.importorskip("verifiers")
httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai")

MODULE = "agent_envs.adapters.verifiers"
ENVS = [
    ("AgentR1/GSM8KTool-v0", {}, "native"),
    ("AgentR1/GSM8KTool-v0", {}, "text"),
    ("AgentR1/ALFWorld-v0", {"size": 1}, "native"),
    ("AgentR1/PaperSearch-v0", {"papers": 300, "max_calls": 3}, "native"),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """verifiers sets handlers of signals and of the exit for every environment that it makes."""
    importlib.import_module(MODULE)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("atexit.register", lambda f, *_: f)


def fake_client(scripts, native, requests):
    """The official client before a server that answers with an episode's next text, found by its first question."""

    def answer(request):
        body = json.loads(request.content)
        requests.append(body)
        question = next(m["content"] for m in body["messages"] if m["role"] == "user")
        turn = sum(m["role"] == "assistant" for m in body["messages"])
        text = scripts[question][turn] if question in scripts else scripts[None][len(requests) - 1]
        message = {"role": "assistant", "content": text}
        parsed = get_parser("hermes").parse(text)
        if native and parsed.calls:
            calls = [
                {"id": f"call_{turn}_{i}", "type": "function",
                 "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
                for i, call in enumerate(parsed.calls)
            ]  # fmt: skip
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        ids = list(range(len(text)))
        logprobs = {"content": [{"token": "x", "logprob": -0.5, "bytes": None, "top_logprobs": []} for _ in ids]}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": logprobs, "token_ids": ids}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        completion = {"id": "c", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
        return httpx.Response(200, json={**completion, "prompt_token_ids": [7] * turn + [8], "usage": usage})

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    client = openai.AsyncOpenAI(base_url="http://fake/v1", api_key="k", http_client=http)
    return vf.OpenAIChatCompletionsClient(client)


def play(gym_id, kwargs, index, act, wrappers=()):
    """An episode of the environment itself: texts, rewards, messages after each step, first prompt, end."""
    env = apply_wrappers(gym.make(gym_id, split="test", **kwargs), wrappers)
    conversation = Conversation(env.get_wrapper_attr("instructions"))
    observation, info = env.reset(options={"index": index})
    prompt = conversation.observe(observation, info).new
    texts, rewards, news, done = [], [], [], False
    while not done:
        texts.append(act(env))
        conversation.respond(texts[-1])
        observation, reward, terminated, truncated, info = env.step(texts[-1])
        rewards.append(reward)
        news.append(conversation.observe(observation, info).new)
        done = terminated or truncated
    env.close()
    return prompt, texts, rewards, news, (terminated, truncated, info)


def plain(messages):
    """Messages of verifiers as dictionaries, without what is not set."""
    return [m if isinstance(m, dict) else m.model_dump(exclude_none=True) for m in messages]


async def generate(env, client, indices, **kwargs):
    inputs = env.get_eval_dataset().select(indices)
    columns = ["env_steps", "trajectory"]
    return await env.generate(inputs, client, "m", state_columns=columns, on_progress=lambda *_: None, **kwargs)


@pytest.mark.parametrize(("gym_id", "kwargs", "mode"), ENVS)
def test_experts_episodes_are_the_environments_own(gym_id, kwargs, mode):
    indices = [0, 2, 4]
    env = vf.load_environment(MODULE, gym_id=gym_id, env_kwargs=kwargs, num_eval=5, num_train=2, tool_mode=mode)
    played = [play(gym_id, kwargs, i, lambda e: e.unwrapped.expert_action()) for i in indices]
    scripts = {prompt[-1]["content"]: texts for prompt, texts, *_ in played}
    requests = []
    outputs = asyncio.run(generate(env, fake_client(scripts, mode == "native", requests), indices))["outputs"]
    assert len(outputs) == 3
    for output, (prompt, texts, rewards, news, (terminated, truncated, info)) in zip(outputs, played, strict=True):
        assert output["error"] is None and output["stop_condition"] == "has_final_env_response"
        if mode == "native":
            assert plain(output["prompt"]) == prompt
        assert [step["action"] for step in output["env_steps"]] == texts
        assert [step["reward"] for step in output["env_steps"]] == rewards
        assert [step["reward"] for step in output["trajectory"]] == rewards
        assert output["reward"] == pytest.approx(sum(rewards))
        metrics = output["metrics"]
        assert metrics["success"] == float(info["success"]) and metrics["score"] == pytest.approx(info["score"])
        assert metrics["num_turns"] == len(texts) and metrics["truncated"] == float(truncated and not terminated)
        shown = plain(output["completion"])
        turns = [i for i, message in enumerate(shown) if message["role"] == "assistant"]
        for i, new in zip(turns, news, strict=True):
            after = shown[i + 1 : next((j for j in turns if j > i), len(shown))]
            ids = [json.loads(call)["id"] for call in shown[i].get("tool_calls", [])]
            assert [m["content"] for m in after] == [m["content"] for m in answer_calls(ids, new)]
            assert [m["tool_call_id"] for m in after if m["role"] == "tool"] == ids
        for step, text in zip(output["trajectory"], texts, strict=True):  # the server's tokens, untouched
            assert step["tokens"]["completion_ids"] == list(range(len(text)))
            assert step["tokens"]["completion_logprobs"] == [-0.5] * len(text)
    tools = gym.make(gym_id, **kwargs).unwrapped.tools
    assert all(request.get("tools", []) == (tools if mode == "native" else []) for request in requests)


def test_several_calls_at_once_are_one_step():
    """Two calls in a message, one of them with arguments that are not JSON: both are answered under their ids."""
    gym_id = "AgentR1/GSM8KTool-v0"
    env = vf.load_environment(MODULE, gym_id=gym_id, num_eval=1)
    tool = env.tool_defs[0]
    good = {"name": tool.name, "arguments": json.dumps({next(iter(tool.parameters["properties"])): "2+3"})}
    bad = {"name": good["name"], "arguments": "{2+3"}

    async def two_calls():
        state = await env.init_state(dict(env.get_eval_dataset()[0]), fake_client({}, True, []), "m")
        await env.setup_state(state)
        calls = [vf.types.ToolCall(id="a", **good), vf.types.ToolCall(id="b", **bad)]
        said = vf.types.AssistantMessage(content="Both:", tool_calls=calls)
        state["trajectory"].append({"prompt": state["prompt"], "completion": [said], "reward": None})
        answers = await env.env_response([*state["prompt"], said], state)
        await env.close_env(state)
        return answers, state["env_steps"]

    answers, steps = asyncio.run(two_calls())
    assert [(m["role"], m["tool_call_id"]) for m in answers] == [("tool", "a"), ("tool", "b")]
    assert answers[0]["content"] == "5" and "JSON" in answers[1]["content"] and len(steps) == 1


def test_limits_wrappers_and_rebuilt_prompts():
    gym_id, kwargs = "AgentR1/PaperSearch-v0", {"papers": 300}
    wrappers = ["RebuildPrompt"]
    prompt, texts, rewards, news, _ = play(gym_id, kwargs, 0, lambda e: e.unwrapped.expert_action(), wrappers)
    env = vf.load_environment(MODULE, gym_id=gym_id, env_kwargs=kwargs, num_eval=1, wrappers=wrappers)
    requests = []
    (output,) = asyncio.run(generate(env, fake_client({None: texts}, True, requests), [0]))["outputs"]
    assert output["reward"] == pytest.approx(sum(rewards))
    assert [request["messages"] for request in requests] == [prompt, *news[:-1]]  # each the whole prompt

    limited = vf.load_environment(MODULE, gym_id=gym_id, env_kwargs=kwargs, num_eval=1, max_turns=1)
    (output,) = asyncio.run(generate(limited, fake_client({None: texts}, True, []), [0]))["outputs"]
    assert len(output["env_steps"]) == 1 and output["is_truncated"] and output["metrics"]["truncated"] == 1.0
    assert output["reward"] == rewards[0]


def test_a_failure_is_an_infrastructure_error_and_too_many_end_the_run(monkeypatch):
    from agent_envs.adapters.run import FailureBudget

    env = vf.load_environment(MODULE, gym_id="AgentR1/GSM8K-v0", num_eval=3)
    env.get_eval_dataset()
    env._failures = FailureBudget(0.5, steps=1, episodes=2)
    client = fake_client({None: ["4"] * 9}, True, [])
    asyncio.run(generate(env, client, [0, 1, 2]))  # a third, still to be counted

    def fail(*args):
        raise BackendError("the index is gone")

    monkeypatch.setattr("agent_envs.envs.gsm8k.env.GSM8KEnv.step", fail)
    outputs = asyncio.run(generate(env, client, [0]))["outputs"]
    error = outputs[0]["error"]
    assert error["error"] == "InfraError" and "the index is gone" in str(error)
    assert env._running == {} and not env._spent  # one of two is allowed
    asyncio.run(generate(env, client, [0, 1]))
    with pytest.raises(BackendError, match="(?s)all 2 episodes of a step broke.*the index is gone"):
        asyncio.run(generate(env, client, [0]))


def test_what_an_environment_draws_is_in_the_datasets_prompt(monkeypatch):
    from agent_envs.envs.gsm8k.env import GSM8KEnv

    begin = GSM8KEnv.begin
    monkeypatch.setattr(GSM8KEnv, "begin", lambda self, task: (f"{self.np_random.random()}", begin(self, task)[1]))
    env = vf.load_environment(MODULE, gym_id="AgentR1/GSM8K-v0", num_eval=1)

    async def start():
        state = await env.init_state(dict(env.get_eval_dataset()[0]), fake_client({}, True, []), "m")
        await env.setup_state(state)
        shown = env._running[state["trajectory_id"]].conversation.messages
        await env.close_env(state)
        return shown

    assert env.get_eval_dataset()["prompt"][0][-1]["content"] == asyncio.run(start())[-1]["content"]


def test_groups_are_scored_and_splits_are_what_they_say():
    env = vf.load_environment(MODULE, gym_id="AgentR1/GSM8K-v0", num_train=4, num_eval=3, seed=1)
    train, held_out = env.get_dataset(), env.get_eval_dataset()
    assert (len(train), len(held_out)) == (4, 3) and train["prompt"][0] != held_out["prompt"][0]
    assert json.loads(train["info"][1]) == {"split": "train", "index": 1}


def test_what_cannot_work_says_why():
    load = importlib.import_module(MODULE).load_environment
    for arguments, said in [
        ({"gym_id": "AgentR1/Nothing-v0"}, "unknown environment 'AgentR1/Nothing-v0'"),
        ({"gym_id": "CartPole-v1"}, "CartPole-v1 does not take 'split'"),
        ({"env_kwargs": {"levle": 1}}, "does not take 'levle'. Did you mean 'level'"),
        ({"tool_mode": "telepathy"}, "tool_mode"),
        ({"max_turns": 0}, "max_turns"),
        ({"wrappers": ["Nothing"]}, "unknown wrapper"),
    ]:
        with pytest.raises(ConfigError, match=said):
            load(**arguments)


def plan_first(env, model):
    """A plan in a conversation of its own, then the plain loop."""
    plan = model.chat([{"role": "user", "content": f"Plan: {env.observation}"}])
    model.pay(0.25, to=plan)
    messages = [{"role": "system", "content": env.instructions}, *env.messages]
    while not env.over:
        reply = model.chat(messages, env.tools)
        env.step(reply)
        messages = [*messages, reply.message, *env.messages]


@pytest.mark.parametrize("limit", [None, 2])
def test_an_agents_calls_are_the_steps_of_a_trajectory(limit):
    gym_id = "AgentR1/GSM8KTool-v0"
    how = {"gym_id": gym_id, "num_eval": 3, "tool_mode": "text", "agent": plan_first}
    env = vf.load_environment(MODULE, **how, max_turns=limit)
    _, texts, rewards, _, (_, _, info) = play(gym_id, {}, 2, lambda e: e.unwrapped.expert_action())
    requests = []
    client = fake_client({None: ["my plan", *texts]}, False, requests)
    (output,) = asyncio.run(generate(env, client, [2]))["outputs"]
    assert output["error"] is None
    own = [0.25, *rewards][:limit]
    assert [step["reward"] for step in output["trajectory"]] == own and output["reward"] == pytest.approx(sum(own))
    assert requests[0]["messages"][0]["content"].startswith("Plan: ") and len(requests[0]["messages"]) == 1
    assert [m["role"] for m in requests[1]["messages"]] == ["system", "user"] and not requests[1].get("tools")
    assert output["metrics"]["success"] == (0.0 if limit else float(info["success"]))
    assert bool(output["is_truncated"]) == bool(limit)
    with pytest.raises(RuntimeError, match="tool_mode='text' with agent="):
        vf.load_environment(MODULE, **{**how, "tool_mode": "native"})


def test_rewards_are_those_of_the_models_own_calls(monkeypatch):
    """An agent may act without asking, and give up waiting for a reply, which comes all the same."""
    gym_id, gave_up = "AgentR1/GSM8KTool-v0", threading.Event()

    async def impatient(env, model):
        await env.step('<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>')
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(model.chat([{"role": "user", "content": "late"}]), 0.01)
        gave_up.set()
        messages = [{"role": "system", "content": env.instructions}, *env.messages]
        while not env.over:
            reply = await model.chat(messages, env.tools)
            await env.step(reply)
            messages = [*messages, reply.message, *env.messages]

    really_next = EpisodeByHand.next

    def slowly(hand, text=None):
        assert text is None or gave_up.wait(60)
        return really_next(hand, text)

    monkeypatch.setattr(EpisodeByHand, "next", slowly)
    env = vf.load_environment(MODULE, gym_id=gym_id, num_eval=3, tool_mode="text", agent=impatient)
    _, texts, rewards, _, _ = play(gym_id, {}, 2, lambda e: e.unwrapped.expert_action())
    (output,) = asyncio.run(generate(env, fake_client({None: ["too late", *texts]}, False, []), [2]))["outputs"]
    assert output["error"] is None and output["reward"] == sum(rewards) > 0
    assert [step["reward"] for step in output["trajectory"]] == [0.0, *rewards]
