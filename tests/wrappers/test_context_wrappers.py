"""Wrappers that decide what a chat model is shown.

Behaviours pinned here:
1. `MessagesSpace` holds exactly lists of messages up to a length, and single, sync and async environments agree.
2. Same environment, seed and actions: same rewards and ends under each wrapper, for every registered id.
3. `ChatMessages` says everything once, in the right roles, in lists that share nothing.
4. Windows and budgets keep instructions, task and whole exchanges, and say what they left out.
5. Specs, pickles, snapshots and step limits survive every wrapper.
6. A model behind a server is told its tools once, and every call it is shown has its result.
"""

from __future__ import annotations

import copy
import json
import pickle
import random
import sys
import warnings

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import agent_envs
from agent_envs.errors import ConfigError, ContextLengthExceeded
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.registration import layers
from agent_envs.spaces import MessagesSpace
from agent_envs.wrappers import ChatMessages, SlidingWindow, TokenBudget, apply_wrappers

TOOL = "AgentR1/GSM8KTool-v0"


def _call(env, expression):
    return env.get_wrapper_attr("format_call")("calculator", {"expression": expression})


def _roles(messages):
    return "".join(message["role"][0] for message in messages)


def _play(env, actions, *, seed=3):
    observation, _ = env.reset(seed=seed)
    observations, ends = [observation], []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        observations.append(observation)
        ends.append((float(reward), terminated, truncated, info["success"], info["score"]))
        if terminated or truncated:
            break
    return observations, ends


# -- 1: the space ------------------------------------------------------------------------------------------------------


def test_the_space_holds_messages_and_nothing_else():
    space = MessagesSpace(200, seed=1)
    good = [
        [],
        [{"role": "user", "content": ""}],
        [{"role": "tool", "content": "é中😀\x00\ud800", "name": "search", "tool_call_id": "c1"}],
        [{"role": "assistant", "content": "a", "tool_calls": [{"id": "c1"}]}],
    ]
    bad = [
        "text", None, ({"role": "user", "content": ""},), [{"role": "user"}], [{"content": ""}],
        [{"role": "bot", "content": ""}], [{"role": "user", "content": None}],
        [{"role": "user", "content": "", "x": 1}],
        [{"role": "user", "content": "", "name": 3}], [{"role": "user", "content": "a" * 200}],
        [{"role": "user", "content": "\x00" * 50}], [{"role": "user", "content": "", "tool_calls": [{1, 2}]}], ["user"],
    ]  # fmt: skip
    assert all(map(space.contains, good)) and not any(map(space.contains, bad))
    for _ in range(200):
        assert space.contains(space.sample())
        assert MessagesSpace(40, seed=2).contains(MessagesSpace(40, seed=2).sample())
    assert MessagesSpace(2).sample() == []
    assert pickle.loads(pickle.dumps(space)) == space == copy.deepcopy(space) != MessagesSpace(201)
    assert space != agent_envs.UnicodeText(200) and hash(space) == hash(MessagesSpace(200)) and "200" in repr(space)
    assert len(pickle.dumps(MessagesSpace())) < 5000
    for message, make in (("neither mask", lambda: space.sample(mask=1)), ("at least 2", lambda: MessagesSpace(1))):
        with pytest.raises(ValueError, match=message):
            make()


def test_gymnasiums_checker_passes():
    spec = ChatMessages.wrapper_spec(reasoning="keep", tools="template", max_length=100_000)
    entry = "agent_envs.envs.gsm8k.env:GSM8KToolEnv"
    gym.register("Test/Chat-v0", entry_point=entry, max_episode_steps=10, additional_wrappers=(spec,))
    try:
        env = gym.make("Test/Chat-v0")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_env(env, skip_render_check=True)
        # the checker wants the innermost environment, and has nothing else to say
        assert all("different from the unwrapped version" in str(w.message) for w in caught), caught
    finally:
        del gym.registry["Test/Chat-v0"]


