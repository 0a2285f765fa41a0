"""Reasoning blocks of a policy's text: where they are in each family's format, and the text without them."""

from __future__ import annotations

from agent_envs.parsers.base import Parser
from agent_envs.parsers.harmony import HarmonyParser
from agent_envs.parsers.thinking import split_reasoning

__all__ = ["strip_reasoning"]

_BLOCKS = (  # what reasoning begins with, what it ends with, whether a prompt can begin it
    ("<think>", "</think>", True),
    ("[THINK]", "[/THINK]", True),
    ("<|channel|>analysis<|message|>", "<|end|>", False),
)
_TURN = "<|start|>assistant"


def strip_reasoning(text: str, parser: Parser | None = None) -> str:
    """A policy's text without its reasoning: ``<think>``, Mistral's ``[THINK]``, Harmony's analysis channel.

    Reasoning whose beginning was in the prompt ends at the first closing tag. A block that is never closed is none.

    Args:
        text: The text as generated.
        parser: The wire format of its calls, whose arguments are left as they are even where they hold such tags; None
            for texts without calls, of which Harmony's final channel is what was said.

    Returns:
        The rest, without white space around it; a text without reasoning as it is.

    >>> strip_reasoning("<think>The fridge is cold.</think>\\n\\nopen fridge 1")
    'open fridge 1'
    >>> strip_reasoning("so it is there.</think>look"), strip_reasoning("look <think>")
    ('look', 'look <think>')
    """
    read = None if parser is None else lambda body: parser.parse(body).calls
    rest = text
    for opening, closing, begun in _BLOCKS:
        _, rest = split_reasoning(rest, read, opening=opening, closing=closing, begun=begun)
    if "<|channel|>" in rest.lstrip()[:100]:
        rest = HarmonyParser().parse(rest).text if parser is None else rest.lstrip().removeprefix(_TURN)
    if rest == text or (read is not None and read(rest) != read(text)):
        return text
    return rest.strip()
