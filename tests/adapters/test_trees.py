"""Prefix trees against a slow, obvious definition: every row's tokens expanded one by one.

1. every node is a token with everything before it, held once; positions, parents and mask are the expansion's
2. trees of episodes: every step's tokens, masks and log-probabilities lie on its row's path, whatever the contexts do
3. a part of the rows is as if it had been sorted alone
4. cuts keep to the budget and repeat as little as neighbours can; ranks are as even as neighbours can be
5. what is refused
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toy_episodes import toy_episode

from agent_envs.adapters.batches import build_batch
from agent_envs.adapters.trees import cut, pack_tree, sort_rows, spread
from agent_envs.episodes.record import Step
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


# ---------------------------------------------------------------------------------------------------- episodes


def play(seed, episodes=4, longest=5):
    """Episodes of one task that part at different depths; some prompts are rebuilt, cut or repeated."""
    rng = np.random.default_rng(seed)

    def draw(low, high, most=3):
        return tuple(int(x) for x in rng.integers(0, most, int(rng.integers(low, high))))

    start, out = (7, *draw(2, 5)), []
    for number in range(episodes):
        context, steps = start, []
        for t in range(int(rng.integers(0, longest + 1))):
            what = int(rng.integers(6)) if t else 0
            if what == 1:
                context = (7, *draw(1, 4))
            elif what == 2:
                context = context[2:] or (7,)
            response = draw(1, 4)
            logprobs = tuple(float(x) for x in rng.normal(-1, 0.1, len(response)))
            steps.append(Step("", "", 0.0, False, False, {}, context, response, logprobs))
            context = (*context, *response, *draw(0, 3))
        out.append(toy_episode(f"e{number}", steps))
    return out


@pytest.mark.parametrize("layout", ["merged", "steps"])
@pytest.mark.parametrize("seed", range(12))
def test_every_step_lies_on_the_path_of_its_row(seed, layout):
    episodes = play(seed)
    if not any(episode.steps for episode in episodes):
        pytest.skip("nobody took a step")
    rows = build_batch(episodes, layout)
    order = sort_rows(rows.input_ids, rows.offsets)
    tree = pack_tree(rows.input_ids, rows.offsets, order)
    begins = dict(zip(order.rows.tolist(), np.cumsum(order.lengths) - order.lengths, strict=True))  # of each row's path
    taken = [(number, step) for number, episode in enumerate(episodes) for step in episode.steps]
    assert len(taken) == len(rows.start)
    for i, (number, step) in enumerate(taken):
        whole, at, count = [*step.prompt_ids, *step.response_ids], int(rows.start[i]), int(rows.length[i])
        assert rows.episode[i] == number
        assert rows.step_ids[at : at + count].tolist() == [i] * count
        assert rows.logprobs[at : at + count].tolist() == pytest.approx(step.response_logprobs, rel=1e-6)
        begin = begins[rows.row[i]]
        path = tree.path[begin : begin + at + count - rows.offsets[rows.row[i]]]
        assert tree.input_ids[path].tolist() == whole  # its prompt and response, and nothing else
    assert len(tree) == len(
        {(*s.prompt_ids, *s.response_ids)[: i + 1] for _, s in taken for i in range(len(s.prompt_ids + s.response_ids))}
    )


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
