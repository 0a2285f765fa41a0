"""Cleaning text from outside: what any encoding can carry, and what a terminal can show safely."""

from __future__ import annotations

from typing import Any

__all__ = ["check_action", "clean_text", "cut", "plain", "transcript_text"]


def check_action(action: Any) -> None:
    """Refuse an action that is not a string.

    Raises:
        TypeError: It is not.
    """
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


def transcript_text(transcript: list[str], start: int = 0) -> str:
    """Return a transcript from entry ``start`` on: observations as they are, actions behind ``> ``."""
    lines = []
    for position, text in enumerate(transcript[start:], start=start):
        text = plain(text)
        lines.append(text if position % 2 == 0 else "> " + text.replace("\n", "\n> "))
    return "\n".join(lines)
