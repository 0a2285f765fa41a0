"""Prefix trees against a slow, obvious definition: every row's tokens expanded one by one.

1. every node is a token with everything before it, held once; positions, parents and mask are the expansion's
2. a part of the rows is as if it had been sorted alone
3. cuts keep to the budget and repeat as little as neighbours can; ranks are as even as neighbours can be
4. what is refused

That every step lies on the path of its row follows: test_merging.py has each step in a row with its prompt before it.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_envs.adapters.trees import cut, pack_tree, sort_rows, spread
from agent_envs.errors import ConfigError

ROWS = st.lists(st.lists(st.integers(0, 1), max_size=6), min_size=1, max_size=9)
"""Few different tokens, so that rows are equal, begin each other and part at any depth."""


def flat(rows):
    return np.array([x for row in rows for x in row], dtype=np.int64), np.cumsum([0, *map(len, rows)])


def sort(rows):
    return sort_rows(*flat(rows))


def prefixes(rows):
    return {tuple(row[: i + 1]) for row in rows for i in range(len(row))}


@settings(max_examples=300, deadline=None)
@given(ROWS)
@example([[]])
@example([[1], [1], [1]])
def test_a_tree_is_its_paths_expanded_one_by_one(rows):
    order = sort(rows)
    tree = pack_tree(*flat(rows), order)
    assert sorted(order.rows.tolist()) == list(range(len(rows)))
    assert len(tree) == order.nodes == len(prefixes(rows))
    start, known = 0, {}  # node -> the tokens it stands for
    for row, length in zip(order.rows, order.lengths, strict=True):
        for depth, node in enumerate(tree.path[start : start + length].tolist()):
            prefix = tuple(rows[row][: depth + 1])
            assert known.setdefault(node, prefix) == prefix
            assert (tree.input_ids[node], tree.position_ids[node]) == (prefix[-1], depth)
        start += length
    assert sorted(known.values()) == sorted(prefixes(rows))  # each of them once
    nodes = np.arange(len(tree))
    mask = (nodes <= nodes[:, None]) & (nodes[:, None] < tree.end)
    for q, own in known.items():
        for k, other in known.items():
            assert mask[q, k] == (own[: len(other)] == other)


@settings(max_examples=200, deadline=None)
@given(ROWS, st.data())
def test_some_of_the_rows_are_as_if_sorted_alone(rows, data):
    wanted = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    some, alone = sort(rows).only(wanted), sort([rows[i] for i in wanted])
    assert some.shared.tolist() == alone.shared.tolist()
    assert some.lengths.tolist() == alone.lengths.tolist()
    assert [rows[i] for i in some.rows] == [rows[wanted[i]] for i in alone.rows]
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
    part = sort(rows).part(begin, end)
    assert part.nodes == len(prefixes([rows[i] for i in part.rows]))


# ---------------------------------------------------------------------------------------------------- cuts


def neighbours(items):
    """Every cut of a list into neighbours."""
    if not items:
        yield []
    for end in range(1, len(items) + 1):
        for rest in neighbours(items[end:]):
            yield [items[:end], *rest]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), min_size=1, max_size=6), st.integers(1, 14))
def test_a_cut_repeats_as_little_as_any_of_neighbours(rows, budget):
    order = sort(rows)
    parts = cut(order, budget)
    assert sorted(x for part in parts for x in part.rows.tolist()) == list(range(len(rows)))
    for part in parts:
        assert part.nodes <= budget or len(part) == 1
        assert part.nodes == len(prefixes([rows[i] for i in part.rows]))

    def allowed(part):
        return len(part) == 1 or len(prefixes([rows[i] for i in part])) <= budget

    best = min(
        sum(len(prefixes([rows[i] for i in part])) for part in parts)
        for parts in neighbours(order.rows.tolist())
        if all(map(allowed, parts))
    )
    assert sum(part.nodes for part in parts) == best


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 5))
def test_ranks_are_as_even_as_neighbours_can_be(rows, ranks):
    order = sort(rows)
    parts = spread(order, ranks)
    assert len(parts) <= ranks
    assert np.concatenate([part.rows for part in parts]).tolist() == order.rows.tolist()
    best = order.nodes
    for bounds in np.ndindex(*[len(rows) + 1] * (ranks - 1)):
        if list(bounds) == sorted(bounds):
            edges = [0, *bounds, len(rows)]
            best = min(best, max(order.part(a, b).nodes for a, b in pairwise(edges)))
    assert max(part.nodes for part in parts) == best


def test_what_a_cut_refuses():
    with pytest.raises(ConfigError, match="budget of a tree"):
        cut(sort([[1]]), 0)
    with pytest.raises(ConfigError, match="number of parts"):
        spread(sort([[1]]), 0)
