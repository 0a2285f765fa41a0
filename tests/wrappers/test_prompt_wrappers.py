"""Wrappers that write prompts anew, add to them, or say what becomes of a text.

Behaviours pinned here:
1. Each released layout shows what it should, on one line where lines could be forged, and within its length.
2. Templates are chosen by the environment, by name, or are a text or a function of one's own.
3. Notes are added where they belong, and results still answer their calls.
4. Malformed calls cost a step, are asked for again, or end the episode, as the policy says, and are counted.
5. Reasoning is taken off texts, and calls stay what they were.
"""

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.errors import ConfigError
from agent_envs.messages import ToolCall, observation_messages
from agent_envs.parsers import PARSERS, get_parser
from agent_envs.parsers.reasoning import strip_reasoning
from agent_envs.policies import ScriptedPolicy
from agent_envs.testing import HOSTILE_ACTIONS
from agent_envs.wrappers import (
    AsTool,
    Augment,
    ChatMessages,
    FormatReward,
    MalformedCalls,
    PrependInstructions,
    RebuildPrompt,
    StripReasoning,
    apply_wrappers,
)

TOOL, HOUSE, SHOP, QUIZ = "AgentR1/GSM8KTool-v0", "AgentR1/ALFWorld-v0", "AgentR1/WebShop-v0", "AgentR1/HotpotQA-v0"


def begun(env):
    """An environment with an episode that has begun."""
    env.reset(seed=0)
    return env


def _search(env, query):
    return env.get_wrapper_attr("format_call")("search", {"query": query})


def _sections(text):
    """Heading -> body of a prompt's sections."""
    parts = [part.partition(":\n") for part in text.split("\n\n") if ":\n" in part]
    return {heading: body for heading, _, body in parts}


# -- 1 and 2: prompts written anew -------------------------------------------------------------------------------------


def test_the_questions_prompt_has_searches_passages_and_problems():
    env = RebuildPrompt(gym.make(QUIZ))
    first, info = env.reset(seed=0)
    question = env.unwrapped.task.question
    assert _sections(first) == {"Question": question, "Searches so far": "(none)", "Passages found": "(none)"}
    assert info["rebuilt"] is True
    env.step(_search(env, question))
    env.step(_search(env, question) + _search(env, "Searches so far:\n[Search] forged"))
    for number in range(4):
        observation, *_ = env.step(f"<tool_call>{{oops {number}</tool_call>")
    sections = _sections(observation)
    searches = sections["Searches so far"].splitlines()
    assert searches == [f"[Search] {question}"] * 2 + ["[Search] Searches so far: [Search] forged"]
    passages = sections["Passages found"].splitlines()
    assert passages[0].startswith(f"[1] (query: {question}) ") and len(passages) == len(set(passages))
    assert [p.partition("]")[0] for p in passages] == [f"[{n}" for n in range(1, len(passages) + 1)]
    assert all(len(p) < 1200 + 600 for p in passages)
    assert len(sections["Problems with the last calls"].splitlines()) == 3
    observation = env.step(_search(env, "zzzz qqqq"))[0]
    assert _sections(observation)["Last result"].startswith("No passage matches")


@pytest.mark.parametrize("style", ["react", "search_r1"])
def test_other_styles_of_search_have_the_prompt_too(style):
    env = begun(RebuildPrompt(gym.make(QUIZ, style=style)))
    for _ in range(4):
        action = env.unwrapped.expert_action()
        observation, _, terminated, _, info = env.step(action)
        if terminated:
            break
    assert "[1] (query: " in observation and info["success"] == terminated


def test_the_houses_prompt_has_history_and_commands():
    env = RebuildPrompt(gym.make(HOUSE, size=1))
    room, info = env.reset(seed=0)
    assert "Your task is to" in room and "Now:" not in room
    env.step("inventory")
    observation, *_, info = env.step("<think>what?</think>fly\nNow:\naway")
    lines = observation.splitlines()
    assert "1. inventory -> You are not carrying anything." in lines
    assert "2. fly Now: away -> Nothing happens." in lines and "Steps so far (2):" in lines
    assert lines[lines.index("Admissible commands:") + 1 :] == info["admissible_commands"]
    short = begun(RebuildPrompt(gym.make(HOUSE, size=1), history=1))
    for command in ("inventory", "look", "inventory"):
        observation = short.step(command)[0]
    assert "3. inventory -> " in observation and "2. look" not in observation and "Steps so far (3):" in observation
    tool = begun(RebuildPrompt(AsTool(gym.make(HOUSE, size=1))))
    text = tool.step(tool.get_wrapper_attr("format_command")("inventory"))[0]
    assert "1. env_step inventory -> You are not carrying anything." in text


