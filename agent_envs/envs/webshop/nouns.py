"""Nouns of a product's title, lower case: the part of WebShop's reward that the original leaves to a spaCy model.

Taggers by name: "default" (below, no dependencies), "rule" (the fixed rule of the parity traces) and "spacy" (the
model en_core_web_sm, the original's); or "module:function", a function from a title to its nouns.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from agent_envs.envs.webshop.english_tokens import tokenize
from agent_envs.errors import ConfigError, MissingExtraError, did_you_mean

__all__ = ["TAGGERS", "Tagger", "check_tagger", "open_tagger", "rule_nouns"]

Tagger = Callable[[str], Sequence[str]]
"""The nouns of a title in their order, lower case, repeated as often as they occur."""

TAGGERS = ("default", "rule", "spacy")
_MODEL = "en_core_web_sm"
_REMEMBERED = 1 << 14
_UNIT = 2  # letters of a unit: "4 K", "10 oz"

_CLOSED_WORDS = """
    a an the and or of for with in on to by from at as is are be it its this that your our their all no not up set
    off out over under per plus more most very only both each any
"""
_CLOSED = frozenset(_CLOSED_WORDS.split())
_ADJECTIVE_WORDS = """
    wireless portable organic natural stainless waterproof lightweight durable soft heavy slim long short wide narrow
    new classic modern vintage comfortable breathable adjustable foldable reusable premium professional dry oily sweet
    salty spicy fresh easy quick hot cold black white red blue green yellow pink purple grey gray brown beige navy gold
    silver teal olive small medium large
"""
_ADJECTIVES = frozenset(_ADJECTIVE_WORDS.split())


def rule_nouns(title: str) -> tuple[str, ...]:
    """Tokens that have a letter and no digit, are no function word or listed adjective and end in neither ing nor ly.

    >>> rule_nouns("Tindel Durable Floor Lamp, Assembly Required & Gift (2 Pcs)")
    ('tindel', 'floor', 'lamp', 'required', 'gift', 'pcs')
    """
    return tuple(token for token in map(str.lower, tokenize(title)) if _is_noun(token))


def _is_noun(token: str) -> bool:
    return (
        any(map(str.isalnum, token))
        and not any(map(str.isdigit, token))
        and token not in _CLOSED
        and token not in _ADJECTIVES
        and not token.endswith(("ing", "ly"))
    )


_MORE_CLOSED_WORDS = """
    i me my mine you yours he him his she her hers we us ours they them theirs who whom whose which what when where why
    how if than then so but nor yet while though although because until unless since before after above below between
    into onto through during without within along across around behind beside beyond near against about upon via among
    was were been being has have had do does did can could will would shall should may might must ca wo n't 's 've 're
    'll 'd 'm us there here also too just still even ever never always again back well much many few several such same
    other another every some none one two three four five six seven eight nine ten first second third half etc w x
    make made makes get gets give keep let fit fits use used uses
"""
_MORE_CLOSED = _CLOSED | frozenset(_MORE_CLOSED_WORDS.split())
_MORE_ADJECTIVE_WORDS = """
    great good better best big little tall thick thin deep high low light dark bright clear cute cool warm dry wet clean
    smooth rough strong free safe sharp flat round square full empty open old young modern rustic elegant luxury casual
    formal sexy funny lovely beautiful pretty perfect ideal simple special unique original real true pure raw rich lean
    tiny mini compact extra ultimate universal electric electronic automatic manual digital smart magnetic plastic-free
    stretchy cozy fluffy fuzzy shiny sturdy handy healthy tasty creamy crunchy hypoallergenic waterproof windproof
    rainproof shockproof dustproof heatproof antique vegan vegetarian kosher authentic genuine artificial decorative
    orange violet tan ivory khaki maroon burgundy turquoise multicolor
