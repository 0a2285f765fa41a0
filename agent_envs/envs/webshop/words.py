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
    splits = [tuple(text.split("¦")) for text in words("tokens")]
    return {"".join(pieces): pieces for pieces in splits}