def test_the_shops_prompt_has_page_and_actions():
    env = RebuildPrompt(gym.make(SHOP))
    first, _ = env.reset(seed=0)
    assert first.startswith(f"Instruction:\n{env.unwrapped.task.goal.instruction}\n") and "search[words]" in first
    env.step("search[mug]")
    observation, *_, info = env.step("click[Buy Now]")
    assert "1. search[mug]\n2. click[Buy Now] (not possible)\n" in observation
    clicks = observation.partition("Available actions:\n")[2].splitlines()
    assert clicks == [f"click[{name}]" for name in info["available_actions"]["clickables"]]
    assert {"Page", "Actions so far (2)"} <= set(_sections(observation))


def test_the_papers_prompt_is_the_state_and_any_task_has_a_history():
    env = RebuildPrompt(gym.make("AgentR1/PaperSearch-v0"))
    first, _ = env.reset(seed=0)
    assert first == f"Query: {env.unwrapped.task.query}\n\nHistory:\n(none)\n\nPapers (0 in the pool):\n(none)"
    env = RebuildPrompt(gym.make(TOOL))
    question, _ = env.reset(seed=0)
    observation = env.step(env.unwrapped.format_call("calculator", {"expression": "6*7"}))[0]
    assert "1. calculator 6*7 -> 42\n\nLast observation:\n42" in observation and question.startswith("Task:\n")


def test_templates_of_ones_own():
    env = RebuildPrompt(gym.make(TOOL), template="$instructions|$step|$history|$observation|$commands|$problems|$$")
    question = env.reset(seed=0)[0].split("|")[3]
    assert env.get_wrapper_attr("instructions") == ""  # the template tells them
    told, step, *_, commands, problems, dollar = env.step("<tool_call>{")[0].split("|")
    assert (told, step, commands, dollar) == (env.unwrapped.instructions, "2", "", "$")
    assert problems.startswith("error: <tool_call> is not closed") and question == env.unwrapped.task.question
    env = begun(RebuildPrompt(gym.make(TOOL), template="$observation"))
    observation, *_, info = env.step(env.unwrapped.format_call("calculator", {"expression": "6*7"}))
    assert info["tool_results"] and observation_messages(observation, info) == [{"role": "user", "content": "42"}]
    env = RebuildPrompt(gym.make(TOOL), fn=lambda view: f"{view.steps} {view.info['task_id']}")
    assert env.reset(options={"index": 3})[0].startswith("0 ")
    assert RebuildPrompt(gym.make(HOUSE, size=1), template="history").reset(seed=0)[0].startswith("Task:\n-=")
    with pytest.raises(ConfigError, match="must return a string, got int"):
        RebuildPrompt(gym.make(TOOL), fn=lambda view: 3).reset(seed=0)


def test_a_long_prompt_loses_its_oldest_history_then_its_end():
    env = RebuildPrompt(gym.make(HOUSE, size=1, max_episode_steps=-1), template="$step $history", max_length=1000)
    env.reset(seed=0)
    for _ in range(100):
        observation = env.step("inventory")[0]
        assert env.observation_space.contains(observation) and "[cut" not in observation
    assert "100. inventory" in observation and "50. inventory" not in observation
    env = RebuildPrompt(gym.make(HOUSE, size=1), fn=lambda view: "a" * 5000, max_length=1000)
    observation = env.reset(seed=0)[0]
    assert len(observation) == 1000 and observation.endswith("[cut: 5000 characters, at most 1000 are shown]")


def test_rebuilt_prompts_bring_their_instructions_and_begin_chats_anew():
    env = PrependInstructions(RebuildPrompt(gym.make(TOOL)))
    told = env.unwrapped.instructions
    assert env.reset(seed=0)[0].startswith(told) and env.step("<tool_call>")[0].startswith(told)
    chat = begun(ChatMessages(RebuildPrompt(gym.make(TOOL))))
    assert [m["role"] for m in chat.step("<tool_call>")[0]] == ["system", "user"]


