"""What the wire formats share: calls as JSON objects, arguments typed by their schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.parsers.parser import ParsedAction

__all__ = [
    "MAX_CALLS",
    "argument_types",
    "check_call",
    "no_calls",
    "read_json",
    "scan_calls",
    "too_many",
    "typed_argument",
    "written_argument",
    "written_json",
]

MAX_CALLS = 100
"""Calls read in one text; what follows is one more failure, so that reading takes time in proportion to the text."""

_DECODER = json.JSONDecoder()
_SPACES = " \t\r\n"


def read_json(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at ``start`` after white space, and where it and the white space behind it end.

    Raises:
        ValueError: There is none; nested too deeply counts as none.
    """
    while start < len(text) and text[start] in _SPACES:
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    while end < len(text) and text[end] in _SPACES:
        end += 1
    return value, end


def scan_calls(
    body: str, opening: re.Pattern[str], read: Callable[[re.Match[str]], tuple[ToolCall | ParseFailure, int]]
) -> tuple[str, list[ToolCall | ParseFailure]]:
    """What stands beside the calls of a text, and the calls.

    Args:
        body: The text.
        opening: What a call begins with.
        read: The call that a match of ``opening`` begins, and where the text goes on after it.
    """
    outside: list[str] = []
    calls: list[ToolCall | ParseFailure] = []
    position = 0
    while (match := opening.search(body, position)) is not None:
        outside.append(body[position : match.start()])
        if len(calls) == MAX_CALLS:
            calls.append(too_many())
            position = len(body)
            break
        call, position = read(match)
        calls.append(call)
    outside.append(body[position:])
    return "".join(outside), calls


def check_call(value: object, raw: str, key: str = "arguments") -> ToolCall | ParseFailure:
    """A decoded call as a record, or what is wrong with it.

    Args:
        value: The decoded JSON.
        raw: The text it came from.
        key: What the format calls the arguments; "arguments" and "parameters" are both read.

    >>> check_call({"name": "add", "arguments": {"a": 1}}, "").arguments
    {'a': 1}
    >>> check_call([], "").error
    'a tool call is a JSON object with name and arguments, got an array'
    """
    if not isinstance(value, dict):
        return ParseFailure(f"a tool call is a JSON object with name and {key}, got {_kind(value)}", raw)
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return ParseFailure(f'the tool call has no name: expected {{"name": ..., "{key}": {{...}}}}', raw)
    other = "parameters" if key == "arguments" else "arguments"
    arguments = value[key] if key in value else value.get(other, {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return ParseFailure(f"the {key} are a string that is not valid JSON: expected an object", raw)
    if not isinstance(arguments, dict):
        return ParseFailure(f"the {key} must be a JSON object, got {_kind(arguments)}", raw)
    return ToolCall(name, arguments, raw)


def no_calls(body: str, marks: Sequence[str], form: str) -> ParsedAction:
    """A text in which no call begins: an answer, or what is left of a call, which is none.

    Args:
        body: The text.
        marks: What only calls hold.
        form: The form of a call, for the policy to read.

    >>> no_calls("So it is 4.", ["</call>"], "<call>...</call>").calls
    ()
    >>> no_calls("4</call>", ["</call>"], "<call>...</call>").calls[0].error
    '</call> without the beginning of a call: expected <call>...</call>'
    """
    mark = next((mark for mark in marks if mark in body), None)
    if mark is None:
        return ParsedAction(body)
    return ParsedAction("", (ParseFailure(f"{mark} without the beginning of a call: expected {form}", body),))


def too_many() -> ParseFailure:
    """What stands for the calls beyond ``MAX_CALLS``."""
    return ParseFailure(f"at most {MAX_CALLS} calls are read in one text: the rest was not")


def argument_types(tools: Sequence[ToolSpec] | None) -> dict[str, dict[str, Any]]:
    """Per tool the JSON schemas of its arguments, for formats that write arguments without quotes."""
    return {tool["function"]["name"]: tool["function"]["parameters"].get("properties", {}) for tool in tools or ()}


def typed_argument(text: str, schema: Mapping[str, Any] | None) -> Any:
    """An argument that was written without quotes: a string where its schema says so, else JSON where it is JSON.

    >>> typed_argument("5", {"type": "string"}), typed_argument("5", {"type": "integer"}), typed_argument("a b", None)
    ('5', 5, 'a b')
    """
    if schema is not None and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def written_argument(value: Any) -> str:
    """An argument as such a format writes it: strings as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def written_json(value: Any) -> str:
    """JSON in which no tag can begin: a ``<`` within a string is written as an escape.

    >>> written_json({"a": "</think>"})
    '{"a": "\\\\u003c/think>"}'
    """
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
