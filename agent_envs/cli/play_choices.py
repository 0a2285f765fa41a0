"""What a person can choose by a number at a step of an episode: commands as they are, calls with their arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.layers import available_actions, offered_tools

__all__ = ["Argument", "Choice", "choices", "in_columns"]


@dataclass(frozen=True, slots=True)
class Argument:
    """Something that is asked for before an action is whole."""

    name: str
    """What it is called."""
    kind: str = "string"
    """Its JSON type; every other than "string" is written as JSON."""
    required: bool = True
    """Whether nothing is no answer."""
    about: str = ""
    """What it is for."""

    def read(self, text: str) -> Any:
        """The value a person wrote.

        Raises:
            ValueError: It is none of this kind.

        >>> Argument("n", "integer").read("3"), Argument("q").read("3")
        (3, '3')
        """
        if self.kind == "string":
            return text
        value = json.loads(text)
        kinds = {"integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
        expected: Any = kinds.get(self.kind, object)
        if not isinstance(value, expected) or (isinstance(value, bool) and self.kind != "boolean"):
            raise ValueError(f"expected a value of type {self.kind}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the actions on offer."""

    label: str
    """What the person is shown."""
    write: Callable[[dict[str, Any]], str]
    """From the values of the arguments to the action's text."""
    arguments: tuple[Argument, ...] = ()
    """What has to be asked first."""


def choices(env: gym.Env[Any, str]) -> list[Choice]:
    """Return the actions that an environment offers: those it lists, or calls of its tools."""
    actions = available_actions(env)
    if actions is None:
        return [_call(env, tool["function"]) for tool in offered_tools(env) if env.has_wrapper_attr("format_call")]
    write = env.get_wrapper_attr("format_command") if env.has_wrapper_attr("format_command") else str
    return [_command(action, write) for action in actions]


def _command(action: str, write: Callable[[str], str]) -> Choice:
    before, dots, after = action.partition("...")
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
    """Numbered labels in as many columns as fit, numbered down the columns; further ones are counted.

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
