"""The word lists behind WebShop's tokens, nouns and colours: words.json, read when one of them is first needed."""

from __future__ import annotations

import functools

from agent_envs.files import table


@functools.cache
def words(name: str) -> tuple[str, ...]:
    """Return a list of words, such as "colors", in order."""
    return tuple(" ".join(table(__package__, "words.json")[name]).split())


@functools.cache
def token_pieces() -> dict[str, tuple[str, ...]]:
    """Return the texts that are tokens or are split in a special way (contractions, emoticons), with their tokens."""
    document = table(__package__, "words.json")
    known: dict[str, tuple[str, ...]] = {}

    def add(*pieces: str) -> None:
        for split in (pieces, (pieces[0][:1].upper() + pieces[0][1:], *pieces[1:])):
            known["".join(split)] = split

    for endings, stems in document["token_splits"]:
        for stem in stems.split():
            add(stem, *endings.split())
            add(stem, *endings.replace("'", "’").split())
    for endings, stems in document["token_splits_without_apostrophe"].items():
        for stem in stems.split():
            add(stem, *endings.split())
    for mark in "'’":
        add("c" + mark + "m", "on")
        known[f"y{mark}all"] = ("y" + mark, "all")
    known["yall"] = ("y", "all")
    for whole in words("whole_tokens"):
        known[whole] = (whole,)
        known[whole.replace("'", "’")] = (whole.replace("'", "’"),)
    for letter in "abcdefghijklmnopqrstuvwxyzäöü":
        known[letter + "."] = (letter + ".",)
    for hour in range(1, 13):
        for half in ("am", "pm", "a.m.", "p.m."):
            known[f"{hour}{half}"] = (str(hour), half)
    for scale in "CFKcfk":
        known[f"°{scale}."] = ("°", scale, ".")
    return known
