"""English tokens as spaCy's blank English tokenizer makes them, without spaCy.

The text is split at spaces. From both ends of each part, marks, quotes, currency signs and units behind a digit are cut
off one by one. The rest is a word with a known split ("don't"), an address, or is cut at marks between its letters. The
rules are those of spaCy 3.8 (MIT licence) for Latin script, without the units and letters of other scripts.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping

from agent_envs.envs.webshop.words import token_pieces


def _spans(codes: Iterable[int]) -> str:
    """Return a character class of code points, which must be sorted."""
    spans: list[list[int]] = []
    for code in codes:
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in spans)


def _letters(category: str) -> str:
    """Return the letters of one case; letters without case count for both."""
    cased = (c for c in range(0x530) if unicodedata.category(chr(c)) == category and c != 0xB5)  # not the unit
    return _spans(cased) + _spans(c for c in range(0x530, 0x1E00) if chr(c).isalpha()) + _spans(
        c for c in range(0x1E00, 0x2000) if unicodedata.category(chr(c)) == category
    ) + _CJK  # fmt: skip


# Han, kana and hangul with the brackets among them, which count as letters.
_CJK = "\u2e80-\u2fdf\u2ff0-\u318f\u31c0-\u31ef\u3200-\u9fff\uac00-\ud7a3"
_LATER = ((0x1F6D5, 0x1F6DF), (0x1F6FA, 0x1F6FC), (0x1F7E0, 0x1F7F0), (0x1F90C, 0x1F90F), (0x1F9A3, 0x1F9AF),
          (0x1F9BA, 0x1F9BF), (0x1F9C3, 0x1F9CF), (0x1FA00, 0x1FA5F))  # fmt: skip
_LOWER, _UPPER = _letters("Ll"), _letters("Lu")
_ALPHA = _LOWER + _UPPER
_PUNCT = "…,:;!?¿؟¡()\\[\\]{}<>_#*&。？！，、；：～·।،۔؛٪"
_QUOTES = "'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉⟦⟧"
_CURRENCY = "(?:US\\$|C\\$|A\\$|[$£€¥฿₽﷼₴₠-₿])"
_SYMBOLS = "[" + _spans(
    code
    for first, last in ((0xA6, 0x3400), (0xA490, 0xA4C7), (0x1D000, 0x1D357), (0x1F000, 0x1FA6E))
    for code in range(first, last)
    if unicodedata.category(chr(code)) == "So" and not any(a <= code <= b for a, b in _LATER)
) + "\ufffc\ufffd]"  # fmt: skip
_UNITS = (
    "km|km²|km³|m|m²|m³|dm|dm²|dm³|cm|cm²|cm³|mm|mm²|mm³|ha|µm|nm|yd|in|ft|kg|g|mg|µg|t|lb|oz|m/s|km/h|kmh|mph|hPa|Pa"
    "|mbar|mb|MB|kb|KB|gb|GB|tb|TB|T|G|M|K|%"
)
_PREFIX = re.compile(rf"[§%=—–{_PUNCT}{_QUOTES}]|\+(?![0-9])|\.\.+|{_CURRENCY}|{_SYMBOLS}")
_SUFFIX = re.compile(
    rf"(?:[—–{_PUNCT}{_QUOTES}]|\.\.+|{_SYMBOLS}|['’][sS]|(?<=[0-9])\+|(?<=°[FfCcKk])\.|(?<=[0-9])(?:{_CURRENCY}|{_UNITS})"
    rf"|(?<=[0-9{_LOWER}%²\-+|{_PUNCT}{_QUOTES}])\.|(?<=[{_UPPER}][{_UPPER}])\.)$"
)
_INFIX = re.compile(
    rf"\.\.+|…|{_SYMBOLS}|(?<=[0-9])[+\-*^](?=[0-9\-])|(?<=[{_LOWER}{_QUOTES}])\.(?=[{_UPPER}{_QUOTES}])"
    rf"|(?<=[{_ALPHA}]),(?=[{_ALPHA}])|(?<=[{_ALPHA}0-9])(?:-|–|—|--|---|——|~)(?=[{_ALPHA}])"
    rf"|(?<=[{_ALPHA}0-9])[:<>=/](?=[{_ALPHA}])"
)
_LONGEST = 12  # tokens of a known text
_HOST = "A-Za-z0-9\u00a1-\uffff"
_ADDRESS = re.compile(
    r"(?:[\w+\-.]{2,}://)?(?:\S+@)?"
    rf"(?:[1-9]\d{{0,2}}(?:\.\d{{1,3}}){{3}}|(?:(?:[{_HOST}][{_HOST}_\-]{{0,62}})?[{_HOST}]\.)+[{_LOWER}]{{2,63}})"
    r"(?::\d{2,5})?(?:[/?#]\S*)?"
)


def tokenize(text: str) -> list[str]:
    """Return the tokens of a text in order.

    >>> tokenize("Women's T-Shirt, 2-Pack (10oz) don't")
    ['Women', "'s", 'T', '-', 'Shirt', ',', '2', '-', 'Pack', '(', '10', 'oz', ')', 'do', "n't"]
    """
    known = token_pieces()
    tokens: list[str] = []
    for word in text.split():
        parts = [word] if word.isalpha() and word not in known else _affixes(word, known)
        tokens += _joined(parts) if len(parts) > 1 else parts
    return tokens


def _affixes(word: str, known: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Cut off marks at both ends one by one, then split the rest."""
    before: list[str] = []
    behind: list[str] = []
    size = -1
    while word and len(word) != size and word not in known:
        size = len(word)
        prefix = _PREFIX.match(word)
        rest = word[prefix.end() :] if prefix else word
        if prefix and rest in known:
            before.append(prefix.group())
            word = rest
            break
        end = _SUFFIX.search(rest)
        if end and word[: len(word) - len(end.group())] in known:
            behind.append(end.group())
            word = word[: len(word) - len(end.group())]
            break
        if prefix:
            before.append(prefix.group())
        if end:
            behind.append(end.group())
        word = rest[: end.start()] if end else rest
    return [*before, *_pieces(word, known), *reversed(behind)]


def _pieces(word: str, known: Mapping[str, tuple[str, ...]]) -> list[str]:
    if not word:
        return []
    if word in known:
        return list(known[word])
    if _ADDRESS.fullmatch(word):
        return [word]
    pieces: list[str] = []
    start = 0
    for found in _INFIX.finditer(word):
        if not found.start():
            continue
        if found.start() != start:
            pieces.append(word[start : found.start()])
        pieces.append(found.group())
        start = found.end()
    return [*pieces, word[start:]] if word[start:] else pieces


@functools.cache
def _marked() -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the known texts with marks, such as emoticons, by the tokens into which the rules would split them."""
    return {
        tuple(_affixes(text, {})): pieces
        for text, pieces in token_pieces().items()
        if _PREFIX.match(text) or _SUFFIX.search(text) or _INFIX.search(text)
    }


def _joined(tokens: list[str]) -> list[str]:
    """Join consecutive tokens that form a known text with marks, the longest first."""
    marked = _marked()
    spans = [
        (end - start, start)
        for start in range(len(tokens))
        for end in range(start + 2, min(start + _LONGEST, len(tokens)) + 1)
        if tuple(tokens[start:end]) in marked
    ]
    for size, start in sorted(spans, key=lambda span: (-span[0], span[1])):
        if all(tokens[start : start + size]):
            tokens[start : start + size] = ["\0".join(marked[tuple(tokens[start : start + size])]), *[""] * (size - 1)]
    return [piece for token in tokens for piece in token.split("\0") if piece]
