"""Detects the wire format of a recorded action, since episodes do not name it."""

from __future__ import annotations

from collections.abc import Collection

from agent_envs.messages import ToolCall
from agent_envs.parsers import get_parser
from agent_envs.parsers.parser import ParsedAction

# Every text with calls in a format contains one of its marks. If two formats match, the first is right.
_MARKS = (
    ("<|channel|>", "harmony"),
    ("<｜tool▁call", "deepseek"),
    ("[TOOL_CALLS]", "mistral"),
    ("[/THINK]", "mistral"),
    ("<tool_call>", "hermes"),
    ("</think>", "hermes"),
    ("<function=", "qwen_coder"),
    ("<tool_call>", "glm"),
    ("</search>", "search_r1"),
    ("<|python_tag|>", "llama"),
    ('"parameters"', "llama"),
    ('"arguments"', "json"),
    ('"parameters"', "json"),
)
# Formats whose marks are common in plain text: they are tried only if these tools exist.
_BY_TOOL = (("python", "<code>", "retool"), ("python", "```", "fenced_python"), ("lookup", "[", "react"))


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
    names = [name for mark, name in _MARKS if mark in text]
    names += [name for tool, mark, name in _BY_TOOL if tool in tools and mark in text]
    best = None
    for parsed in (get_parser(name).parse(text) for name in dict.fromkeys(names)):
        if any(isinstance(call, ToolCall) for call in parsed.calls):
            return parsed
        if best is None or (parsed.calls and not best.calls):
            best = parsed
    return best if best is not None and (best.calls or best.reasoning) else None
