"""Detects the wire format of a recorded action, since episodes do not name it."""

from __future__ import annotations

from collections.abc import Collection

from agent_envs.messages import ToolCall
from agent_envs.parsers.deepseek import DeepSeekParser
from agent_envs.parsers.fenced_python import FencedPythonParser
from agent_envs.parsers.glm import GlmParser
from agent_envs.parsers.harmony import HarmonyParser
from agent_envs.parsers.hermes import HermesParser
from agent_envs.parsers.llama import LlamaParser
from agent_envs.parsers.mistral import MistralParser
from agent_envs.parsers.parser import ParsedAction, Parser
from agent_envs.parsers.plain_json import PlainJsonParser
from agent_envs.parsers.qwen_coder import QwenCoderParser
from agent_envs.parsers.react import ReActParser
from agent_envs.parsers.retool import ReToolParser
from agent_envs.parsers.search_r1 import SearchR1Parser

__all__ = ["parse_recorded"]

_HERMES, _LLAMA, _MISTRAL, _PLAIN = HermesParser(), LlamaParser(), MistralParser(), PlainJsonParser()
# Every text with calls in a format contains one of its marks. If two formats match, the first is right.
_MARKS: tuple[tuple[str, Parser], ...] = (
    ("<|channel|>", HarmonyParser()),
    ("<｜tool▁call", DeepSeekParser()),
    ("[TOOL_CALLS]", _MISTRAL),
    ("[/THINK]", _MISTRAL),
    ("<tool_call>", _HERMES),
    ("</think>", _HERMES),
    ("<function=", QwenCoderParser()),
    ("<tool_call>", GlmParser()),
    ("</search>", SearchR1Parser()),
    ("<|python_tag|>", _LLAMA),
    ('"parameters"', _LLAMA),
    ('"arguments"', _PLAIN),
    ('"parameters"', _PLAIN),
)
# Formats whose marks are common in plain text: they are tried only if these tools exist.
_BY_TOOL: tuple[tuple[str, str, Parser], ...] = (
    ("python", "<code>", ReToolParser()),
    ("python", "```", FencedPythonParser()),
    ("lookup", "[", ReActParser()),
)


def parse_recorded(text: str, tools: Collection[str] = ()) -> ParsedAction | None:
    """Parse a policy's text in the first wire format that finds a call in it, else a malformed call, else reasoning.

    Args:
        text: The text as generated.
        tools: Names of the tools that were available.

    Returns:
        The parts of the text, or None if it is plain text.

    >>> text = "<tool_call>search\\n<arg_key>q</arg_key><arg_value>x</arg_value></tool_call>"
    >>> parse_recorded(text).calls[0].name
    'search'
    >>> parse_recorded("The answer is 4.") is None
    True
    """
    parsers = [parser for mark, parser in _MARKS if mark in text]
    parsers += [parser for tool, mark, parser in _BY_TOOL if tool in tools and mark in text]
    best = None
    for parsed in (parser.parse(text) for parser in dict.fromkeys(parsers)):
        if any(isinstance(call, ToolCall) for call in parsed.calls):
            return parsed
        if best is None or (parsed.calls and not best.calls):
            best = parsed
    return best if best is not None and (best.calls or best.reasoning) else None
