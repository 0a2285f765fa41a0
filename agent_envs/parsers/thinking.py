"""Reasoning before and between actions: where its blocks are, and what a text says outside of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.base import ParsedAction

__all__ = ["find_blocks", "outside_reasoning", "split_reasoning"]

_MOST_LEADING = 8  # blocks at the beginning that are looked at one by one, so that reading takes linear time


def find_blocks(text: str, opening: str, closing: str) -> list[tuple[int, int]]:
    """Where the blocks of a text begin and end, one within another being part of it; unclosed ones are none.

    >>> find_blocks("<a>1<a>2</a>3</a>4<a>", "<a>", "</a>")
    [(0, 17)]
    """
    tags = [(m.start(), m[0] == opening) for m in re.finditer(f"{re.escape(opening)}|{re.escape(closing)}", text)]
    found, position = _matched(tags, balanced=True)
    found += _matched(tags[position:], balanced=False)[0]
    return [(start, end + len(closing)) for start, end in found]


def _matched(tags: list[tuple[int, bool]], *, balanced: bool) -> tuple[list[tuple[int, int]], int]:
    """Pairs of tags, and how many tags they and what is before them take."""
    found: list[tuple[int, int]] = []
    depth = start = used = 0
    for number, (at, opens) in enumerate(tags, start=1):
        if opens:
            start = start if depth else at
            depth = depth + 1 if balanced else 1
        elif depth:
            depth -= 1
            if not depth:
                found.append((start, at))
                used = number
    return found, used


def split_reasoning(
    text: str,
    read: Callable[[str], Iterable[ToolCall | ParseFailure]] | None,
    *,
    opening: str = "<think>",
    closing: str = "</think>",
    begun: bool = True,
    in_calls: bool = True,
) -> tuple[list[str], str]:
    """The reasoning of a text, and the rest: closed blocks, and what precedes an end whose beginning was in the prompt.

    A tag within a call is part of the call.

    Args:
        text: The text as generated.
        read: Reads the calls of a text; None where there are none.
        opening: What reasoning begins with.
        closing: What it ends with.
        begun: Whether a prompt can begin it.
        in_calls: Whether an end without a beginning can be part of a call: False for a format in which a call that was
            begun and given up while thinking looks like one that holds the end of the reasoning.

    >>> split_reasoning("a</think>b<think>c</think>d", None)
    (['a', 'c'], 'bd')
    """
    thoughts: list[str] = []
    if closing not in text:
        return thoughts, text
    for _ in range(_MOST_LEADING):
        end, start = text.find(closing), text.find(opening)
        if end < 0 or (not begun and not 0 <= start < end):
            break
        if 0 <= start < end:
            if text[:start].strip():
                break
            _, after = find_blocks(text, opening, closing)[0]
            thoughts.append(text[start + len(opening) : after - len(closing)])
            text = text[after:]
            continue
        if (in_calls or thoughts) and _within(end, _spans(read, text)):
            break
        thoughts.append(text[:end])
        text = text[end + len(closing) :]
    else:
        if begun:
            before, _, text = text.rpartition(closing)
            thoughts.append(before)
    blocks = find_blocks(text, opening, closing)
    if blocks:
        calls = _spans(read, text)
        blocks = [block for block in blocks if not (_within(block[0], calls) or _within(block[1] - 1, calls))]
    ends = [0, *(end for _, end in blocks)]
    thoughts += [text[start + len(opening) : end - len(closing)] for start, end in blocks]
    kept = (text[end:start] for end, (start, _) in zip(ends, [*blocks, (len(text), 0)], strict=True))
    return [thought.strip() for thought in thoughts], "".join(kept)


def outside_reasoning(text: str, read: Callable[[str], ParsedAction], **tags: Any) -> ParsedAction:
    """What ``read`` finds outside of the reasoning.

    Args:
        text: The text as generated.
        read: Takes a text without reasoning apart.
        tags: See ``split_reasoning``.
    """
    thoughts, rest = split_reasoning(text, lambda body: read(body).calls, **tags)
    parsed = read(rest)
    return replace(parsed, reasoning="\n".join(filter(None, [*thoughts, parsed.reasoning]))) if thoughts else parsed


def _spans(read: Callable[[str], Iterable[ToolCall | ParseFailure]] | None, text: str) -> list[tuple[int, int]]:
    """Where in a text its calls are."""
    spans, position = [], 0
    for call in () if read is None else read(text):
        start = text.find(call.raw, position) if isinstance(call, ToolCall) and call.raw else -1
        if start >= 0:
            spans.append((start, start + len(call.raw)))
            position = start
    return spans


def _within(position: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= position < end for start, end in spans)
