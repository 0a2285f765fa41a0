"""Native calls whose arguments are none are said to the environment as such, whatever its format."""

import gymnasium as gym
import pytest

import agent_envs
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


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_arguments_that_are_no_object_reach_the_environment_as_written(name):
    tool, argument = ONE.get(name, ("add", "a"))
    parser, format_call = writer(name, tool, argument)
    for arguments in NO_OBJECTS:
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


def test_a_client_of_ones_own_plays_with_native_calls():
    """`to_openai` and `from_openai` are a policy's two halves; a result goes back under the id of its call."""
    openai = pytest.importorskip("openai")
    env = agent_envs.wrappers.ChatMessages(gym.make("AgentR1/GSM8KTool-v0"))
    entry = {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "6*7"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [entry]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    data = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    data["usage"] = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    for reply in (data, openai.types.chat.ChatCompletion.model_validate(data)):
        response = agent_envs.from_openai(reply, env.get_wrapper_attr("format_call"))
        assert response.usage == usage and response.response_ids is None
        env.reset(seed=0)
        messages = env.step(response.text)[0]
        assert messages[-1]["role"] == "tool" and messages[-1]["content"] == "42"
        shown = agent_envs.to_openai(messages)
        assert [m["role"] for m in shown] == ["system", "user", "assistant", "user"] and shown[-1]["content"] == "42"
        native = [*messages[:-2], message, messages[-1]]
        assert agent_envs.to_openai(native)[-1] == {"role": "tool", "tool_call_id": "c1", "content": "42"}
    with pytest.raises(agent_envs.errors.BackendError, match="expected a completion with choices"):
        agent_envs.from_openai({"choices": []})
