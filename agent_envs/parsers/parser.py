"""The interface of parsers, which turn text into tool calls and tool calls into text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_envs.messages import ParseFailure, ToolCall, ToolSpec


@dataclass(slots=True)  # not frozen, for speed: see Outcome
class ParsedAction:
    """The parts of a policy's text."""

    text: str
    """The text without the calls and the reasoning."""
    calls: tuple[ToolCall | ParseFailure, ...] = ()
    """The calls in order, including malformed ones."""
    reasoning: str = ""
    """The reasoning, such as the text before ``</think>``."""


class Parser(Protocol):
    """A wire format of tool calls. Parsing is pure and never raises."""

    name: str
    """The name for ``get_parser``."""

    def parse(self, text: str) -> ParsedAction:
        """Parse a policy's text."""

    def format(self, call: ToolCall) -> str:
        """Write a call so that ``parse`` reads it."""

    def describe(self) -> str:
        """Return a description of the format for instructions and error texts."""


def describe_tools(tools: Sequence[ToolSpec], parser: Parser) -> str:
    """Return tools and how to call them in words, for models whose chat template does not show them."""
    specs = "\n".join(json.dumps(spec["function"]) for spec in tools)
    return f"Tools:\n{specs}\nCall a tool like this: {parser.describe()}"


def only_argument(call: ToolCall, name: str | None) -> str:
    """Return the argument for a format that can write only one; if it is missing, all arguments as JSON.

    >>> only_argument(ToolCall("search", {"query": "Rome"}), "query")
    'Rome'
    >>> only_argument(ToolCall("search", {"q": "Rome"}), "query")
    '{"q": "Rome"}'
    """
    return str(call.arguments[name]) if name in call.arguments else json.dumps(call.arguments)
