"""Talking to a person at the terminal: show untrusted text safely and read their lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from agent_envs.messages import ToolSpec
from agent_envs.text import plain


def show(text: str) -> None:
    """Write untrusted text to standard output, with a line break."""
    sys.stdout.write(plain(text) + "\n")
    sys.stdout.flush()


def read_text(prompt: str) -> str:
    """Read what the person writes: one line, continued on the next while it ends in a backslash.

    Lines from a pipe or a file are echoed, so that the screen shows the whole conversation. An EOFError ends it.
    """
    lines = [_read_line(prompt)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(_read_line("... "))
    return "\n".join(lines)


def _read_line(prompt: str) -> str:
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # not every Python has it
            import readline  # noqa: F401  for arrow keys and history

        return input(plain(prompt))
    sys.stdout.write(prompt)
    sys.stdout.flush()
    if not (line := sys.stdin.readline()):
        show("")
        raise EOFError
    line = line.removesuffix("\n").removesuffix("\r")
    show(line)
    return line


def tool_lines(tools: Sequence[ToolSpec]) -> str:
    """List the tools for a person to read, one per line.

    >>> parameters = {"type": "object", "properties": {"query": {}}}
    >>> function = {"name": "search", "description": "Find texts.", "parameters": parameters}
    >>> tool_lines([{"type": "function", "function": function}])
    'search(query): Find texts.'
    """
    lines = []
    for function in (tool["function"] for tool in tools):
        names = ", ".join(function.get("parameters", {}).get("properties", {}))
        lines.append(f"{function['name']}({names}): {' '.join(function.get('description', '').split())}")
    return "\n".join(lines)
