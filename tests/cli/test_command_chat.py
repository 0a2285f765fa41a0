"""`agentr1 chat`, and what it stands on: questions of one's own.

1. the person asks, calls run, results are shown; the conversation goes on until /reset; several turns
2. an environment that takes no questions is refused
3. what an agent or an environment says is inert; failures begin anew or end the command
4. an agent answers each question as it likes, with calls of the model that are shown
"""

import io
import json
import sys

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.agents.loading import with_agent
from agent_envs.cli import chat as chat_command
from agent_envs.cli.chat import Chat
from agent_envs.errors import BackendError, ConfigError, ContextLengthExceeded
from agent_envs.messages import observation_messages
from agent_envs.policies import Response

CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "12+7"}}\n</tool_call>'
SEARCH = '<tool_call>{"name": "search", "arguments": {"query": "river"}}</tool_call>'


class Scripted:
    """Says one text after the other, whoever asks; keeps what each of its actors was shown."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.actors = []

    def start(self, env):
        self.actors.append([])
        return _Actor(self, self.actors[-1])


class _Actor:
    def __init__(self, policy, seen):
        self.policy, self.seen = policy, seen

    async def act(self, observation, info):
        self.seen.append((observation, [m["role"] for m in observation_messages(observation, info)]))
        said = self.policy.texts.pop(0)
        if isinstance(said, Exception):
            raise said
        return Response(said)


def chat(env_id, policy, *lines, **kwargs):
    """What is on the screen after a person wrote these lines."""
    waiting, screen = list(lines), []

    def ask(prompt):
        if not waiting:
            raise EOFError
        if isinstance(waiting[0], BaseException):
            raise waiting.pop(0)
        screen.append(prompt + waiting[0])
        return waiting.pop(0)

    env = gym.make(env_id, **kwargs)
    talk = Chat(env, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_command, "read_text", ask)
        patch.setattr(chat_command, "show", screen.append)
        talk.talk()
    env.close()
    return "\n".join(screen), talk


def test_questions_calls_and_answers_in_one_conversation():
    policy = Scripted(CALL, "#### 19", "It was 19.")
    said, talk = chat("AgentR1/GSM8KTool-v0", policy, "12 and 7?", "What was it?", "/quit", "never read")
    assert "calculator(expression): " in said and "calculator> 19" in said and "agent> #### 19" in said
    assert "read as" not in said  # how an answer was scored is no matter of a conversation
    (seen,) = policy.actors
    assert seen == [("12 and 7?", ["user"]), ("19", ["tool"]), ("What was it?", ["user"])]
    assert (talk.questions, talk.steps) == (2, 3)


class Model:
    """A policy with a model that an agent can ask."""

    def __init__(self, *texts):
        self.texts = list(texts)

    def start(self, env):
        return self

    open = start

    async def ask(self, messages, tools=(), *, task_id="", limit=0, ordered=True):
        return Response(self.texts.pop(0))


async def plan_and_act(env, model):
    await model.role("planner").chat(env.messages)
    while not env.over:
        await env.step(await model.chat(env.messages, env.tools))


def test_an_agent_answers_each_question():
    policy = with_agent(Model("A plan.", CALL, "#### 19", "Another."), plan_and_act)
    said, talk = chat("AgentR1/GSM8KTool-v0", policy, "12 and 7?", "And then?")
    assert "planner> A plan." in said and "calculator> 19" in said and "agent> #### 19" in said
    assert "planner> Another." in said and "(IndexError" in said  # what failed is said, and the conversation goes on
    assert (talk.questions, talk.steps) == (2, 4)


def test_reset_and_tools_and_unknown_commands():
    policy = Scripted("#### 1", "#### 2")
    said, _ = chat("AgentR1/GSM8KTool-v0", policy, "one?", "/tools", "/nope", "/reset", "  ", "two?")
    assert len(policy.actors) == 2 and "(started over)" in said
    assert said.count("calculator(expression)") == 2 and "Unknown command /nope" in said


def test_a_question_searches_the_environments_documents(tmp_path):
    corpus = tmp_path / "notes.jsonl"
    corpus.write_text(json.dumps({"id": "1", "title": "Zorp", "text": "The river Zorp is \x1b[31mred."}) + "\n")
    policy = Scripted(SEARCH, "<answer>red</answer>")
    said, _ = chat("AgentR1/HotpotQA-v0", policy, "Which colour has the Zorp?", corpus=str(corpus))
    assert "search> [1] Zorp" in said and "agent> <answer>red</answer>" in said


def test_a_first_search_is_shown():
    said, _ = chat("AgentR1/HotpotQA-v0", Scripted("<answer>x</answer>"), "river?", force_first_search=True)
    assert "river?\n\n[1] " in said


def test_an_environment_without_questions_is_refused():
    with pytest.raises(ConfigError, match="ALFWorld-v0 takes no questions; let the agent play it with agentr1 eval"):
        chat("AgentR1/ALFWorld-v0", Scripted())


def test_an_agent_that_fails_begins_anew(monkeypatch):
    policy = Scripted("", ContextLengthExceeded("the prompt has 9 tokens"), "#### 3")
    said, _ = chat("AgentR1/GSM8KTool-v0", policy, "a?", "b?", "c?")
    assert "(the agent wrote nothing: the conversation starts over)" in said
    assert "(the prompt has 9 tokens: the conversation starts over)" in said and "agent> #### 3" in said
    assert len(policy.actors) == 3
    with pytest.raises(BackendError):
        chat("AgentR1/GSM8KTool-v0", Scripted(BackendError("down")), "a?")


def test_an_interrupt_stops_the_agent_or_at_the_prompt_the_conversation(monkeypatch):
    policy = Scripted("#### 1", "interrupted", "")
    answer = Chat._response

    def response(self, observation, info):
        said = answer(self, observation, info)
        if said.text == "interrupted":
            raise KeyboardInterrupt
        return said

    monkeypatch.setattr(Chat, "_response", response)
    said, talk = chat("AgentR1/GSM8KTool-v0", policy, "a?", "b?", "c?", KeyboardInterrupt(), "never read")
    assert said.count("(stopped: the conversation starts over)") == 1 and talk.questions == 3
    assert said.endswith("(the agent wrote nothing: the conversation starts over)")


def test_control_characters_are_inert_and_piped_input_works(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("a?\\\nsecond line\n"))
    env = gym.make("AgentR1/GSM8KTool-v0")
    policy = Scripted('<tool_call>{"name": "\x1b[2J", "arguments": {}}</tool_call>', "\x1b]0;owned\x07 #### 1")
    Chat(env, policy).talk()
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\x07" not in said and "\\x1b]0;owned\\x07" in said
    assert policy.actors[0][0][0] == "a?\nsecond line"


def test_bytes_that_are_no_text_are_read(monkeypatch, capsys):
    from agent_envs.policies.terminal import read_text
    from agent_envs.text import clean_output

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xff\r\nlast"), encoding="utf-8", newline="\n"))
    with clean_output():
        assert [read_text("> "), read_text("> ")] == ["caf\ufffd", "last"]
        with pytest.raises(EOFError):
            read_text("> ")
    assert capsys.readouterr().out == "> caf\ufffd\n> last\n> \n"


def test_the_command(monkeypatch, agentr1):
    pytest.importorskip("torch")
    from agent_envs.adapters.tiny.model import base_folder

    monkeypatch.setattr(sys, "stdin", io.StringIO("1 and 1?\n/quit\n"))
    model = ("--model", base_folder(), "--device", "cpu", "--max-tokens", 4)
    assert "agent> " in agentr1("chat", "--env", "AgentR1/GSM8KTool-v0", *model)


OWN = [
    ("AgentR1/GSM8K-v0", {"reward": "agentr1"}, ["#### 4"]),
    ("AgentR1/GSM8KTool-v0", {}, [CALL, "#### 19"]),
    ("AgentR1/GSM8KTool-v0", {"reward": "agentr1", "tool": "check_answer"}, ["x", "x"]),
    ("AgentR1/HotpotQA-v0", {}, [SEARCH, "<answer>no</answer>"]),
    ("AgentR1/HotpotQA-v0", {"style": "react", "reward": "f1"}, ["search[river]", "finish[no]"]),
    ("AgentR1/MuSiQue-v0", {"style": "search_r1"}, ["<search>river</search>", "<answer>no</answer>"]),
    ("AgentR1/PaperSearch-v0", {"selector": "lexical", "papers": 200, "reward": "f1"}, [SEARCH, "done"]),
]  # fmt: skip


@pytest.mark.parametrize(("env_id", "kwargs", "actions"), OWN)
def test_a_question_of_ones_own_is_a_task_without_a_gold_answer(env_id, kwargs, actions):
    env = gym.make(env_id, **kwargs)
    observation, info = env.reset(options={"question": "Where is\ud800 it?"})
    assert observation == "Where is� it?" and (info["index"], info["source"]) == (-1, "question")
    assert env.unwrapped.expert_action() is None
    assert env.unwrapped.demo_action(np.random.default_rng(0), 0.5) is None
    start = env.unwrapped.snapshot()
    for action in actions:
        _, reward, terminated, _, info = env.step(action)
        assert reward == 0.0 and not info["success"] and info["score"] == 0.0
        if terminated:
            break
    assert terminated
    assert env.unwrapped.restore(start)[0] == observation
    _, info = env.reset(options={"index": 2})
    assert info["index"] == 2 and info["source"] == "generated"
    env.close()


def test_questions_that_are_none():
    env = gym.make("AgentR1/GSM8KTool-v0")
    for options in ({"question": " "}, {"question": 3}, {"question": "a?", "index": 1}):
        with pytest.raises(ConfigError):
            env.reset(options=options)
    with pytest.raises(ConfigError, match="a reset option must be one of 'index', 'game', got 'question'"):
        gym.make("AgentR1/ALFWorld-v0").reset(options={"question": "a?"})
    with pytest.raises(ConfigError, match="selector='lexical'"):
        gym.make("AgentR1/PaperSearch-v0", papers=200).reset(options={"question": "a?"})
