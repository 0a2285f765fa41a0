"""What a person can choose by number at a step: the available actions, or calls of the tools with their arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.registration import available_actions, offered_tools

__all__ = ["Argument", "Choice", "choices", "in_columns"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A part of an action that the person is asked for."""

    name: str
    kind: str = "string"
    """Its JSON type; values of every type but "string" are written as JSON."""
    required: bool = True
    about: str = ""

    def read(self, text: str) -> Any:
        """Return the value that a person wrote.

        Raises:
            ValueError: It has the wrong type.

        >>> Argument("n", "integer").read("3"), Argument("q").read("3")
        (3, '3')
        """
        if self.kind == "string":
            return text
        value = json.loads(text)
        types = {"integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
        expected: Any = types.get(self.kind, object)
        if not isinstance(value, expected) or (isinstance(value, bool) and self.kind != "boolean"):
            raise ValueError(f"expected a value of type {self.kind}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the actions that can be chosen."""

    label: str
    write: Callable[[dict[str, Any]], str]
    """Makes the action's text from the values of the arguments."""
    arguments: tuple[Argument, ...] = ()
    """What the person is asked for first."""


def choices(env: gym.Env[Any, str]) -> list[Choice]:
    """Return what an environment offers: its available actions, or calls of its tools if they cannot be listed."""
    actions = available_actions(env)
    if actions is None:
        return [_call(env, tool["function"]) for tool in offered_tools(env) if env.has_wrapper_attr("format_call")]
    write = env.get_wrapper_attr("format_command") if env.has_wrapper_attr("format_command") else str
    return [_command(action, write) for action in actions]


def _command(action: str, write: Callable[[str], str]) -> Choice:
    before, dots, after = action.partition("...")  # free text: TextEnv.available_actions
    if not dots:
        return Choice(action, lambda values: write(action))
    return Choice(action, lambda values: write(f"{before}{values['text']}{after}"), (Argument("text"),))


def _call(env: gym.Env[Any, str], function: Mapping[str, Any]) -> Choice:
    name, schema = function["name"], function.get("parameters", {})
    required = schema.get("required", [])
    arguments = tuple(
        Argument(key, _kind(entry), key in required, " ".join(str(entry.get("description", "")).split()))
        for key, entry in sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required)
    )
    label = f"{name}({', '.join(argument.name for argument in arguments)})"
    return Choice(label, lambda values: env.get_wrapper_attr("format_call")(name, values), arguments)


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "string" if "enum" in schema else "value")
    return kind if isinstance(kind, str) else "value"


def in_columns(labels: Sequence[str], width: int, *, most: int = 60) -> str:
    """Number labels and arrange them in as many columns as fit, top to bottom; the rest is counted.

    >>> print(in_columns(["look", "go north", "go south"], 30))
    1 look      3 go south
    2 go north
    >>> print(in_columns(["a", "b", "c"], 9, most=2))
    1 a  2 b
    (1 more: /actions)
    """
    digits = len(str(min(len(labels), most)))
    shown = [f"{n:>{digits}} {label}" for n, label in enumerate(labels[:most], start=1)]
    if not shown:
        return ""
    widest = max(map(len, shown)) + 2
    columns = max(1, (width + 2) // widest)
    height = -(-len(shown) // columns)
    lines = ["".join(f"{label:<{widest}}" for label in shown[row::height]).rstrip() for row in range(height)]
    if len(labels) > most:
        lines.append(f"({len(labels) - most} more: /actions)")
    return "\n".join(lines)
