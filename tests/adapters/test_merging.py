"""Prefix merging against a slow, obvious definition.

1. every step is in exactly one row, with its own prompt before it, whatever the contexts do
2. as few rows as the definition, for contexts that take turns or were rebuilt, and ties
3. step ids, log-probabilities and masks follow the tokens; a token that is not trained has none
4. layouts; what is refused
5. time grows with the tokens, not with their square
6. a batch of many episodes holds the same rows
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_episodes import toy_episode

from agent_envs.adapters.batches import build_batch
from agent_envs.adapters.merging import StepTokens, merge_steps, plan_rows
from agent_envs.episodes.record import Step
from agent_envs.errors import ConfigError, DataError


def slow_plan(steps):
    """Rows as the definition says, every open row compared token by token; of equal rows the last one used."""
    rows, tokens, used = [], [], []
    for i, (prompt, response) in enumerate(steps):
        fits = [r for r in range(len(rows)) if list(prompt[: len(tokens[r])]) == tokens[r]]
        home = max(fits, key=lambda r: (len(tokens[r]), used[r]), default=None)
        if home is None:
            home = len(rows)
            rows.append([]), tokens.append([]), used.append(0)
        rows[home].append(i)
        tokens[home] = list(prompt) + list(response)
        used[home] = i
    return rows


@st.composite
def episodes(draw):
    """Steps that extend an earlier step's tokens, or a cut of them, or begin anew; few different tokens."""
    token = st.integers(0, 2)
    steps: list[tuple[list[int], list[int]]] = []
    for _ in range(draw(st.integers(1, 8))):
        prompt: list[int] = []
        if steps:
            p, r = steps[draw(st.integers(0, len(steps) - 1))]
            whole = p + r
            cut = draw(st.sampled_from([0, 0, 0, 1, 2, len(whole)]))
            prompt = whole[: len(whole) - cut]
        prompt = prompt + draw(st.lists(token, max_size=4))
        steps.append((prompt or [0], draw(st.lists(token, min_size=1, max_size=10))))
    return steps


@settings(max_examples=300, deadline=None)
@given(episodes())
def test_rows_are_those_of_the_definition(steps):
    assert plan_rows(steps) == slow_plan(steps)
    assert plan_rows([(tuple(p), np.array(r)) for p, r in steps]) == slow_plan(steps)


