"""Talking to a person at the terminal: shows untrusted text safely, and pictures, and reads their lines.

Pictures are drawn where the terminal draws them, else written to files. Two protocols are known: kitty's
(https://sw.kovidgoyal.net/kitty/graphics-protocol), which Ghostty and Konsole speak too, and iTerm2's
(https://iterm2.com/documentation-images.html), which WezTerm and mintty speak too.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence

from agent_envs.messages import Observation, ToolSpec, observation_pictures
from agent_envs.pictures.folder import PictureFolder
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import base64_png
from agent_envs.text import TerminalCode, plain


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


_KITTY_TERMINALS = ("xterm-kitty", "xterm-ghostty")
_KONSOLE = 220400  # the first release that draws
_ITERM_PROGRAMS = ("iTerm.app", "WezTerm", "mintty")
_CHUNK = 4096  # characters of a part that kitty takes at most
_CELL = 8  # pixels of a column


class PersonPictures:
    """Shows the pictures of observations; files last as long as the process."""

    def __init__(self) -> None:
        self._folder: PictureFolder | None = None

    def show(self, observation: Observation) -> None:
        """Show the pictures of an observation, if it has any, each with its number and its size."""
        protocol = graphics_protocol(os.environ) if sys.stdout.isatty() else ""
        for number, picture in enumerate(observation_pictures(observation), start=1):
            size = f"{picture.width} x {picture.height}"
            if not protocol:
                if self._folder is None:
                    made = tempfile.mkdtemp(prefix="agentr1-")
                    atexit.register(shutil.rmtree, made, ignore_errors=True)
                    self._folder = PictureFolder(f"{made}/episodes.jsonl")
                self._folder.add([picture])
                show(f"picture {number}: {self._folder.file(picture.digest)} ({size})")
                continue
            show(f"picture {number} ({size}):")
            drawn = escape_sequence(picture, protocol, shutil.get_terminal_size().columns)
            sys.stdout.write(TerminalCode(f"{drawn}\n"))
            sys.stdout.flush()


def graphics_protocol(variables: Mapping[str, str]) -> str:
    """Return how the terminal of these environment variables draws pictures: "kitty", "iterm", or "" if unknown.

    A multiplexer between (tmux, screen) passes no pictures on.

    >>> graphics_protocol({"TERM": "xterm-kitty"}), graphics_protocol({"TERM_PROGRAM": "WezTerm"})
    ('kitty', 'iterm')
    >>> graphics_protocol({"TERM": "xterm-256color"}), graphics_protocol({"TERM": "xterm-kitty", "TMUX": "/tmp/1"})
    ('', '')
    """
    term, program = variables.get("TERM", ""), variables.get("TERM_PROGRAM", "")
    if "TMUX" in variables or term.startswith(("screen", "tmux")):
        return ""
    konsole = variables.get("KONSOLE_VERSION", "")
    if term in _KITTY_TERMINALS or (konsole.isdecimal() and int(konsole) >= _KONSOLE):
        return "kitty"
    return "iterm" if program in _ITERM_PROGRAMS else ""


def escape_sequence(picture: Picture, protocol: str, columns: int) -> str:
    """Return what draws a picture by a protocol of `graphics_protocol`, at most so many characters wide."""
    data = base64_png(picture)
    wide = max(1, min(columns, picture.width // _CELL))
    if protocol == "iterm":
        return f"\x1b]1337;File=inline=1;width={wide};preserveAspectRatio=1:{data}\x07"
    parts = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
    # q=2: the terminal's own answer would be read as what the person wrote
    heads = [f"a=T,f=100,q=2,c={wide},"] + [""] * (len(parts) - 1)
    return "".join(
        f"\x1b_G{head}m={int(number < len(parts))};{part}\x1b\\"
        for number, (head, part) in enumerate(zip(heads, parts, strict=True), start=1)
    )
