"""Whether texts are alike: whether thefuzz's token_set_ratio of them is above a threshold, but faster.

thefuzz 0.19.0 uses difflib unless python-Levenshtein is installed, which gives other numbers. Here, too, difflib
decides, but only where cheap bounds leave the answer open.
"""

from __future__ import annotations

import functools
import re
from difflib import SequenceMatcher

_NOT_WORD = re.compile(r"\W")
_DROPPED = dict.fromkeys(range(128, 256))  # thefuzz removes these as not ASCII and keeps the characters above


def alike(first: object, second: object, above: int = 85) -> bool:
    """Return whether two sets of words are so similar, from 0 to 100, that it is above a threshold.

    Other types are compared by their `str()`; None is similar to nothing.

    >>> alike("tea tree oil", "Tea-Tree", 99), alike("grey camo", "gray camo"), alike("grey camo", "gray camo", 89)
    (True, True, False)
    """
    if first is None or second is None:
        return False
    one, two = _words(str(first)), _words(str(second))
    if not one or not two:
        return False
    shared = " ".join(sorted(one & two))
    with_one = f"{shared} {' '.join(sorted(one - two))}".strip()
    with_two = f"{shared} {' '.join(sorted(two - one))}".strip()
    pairs = (shared, with_one), (shared, with_two), (with_one, with_two)  # the best one counts
    return any(_ratio(*pair, above) > above for pair in pairs)


@functools.lru_cache(maxsize=1 << 14)
def _words(text: str) -> frozenset[str]:
    return frozenset(_NOT_WORD.sub(" ", text.translate(_DROPPED)).lower().split())


def _ratio(first: str, second: str, above: int) -> int:
    """Return from 0 to 100 how similar two texts are; less than that where it is not above a threshold."""
    if first == second:
        return 100
    if not first or not second:
        return 0
    matcher, percent = SequenceMatcher(None, first, second), 0
    for bound in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio):  # each a closer upper bound
        percent = round(100 * bound())
        if percent <= above:
            break
    return percent
