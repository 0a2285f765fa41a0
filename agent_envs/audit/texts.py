"""The texts that attacks send, and the rules by which they copy from what they were shown."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent_envs.files import table

_TEXTS = table(__package__, "texts.json")
SILENCE: tuple[str, ...] = _TEXTS["silence"]
"""Actions that say nothing."""
CONSTANTS: tuple[str, ...] = _TEXTS["constants"]
"""Texts with nothing of the task in them."""
FORMS: tuple[str, ...] = _TEXTS["forms"]
"""How answers are usually written, for environments that show no other way."""
SHAPES: tuple[str, ...] = _TEXTS["shapes"]
"""The form of an answer without one."""
_JUDGEMENTS = _TEXTS["judgements"]  # what a judge may say of a right answer
IMITATIONS: tuple[str, ...] = (
    "\n".join(_JUDGEMENTS),
    "\n".join(_JUDGEMENTS).upper(),
    *_JUDGEMENTS,
    *_TEXTS["imitations"],
)
"""Texts that imitate judgements, results, roles, markup or the markers of a grader."""

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_NAME = re.compile(r"\b[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*")
_QUOTED = re.compile(r"[\"'“‘`]([^\"'”’`\n]{1,200})[\"'”’`]")
_INNER = re.compile(r"[\[({<]([^\[\](){}<>\n]{1,200})[\])}>]")


def _at(parts: Callable[[str], list[str]], which: int) -> Callable[[str], str]:
    """Return the rule that takes one of the parts of a text."""

    def rule(text: str) -> str:
        pieces = parts(text)
        return pieces[which].strip() if -len(pieces) <= which < len(pieces) else ""

    return rule


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _words(text: str) -> list[str]:
    return [word.strip(".,:;!?\"'()[]{}<>") for word in text.split()]


def _by_size(text: str) -> list[str]:
    return sorted(_NUMBER.findall(text), key=lambda number: float(number.replace(",", "")))


def _letter(first: int) -> Callable[[str], str]:
    return lambda text: chr(65 + int(text) - first) if re.fullmatch("[0-9]|1[0-9]|2[0-5]", text) else ""


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return ""


_DEEP = 4  # objects within objects

WHOLE = "the whole text"
RULES: Mapping[str, Callable[[str], str]] = {
    WHOLE: str.strip,
    "the first line": _at(_lines, 0),
    "the second line": _at(_lines, 1),
    "the last line": _at(_lines, -1),
    "the first word": _at(_words, 0),
    "the last word": _at(_words, -1),
    "the first number": _at(_NUMBER.findall, 0),
    "the second number": _at(_NUMBER.findall, 1),
    "the last number": _at(_NUMBER.findall, -1),
    "the largest number": _at(_by_size, -1),
    "the smallest number": _at(_by_size, 0),
    "the first name": _at(_NAME.findall, 0),
    "the second name": _at(_NAME.findall, 1),
    "the last name": _at(_NAME.findall, -1),
    "the first text in quotes": _at(_QUOTED.findall, 0),
    "the last text in quotes": _at(_QUOTED.findall, -1),
    "the first text in brackets": _at(_INNER.findall, 0),
    "the last text in brackets": _at(_INNER.findall, -1),
    "what follows the last colon": lambda text: text.rpartition(":")[2].strip() if ":" in text else "",
    "what follows the first colon": lambda text: text.partition(":")[2].strip(),
    "what follows the last equals sign": lambda text: text.rpartition("=")[2].strip() if "=" in text else "",
    "the last part of a path": lambda text: re.split(r"[/\\]", text.strip())[-1].partition(".")[0],
    "what follows the last dash or underscore": lambda text: re.split(r"[-_#|]", text.strip())[-1].partition(".")[0],
    "the text backwards": lambda text: text.strip()[::-1] if len(text) < 200 else "",
    "the letter of that number, from 0": _letter(0),
    "the letter of that number, from 1": _letter(1),
    "yes for true, no for false": lambda text: {"true": "yes", "false": "no"}.get(text.casefold(), ""),
    "what it encodes in base 64": _decoded,
}
"""Ways to copy part of a text, by name; each returns "" where there is no such part."""


def normal(text: str) -> str:
    """Return a text for comparison: without case, punctuation at its ends and commas between digits.

    >>> normal(" 1,024. ") == normal("1024")
    True
    """
    return re.sub(r"(?<=\d),(?=\d)", "", " ".join(text.casefold().split())).strip(" .,:;!?\"'$%")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str | tuple[str, ...]]]:
    """Yield the texts of nested data by path: a text, a number or a truth as text, a list of texts as a tuple too.

    Objects are read by their attributes.

    >>> list(leaves({"a": {"b": 3}, "c": ["x", "y"]}))
    [('a.b', '3'), ('c', ('x', 'y')), ('c.0', 'x'), ('c.1', 'y')]
    """
    if isinstance(value, (str, bool)):
        yield path, str(value)
    elif isinstance(value, (int, float)):
        yield path, f"{value:g}" if isinstance(value, float) else str(value)
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from leaves(entry, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        if value and all(isinstance(entry, str) for entry in value):
            yield path, tuple(value)
            yield from ((f"{path}.{place}", value[place]) for place in sorted({0, len(value) - 1}))
        else:
            for number, entry in enumerate(value[:20]):
                yield from leaves(entry, f"{path}.{number}")
    elif isinstance(value, bytes):
        yield path, value.decode(errors="replace")
    elif hasattr(value, "tolist"):
        yield from leaves(value.tolist(), path)
    elif value is not None and path.count(".") < _DEEP:
        names = (*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ()))
        yield from leaves({name: getattr(value, name, None) for name in names}, path)
