"""What the generated shop sells: a category tree of invented goods, their attributes and options, and brand names.

`kinds.json` lists the kinds of products, `words.json` the other words. An attribute goes before the noun ("gluten free
crackers"), after "with" if it begins with +, after "for" if it begins with >.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from agent_envs.files import table

__all__ = ["ADJECTIVES", "BRAND_ENDS", "BRAND_STARTS", "OPTION_VALUES", "Kind", "kinds"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of product."""

    department: str
    """The released field `category`."""
    query: str
    """What it is searched by; the released field of this name."""
    path: str
    """Its place in the category tree, joined as released."""
    nouns: tuple[str, ...]
    """What titles and shoppers call it."""
    attributes: tuple[str, ...]
    """Its attributes; + and > say how they are phrased."""
    options: tuple[tuple[str, str], ...]
    """Names of options as shoppers see them, each with the list of `OPTION_VALUES` it takes values from."""
    dollars: tuple[int, int]
    """The lowest and the highest price."""
    occasions: tuple[str, ...]
    """Where it is used."""


_WORDS = table(__package__, "words.json")

OPTION_VALUES: dict[str, tuple[str, ...]] = _WORDS["option_values"]
"""Lists of values, as released: pages show a slash as a bar between spaces."""
ADJECTIVES: tuple[str, ...] = _WORDS["adjectives"]
"""Words of praise in titles."""
BRAND_STARTS: tuple[str, ...] = _WORDS["brand_starts"]
"""First parts of invented brands."""
BRAND_ENDS: tuple[str, ...] = _WORDS["brand_ends"]
"""Last parts of invented brands."""


@cache
def kinds() -> tuple[Kind, ...]:
    """Return all kinds, department by department."""
    return tuple(Kind(**fields) for fields in table(__package__, "kinds.json"))
