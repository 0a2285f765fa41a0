"""Cleaning text from outside: what any encoding can carry, and what a terminal can show safely."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

_PROGRESS = re.compile(r"\r|(?:\x1b\[A)+\Z")  # how a progress bar begins, or moves up to another


def check_action(action: Any) -> None:
    """Refuse an action that is not a string with a TypeError."""
    if not isinstance(action, str):
        raise TypeError(f"an action must be a string, got {type(action).__name__}: {action!r:.80}")


def clean_text(text: str) -> str:
    """Replace lone surrogates, which no encoding can carry, with U+FFFD.

    >>> clean_text("a\\ud800b")
    'a\\ufffdb'
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def count_of(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count_of(1, "episode"), count_of(2, "episode")
    ('1 episode', '2 episodes')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def cut(text: str, limit: int) -> str:
    """Cut a text to ``limit`` characters, with a note of its length at the end.

    >>> cut("a" * 100, 50)
    'aaaaaa\\n[cut: 100 characters, at most 50 are shown]'
    """
    if len(text) <= limit:
        return text
    note = f"\n[cut: {len(text)} characters, at most {limit} are shown]"
    return text[: max(0, limit - len(note))] + note[:limit]


def plain(text: str) -> str:
    """Escape every character except line breaks that could move, hide or recolour others on a terminal.

    >>> plain("a\\x1b[2Jb\\nc\\u202e")
    'a\\\\x1b[2Jb\\nc\\\\u202e'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)


class TerminalCode(str):
    """Text with control characters of this program's own, which `clean_output` lets through."""


class _CleanStream:
    """A text stream whose text is `plain`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, TerminalCode):
            begin = _PROGRESS.match(text)
            text = text[: begin.end()] + plain(text[begin.end() :]) if begin else plain(text)
        self._stream.write(text)
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def clean_output() -> Iterator[None]:
    """Within the block, nothing that is written to standard output and error acts on a terminal: it is `plain`.

    Characters that a stream cannot encode are escaped, and undecodable input is read as U+FFFD.

    >>> with clean_output():
    ...     print("a\\x1b[2Jb")
    a\\x1b[2Jb
    """
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    with contextlib.redirect_stdout(_CleanStream(sys.stdout)), contextlib.redirect_stderr(_CleanStream(sys.stderr)):
        yield


def transcript_text(transcript: list[str], start: int = 0) -> str:
    """Return a transcript from entry ``start`` on: observations unchanged, actions behind ``> ``."""
    lines = []
    for position, text in enumerate(transcript[start:], start=start):
        text = plain(text)
        lines.append(text if position % 2 == 0 else "> " + text.replace("\n", "\n> "))
    return "\n".join(lines)
