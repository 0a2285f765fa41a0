"""Nouns of a product's title, lower case: the part of WebShop's reward that the original leaves to a spaCy model.

Taggers by name: "default" (below, no dependencies), "rule" (the fixed rule of the parity traces) and "spacy" (the
model en_core_web_sm, the original's); or "module:function", a function from a title to its nouns.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from agent_envs.errors import ConfigError, MissingExtraError, did_you_mean
from agent_envs.rewards.english_tokens import tokenize

__all__ = ["TAGGERS", "Tagger", "check_tagger", "open_tagger", "rule_nouns"]

Tagger = Callable[[str], Sequence[str]]
"""The nouns of a title in their order, lower case, repeated as often as they occur."""

TAGGERS = ("default", "rule", "spacy")
_MODEL = "en_core_web_sm"
_REMEMBERED = 1 << 14

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


def _default_nouns(title: str) -> tuple[str, ...]:
    return rule_nouns(title)


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
        found = function(title)
        if isinstance(found, str) or not all(isinstance(noun, str) for noun in found):
            raise ConfigError(f"the tagger {name!r} has to return a list of nouns, got {found!r:.80}")
        return tuple(found)

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
