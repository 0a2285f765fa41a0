"""Reasoning in a policy's text: where its blocks are, the text without them, and the base of parsers that skip them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.dialects import without_foreign_calls
from agent_envs.parsers.harmony import HarmonyParser
from agent_envs.parsers.parser import ParsedAction, Parser

_MAX_LEADING = 8  # blocks at the beginning that are handled one by one, so that parsing takes linear time
_TAGS = (  # opening, closing, and whether the opening may be in the prompt
    ("<think>", "</think>", True),
    ("[THINK]", "[/THINK]", True),
    ("<|channel|>analysis<|message|>", "<|end|>", False),
)
_TURN = "<|start|>assistant"

_ReadCalls = Callable[[str], Iterable[ToolCall | ParseFailure]]


class ReasoningParser(Parser):
    """Base of the parsers that look for calls outside of the reasoning: a subclass reads the rest in `_read`."""

    tags: ClassVar[tuple[tuple[str, str], ...]] = (("<think>", "</think>"),)
    """How reasoning begins and ends; the first pair counts whose end is in the text."""
    in_calls: ClassVar[bool] = True
    """See `split_reasoning`."""

    def parse(self, text: str) -> ParsedAction:
        """Parse a policy's text.

        Text in reasoning blocks is reasoning, and so is text before an end of reasoning whose beginning was in the
        prompt: calls in it are not made.
        """
        for tags in self.tags:
            if tags[1] in text:
                break
        else:
            return without_foreign_calls(self._read(text), self)
        thoughts, rest = split_reasoning(
            text, lambda body: self._read(body).calls, opening=tags[0], closing=tags[1], in_calls=self.in_calls
        )
        parsed = without_foreign_calls(self._read(rest), self)
        return replace(parsed, reasoning="\n".join(filter(None, [*thoughts, parsed.reasoning]))) if thoughts else parsed

    def _read(self, text: str) -> ParsedAction:
        """Parse a text without reasoning."""
        raise NotImplementedError


def strip_reasoning(text: str, parser: Parser | None = None) -> str:
    """Remove the reasoning from a policy's text: ``<think>``, Mistral's ``[THINK]``, Harmony's analysis channel.

    Reasoning whose beginning was in the prompt ends at the first closing tag. A block without an end does not count.

    Args:
        text: The text as generated.
        parser: The wire format of its calls, whose arguments stay unchanged even if they contain such tags; None for
            texts without calls, in which Harmony's final channel is the answer.

    Returns:
        The rest, without white space around it; a text without reasoning is returned unchanged.

    >>> strip_reasoning("<think>The fridge is cold.</think>\\n\\nopen fridge 1")
    'open fridge 1'
    >>> strip_reasoning("so it is there.</think>look"), strip_reasoning("look <think>")
    ('look', 'look <think>')
    """
    read = None if parser is None else lambda body: parser.parse(body).calls
    rest = text
    for opening, closing, begun in _TAGS:
        _, rest = split_reasoning(rest, read, opening=opening, closing=closing, begun=begun)
    if "<|channel|>" in rest.lstrip()[:100]:
        rest = HarmonyParser().parse(rest).text if parser is None else rest.lstrip().removeprefix(_TURN)
    if rest == text or (read is not None and read(rest) != read(text)):
        return text
    return rest.strip()


def split_reasoning(
    text: str,
    read: _ReadCalls | None,
    *,
    opening: str = "<think>",
    closing: str = "</think>",
    begun: bool = True,
    in_calls: bool = True,
) -> tuple[list[str], str]:
    """Split a text into its reasoning and the rest.

    Reasoning is what stands in closed blocks, and what precedes an end whose beginning was in the prompt. A tag within
    a call is part of the call.

    Args:
        text: The text as generated.
        read: Reads the calls of a text; None if there are none.
        opening: How reasoning begins.
        closing: How reasoning ends.
        begun: Whether reasoning may begin in the prompt.
        in_calls: Whether an end without a beginning can be part of a call. False for a format in which a call that was
            begun and given up while thinking looks like one that contains the end of the reasoning.

    >>> split_reasoning("a</think>b<think>c</think>d", None)
    (['a', 'c'], 'bd')
    """
    thoughts: list[str] = []
    if closing not in text:
        return thoughts, text
    for _ in range(_MAX_LEADING):
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
        if (in_calls or thoughts) and _within(end, _call_spans(read, text)):
            break
        thoughts.append(text[:end])
        text = text[end + len(closing) :]
    else:
        if begun:
            before, _, text = text.rpartition(closing)
            thoughts.append(before)
    blocks = find_blocks(text, opening, closing)
    if blocks:
        calls = _call_spans(read, text)
        blocks = [block for block in blocks if not (_within(block[0], calls) or _within(block[1] - 1, calls))]
    ends = [0, *(end for _, end in blocks)]
    thoughts += [text[start + len(opening) : end - len(closing)] for start, end in blocks]
    rest = (text[end:start] for end, (start, _) in zip(ends, [*blocks, (len(text), 0)], strict=True))
    return [thought.strip() for thought in thoughts], "".join(rest)


def find_blocks(text: str, opening: str, closing: str) -> list[tuple[int, int]]:
    """Return where the blocks of a text start and end; a nested block is part of the outer one, an open one is none.

    >>> find_blocks("<a>1<a>2</a>3</a>4<a>", "<a>", "</a>")
    [(0, 17)]
    """
    tags = [(m.start(), m[0] == opening) for m in re.finditer(f"{re.escape(opening)}|{re.escape(closing)}", text)]
    blocks, used = _matched(tags, balanced=True)
    blocks += _matched(tags[used:], balanced=False)[0]
    return [(start, end + len(closing)) for start, end in blocks]


def _matched(tags: list[tuple[int, bool]], *, balanced: bool) -> tuple[list[tuple[int, int]], int]:
    """Return pairs of tags, and the number of tags up to the end of the last pair."""
    pairs: list[tuple[int, int]] = []
    depth = start = used = 0
    for number, (at, opens) in enumerate(tags, start=1):
        if opens:
            start = start if depth else at
            depth = depth + 1 if balanced else 1
        elif depth:
            depth -= 1
            if not depth:
                pairs.append((start, at))
                used = number
    return pairs, used


def _call_spans(read: _ReadCalls | None, text: str) -> list[tuple[int, int]]:
    """Return where the calls of a text start and end."""
    spans, position = [], 0
    for call in () if read is None else read(text):
        start = text.find(call.raw, position) if isinstance(call, ToolCall) and call.raw else -1
        if start >= 0:
            spans.append((start, start + len(call.raw)))
            position = start
    return spans


def _within(position: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= position < end for start, end in spans)
