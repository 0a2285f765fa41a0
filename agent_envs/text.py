"""Cleaning text from outside: what any encoding can carry, and what a terminal can show safely."""

from __future__ import annotations

__all__ = ["clean_text", "plain"]


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


def plain(text: str) -> str:
    """Escape every character except line breaks that could move, hide or recolour others on a terminal.

    >>> plain("a\\x1b[2Jb\\nc\\u202e")
    'a\\\\x1b[2Jb\\nc\\\\u202e'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)
