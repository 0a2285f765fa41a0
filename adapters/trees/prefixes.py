"""Sorts rows of tokens by what they share, packs them into prefix trees, and cuts them into micro-batches or ranks.

In lexicographic order the rows of every subtree are neighbours, and the tokens that a row shares with any earlier one
are those that it shares with the one before it. So a forest is an order and one number per row. Packed depth first, row
after row, every node's descendants follow it: node k is an ancestor of node q, or q itself, if and only if
``k <= q < end[k]``.

A part of a cut holds neighbours, so what it repeats is what its first row shares with the row before it. Among such
cuts ``cut`` finds the best one, by dynamic programming, and ``spread`` the one with the smallest largest part, by
bisection. The order of siblings is arbitrary; another one may fit a budget better, by few tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from agent_envs.checks import integer


@dataclass(frozen=True)
class SortedRows:
    """Rows in lexicographic order of their tokens; the order of the tokens themselves is an arbitrary one."""

    rows: np.ndarray
    """Numbers of the rows, int64, shape [rows]."""
    lengths: np.ndarray
    """Tokens of each, int64, shape [rows]."""
    shared: np.ndarray
    """Tokens that each shares with the one before it, 0 for the first, int64, shape [rows]."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nodes(self) -> int:
        """Tokens that are left if each shared one is held once."""
        return int((self.lengths - self.shared).sum())

    def only(self, wanted: Sequence[int] | np.ndarray) -> SortedRows:
        """Return some of the rows, given by their numbers, as if they had been sorted alone.

        >>> rows = sort_rows(np.array([5, 6, 7, 5, 6, 8, 5, 9]), np.array([0, 3, 6, 8]))
        >>> rows.only([0, 2]).shared.tolist()
        [0, 1]
        """
        places = np.flatnonzero(np.isin(self.rows, np.asarray(wanted, dtype=np.int64)))
        shared = np.zeros(len(places), dtype=np.int64)
        if len(places) > 1:  # two rows share what all rows between them share
            shared[1:] = np.minimum.reduceat(self.shared[: places[-1] + 1], places[:-1] + 1)
        return SortedRows(self.rows[places], self.lengths[places], shared)

    def part(self, begin: int, end: int) -> SortedRows:
        """Return the rows from one place in the order to another."""
        shared = self.shared[begin:end].copy()
        shared[:1] = 0
        return SortedRows(self.rows[begin:end], self.lengths[begin:end], shared)


def sort_rows(ids: np.ndarray, offsets: np.ndarray) -> SortedRows:
    """Sort rows of tokens by what they share.

    Args:
        ids: Tokens of all rows, int64, shape [tokens].
        offsets: Where each row begins and ends among them, int64, shape [rows + 1].

    >>> rows = sort_rows(np.array([5, 6, 7, 9, 5, 6, 8]), np.array([0, 3, 4, 7]))
    >>> rows.rows.tolist(), rows.shared.tolist(), rows.nodes
    ([0, 2, 1], [0, 2, 0], 5)
    """
    ids = np.ascontiguousarray(ids, dtype="<i8")
    packed = [ids[a:b].tobytes() for a, b in pairwise(offsets.tolist())]  # compares like one word of memory
    rows = np.array(sorted(range(len(packed)), key=packed.__getitem__), dtype=np.int64)
    starts, lengths = offsets[rows], np.diff(offsets)[rows].astype(np.int64)
    shared = np.zeros(len(rows), dtype=np.int64)
    filled = int(np.count_nonzero(lengths == 0))  # empty rows come first
    begins = ids[starts[filled:]]
    for place in (filled + 1 + np.flatnonzero(begins[1:] == begins[:-1])).tolist():
        a, b, most = starts[place - 1], starts[place], int(lengths[place - 1 : place + 1].min())
        differ = ids[a : a + most] != ids[b : b + most]
        first = int(differ.argmax())
        shared[place] = first if differ[first] else most
    return SortedRows(rows, lengths, shared)


@dataclass(frozen=True)
class PackedTree:
    """One or several trees, depth first in one sequence of nodes; a node is a token with everything before it."""

    input_ids: np.ndarray
    """Token of each node, int64, shape [nodes]."""
    position_ids: np.ndarray
    """Depth of each node, which is the token's position in every row that it is part of, int64, shape [nodes]."""
    end: np.ndarray
    """Where the descendants of each node end in the sequence, int64, shape [nodes]."""
    rows: SortedRows
    """The rows that are its paths."""
    path: np.ndarray
    """Node of each token of the rows, row after row in sorted order, int64, shape [tokens]."""

    def __len__(self) -> int:
        return len(self.input_ids)


