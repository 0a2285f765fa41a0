"""Cuts sorted rows into parts with as little repetition as possible: micro-batches of a budget, or ranks.

A part holds neighbours in the sorted order, so what it repeats is what its first row shares with the row before it.
Among such cuts ``cut`` finds the best one, by dynamic programming, and ``spread`` the one with the smallest largest
part, by bisection. The order of siblings is arbitrary; another one may fit a budget better, by few tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from agent_envs.adapters.trees.prefixes import SortedRows
from agent_envs.checks import integer


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
