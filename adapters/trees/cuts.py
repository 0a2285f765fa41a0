"""Cuts sorted rows into parts with as little repetition as possible: micro-batches of a budget, or ranks.

A part holds neighbours in the sorted order, so what it repeats is what its first row shares with the row before it.
Among such cuts ``cut`` finds the best one, by dynamic programming. The order of siblings is arbitrary, and another one
may fit a budget better: of a few rows every partition is tried. ``spread`` finds the smallest possible largest part by
bisection.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from agent_envs.adapters.trees.prefixes import SortedRows
from agent_envs.checks import integer

__all__ = ["cut", "repeated", "spread"]

_FEW = 8
"""Rows up to which every partition is tried."""


def repeated(rows: SortedRows, parts: Sequence[Sequence[int] | np.ndarray]) -> int:
    """Return how many tokens more than one tree of all rows the parts, lists of row numbers, hold together."""
    return sum(rows.only(part).nodes for part in parts) - rows.nodes


def cut(rows: SortedRows, budget: int) -> list[SortedRows]:
    """Cut rows into parts of at most ``budget`` nodes; a longer row is alone.

    The parts repeat as few tokens as possible, and among those there are as few of them as possible.

    Raises:
        ConfigError: The budget is below 1.
    """
    integer("the budget of a tree", budget, minimum=1)
    parts = _neighbours(rows, budget)
    numbers = [part.rows for part in parts]
    if 2 < len(rows) <= _FEW and repeated(rows, numbers):
        best = _any(rows, budget)
        if repeated(rows, best) < repeated(rows, numbers):
            return [rows.only(part) for part in best]
    return parts


def _neighbours(rows: SortedRows, budget: int) -> list[SortedRows]:
    """The best cut into neighbours. cost[i] is that of the first i rows: repeated tokens, then parts."""
    own = (rows.lengths - rows.shared).tolist()
    lengths, shared = rows.lengths.tolist(), rows.shared.tolist()
    cost, begins = [(0, 0)], [0]
    for end in range(1, len(rows) + 1):
        best, inner = None, 0  # inner: nodes that the rows after a part's first one add
        for begin in range(end - 1, -1, -1):
            if begin < end - 1 and lengths[begin] + inner > budget:
                break  # and so is every longer part
            candidate = (cost[begin][0] + shared[begin], cost[begin][1] + 1)
            if best is None or candidate < best[0]:
                best = candidate, begin
            inner += own[begin]
        assert best is not None  # a row alone is always allowed
        cost.append(best[0])
        begins.append(best[1])
    parts, end = [], len(rows)
    while end:
        parts.append(rows.part(begins[end], end))
        end = begins[end]
    return parts[::-1]


def _any(rows: SortedRows, budget: int) -> list[list[int]]:
    """The best of all partitions of a few rows: subsets of growing size, each with its best last part."""
    numbers = rows.rows.tolist()
    count = len(numbers)
    sets = [0] * (1 << count)  # nodes of each subset
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            sets[sum(1 << i for i in chosen)] = rows.only([numbers[i] for i in chosen]).nodes
    best: list[tuple[int, int, int]] = [(0, 0, 0)]  # of each subset: nodes, parts, its last part
    for subset in range(1, 1 << count):
        found, lowest = None, subset & -subset
        part = subset
        while part:
            if part & lowest and (sets[part] <= budget or part == lowest):
                nodes, parts, _ = best[subset ^ part]
                candidate = (nodes + sets[part], parts + 1, part)
                found = candidate if found is None else min(found, candidate)
            part = (part - 1) & subset
        assert found is not None
        best.append(found)
    out, subset = [], (1 << count) - 1
    while subset:
        part = best[subset][2]
        out.append([numbers[i] for i in range(count) if part >> i & 1])
        subset ^= part
    return out[::-1]


def spread(rows: SortedRows, parts: int) -> list[SortedRows]:
    """Cut rows into at most ``parts`` parts of neighbours whose largest one is as small as possible.

    >>> from agent_envs.adapters.trees import sort_rows
    >>> rows = sort_rows(np.array([5, 6, 5, 7, 8, 9, 8, 4]), np.array([0, 2, 4, 6, 8]))
    >>> [sorted(part.rows.tolist()) for part in spread(rows, 2)]
    [[0, 1], [2, 3]]
    """
    integer("the number of parts", parts, minimum=1)
    low, high = int(rows.lengths.max(initial=1)), max(rows.nodes, 1)
    while low < high:
        middle = (low + high) // 2
        if len(_fill(rows, middle)) <= parts:
            high = middle
        else:
            low = middle + 1
    return _fill(rows, high)


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
