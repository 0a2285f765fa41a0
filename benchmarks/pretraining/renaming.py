"""Other names for what a demonstration tells of, so that nothing is gained by knowing names by heart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from agent_envs.messages import Message, text_alone
from agent_envs.rollout.demonstrations import Demonstration

Spell = Callable[[int, int], str]
"""Invents words: the one with a number, of a split."""

_WORD = re.compile(r"[A-Z][a-z]+")
_USED = 20_000  # words that worlds are made of; they take the first ones
_FRESH = 81_120  # words of two syllables


def renamed(demonstrations: Iterator[Demonstration], spell: Spell, seed: int) -> Iterator[Demonstration]:
    """Yield demonstrations whose invented words are others, drawn for each, the same throughout it.

    Args:
        demonstrations: Of the split "train", whose names are words that `spell` invents for split 0.
        spell: What the names were made with.
        seed: The words are the same for the same seed.
    """
    rng = np.random.default_rng(seed)
    used = _used(spell)
    for demonstration in demonstrations:
        words: dict[str, str] = {}

        def other(match: re.Match[str], words: dict[str, str] = words) -> str:
            word = match[0]
            if word in used and word not in words:
                while (new := spell(int(rng.integers(_USED, _FRESH)), 0)) in words.values():
                    pass
                words[word] = new
            return words.get(word, word)

        yield _in_all_texts(demonstration, lambda text: _WORD.sub(other, text))


@cache
def _used(spell: Spell) -> frozenset[str]:
    return frozenset(spell(number, 0) for number in range(_USED))


def _in_all_texts(demonstration: Demonstration, change: Callable[[str], str]) -> Demonstration:
    def changed(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(
            {**message, "content": change(text_alone(message, "a demonstration in other words"))}
            for message in messages
        )

    return replace(
        demonstration,
        opening=changed(demonstration.opening),
        actions=tuple(map(change, demonstration.actions)),
        answers=tuple(map(changed, demonstration.answers)),
    )
