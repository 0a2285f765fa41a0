"""Native tool calls: what a server tells apart from the text, as the text that an environment reads, and back.

A server returns calls with ids and wants each answered under its id; an environment reads one text and shows its
results in order. Whoever stands between them uses this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from agent_envs.messages import Message

__all__ = ["FormatCall", "answer_calls", "call_text"]

FormatCall = Callable[[str, dict[str, Any]], str]
"""``env.unwrapped.format_call``: a tool's name and arguments in the wire format that the environment reads."""


def call_text(name: str, arguments: str, format_call: FormatCall | None) -> tuple[str, bool]:
    """A call in the environment's wire format, and whether its arguments were a JSON object.

    Arguments that are not stay as the model wrote them, in the place where they belong, and where a format writes each
    by its name, as one that no tool has: the environment says what is wrong with them.

    >>> call_text("add", '{"a": 1}', lambda name, arguments: f"{name} {json.dumps(arguments)}")
    ('add {"a": 1}', True)
    >>> call_text("add", "[1", lambda name, arguments: f"{name} {json.dumps(arguments)}")
    ('add [1', False)
    """
    if format_call is None:
        return f"{name}({arguments})", False
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return format_call(name, value), True
    before, braces, after = format_call(name, {}).rpartition("{}")
    return before + arguments + after if braces else format_call(name, {"arguments": arguments}), False


def answer_calls(call_ids: Sequence[str | None], messages: Sequence[Message]) -> list[dict[str, Any]]:
    """What an environment said, with a result under each call's id and the rest from the user.

    Args:
        call_ids: Ids of the calls that were made, in order, None for one that is shown as text; empty without calls.
        messages: The environment's new messages.

    >>> answer_calls(["c1"], [{"role": "tool", "name": "add", "content": "4"}])
    [{'role': 'tool', 'tool_call_id': 'c1', 'content': '4'}]
    >>> answer_calls([], [{"role": "tool", "name": "add", "content": "4"}])  # calls written in the text
    [{'role': 'user', 'content': '4'}]
    """
    results = [message["content"] for message in messages if message["role"] == "tool"]
    others: list[dict[str, Any]] = [{**message} for message in messages if message["role"] != "tool"]
    if not call_ids:
        return others + ([{"role": "user", "content": "\n".join(results)}] if results else [])
    if len(results) != len(call_ids):
        # A wrapper changed the observation, or there were calls in the text too: every id needs an answer.
        shown = "\n".join(message["content"] for message in messages)
        results, others = [shown] + ["(shown with the first call)"] * (len(call_ids) - 1), []
    answers = list(zip(call_ids, results, strict=True))
    told = [{"role": "tool", "tool_call_id": i, "content": content} for i, content in answers if i is not None]
    rest = [content for i, content in answers if i is None]
    return told + ([{"role": "user", "content": "\n".join(rest)}] if rest else []) + others
