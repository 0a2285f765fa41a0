"""Helpers of the wire formats: calls as JSON objects, and arguments typed by their schemas."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.parsers.parser import ParsedAction
from agent_envs.text import clean_text

MAX_CALLS = 100
"""Maximum number of calls parsed in a text; the rest is one failure, so that parsing takes linear time."""

MAX_DEPTH = 100
"""Maximum depth of arrays and objects within each other. Python's own limit differs from release to release."""

_MAX_REFERENCES = 10  # one behind the other

_KINDS: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}
ANY = frozenset(name for names in _KINDS.values() for name in names)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"?|[][{}]', re.DOTALL)  # strings as a whole, and brackets outside of them
_CALL_KEY = re.compile(r'[{,]\s*"(?:name|arguments|parameters)"')
_SPACES = " \t\r\n"


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.20} is no finite number")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def read_json(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at ``start``, and the position after it; white space around it is skipped.

    Lone surrogates, which no encoding can carry, become U+FFFD.

    Raises:
        ValueError: There is none, it is nested too deeply, or has a number that is not finite.
    """
    while start < len(text) and text[start] in _SPACES:
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as e:
        if isinstance(e, RecursionError) or _too_deep(text, start, getattr(e, "pos", len(text))):
            raise ValueError("nested too deeply") from None
        raise
    if _too_deep(text, start, end):
        raise ValueError("nested too deeply")
    if _SURROGATE.search(text, start, end):
        value = _cleaned(value)
    while end < len(text) and text[end] in _SPACES:
        end += 1
    return value, end


def load_json(text: str) -> Any:
    """Return the value of a text that is JSON and nothing else. Raises ValueError as `read_json` does."""
    value, end = read_json(text, 0)
    if end < len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_cleaned(entry) for entry in value]
    return {clean_text(key): _cleaned(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _too_deep(text: str, start: int, end: int) -> bool:
    if end - start <= MAX_DEPTH or text.count("[", start, end) + text.count("{", start, end) <= MAX_DEPTH:
        return False
    depth = 0
    for mark in _MARKS.finditer(text, start, end):
        depth += (mark[0] in "[{") - (mark[0] in "]}")
        if depth > MAX_DEPTH:
            return True
    return False


def scan_calls(
    body: str, opening: re.Pattern[str], read: Callable[[re.Match[str]], tuple[ToolCall | ParseFailure, int]]
) -> tuple[str, list[ToolCall | ParseFailure]]:
    """Return a text without its calls, and the calls.

    Args:
        body: The text.
        opening: Matches the beginning of a call.
        read: Takes a match and returns the call and the position after it.
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


def scan_objects(
    body: str, opening: re.Pattern[str], form: str, key: str = "arguments", between: re.Pattern[str] | None = None
) -> tuple[str, list[ToolCall | ParseFailure]]:
    """Return a text without its calls as JSON objects, alone or in arrays, and the calls.

    An object is a call if it has a name and arguments, whatever else it has. Others are text, in which calls may be.

    Args:
        body: The text.
        opening: Matches before an object or an array. If it matches a mark and not merely a place, a call must follow.
        form: The form of a call, for the error text.
        key: The format's key of the arguments.
        between: What may stand before an object that must be a call, at the beginning and after each call.
    """
    outside: list[str] = []
    calls: list[ToolCall | ParseFailure] = []
    position, fresh, broken = 0, True, 0
    while broken <= MAX_CALLS:  # each error counts the lines before it
        if between is not None and fresh:
            position = between.match(body, position).end()  # type: ignore[union-attr]
        begin, certain = position, between is not None and fresh and body.startswith("{", position)
        if not certain:
            match = opening.search(body, position)
            if match is None:
                break
            outside.append(body[position : match.start()])
            begin, certain = match.end(), bool(match[0])
        if len(calls) >= MAX_CALLS:
            calls.append(too_many())
            return "".join(outside), calls
        try:
            value, end = read_json(body, begin)
        except ValueError as e:
            end = e.pos if isinstance(e, json.JSONDecodeError) else len(body)
            if certain or _CALL_KEY.search(body, begin, end):
                begun = body[begin : begin + 1] in ("{", "[")
                problem = f"the tool call is not valid JSON: {e}" if begun else f"expected {form}"
                calls.append(ParseFailure(problem, body[begin:]))
                return "".join(outside), calls
            value, end, broken = None, max(end, begin + 1), broken + 1
        entries = value if isinstance(value, list) else [value]
        fresh = certain or any(map(_is_call, entries))
        if fresh:
            calls += [check_call(entry, body[begin:end], key) for entry in entries[: MAX_CALLS + 1 - len(calls)]]
        elif value is not None:
            end = begin + 1  # there may be calls inside
        outside.append("" if fresh else body[begin:end])
        position = end
    outside.append(body[position:])
    return "".join(outside), calls[:MAX_CALLS] + [too_many()] * (len(calls) > MAX_CALLS)


