"""The words and sentences of the generated papers, read from `words.json`.

Slots: {A} the topic as the paper calls it ({B} its other name), {N} a neighbouring topic, {X} the paper's own method,
{Y} the method it builds on, {S} the setting it works in, {M} the kind of method, {Z} something unrelated to the topic;
in queries, {a} and {b} are topics, {s} a setting and {x} a method. Invented words are lower case, except for methods.
"""

from __future__ import annotations

from agent_envs.files import table

Texts = tuple[str, ...]

_WORDS = table(__package__, "words.json")

NOUNS: Texts = _WORDS["nouns"]
"""In the names of neighbouring topics."""
OTHER_NOUNS: Texts = _WORDS["other_nouns"]
"""In the other names that some papers use."""
SETTINGS: Texts = _WORDS["settings"]
"""What a paper works in; the same all over the corpus."""
METHODS: Texts = _WORDS["methods"]
PLAIN_TITLES: Texts = _WORDS["plain_titles"]
HIDDEN_TITLES: Texts = _WORDS["hidden_titles"]
SURVEY_TITLES: Texts = _WORDS["survey_titles"]
OPENINGS: Texts = _WORDS["openings"]
VAGUE_OPENINGS: Texts = _WORDS["vague_openings"]
WORK: Texts = _WORDS["work"]
BUILDS: Texts = _WORDS["builds"]
ALIASES: Texts = _WORDS["aliases"]
LOOKALIKES: Texts = _WORDS["lookalikes"]
FINDINGS: Texts = _WORDS["findings"]
THEMES: Texts = _WORDS["themes"]
SURVEYS: Texts = _WORDS["surveys"]
SURVEY_ENDINGS: Texts = _WORDS["survey_endings"]
QUERIES: dict[str, Texts] = _WORDS["queries"]
"""Queries by kind: all papers on a topic, those of one setting, a paper and what cites it, two neighbouring topics."""