def pack_tree(ids: np.ndarray, offsets: np.ndarray, rows: SortedRows) -> PackedTree:
    """Pack sorted rows into trees.

    ``ids`` and ``offsets`` are those that ``rows`` were sorted from.
    """
    shared, own = rows.shared, rows.lengths - rows.shared
    stops, starts = np.cumsum(own), np.cumsum(rows.lengths) - rows.lengths  # among nodes, and in the path
    nodes = np.arange(rows.nodes)
    position_ids = nodes - np.repeat(stops - own - shared, own)
    input_ids = ids[np.repeat(offsets[rows.rows], own) + position_ids]
    path = np.empty(int(rows.lengths.sum()), dtype=np.int64)
    path[np.repeat(starts, own) + position_ids] = nodes
    end = np.repeat(stops, own)  # right for nodes that the next row does not share
    for place in np.flatnonzero(shared).tolist():
        at, before, count = starts[place], starts[place - 1], shared[place]
        path[at : at + count] = path[before : before + count]
    for place in np.flatnonzero(shared > np.append(shared[1:], 0)).tolist():  # the last row to share some of its nodes
        at, kept = starts[place], shared[place + 1] if place + 1 < len(rows) else 0
        end[path[at + kept : at + shared[place]]] = stops[place]
    return PackedTree(input_ids, position_ids, end, rows, path)


def cut(rows: SortedRows, budget: int) -> list[SortedRows]:
    """Cut rows into parts of at most ``budget`` nodes; a longer row is alone.

    The parts, of neighbours, repeat as few tokens as possible, and among those there are as few of them as possible.
    """
    integer("the budget of a tree", budget, minimum=1)
    own = (rows.lengths - rows.shared).tolist()
    lengths, shared = rows.lengths.tolist(), rows.shared.tolist()
    best = [(0, 0, 0)]  # of the first i rows: repeated tokens, parts, and minus the row that the last part begins with
    for end in range(1, len(rows) + 1):
        ways, inner = list[tuple[int, int, int]](), 0  # inner: nodes that the rows after a part's first one add
        for begin in range(end - 1, -1, -1):
            if begin < end - 1 and lengths[begin] + inner > budget:
                break  # and so is every longer part
            ways.append((best[begin][0] + shared[begin], best[begin][1] + 1, -begin))
            inner += own[begin]
        best.append(min(ways))  # a row alone is always allowed
    parts, end = [], len(rows)
    while end:
        begin = -best[end][2]
        parts.append(rows.part(begin, end))
        end = begin
    return parts[::-1]


def spread(rows: SortedRows, parts: int) -> list[SortedRows]:
    """Cut rows into at most ``parts`` parts of neighbours whose largest one is as small as possible.

    >>> import numpy as np
    >>> from agent_envs.adapters.trees import sort_rows
    >>> rows = sort_rows(np.array([5, 6, 5, 7, 8, 9, 8, 4]), np.array([0, 2, 4, 6, 8]))
    >>> [sorted(part.rows.tolist()) for part in spread(rows, 2)]
    [[0, 1], [2, 3]]
    """
    integer("the number of parts", parts, minimum=1)
    low, high = int(rows.lengths.max(initial=1)), max(rows.nodes, 1)
    least = low + bisect_left(range(low, high), True, key=lambda budget: len(_fill(rows, budget)) <= parts)
    return _fill(rows, least)


def _fill(rows: SortedRows, budget: int) -> list[SortedRows]:
    """Parts of at most ``budget`` nodes, each filled before the next one begins."""
    bounds, nodes = [0], 0
    for place, (length, shared) in enumerate(zip(rows.lengths.tolist(), rows.shared.tolist(), strict=True)):
        if place > bounds[-1] and nodes + length - shared > budget:
            bounds.append(place)
            nodes = length
        else:
            nodes += length if place == bounds[-1] else length - shared
    bounds.append(len(rows))
    return [rows.part(a, b) for a, b in pairwise(bounds) if b > a]
