"""The tokens of ASCII texts as one compiled loop, which gives each different token a number; imported only if numba is.

It finds what `agent_envs.retrieval.analysis.analyzer.tokenize` finds in ASCII: runs of letters, digits and underscores,
which go on after one of `.:'` between two letters and one of `.,;'` between two digits. Tokens are numbered in the
order of their first occurrence, by a hash table with open addressing that compares bytes where hashes (FNV-1a) are
equal.
"""

from __future__ import annotations

import string

import numpy as np

from agent_envs.retrieval.analysis.analyzer import MAX_TOKEN_LENGTH
from agent_envs.retrieval.bm25.numba_search import compiled

__all__ = ["TokenTable"]

_FIRST_SLOTS = 1 << 16
_OTHER, _LETTER, _DIGIT, _UNDERSCORE = range(4)
_LETTER_MARK, _DIGIT_MARK = 1, 2


def _table(values: dict[str, int]) -> np.ndarray:
    """Return a number for each byte, from the numbers of characters; 0 for others."""
    table = np.zeros(256, np.uint8)
    for characters, value in values.items():
        table[list(characters.encode())] |= value
    return table


_KINDS = _table({string.ascii_letters: _LETTER, string.digits: _DIGIT, "_": _UNDERSCORE})
_MARKS = _table({".:'": _LETTER_MARK, ".,;'": _DIGIT_MARK})  # what a byte may stand between


@compiled
def _number_tokens(data, ends, first, slots, starts, lengths, hashes, known, arena, out, counts):  # type: ignore[no-untyped-def]
    """Number the tokens of documents from `first` on, until the table would be too full for another one.

    Returns the next document, the number of known tokens, and the end of `out`.
    """
    mask = np.uint64(len(slots) - 1)
    arena_end = starts[known - 1] + lengths[known - 1] if known else 0
    written = 0
    for document in range(first, len(ends)):
        begin = ends[document - 1] if document else 0
        end = ends[document]
        room = (end - begin) // 2 + 1  # tokens that it may have
        if 2 * (known + room) > len(slots) or arena_end + end - begin > len(arena):
            return document, known, written
        at, before = begin, written
        while at < end:
            if _KINDS[data[at]] == _OTHER:
                at += 1
                continue
            start = at
            value = np.uint64(14695981039346656037)
            while True:
                while at < end and _KINDS[data[at]] != _OTHER:
                    value = (value ^ np.uint64(data[at])) * np.uint64(1099511628211)
                    at += 1
                if at + 1 >= end:
                    break
                left, mark, right = _KINDS[data[at - 1]], _MARKS[data[at]], _KINDS[data[at + 1]]
                letters = mark & _LETTER_MARK and left == _LETTER and right == _LETTER
                digits = mark & _DIGIT_MARK and left == _DIGIT and right == _DIGIT
                if not (letters or digits):
                    break
                value = (value ^ np.uint64(data[at])) * np.uint64(1099511628211)
                at += 1
            size = at - start
            if size > MAX_TOKEN_LENGTH:  # it has to be cut
                written = before - 1
                break
            value ^= value >> np.uint64(29)
            slot = value & mask
            while True:
                number = slots[slot]
                if number < 0:
                    number = known
                    slots[slot] = known
                    hashes[known], starts[known], lengths[known] = value, arena_end, size
                    arena[arena_end : arena_end + size] = data[start:at]
                    arena_end += size
                    known += 1
                    break
                if hashes[number] == value and lengths[number] == size:
                    same, there = True, starts[number]
                    for i in range(size):
                        if arena[there + i] != data[start + i]:
                            same = False
                            break
                    if same:
                        break
                slot = (slot + np.uint64(1)) & mask
            out[written] = number
            written += 1
        counts[document] = written - before
        written = max(written, before)
    return len(ends), known, written


@compiled
def _fill_slots(slots, hashes, known):  # type: ignore[no-untyped-def]
    """Put all tokens into an empty table."""
    mask = np.uint64(len(slots) - 1)
    for number in range(known):
        slot = hashes[number] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = number


class TokenTable:
    """Numbers of tokens.

    >>> table = TokenTable()
    >>> table.number([b"red apples", b"3.14 red"])
    (array([0, 1, 2, 0], dtype=int32), array([2, 2], dtype=int32))
    >>> table.tokens(1)
    ['apples', '3.14']
    """

    def __init__(self) -> None:
        self._known = 0
        self._slots = np.full(_FIRST_SLOTS, -1, np.int32)
        self._starts, self._lengths = np.zeros(_FIRST_SLOTS // 2, np.int64), np.zeros(_FIRST_SLOTS // 2, np.int32)
        self._hashes, self._arena = np.zeros(_FIRST_SLOTS // 2, np.uint64), np.zeros(16 * _FIRST_SLOTS, np.uint8)

    def __len__(self) -> int:
        return self._known

    def number(self, texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the tokens of ASCII texts, and how many each text has.

        A text with a token that is too long has -1 and no numbers.

        Returns:
            Numbers, int32 [tokens], and counts, int32 [texts].
        """
        data = np.frombuffer(b"".join(texts), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        counts = np.zeros(len(texts), np.int32)
        parts, first = [np.empty(0, np.int32)], 0
        while first < len(texts):
            out = np.empty((int(ends[-1]) - int(ends[first - 1] if first else 0)) // 2 + len(texts) + 1, np.int32)
            first, self._known, written = _number_tokens(
                data, ends, first, self._slots, self._starts, self._lengths, self._hashes, self._known, self._arena,
                out, counts,
            )  # fmt: skip
            parts.append(out[:written])
            if first < len(texts):
                self._grow(int(ends[first]) - int(ends[first - 1] if first else 0))
        return np.concatenate(parts), counts

    def tokens(self, first: int) -> list[str]:
        """Return the tokens from a number on."""
        if first >= self._known:
            return []
        starts, lengths = self._starts[first : self._known], self._lengths[first : self._known]
        text = self._arena[starts[0] : starts[-1] + lengths[-1]].tobytes().decode("ascii")
        begins = (starts - starts[0]).tolist()
        return [text[begin : begin + size] for begin, size in zip(begins, lengths.tolist(), strict=True)]

    def _grow(self, size: int) -> None:
        """Make room for a text of so many bytes, and twice what there is."""
        slots = len(self._slots)
        while slots < 2 * len(self._slots) or slots < 2 * (self._known + size // 2 + 1):
            slots *= 2
        self._slots = np.full(slots, -1, np.int32)
        self._starts, self._lengths, self._hashes = (
            np.concatenate([old, np.zeros(slots // 2 - len(old), old.dtype)])
            for old in (self._starts, self._lengths, self._hashes)
        )
        more = max(len(self._arena), size)
        self._arena = np.concatenate([self._arena, np.zeros(more, np.uint8)])
        _fill_slots(self._slots, self._hashes, self._known)
