"""Prompts whose wording is data: a system message and a user message with `$fields`, the package's or from a file."""

from __future__ import annotations

import json
import string
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, NamedTuple

from agent_envs.checks import choice, path_suffix
from agent_envs.checks import string as text_of
from agent_envs.errors import ConfigError
from agent_envs.files import read_text

_LARGEST = 1 << 20  # bytes of a file of prompts


class PromptTexts(NamedTuple):
    """The wording of a prompt of two messages, with `$fields` that are filled at every step."""

    system: str
    """The system message, without fields; "" for none."""
    user: str
    """The user's message."""
    label: str = "<invalid_tool_call>"
    """What the history calls an action of which no command came."""


def filler(text: str, fields: Mapping[str, Callable[[Any], str]], what: str) -> tuple[Callable[[Any], str], list[str]]:
    """Return a function that fills a text's fields from a view, and their names.

    Raises:
        ConfigError: The text has a field that does not exist, or a ``$`` without a name.
    """
    parsed = string.Template(text)
    names = parsed.get_identifiers()
    unknown = sorted(set(names) - set(fields))
    if not parsed.is_valid() or unknown:
        wrong = f"${unknown[0]}" if unknown else "a $ without a name (write $$ for a dollar)"
        known = ", ".join(f"${name}" for name in fields)
        raise ConfigError(f"{what} has {wrong}; the placeholders are {known}")
    return lambda view: parsed.substitute({name: fields[name](view) for name in names}), names


def released(name: str) -> PromptTexts:
    """Return the wording of a released recipe's prompt, a table of `released.toml` beside this module."""
    tables = tomllib.loads(resources.files(__package__).joinpath("released.toml").read_text(encoding="utf-8"))
    return PromptTexts(**{"system": "", **tables[name]})


def read_prompts(named: str) -> PromptTexts:
    """Return the texts that ``FILE:NAME`` names: an object with `user` and possibly `system` and `label`.

    Args:
        named: A file of TOML or JSON with an object for each name. It is data; nothing of it is run.

    Raises:
        ConfigError: It is not written so, the file cannot be read, or has no such name.
    """
    file, _, name = text_of("prompts", named).rpartition(":")
    if not file or not name:
        raise ConfigError(f"prompts must be written FILE:NAME, such as prompts.toml:alfworld, got {named!r}")
    path = path_suffix("prompts", file, [".json", ".toml"])
    try:
        text = read_text(path, _LARGEST)
        every = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as e:
        raise ConfigError(f"the prompts in {file} cannot be read: {e}") from e
    if not isinstance(every, dict):
        raise ConfigError(f"{file} must hold an object with prompts by name")
    texts = every[choice(f"the name in {file}", name, every)]
    where, known = f"{file}: {name}", PromptTexts._fields
    if not isinstance(texts, dict) or "user" not in texts or not all(isinstance(t, str) for t in texts.values()):
        raise ConfigError(f"{where} must be an object of texts with 'user', and possibly {', '.join(map(repr, known))}")
    for key in texts:
        choice(f"{where}: a key", key, known)
    return PromptTexts(**{"system": "", **texts})