@settings(max_examples=200, deadline=None)
@given(episodes(), st.sampled_from(["merged", "steps"]))
def test_every_step_keeps_its_prompt_and_its_response(steps, layout):
    tokens = [StepTokens(2 * i, p, r, [-0.5 - i] * len(r)) for i, (p, r) in enumerate(steps)]
    rows = merge_steps(tokens, layout)
    seen = []
    for row in rows:
        assert len(row.response_ids) == len(row.step_ids) == len(row.logprobs) == len(row.response_mask)
        whole = row.prompt_ids + row.response_ids
        for index, start, end in row.spans:
            prompt, response = steps[index // 2]
            seen.append(index)
            assert whole[: len(row.prompt_ids) + start] == prompt  # the state before acting, and the value position
            assert row.response_ids[start:end] == response
            assert row.step_ids[start:end] == [index] * len(response)
            assert row.logprobs[start:end] == [-0.5 - index // 2] * len(response)
        written = sum(len(steps[index // 2][1]) for index, _, _ in row.spans)
        assert sum(row.response_mask) == written
        assert [p for p, s in zip(row.logprobs, row.step_ids, strict=True) if s < 0 and p] == []
    assert sorted(seen) == [2 * i for i in range(len(steps))]
    if layout == "steps":
        assert len(rows) == len(steps)


def chain(n, grow=3, respond=5, start=0):
    prompt, steps = [start], []
    for i in range(n):
        response = [start + 10 * i + k for k in range(respond)]
        steps.append((prompt, response))
        prompt = prompt + response + [start + 1000 + i] * grow
    return steps


def test_tokens_that_are_not_trained_have_no_step():
    (row,) = merge_steps([StepTokens(0, [1], [2]), StepTokens(1, [1, 2, 3], [9], trained=False)])
    assert row.step_ids == [0, -1, -1] and row.response_mask == [1, 0, 0]
    assert row.spans == ((0, 0, 1), (1, 2, 3))  # the value of the state before step 1 is at response position 2


def test_stream_is_one_row_or_an_error():
    steps = [StepTokens(i, p, r) for i, (p, r) in enumerate(chain(4))]
    assert merge_steps(steps, "stream") == merge_steps(steps)
    with pytest.raises(DataError, match="prompt of step 9 does not extend"):
        merge_steps([*steps, StepTokens(9, [5], [6])], "stream")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([StepTokens(1, [1], [2]), StepTokens(0, [1], [2])], "step 0 after step 1"),
        ([StepTokens(0, [1], [2]), StepTokens(0, [1], [2])], "in order"),
        ([StepTokens(0, [], [2])], "step 0 has no prompt tokens"),
        ([StepTokens(3, [1], [])], "step 3 has no response tokens"),
        ([StepTokens(0, [1], [2, 3], [-1.0])], "2 response tokens and 1 log-prob"),
    ],
)
def test_what_is_refused(steps, message):
    with pytest.raises(DataError, match=message):
        merge_steps(steps)


def test_an_unknown_layout_lists_what_there_is():
    with pytest.raises(ConfigError, match="Did you mean 'merged'"):
        merge_steps([], "merge")
    assert merge_steps([]) == []


def test_time_grows_with_the_tokens():
    def seconds(steps):
        start = time.process_time()
        plan_rows(steps)
        return time.process_time() - start

    long = chain(200, grow=20, respond=30)  # 10,000 tokens at the end, a million over all prompts
    assert seconds(long) < 0.5
    anew = [([i, *range(3000)], [1] * 8) for i in range(300)]  # the same tail everywhere, nothing in common
    assert seconds(anew) < 0.5


def episode(steps, number=0):
    done = [Step("", "", float(i), i == len(steps) - 1, False, {}, tuple(p), tuple(r), (-0.5 - i,) * len(r))
            for i, (p, r) in enumerate(steps)]  # fmt: skip
    return toy_episode(f"e{number}", done)


@settings(max_examples=100, deadline=None)
@given(st.lists(episodes(), min_size=1, max_size=4), st.sampled_from(["merged", "steps"]))
def test_a_batch_holds_the_same_rows(all_steps, layout):
    batch = build_batch([episode(steps, i) for i, steps in enumerate(all_steps)], layout)
    rows = [
        (number, row)
        for number, steps in enumerate(all_steps)
        for row in merge_steps([StepTokens(i, p, r, [-0.5 - i] * len(r)) for i, (p, r) in enumerate(steps)], layout)
    ]
    assert len(batch.offsets) == len(rows) + 1 and batch.offsets[-1] == len(batch.input_ids)
    first = np.cumsum([0, *map(len, all_steps)])  # [episodes + 1] number of each episode's first step
    for i, (number, row) in enumerate(rows):
        part = slice(batch.offsets[i], batch.offsets[i + 1])
        before = len(row.prompt_ids)
        assert batch.input_ids[part].tolist() == row.prompt_ids + row.response_ids
        assert batch.position_ids[part].tolist() == list(range(before + len(row.response_ids)))
        assert batch.logprobs[part].tolist() == [0.0] * before + row.logprobs
        numbered = [-1 if step < 0 else step + int(first[number]) for step in row.step_ids]
        assert batch.step_ids[part].tolist() == [-1] * before + numbered
        for index, start, end in row.spans:
            step = first[number] + index
            assert (batch.row[step], batch.start[step]) == (i, batch.offsets[i] + before + start)
            assert (batch.length[step], batch.episode[step], batch.rewards[step]) == (end - start, number, float(index))


def test_batches_of_nothing_and_unknown_layouts():
    assert len(build_batch([]).input_ids) == 0
    assert len(build_batch([episode([])]).offsets) == 1
    with pytest.raises(ConfigError, match="layout must be one of 'merged', 'steps', got 'stream'"):
        build_batch([], "stream")
