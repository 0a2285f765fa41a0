"""Invented words for names, which no two splits share.

A word spells a number, one to one, so that names need no table and never collide: each syllable is a consonant group
and a vowel group, and a consonant group ends the word. Each split has every third number; they are spread so that the
words of all splits begin and end alike, and what a policy learns about spelling names holds for those it never saw.
"""

from __future__ import annotations

import functools
import math

from agent_envs.files import table

SPLITS = ("train", "validation", "test")
_ONSETS, _VOWELS, _CODAS = (table(__package__, "words.json")[kind] for kind in ("onsets", "vowels", "codas"))
_MASK = (1 << 64) - 1


def mix(seed: int, number: int) -> int:
    """Return a pseudorandom 64-bit integer that depends only on both numbers (splitmix64).

    >>> mix(1, 2), mix(1, 3)
    (17911839290282890590, 8196980753821780235)
    """
    x = (seed + 0x9E3779B97F4A7C15 * (number + 1)) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class Shuffle:
    """A permutation of 0 .. size - 1 that needs no table and can be inverted.

    >>> shuffle = Shuffle(10, seed=4)
    >>> [shuffle(i) for i in range(10)], shuffle.undo(shuffle(7))
    ([4, 1, 8, 5, 2, 9, 6, 3, 0, 7], 7)
    """

    __slots__ = ("_back", "_by", "_plus", "size")

    def __init__(self, size: int, seed: int) -> None:
        by = max(1, int(size * (0.31 + 0.38 * (mix(seed, 0) % 1000) / 1000)))
        while math.gcd(by, size) != 1:
            by += 1
        self.size = size
        self._by = by
        self._plus = mix(seed, 1) % size
        self._back = pow(by, -1, size)

    def __call__(self, number: int) -> int:
        return (number * self._by + self._plus) % self.size

    def undo(self, number: int) -> int:
        """Return the number that is mapped to this one."""
        return (number - self._plus) * self._back % self.size


_SHORT, _LONG = (Shuffle((len(_ONSETS) * len(_VOWELS)) ** syllables * len(_CODAS), seed=20) for syllables in (2, 3))


@functools.lru_cache(maxsize=1 << 16)
def spell(number: int, split: int) -> str:
    """Return word `number` of a split: two syllables for the first 81,120, then three.

    >>> spell(0, 0), spell(1, 0), spell(1, 2), spell(100_000, 0)
    ('Grutrind', 'Studin', 'Kosal', 'Kustaedend')
    """
    code = number * len(SPLITS) + split
    syllables, code = (2, _SHORT(code)) if code < _SHORT.size else (3, _LONG(code - _SHORT.size))
    digits = []
    # Vowels last: three divides their number, so that otherwise each split would have endings of its own.
    for base in (len(_CODAS), *[len(_ONSETS)] * syllables, *[len(_VOWELS)] * syllables):
        code, digit = divmod(code, base)
        digits.append(digit)
    pairs = zip(digits[1 : syllables + 1], digits[syllables + 1 :], strict=True)
    return "".join([*(_ONSETS[o] + _VOWELS[v] for o, v in pairs), _CODAS[digits[0]]]).capitalize()
