"""Native calls whose arguments are none are said to the environment as such, whatever its format, and never run."""

from __future__ import annotations

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401  registers the ids
from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers import PARSERS, get_parser
from agent_envs.policies.openai.calls import call_text

ONE = {"react": ("search", "entity"), "search_r1": ("search", "query"), "fenced_python": ("python", "code")}
ONE["retool"] = ("python", "code")
NO_OBJECTS = ["[1", '{"a": 1', "[1]", "null", '{"a": 1}{"b": 2}', "}", "\ud800"]


def writer(name, tool, argument):
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    spec = {"type": "function", "function": {"name": tool, "description": "", "parameters": parameters}}
    parser = get_parser(name, [spec])
    return parser, lambda called, arguments: parser.format(ToolCall(called, arguments))


@pytest.mark.parametrize("arguments", NO_OBJECTS)
@pytest.mark.parametrize("name", sorted(PARSERS))
def test_arguments_that_are_no_object_reach_the_environment_as_written(name, arguments):
    tool, argument = ONE.get(name, ("add", "a"))
    parser, format_call = writer(name, tool, argument)
    text, well_formed = call_text(tool, arguments, format_call)
    assert not well_formed and arguments in text
    for call in parser.parse(text).calls:
        if name in ONE:  # a format of one argument: it is what the model wrote
            assert isinstance(call, ParseFailure) or call.arguments[argument].strip() == arguments
        else:
            none = {} if arguments == "null" else None  # null is how some models call without arguments
            assert isinstance(call, ParseFailure) or call.arguments == none or set(call.arguments) == {"arguments"}


@pytest.mark.parametrize("name", sorted(ONE))
def test_a_format_of_one_argument_writes_calls_that_lack_it(name):
    tool, argument = ONE[name]
    parser, format_call = writer(name, tool, argument)
    for called in (tool, "another"):
        text, well_formed = call_text(called, '{"else": "x"}', format_call)
        assert well_formed and '{"else": "x"}' in text
        parser.parse(text)


@pytest.mark.parametrize("parser", ["hermes", "qwen_coder", "glm"])
def test_an_environment_does_not_run_them(parser):
    env = gym.make("AgentR1/GSM8KTool-v0", parser=parser)
    for arguments in NO_OBJECTS:
        env.reset(seed=0)
        text, _ = call_text("calculator", arguments, env.unwrapped.format_call)
        _, reward, terminated, _, info = env.step(text)
        assert info["invalid_action"] and reward == 0 and not terminated, arguments