def _is_call(value: object) -> bool:
    """Return whether decoded JSON is meant as a call."""
    if not isinstance(value, dict) or not {"arguments", "parameters"} & value.keys():
        return False
    return "name" in value or any(isinstance(value.get(key), dict) for key in ("arguments", "parameters"))


def check_call(value: object, raw: str, key: str = "arguments") -> ToolCall | ParseFailure:
    """Return a decoded call as a `ToolCall`, or as a `ParseFailure` that says what is wrong.

    Args:
        value: The decoded JSON.
        raw: Its text.
        key: The format's key of the arguments; "arguments" and "parameters" are both accepted.

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
    arguments = value[key] if key in value else value.get("parameters" if key == "arguments" else "arguments")
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        arguments = {}  # as servers write a call without arguments
    if isinstance(arguments, str):
        try:
            arguments = load_json(arguments)
        except ValueError:
            return ParseFailure(f"the {key} are a string that is not valid JSON: expected an object", raw)
    if not isinstance(arguments, dict):
        return ParseFailure(f"the {key} must be a JSON object, got {_kind(arguments)}", raw)
    return ToolCall(name, arguments, raw)


def no_calls(body: str, marks: Sequence[str], form: str) -> ParsedAction:
    """Return a text without the beginning of a call: an answer, or a failure if it has another part of a call.

    Args:
        body: The text.
        marks: Strings that only calls contain.
        form: The form of a call, for the error text.

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
    """Return the failure that replaces the calls beyond ``MAX_CALLS``."""
    return ParseFailure(f"at most {MAX_CALLS} calls are read in one text: the rest was not")


def argument_types(tools: Sequence[ToolSpec] | None) -> dict[str, dict[str, frozenset[str]]]:
    """Return the JSON types of each tool's arguments, for formats that write arguments without quotes."""
    types = {}
    for parameters, name in ((tool["function"]["parameters"], tool["function"]["name"]) for tool in tools or ()):
        properties = parameters.get("properties", {})
        types[name] = {key: json_types(schema, parameters) for key, schema in properties.items()}
    return types


def resolved(schema: Any, root: Any) -> Any:
    """Return what a schema refers to within `root`, or itself; None if it refers to what is not there."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping) or not isinstance(ref := schema.get("$ref"), str):
            return schema
        schema = root
        for part in ref.removeprefix("#").split("/")[1:]:
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            schema = schema.get(part) if isinstance(schema, Mapping) else None
    return None


def json_types(schema: object, root: object = None, depth: int = 0) -> frozenset[str]:
    """Return the JSON types that a schema within `root` allows, all of them if it does not say.

    >>> sorted(json_types({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}))
    ['null', 'string']
    """
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > _MAX_REFERENCES:
        return ANY
    kinds = schema.get("type")
    parts = [schema[key] for key in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(key), list)]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if kinds is not None:
        allowed = ANY & {kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)}
    elif values is not None:
        allowed = frozenset[str]().union(*map(_types_of, values))
    elif parts:
        options = [json_types(part, root, depth + 1) for part in parts[0]]
        allowed = ANY.intersection(*options) if "allOf" in schema else frozenset[str]().union(*options)
    else:
        return ANY
    return allowed | {"null"} if schema.get("nullable") is True else allowed or ANY


def _types_of(value: object) -> frozenset[str]:
    """Return the JSON types that a value has."""
    for kind, names in _KINDS.items():
        if isinstance(value, kind):
            return frozenset(names)
    return frozenset()


def typed_argument(text: str, types: frozenset[str] = ANY, words: Mapping[str, bool | None] | None = None) -> Any:
    """Return an argument that was written without quotes: JSON of a type that its schema allows, else a string.

    Args:
        text: What was written. Strings are written without quotes, so a text in quotes is a string with quotes.
        types: The types of the argument.
        words: Other names of values: in any case if the schema allows the value's type, else exactly as here
            (except null, which Qwen3-Coder's own parser reads in any case).

    >>> string, count = frozenset({"string", "null"}), frozenset({"integer"})
    >>> typed_argument("5", string), typed_argument("5", count), typed_argument("null", string), typed_argument("a b")
    ('5', 5, None, 'a b')
    """
    if types == {"string"}:
        return text
    if words is not None:
        word = text.strip()
        word = word if types == ANY and word.lower() != "null" else word.capitalize()
        if word in words and _types_of(words[word]) & types:
            return words[word]
    try:
        value = load_json(text)
    except ValueError:
        for kind, read in (("integer", int), ("number", _finite)):  # a number as Python reads it, such as 007 or .5
            if kind in types and "string" not in types:
                with contextlib.suppress(ValueError):
                    return read(text)
        return text
    return text if isinstance(value, str) or ("string" in types and not _types_of(value) & types) else value


def written_argument(value: Any) -> str:
    """Return an argument as such a format writes it: strings without quotes, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def written_json(value: Any) -> str:
    """Return JSON in which no tag can start: every ``<`` is escaped.

    >>> written_json({"a": "</think>"})
    '{"a": "\\\\u003c/think>"}'
    """
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
