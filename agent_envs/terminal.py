"""A person at the terminal: untrusted text is shown without doing anything there, and lines are read."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence

from agent_envs.messages import ToolSpec

__all__ = ["plain", "read_text", "show", "tolerant_streams", "tool_lines"]


def plain(text: str) -> str:
    """``text`` with every character but line breaks that could move, hide or recolour others as an escape.

    >>> plain("a\\x1b[2Jb\\nc\\u202e")
    'a\\\\x1b[2Jb\\nc\\\\u202e'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)


def show(text: str) -> None:
    """Write untrusted text and a line break to standard output."""
    sys.stdout.write(plain(text) + "\n")
    sys.stdout.flush()


def tolerant_streams() -> None:
    """Bytes that are no text are read as U+FFFD, and what the terminal cannot show is written as an escape."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def read_text(prompt: str) -> str:
    """What the person writes: a line, or several where all but the last end in a backslash.

    A line that comes from a pipe or a file is shown, so that what is on the screen can be read.

    Raises:
        EOFError: There are no more lines.
    """
    lines = [_read_line(prompt)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(_read_line("... "))
    return "\n".join(lines)


def _read_line(prompt: str) -> str:
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # a Python without it: lines are typed whole
            import readline  # noqa: F401  arrow keys and history

        return input(prompt)
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        show("")
        raise EOFError
    line = line.removesuffix("\n").removesuffix("\r")
    show(line)
    return line


def tool_lines(tools: Sequence[ToolSpec]) -> str:
    """The tools for a person to read, one a line.

    >>> parameters = {"type": "object", "properties": {"query": {}}}
    >>> function = {"name": "search", "description": "Find texts.", "parameters": parameters}
    >>> tool_lines([{"type": "function", "function": function}])
    'search(query): Find texts.'
    """
    lines = []
    for tool in tools:
        function = tool["function"]
        names = ", ".join(function.get("parameters", {}).get("properties", {}))
        lines.append(f"{function['name']}({names}): {' '.join(function.get('description', '').split())}")
    return "\n".join(lines)