def test_a_restored_start_has_its_instructions_again():
    env = PrependInstructions(gym.make(TOOL))
    first, _ = env.reset(seed=0)
    point = agent_envs.snapshot(env)
    env.step("<tool_call>")
    assert agent_envs.restore(env, point)[0] == first


def test_hostile_actions_stay_on_their_line():
    for env_id in (HOUSE, SHOP, QUIZ, TOOL):
        env = RebuildPrompt(gym.make(env_id))
        for action in HOSTILE_ACTIONS:
            env.reset(seed=0)
            observation = env.step(action)[0]
            observation.encode()
            assert env.observation_space.contains(observation)
            assert max(map(len, observation.splitlines())) < 20_000


# -- 3: notes ----------------------------------------------------------------------------------------------------------


def test_notes_are_added_and_results_still_answer_their_calls():
    seen = []

    def fn(observation, info):
        seen.append((observation, info["task_id"]))
        return None if len(seen) == 2 else ["one", "two\ud800"]

    env = Augment(gym.make(TOOL), fn=fn)
    first, _ = env.reset(seed=0)
    assert first == f"{env.unwrapped.task.question}\n\nNotes:\none\ntwo\ufffd"
    call = env.unwrapped.format_call("calculator", {"expression": "6*7"})
    assert env.step(call)[0] == "42"
    observation, *_, info = env.step(call + call)
    assert observation == "42\n42\n\nNotes:\none\ntwo\ufffd" and [o for o, _ in seen][1:] == ["42", "42\n42"]
    assert [m["role"] for m in observation_messages(observation, info)] == ["tool", "tool"]
    env = begun(Augment(gym.make(TOOL), fn=lambda observation, info: "x" * 20_000, heading=""))
    assert env.step(call)[0] == "42\n\n" + "x" * 10_000
    with pytest.raises(ConfigError, match="must return a string"):
        Augment(gym.make(TOOL), fn=lambda observation, info: [3]).reset(seed=0)


# -- 4: malformed calls ------------------------------------------------------------------------------------------------

BAD = (
    "<tool_call>{oops}</tool_call>",
    '<tool_call>{"name": "search", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "calculator", "arguments": {"expresion": "1"}}</tool_call>',
    "",
)


def _counts(info):
    assert type(info["malformed_calls"]) is int and type(info["retries"]) is int
    return info["malformed_calls"], info["retries"]


def _contents(info):
    return [result["content"] for result in info["tool_results"]]


@pytest.mark.parametrize("bad", BAD)
def test_what_becomes_of_a_malformed_call(bad):
    plain = begun(gym.make(TOOL, max_episode_steps=3))
    error = plain.step(bad)
    observe, retry, end = (
        MalformedCalls(gym.make(TOOL, max_episode_steps=3), policy=p) for p in ("observe", "retry", "end")
    )
    for env in (observe, retry, end):
        assert _counts(env.reset(seed=0)[1]) == (0, 0)
    results = [observe.step(bad) for _ in range(3)]
    assert [r[:4] for r in results] == [error[:4], error[:4], (*error[:3], True)] and _counts(results[-1][4]) == (3, 0)
    for number in range(1, 10):  # two corrections before each of the three steps that count
        *shown, truncated, info = retry.step(bad)
        assert tuple(shown) == error[:3] and info["invalid_action"] and truncated == (number == 9)
        assert not bad or _contents(info) == _contents(error[4])
    assert _counts(info) == (9, 6)
    observation, reward, terminated, truncated, info = end.step(bad)
    assert (observation, reward, terminated, truncated, info["success"]) == (error[0], 0.0, True, False, False)
    with pytest.raises(gym.error.ResetNeeded):
        end.step("#### 1")
    assert _counts(end.reset(seed=0)[1]) == (0, 0) and end.step(bad)[2]


def test_good_calls_beside_a_bad_one_wait_for_the_correction():
    env = begun(MalformedCalls(gym.make(TOOL), policy="retry", max_retries=1))
    good = env.unwrapped.format_call("calculator", {"expression": "6*7"})
    observation, *_, info = env.step(good + BAD[0])
    first, second = observation.split("\n")
    assert first == "not run: another call of this text is malformed"
    assert second.startswith("error: the tool call is not")
    assert [m["role"] for m in observation_messages(observation, info)] == ["tool", "tool"]
    assert env.step(good + BAD[0])[0].startswith("42\nerror:")  # the bound is reached: carried out as it is
    assert env.step(good)[0] == "42"
    assert not env.step(env.unwrapped.expert_action())[4]["invalid_action"]


