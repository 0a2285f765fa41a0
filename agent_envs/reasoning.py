"""Reasoning blocks of a policy's text: where they are in each family's format, and the text without them."""

from __future__ import annotations

from agent_envs.parsers.base import Parser

__all__ = ["strip_reasoning"]

_BLOCKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
)
_TURN = "<|start|>assistant"


def strip_reasoning(text: str, parser: Parser | None = None) -> str:
    """A policy's text without its reasoning: ``<think>``, Mistral's ``[THINK]``, Harmony's analysis channel.

    Reasoning whose beginning was in the prompt ends at the first closing tag. A block that is never closed is none.

    Args:
        text: The text as generated.
        parser: The wire format of its calls, whose arguments are left as they are even where they hold such tags; None
            for texts without calls.

    Returns:
        The rest, without white space around it; a text without reasoning as it is.

    >>> strip_reasoning("<think>The fridge is cold.</think>\\n\\nopen fridge 1")
    'open fridge 1'
    >>> strip_reasoning("so it is there.</think>look"), strip_reasoning("look <think>")
    ('look', 'look <think>')
    """
    rest = _without_blocks(text)
    if rest == text:
        return text
    if parser is not None and parser.parse(rest).calls != parser.parse(text).calls:
        rest = _without_leading_blocks(text)
        if parser.parse(rest).calls != parser.parse(text).calls:
            return text
    return rest if rest == text else rest.strip()


def _without_blocks(text: str) -> str:
    for opening, closing in _BLOCKS:
        if closing not in text:
            continue
        kept, position = [], _end_of_open_block(text, opening, closing)
        while (start := text.find(opening, position)) >= 0:
            end = text.find(closing, start)
            if end < 0:
                break
            kept.append(text[position:start])
            position = end + len(closing)
        text = "".join([*kept, text[position:]])
    begun = text.lstrip()
    return begun.removeprefix(_TURN) if "<|channel|>" in begun[:100] else text


def _without_leading_blocks(text: str) -> str:
    changed = True
    while changed:
        changed = False
        for opening, closing in _BLOCKS:
            begun = text.lstrip()
            end = begun.find(closing) if begun.startswith(opening) else -1
            if end >= 0:
                text, changed = begun[end + len(closing) :], True
    return text


def _end_of_open_block(text: str, opening: str, closing: str) -> int:
    """Where a block ends whose beginning was in the prompt; 0 where there is none."""
    if opening.startswith("<|"):  # Harmony's prompts never begin one
        return 0
    end = text.find(closing)
    return 0 if text.find(opening, 0, end) >= 0 else end + len(closing)
