"""The word lists behind WebShop's tokens, nouns and colours: words.json, read when one of them is first needed."""

from __future__ import annotations

import functools
from typing import Any

from agent_envs.files import table

__all__ = ["token_pieces", "words"]


@functools.cache
def words(name: str) -> tuple[str, ...]:
    """Return a list of words, in order.

    >>> words("colors")[:3]
    ('alabaster', 'apricot', 'aqua')
    """
    return tuple(" ".join(_document()[name]).split())


@functools.cache
def token_pieces() -> dict[str, tuple[str, ...]]:
    """Return the texts that are tokens or are split in a special way, each with its tokens: contractions, emoticons ...

    >>> token_pieces()["don't"], token_pieces()["e.g."]
    (('do', "n't"), ('e.g.',))
    """
    table: dict[str, tuple[str, ...]] = {}

    def add(*pieces: str) -> None:
        for split in (pieces, (pieces[0][:1].upper() + pieces[0][1:], *pieces[1:])):
            table["".join(split)] = split

    for endings, stems in _document()["token_splits"]:
        for stem in stems.split():
            add(stem, *endings.split())
            add(stem, *endings.replace("'", "’").split())
    for endings, stems in _document()["token_splits_without_apostrophe"].items():
        for stem in stems.split():
            add(stem, *endings.split())
    for mark in "'’":
        add("c" + mark + "m", "on")
        table[f"y{mark}all"] = ("y" + mark, "all")
    table["yall"] = ("y", "all")
    for whole in words("whole_tokens"):
        table[whole] = (whole,)
        table[whole.replace("'", "’")] = (whole.replace("'", "’"),)
    for letter in "abcdefghijklmnopqrstuvwxyzäöü":
        table[letter + "."] = (letter + ".",)
    for hour in range(1, 13):
        for half in ("am", "pm", "a.m.", "p.m."):
            table[f"{hour}{half}"] = (str(hour), half)
    for scale in "CFKcfk":
        table[f"°{scale}."] = ("°", scale, ".")
    return table


def _document() -> dict[str, Any]:
    document: dict[str, Any] = table(__package__, "words.json")
    return document