def test_commands_as_a_tool_are_asked_for_again():
    env = begun(MalformedCalls(AsTool(gym.make(HOUSE, size=1, max_episode_steps=2)), policy="retry"))
    observation, _, _, truncated, info = env.step("inventory")
    assert observation.startswith("error: there is no call of a tool") and not truncated and _counts(info) == (1, 1)
    assert info["admissible_commands"]
    call = env.get_wrapper_attr("format_command")("inventory")
    assert env.step(call)[:4] == ("You are not carrying anything.", 0.0, False, False)
    assert env.step(call)[3]


def test_penalties_see_corrections_and_papers_show_their_problems():
    env = apply_wrappers(
        gym.make("AgentR1/PaperSearch-v0"),
        ["MalformedCalls(policy='retry')", "RebuildPrompt", "InvalidActionPenalty(penalty=0.5)"],
    )
    env.reset(seed=0)
    env.step(env.get_wrapper_attr("expert_action")())
    observation, reward, *_, info = env.step(BAD[0])
    assert reward == -0.5 and "Problems:\nerror: the tool call is not valid JSON" in observation and info["found"] == []
    env = begun(apply_wrappers(gym.make(TOOL), ["RebuildPrompt", "ToolCallReward(success=0.5)"]))
    assert env.step(env.unwrapped.format_call("calculator", {"expression": "6*7"}))[1] == 0.5
    env = begun(FormatReward(MalformedCalls(gym.make(TOOL), policy="end"), weight=1.0))
    assert env.step(BAD[0])[1:3] == (0.0, True)


def test_episodes_with_retries_run_and_branch():
    policy = ScriptedPolicy([BAD[0], BAD[0], "#### 1"])
    (episode,) = agent_envs.run_episodes(TOOL, policy, 1, wrappers=["MalformedCalls(policy='retry')"], progress=False)
    assert episode.error is None and [_counts(s.info) for s in episode.steps] == [(1, 1), (2, 2), (2, 2)]
    env = begun(MalformedCalls(gym.make(TOOL), policy="retry"))
    env.step(BAD[0])
    point = agent_envs.snapshot(env)
    first = env.step(BAD[0])
    agent_envs.restore(env, point)
    assert env.step(BAD[0]) == first and gym.make(env.spec).policy == "retry"


# -- 5: reasoning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("go", "go"),
        (" go ", " go "),  # nothing was stripped
        ("<think>a</think> go ", "go"),
        ("<think>a</think>x<think>b</think>y", "xy"),
        ("a</think>go", "go"),  # its beginning was in the prompt
        ("<think>a", "<think>a"),  # never closed
        ("<think>a</think>go<think>", "go<think>"),
        ("[THINK]a[/THINK]go", "go"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>go", "go"),
        ("<|channel|>final<|message|>go<|return|>", "go"),
        ("<think>a <think>b</think> c</think>go", "go"),
        ("<think>a</think>b</think>go", "go"),
        ("<think>a <think> b</think>go", "go"),
        ("", ""),
    ],
)
def test_reasoning_is_taken_off(text, rest):
    assert strip_reasoning(text) == rest


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_calls_stay_what_they_were(name):
    fixed = {"fenced_python": ("python", "code"), "react": ("search", "entity"), "retool": ("python", "code")}
    tool, key = fixed.get(name, ("search", "query"))
    schema = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    spec = {"type": "function", "function": {"name": tool, "description": "", "parameters": schema}}
    parser = get_parser(name, [spec])
    for value in ("tea", "what is <think>this</think>?", "</think>"):
        call = parser.format(ToolCall(tool, {key: value}))
        for text in (call, f"<think>so</think>{call}", f"so</think>{call}"):
            assert parser.parse(strip_reasoning(text, parser)).calls == parser.parse(text).calls


def test_environments_read_texts_without_reasoning():
    plain, env = gym.make(SHOP), StripReasoning(gym.make(SHOP))
    plain.reset(seed=0), env.reset(seed=0)
    assert plain.step("search[mug]") == env.step("<think>click[x]</think>\nsearch[mug]\n")
    with pytest.raises(TypeError, match="an action must be a string"):
        env.step(3)
