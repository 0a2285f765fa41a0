"""Finds the nouns of a product's title, the part of WebShop's reward that the original leaves to a spaCy model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from agent_envs.checks import choice, load_function, shown, string
from agent_envs.envs.webshop.english_tokens import tokenize
from agent_envs.envs.webshop.words import words
from agent_envs.errors import ConfigError, needs_extra

Tagger = Callable[[str], Sequence[str]]
"""Title -> its nouns in order, in lower case, repeated as often as they occur."""

TAGGERS = ("default", "rule", "spacy")
_MODEL = "en_core_web_sm"
_UNIT = 2  # letters of a unit: "4 K", "10 oz"
_NOT_NOUN_ENDINGS = ("ing", "ly", "ed", "able", "ible", "ful", "less", "ous", "ish")


def rule_nouns(title: str) -> tuple[str, ...]:
    """Return the nouns by the fixed rule of the parity traces: tokens without digits, not listed, not in -ing or -ly.

    >>> rule_nouns("Tindel Durable Floor Lamp, Assembly Required & Gift (2 Pcs)")
    ('tindel', 'floor', 'lamp', 'required', 'gift', 'pcs')
    """
    tokens = [token for token in map(str.lower, tokenize(title)) if any(map(str.isalnum, token))]
    listed = _word_lists()[0]
    return tuple(t for t in tokens if not (any(map(str.isdigit, t)) or t in listed or t.endswith(("ing", "ly"))))


@functools.cache
def _word_lists() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the words that are never nouns by the rule, those that never are by default, and those that always are."""
    listed = frozenset(words("closed_words") + words("adjectives"))
    more = listed.union(words("more_closed_words"), words("more_adjectives"))
    return listed, more, frozenset(words("nouns_with_other_endings"))


def _default_nouns(title: str) -> tuple[str, ...]:
    """Return nouns as the rule does, with longer lists, and without participles and units behind a number.

    Only the lists decide about the first word, which is most often a brand.
    """
    _, listed, always = _word_lists()
    nouns: list[str] = []
    number = False  # whether the previous token is a number
    for position, token in enumerate(map(str.lower, tokenize(title))):
        behind_number, number = number, any(map(str.isdigit, token))
        if number or not any(map(str.isalnum, token)) or (behind_number and len(token) <= _UNIT):
            continue
        if token in always or not (token in listed or (position and token.endswith(_NOT_NOUN_ENDINGS))):
            nouns.append(token)
    return tuple(nouns)


def check_tagger(name: str) -> None:
    """Raise ConfigError unless `name` is the name of a tagger or has the form "module:function"."""
    if ":" not in string("tagger", name):
        choice("tagger", name, TAGGERS)


@functools.lru_cache(maxsize=8)
def open_tagger(name: str) -> Tagger:
    """Return the tagger with this name. Raises ConfigError if there is none, MissingExtraError if it needs spaCy."""
    check_tagger(name)
    if name == "default":
        nouns: Tagger = _default_nouns
    elif name == "rule":
        nouns = rule_nouns
    else:
        nouns = _spacy_nouns() if name == "spacy" else _checked(name, load_function(name, "tagger"))
    return functools.lru_cache(maxsize=1 << 14)(nouns)


def _checked(name: str, function: Callable[[str], Any]) -> Tagger:
    def nouns(title: str) -> tuple[str, ...]:
        try:
            result = function(title)
            nouns = tuple(result)
        except TypeError as e:
            raise ConfigError(f"the tagger {name!r} must take a title and return a list of nouns: {e}") from e
        if isinstance(result, str) or not all(isinstance(noun, str) for noun in nouns):
            raise ConfigError(f"the tagger {name!r} must return a list of nouns, got {shown(result)}")
        return nouns

    return nouns


def _spacy_nouns() -> Tagger:
    with needs_extra("suites"):
        import spacy
    try:
        model = spacy.load(_MODEL, disable=["parser", "ner", "lemmatizer"])
    except OSError as e:
        raise ConfigError(
            f"spaCy's model {_MODEL!r} is not installed; install it with: python -m spacy download {_MODEL}"
        ) from e

    return lambda title: tuple(token.text.lower() for token in model(title) if token.pos_ in ("NOUN", "PROPN"))