"""
_MORE_ADJECTIVES = _ADJECTIVES | frozenset(_MORE_ADJECTIVE_WORDS.split())
_STILL_NOUN_WORDS = """
    ring rings earring string spring wing king swing sling wedding ceiling bedding lighting clothing pudding stocking
    building painting housing railing dressing seasoning topping filling lining coating covering opening setting evening
    morning thing nothing icing awning plumbing packing bearing fitting flooring paneling shelving piping tubing netting
    jelly family assembly belly butterfly dragonfly lily fly ply poly supply monopoly bully rally doily
    bed seed feed speed weed reed shed sled breed bleed med steed thread bread head bead
    table tablet cable bible vegetable variable constable portables handful mouthful armful spoonful
    harness fitness wellness business
"""
_STILL_NOUNS = frozenset(_STILL_NOUN_WORDS.split())
_NOT_NOUN_ENDINGS = ("ing", "ly", "ed", "able", "ible", "ful", "less", "ous", "ish")


def _default_nouns(title: str) -> tuple[str, ...]:
    """As the rule, with longer lists; participles, more adjectives and units behind a number are left out as well.

    The first word, most often a brand, is judged by the lists alone.
    """
    nouns: list[str] = []
    number = False  # whether the token before is one
    for place, token in enumerate(map(str.lower, tokenize(title))):
        behind_number, number = number, any(map(str.isdigit, token))
        if number or not any(map(str.isalnum, token)) or (behind_number and len(token) <= _UNIT):
            continue
        listed = token in _MORE_CLOSED or token in _MORE_ADJECTIVES
        if token in _STILL_NOUNS or not (listed or (place and token.endswith(_NOT_NOUN_ENDINGS))):
            nouns.append(token)
    return tuple(nouns)


def check_tagger(name: str) -> None:
    """Raise ConfigError unless this is the name of a tagger, or has the form of a function's."""
    if not isinstance(name, str):
        raise ConfigError(f"tagger must be a name or 'module:function', got {name!r}")
    if name not in TAGGERS and ":" not in name:
        raise ConfigError(f"there is no tagger {name!r}.{did_you_mean(name, TAGGERS)}")


@functools.lru_cache(maxsize=8)
def open_tagger(name: str) -> Tagger:
    """The tagger of a name.

    Raises:
        ConfigError: There is none, or it is no function.
        MissingExtraError: "spacy" needs spaCy.
    """
    check_tagger(name)
    if name == "default":
        return functools.lru_cache(maxsize=_REMEMBERED)(_default_nouns)
    if name == "rule":
        return functools.lru_cache(maxsize=_REMEMBERED)(rule_nouns)
    if name == "spacy":
        return _spacy_nouns()
    module, _, function = name.partition(":")
    try:
        found = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as e:
        raise ConfigError(f"the tagger {name!r} cannot be imported: {e}") from e
    if not callable(found):
        raise ConfigError(f"the tagger {name!r} is no function but {type(found).__name__}")
    return _checked(name, found)


def _checked(name: str, function: Callable[[str], Any]) -> Tagger:
    @functools.lru_cache(maxsize=_REMEMBERED)
    def nouns(title: str) -> tuple[str, ...]:
        try:
            given = function(title)
            found = tuple(given)
        except TypeError as e:
            raise ConfigError(f"the tagger {name!r} has to take a title and return a list of its nouns: {e}") from e
        if isinstance(given, str) or not all(isinstance(noun, str) for noun in found):
            raise ConfigError(f"the tagger {name!r} has to return a list of nouns, got {given!r:.80}")
        return found

    return nouns


def _spacy_nouns() -> Tagger:
    try:
        import spacy
    except ImportError as e:
        raise MissingExtraError("spacy", extra="webshop") from e
    try:
        model = spacy.load(_MODEL, disable=["parser", "ner", "lemmatizer"])
    except OSError as e:
        raise ConfigError(f"spaCy has no model {_MODEL!r}; fetch it with: python -m spacy download {_MODEL}") from e

    @functools.lru_cache(maxsize=_REMEMBERED)
    def nouns(title: str) -> tuple[str, ...]:
        return tuple(token.text.lower() for token in model(title) if token.pos_ in ("NOUN", "PROPN"))

    return nouns