@pytest.mark.parametrize(
    "specs",
    [
        ["ChatMessages", "SlidingWindow(k=1)"],
        ["RebuildPrompt", "Augment(fn='html:escape')"],
    ],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors_agree_with_single_environments(mode, specs):
    actions = [("<tool_call>première 中😀 \x00", "<tool_call>"), ("</tool_call>", "<tool_call>" + "x" * 50_000)]
    wrap = lambda env: apply_wrappers(env, specs)  # noqa: E731
    single = []
    for number in range(2):
        env = wrap(gym.make(TOOL))
        first = env.reset(seed=5 + number)[0]
        single.append([first, *(env.step(pair[number])[0] for pair in actions)])
    vector = gym.make_vec(TOOL, 2, vectorization_mode=mode, wrappers=[wrap])
    observations = [vector.reset(seed=5)[0]]
    kept = copy.deepcopy(observations[0])
    observations += [vector.step(pair)[0] for pair in actions]
    vector.close()
    got = [[step[number] for step in observations] for number in range(2)]
    assert got == single
    assert all(isinstance(step, tuple) and type(step[0]) is type(single[0][0]) for step in observations)
    assert observations[0] == kept  # an earlier observation stays what it was


# -- 2: rewards and ends -----------------------------------------------------------------------------------------------

STACKS = {
    "ChatMessages": ["ChatMessages"],
    "ChatMessages, stripped": ["ChatMessages(reasoning='strip', tools='text')"],
    "SlidingWindow": ["ChatMessages", "SlidingWindow(k=1)"],
    "TokenBudget": ["ChatMessages", "TokenBudget(n=3000, tokenizer={tokenizer!r})"],
    "RebuildPrompt": ["RebuildPrompt"],
    "RebuildPrompt, a text": ["RebuildPrompt(template='$task/$history/$observation/$commands/$problems/$step')"],
    "Augment": ["Augment(fn='html:escape')"],
    "PrependInstructions": ["PrependInstructions"],
    "StripReasoning": ["StripReasoning"],
    "all": ["StripReasoning", "Augment(fn='html:escape')", "PrependInstructions", "ChatMessages", "SlidingWindow(k=2)",
            "TokenBudget(n=3000, tokenizer={tokenizer!r})"],
    "rebuilt chat": ["RebuildPrompt", "Augment(fn='html:escape')", "ChatMessages"],
}  # fmt: skip
EVERY_WRAPPER = ("ChatMessages, stripped", "all", "rebuilt chat")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A folder with a small tokenizer that has a chat template."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks.pretraining import tokenizer as tiny

    folder = tmp_path_factory.mktemp("tokenizer")
    tiny.build_tokenizer(["The quick brown fox 0123456789 é中😀"] * 20).save_pretrained(folder)
    return str(folder)


def _specs(name, tokenizer):
    return [spec.format(tokenizer=tokenizer) if "{tokenizer" in spec else spec for spec in STACKS[name]]


def test_a_budget_is_outermost(tokenizer):
    with pytest.raises(ConfigError, match="In this order: ChatMessages, SlidingWindow, TokenBudget"):
        apply_wrappers(gym.make(TOOL), [*_specs("TokenBudget", tokenizer), "SlidingWindow"])


def _mistake(action, rng):
    """A right action with a part of it lost, doubled or replaced; reasoning, which a wrapper may take off, apart."""
    start = rng.randrange(len(action))
    end = start + rng.randrange(1, 9)
    return rng.choice([
        "", "<tool_call>{oops", "\x00 \ud800", action * 2, f"{action[:start]}{action[end:]}", action[:start],
        f"{action[:start]}{rng.choice('é中{<]')}{action[end:]}",
    ])  # fmt: skip


@pytest.fixture(scope="module")
def plain():
    """Of each id the actions of an episode with mistakes, and its rewards and ends."""
    seed = random.randrange(1000)
    print("seed", seed)  # noqa: T201
    rng, played = random.Random(seed), {}
    for env_id in agent_envs.ENV_IDS:
        env = gym.make(env_id)
        env.reset(seed=3)
        actions: list[str] = []
        while (action := env.unwrapped.expert_action()) is not None:
            mistaken = len(actions) < 12 and env.spec.max_episode_steps > 4 and rng.random() < 0.4
            actions.append(_mistake(action, rng) if mistaken else action)
            if any(env.step(actions[-1])[2:4]):
                break
        played[env_id] = actions, _play(gym.make(env_id), actions)[1]
    return played


@pytest.mark.parametrize("name", EVERY_WRAPPER)
@pytest.mark.parametrize("env_id", agent_envs.ENV_IDS)
def test_rewards_and_ends_are_the_same_under_each_wrapper(env_id, name, plain, tokenizer):
    actions, ends = plain[env_id]
    budget = "n=12000" if "HelpDesk" in env_id else "n=3000"  # a rule book takes more
    env = apply_wrappers(gym.make(env_id), [spec.replace("n=3000", budget) for spec in _specs(name, tokenizer)])
    observations, wrapped = _play(env, actions)
    assert wrapped == ends
    assert all(map(env.observation_space.contains, observations))
    for observation in observations:
        json.dumps(observation, ensure_ascii=False).encode()  # no lone surrogate


# -- 3: the chat -------------------------------------------------------------------------------------------------------


def test_a_chat_says_everything_once_and_in_its_role():
    env = ChatMessages(gym.make(TOOL))
    first, _ = env.reset(seed=0)
    inner = gym.make(TOOL)
    question, _ = inner.reset(seed=0)
    assert first == [{"role": "system", "content": inner.unwrapped.instructions}, {"role": "user", "content": question}]
    assert env.get_wrapper_attr("instructions") == "" and env.get_wrapper_attr("tools") == inner.unwrapped.tools
    calls = _call(env, "1+1") + _call(env, "1/0")
    second = env.step(calls)[0]
    assert second[:2] == first and second[2] == {"role": "assistant", "content": calls}
    assert [m["content"] for m in second[3:]] == ["2", "error: at position 2: division by zero."] and _roles(
        second[3:]
    ) == "tt"
    second[1]["content"] = "changed"
    third = env.step("\ud800")[0]
    assert third[:2] == first and third[5] == {"role": "assistant", "content": "\ufffd"} and third[6]["role"] == "user"
    told = ChatMessages(gym.make(TOOL), tools="text")
    assert told.reset(seed=0)[0][0]["content"].endswith(inner.unwrapped.tool_instructions)
    assert told.tools == [] and told.tool_instructions == "" and _roles(told.step(calls)[0]) == "suau"


def test_reasoning_of_earlier_turns_is_kept_or_left_out():
    for reasoning, shown in (("keep", "<think>1?</think>{}"), ("strip", "{}")):
        env = ChatMessages(gym.make(TOOL), reasoning=reasoning)
        env.reset(seed=0)
        call = _call(env, "1+1")
        messages = env.step(f"<think>1?</think>{call}")[0]
        assert messages[2]["content"] == shown.format(call) and messages[3]["content"] == "2"


def test_a_full_prompt_is_cut_and_ends_the_episode():
    env = ChatMessages(gym.make("AgentR1/ALFWorld-v0", size=1, max_episode_steps=-1), max_length=10_000)
    env.reset(seed=0)
    messages = env.step("\x00" * 5000)[0]
    assert messages[2]["content"].endswith("[cut: 5000 characters]") and env.observation_space.contains(messages)
    for _ in range(1000):
        messages, _, terminated, truncated, _ = env.step("a" * 3000)
        assert env.observation_space.contains(messages) and not terminated
        if truncated:
            break
    assert truncated and len(json.dumps(messages)) > 8000
    env.reset(seed=0)
    assert not env.step("look")[3]


# -- 4: what is shown of it --------------------------------------------------------------------------------------------


def _played(env, count):
    """Observations and infos of an episode with `count` calculations 1+1, 2+1, 3+1..."""
    shown = [env.reset(seed=0)]
    for number in range(1, count + 1):
        observation, _, _, _, info = env.step(_call(env, f"{number}+1"))
        shown.append((observation, info))
    return shown


def _results(messages):
    return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize("k", [0, 1, 3, 100])
def test_a_window_keeps_the_task_and_whole_exchanges(k):
    shown = _played(SlidingWindow(ChatMessages(gym.make(TOOL)), k=k), 5)
    for number, (messages, info) in enumerate(shown):
        kept = min(k, number)
        assert messages[:2] == shown[0][0] and _roles(messages) == "su" + "at" * kept
        assert _results(messages) == [str(n + 1) for n in range(number - kept + 1, number + 1)]
        assert info["dropped_exchanges"] == number - kept


def test_a_budget_is_kept_and_says_what_it_left_out(tokenizer, token_conversation):
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    whole = _played(ChatMessages(gym.make(TOOL)), 8)
    builder = PromptBuilder(loaded, gym.make(TOOL).unwrapped.tools)
    least, most = len(builder.start(whole[0][0])), len(builder.start(whole[-1][0]))
    for n in (most + 50, (least + most) // 2, least + 250):
        for given in (tokenizer, loaded):
            env = TokenBudget(ChatMessages(gym.make(TOOL)), n=n, tokenizer=given)
            actor = token_conversation(builder)
            for number, (messages, info) in enumerate(_played(env, 8)):
                if number:
                    said = whole[number][0][-2]["content"]
                    actor.respond(said, [*loaded.encode(said, add_special_tokens=False), loaded.eos_token_id])
                prompt = actor.observe(messages, info)
                assert len(prompt) == info["prompt_tokens"] <= n  # what an actor shows is what was counted
                assert loaded.decode(prompt).endswith("<|im_start|>assistant\n")
                assert messages[0] == whole[0][0][0] and messages[1]["content"].startswith(whole[0][0][1]["content"])
                dropped = info["dropped_exchanges"]
                assert _roles(messages) == "su" + "at" * (number - dropped)
                assert messages[2:] == whole[number][0][2 + 2 * dropped :]
                assert (f"[{dropped} earlier step" in messages[1]["content"]) == (dropped > 0)
    assert dropped > 3


@pytest.mark.parametrize(("reasoning", "window"), [("keep", []), ("strip", ["SlidingWindow(k=3)"])])
def test_what_a_budget_counts_is_what_an_actor_shows(tokenizer, token_conversation, reasoning, window):
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    rng = random.Random(11)
    for n in (1000, 1600, 4000):
        env = gym.make("AgentR1/HotpotQA-v0", passage_chars=200)
        env = apply_wrappers(env, [f"ChatMessages(reasoning={reasoning!r})", *window])
        env = TokenBudget(env, n=n, tokenizer=loaded)
        actor = token_conversation(PromptBuilder(loaded, env.get_wrapper_attr("tools")))
        actor.observe(*env.reset(seed=1))
        for _ in range(9):
            thought = " ".join(rng.choices(["so", "it", "中", "é"], k=rng.randint(0, 60)))
            query = rng.choice(["film", "composer of music", "who wrote"])
            said = f"<think>{thought}</think>{env.get_wrapper_attr('format_call')('search', {'query': query})}"
            actor.respond(said, [*loaded.encode(said, add_special_tokens=False), loaded.eos_token_id])
            messages, *_, info = env.step(said)
            assert len(actor.observe(messages, info)) == info["prompt_tokens"] <= n
        assert info["dropped_exchanges"] > 0


def test_a_budget_shortens_what_it_cannot_drop(tokenizer):
    env = TokenBudget(ChatMessages(gym.make("AgentR1/HotpotQA-v0")), n=1500, tokenizer=tokenizer)
    first, info = env.reset(seed=0)
    search = env.get_wrapper_attr("format_call")("search", {"query": first[-1]["content"]})
    for _ in range(3):
        messages, *_, info = env.step(search)
        assert info["prompt_tokens"] <= 1500 and _roles(messages) == "suat"
        assert messages[-1]["content"].endswith("characters]") and len(messages[-1]["content"]) > 300
    assert info["dropped_exchanges"] == 2 and info["shortened_messages"] >= 3
    tight = TokenBudget(ChatMessages(gym.make(TOOL)), n=20, tokenizer=tokenizer)
    with pytest.raises(ContextLengthExceeded, match="no room for a step within n=20"):
        tight.reset(seed=0)
    episode = agent_envs.run_episode(tight, agent_envs.policies.ScriptedPolicy(["a"]), seed=0)
    assert episode.stop_reason == "context_length"


def test_results_without_room_are_left_out_and_counted_once(tokenizer):
    env = TokenBudget(ChatMessages(gym.make(TOOL, max_parallel_calls=40)), n=5000, tokenizer=tokenizer)
    n = env.reset(seed=0)[1]["prompt_tokens"] + 150
    env = TokenBudget(ChatMessages(gym.make(TOOL, max_parallel_calls=40)), n=n, tokenizer=tokenizer)
    env.reset(seed=0)
    messages, *_, info = env.step(_call(env, "1+1") * 40)
    shown = len(messages) - 3
    assert 1 < shown < 40 and info["prompt_tokens"] <= n and _roles(messages) == "sua" + "t" * shown
    assert messages[-1]["content"] == f"2\n[{40 - shown} more results are left out]"
    assert info["shortened_messages"] == 1 + (40 - shown) + 1  # the text of the calls, the results, the note


def test_a_step_that_does_not_fit_keeps_its_reward(tokenizer):
    opening = TokenBudget(ChatMessages(gym.make(TOOL)), n=5000, tokenizer=tokenizer).reset(seed=0)[1]["prompt_tokens"]
    env = TokenBudget(ChatMessages(gym.make(TOOL)), n=opening + 4, tokenizer=tokenizer)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.unwrapped.expert_action().rjust(50_000))
    assert (reward, terminated, truncated, info["score"]) == (0.0, False, True, 0.0)
    env.reset(seed=0)
    answer = f"#### {env.unwrapped.task.answer}"
    messages, *ends, info = env.step(answer)
    assert ends == [1.0, True, False] and info["success"] and env.observation_space.contains(messages)
    episode = agent_envs.run_episode(env, agent_envs.policies.ScriptedPolicy([_call(env, "1+1")]), seed=0)
    assert episode.stop_reason == "truncated" and len(episode.steps) == 1
    env.n = 5000
    env.reset(seed=0)
    assert not env.step(_call(env, "1+1"))[3]


def test_a_step_does_nothing_for_an_earlier_one_but_copy_its_messages():
    """Counted in calls, which depend on no machine: per earlier step two messages, each copied and looked at."""
    env = gym.make("AgentR1/ALFWorld-v0", size=1, max_episode_steps=-1)
    env = SlidingWindow(ChatMessages(env), k=2)
    env.reset(seed=0)

    def calls_of_a_step():
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            env.step("inventory")
        finally:
            sys.setprofile(None)
        return calls

    counts = []
    for _ in range(3):
        counts.append(calls_of_a_step())
        for _ in range(99):
            env.step("inventory")
    assert counts[2] - counts[1] <= 4 * 100 + 20


# -- 5: specs, snapshots -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STACKS)
def test_specs_remake_and_snapshots_branch(name, tokenizer):
    env = apply_wrappers(gym.make("AgentR1/WebShop-v0"), _specs(name, tokenizer))
    again = gym.make(pickle.loads(pickle.dumps(env.spec)))
    assert [type(a) for a in layers(again)] == [type(a) for a in layers(env)]
    assert gym.make(type(env.spec).from_json(env.spec.to_json())).spec == env.spec
    rng = random.Random(7)
    texts = ["search[red mug]", "click[Back to Search]", "click[Next >]", "nonsense"]
    env.reset(seed=1)
    for _ in range(4):
        env.step(rng.choice(texts))
    point = agent_envs.snapshot(env)
    seen = None
    if name not in ("StripReasoning", "PrependInstructions"):
        seen = copy.deepcopy(env.get_wrapper_attr("last_observation"))
    actions = [rng.choice(texts) for _ in range(8)]
    first = [copy.deepcopy(env.step(action)) for action in actions]
    for other in (env, again):
        observation, _ = agent_envs.restore(other, pickle.loads(pickle.dumps(point)))
        assert seen is None or observation == seen
        assert [other.step(action) for action in actions] == first
    while not (result := env.step("nonsense"))[3]:
        assert not result[2]
    assert env.get_wrapper_attr("_elapsed_steps") == 15


# -- 6: behind a server ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["native", "text"])
@pytest.mark.parametrize(
    "specs",
    [
        ["ChatMessages(tools='text', reasoning='strip')"],
        ["RebuildPrompt"],
        ["ChatMessages", "SlidingWindow(k=0)"],
    ],
)
def test_a_model_behind_a_server_is_told_its_tools_and_sees_results(fake_service, mode, specs):
    pytest.importorskip("openai")

    def answer(asked, number):
        function = {"name": "calculator", "arguments": '{"expression": "6*7"}'}
        if json.loads(asked.body).get("tools"):
            call = {"id": f"c{number}", "type": "function", "function": function}
            message = {"role": "assistant", "content": "ok", "tool_calls": [call]}
        else:
            text = '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>'
            message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return 200, {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}

    service = fake_service(answer)
    policy = agent_envs.policies.OpenAIPolicy("m", base_url=f"{service.url}/v1", tool_mode=mode)
    (episode,) = agent_envs.run_episodes(
        TOOL, policy, 1, env_kwargs={"max_episode_steps": 3}, wrappers=specs, progress=False
    )
    assert episode.error is None and len(episode.steps) == 3
    for asked in service.asked:
        body = json.loads(asked.body)
        in_words = body["messages"][0]["content"].count("Call a tool like this")
        assert body["messages"][0]["role"] == "system" and in_words + bool(body.get("tools")) == 1
        calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", [])]
        assert calls == [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
