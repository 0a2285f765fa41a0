"""What a parser is: text to tool calls, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

from agent_envs.messages import ParseFailure, ToolCall

__all__ = ["ParsedAction", "Parser", "only_argument"]


@dataclass(slots=True)  # not frozen, for speed: see Outcome
class ParsedAction:
    """A policy's text, taken apart."""

    text: str
    """What is left beside the calls and the reasoning."""
    calls: tuple[ToolCall | ParseFailure, ...] = ()
    """The calls in order, with the ones that could not be read."""
    reasoning: str = ""
    """What came before the last ``</think>``."""


class Parser(Protocol):
    """A wire format of tool calls. Implementations are pure: the same text gives the same result, and none raises."""

    name: str
    """What ``get_parser`` calls it."""

    def parse(self, text: str) -> ParsedAction:
        """Take a policy's text apart."""

    def format(self, call: ToolCall) -> str:
        """Write a call so that ``parse`` reads it."""

    def describe(self) -> str:
        """The format in words, for instructions and error texts."""


def only_argument(call: ToolCall, name: str | None) -> str:
    """What a format writes that has room for one argument: that one; where it is missing, what there is instead.

    >>> only_argument(ToolCall("search", {"query": "Rome"}), "query")
    'Rome'
    >>> only_argument(ToolCall("search", {"q": "Rome"}), "query")
    '{"q": "Rome"}'
    """
    return str(call.arguments[name]) if name in call.arguments else json.dumps(call.arguments)
