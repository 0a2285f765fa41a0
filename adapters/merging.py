"""Prefix merging: lays out an episode's steps in as few rows as the prompts allow, so each token is computed once.

An episode's steps are (prompt, response) pairs. If a prompt extends the previous prompt + response, as in a chat that
only grows, both steps fit into one row: under causal attention every token of the longer row has the hidden state it
has in its own step's row. A prompt that was rebuilt or truncated opens a new row; steps of several interleaved contexts
(a sub-agent, a prompt rebuilt in between) each continue their own row.

==========  =========================================================================================================
``merged``  as few rows as possible: a step joins the row whose tokens are the longest prefix of its prompt
``steps``   one row per step
``stream``  one row per episode, for trainers that support nothing else; an error if a prompt does not extend the row
==========  =========================================================================================================

The pictures of a row are those of its last prompt, in order. A prompt joins a row only if it shows the same pictures:
two of one size have the same tokens.

A row's prompt is the first step's, and everything after it is the response. ``step_ids`` gives the step that wrote each
response token, -1 for what the policy did not write. The value of the state before step t is read at the position
before the first token of step t, which is the same state in every layout.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from agent_envs.checks import choice
from agent_envs.errors import DataError
from agent_envs.pictures.picture import Picture

LAYOUTS = ("merged", "steps", "stream")
"""The layouts of ``merge_steps``."""


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The tokens of one step."""

    index: int
    """Index of the step within its episode; the value in ``step_ids`` for its response."""
    prompt_ids: Sequence[int]
    """Prompt tokens, shape [prompt tokens]; at least one."""
    response_ids: Sequence[int]
    """Response tokens as sampled, shape [response tokens]; at least one."""
    logprobs: Sequence[float] | None = None
    """Log-probability of each response token when it was sampled (nats), shape [response tokens]; None if unknown."""
    trained: bool = True
    """False if the response must not be trained: its tokens then have the step id -1."""
    pictures: Sequence[Picture] = ()
    """The pictures of the prompt, in the order of their tokens."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One row of a batch: one or more steps of an episode."""

    prompt_ids: list[int]
    """The first step's prompt, shape [prompt tokens]."""
    response_ids: list[int]
    """Everything after it: responses with the environment's text between them, shape [response tokens]."""
    step_ids: list[int]
    """Step that wrote each response token, -1 for the environment's, shape [response tokens]."""
    logprobs: list[float]
    """Log-probability of each response token when it was sampled, NaN if unknown, 0 for what is not trained."""
    spans: tuple[tuple[int, int, int], ...]
    """For each step in order: its index, and where its response begins and ends in ``response_ids``."""
    pictures: tuple[Picture, ...] = ()
    """The pictures of all its prompts, in the order of their tokens."""

    @property
    def response_mask(self) -> list[int]:
        """1 for every token that is trained, shape [response tokens]."""
        return [int(step >= 0) for step in self.step_ids]


def merge_steps(steps: Sequence[StepTokens], layout: str = "merged") -> list[TokenRow]:
    """Return the rows of an episode, in the order of their first steps; they hold every step exactly once.

    Raises:
        ConfigError: The layout does not exist.
        DataError: A step has no prompt or response tokens, steps are out of order, the number of log-probabilities is
            wrong, or with ``stream`` a prompt does not extend the row.

    >>> steps = StepTokens(0, [1, 2], [3], [-0.5]), StepTokens(1, [1, 2, 3, 9], [4, 5], [-0.1, -0.2])
    >>> row, = merge_steps(steps)
    >>> row.prompt_ids, row.response_ids, row.step_ids
    ([1, 2], [3, 9, 4, 5], [0, -1, 1, 1])
    >>> len(merge_steps(steps, "steps"))
    2
    """
    choice("layout", layout, LAYOUTS)
    _check(steps)
    plan = [[i] for i in range(len(steps))]
    if layout != "steps":
        pictures = [step.pictures for step in steps] if any(step.pictures for step in steps) else None
        plan = plan_rows([(step.prompt_ids, step.response_ids) for step in steps], pictures)
    if layout == "stream" and len(plan) > 1:
        raise DataError(
            f"the prompt of step {steps[plan[1][0]].index} does not extend the prompt and response before it, so one "
            "row cannot hold the episode exactly; use the layout 'merged' or 'steps'"
        )
    return [_fill([steps[i] for i in row]) for row in plan]


def plan_rows(
    steps: Sequence[tuple[Sequence[int], Sequence[int]]], pictures: Sequence[Sequence[Picture]] | None = None
) -> list[list[int]]:
    """Return which steps share a row, row by row in the order of their first steps.

    Each of the steps, (prompt, response) tokens in order, joins the open row that is the longest prefix of its prompt,
    and of the ``pictures`` of its prompt, if there are any.

    Raises:
        DataError: A token is not an integer.

    >>> plan_rows([([1], [2]), ([1, 2, 3], [4]), ([7], [8]), ([1, 2, 3, 4], [5])])
    [[0, 1, 3], [2]]
    """
    return plan_packed([(pack(prompt), pack(response)) for prompt, response in steps], pictures)


def plan_packed(
    steps: Sequence[tuple[bytes, bytes]], pictures: Sequence[Sequence[Picture]] | None = None
) -> list[list[int]]:
    """``plan_rows`` on packed tokens, where a prefix is one comparison of memory.

    The previous step's row is tried first, so an episode that only grows costs one pass over its prompts. Other
    open rows are compared only if they would be longer.
    """
    rows: list[list[int]] = []
    whole: list[bytes] = []  # [rows] the tokens of each
    latest = -1  # the previous step's row

    def sees(step: int, row: int) -> bool:
        """Return whether a step's prompt begins with the pictures of a row, which are those of the row's last step."""
        if pictures is None:
            return True
        before = pictures[rows[row][-1]]
        return list(pictures[step][: len(before)]) == list(before)

    for i, (prompt, response) in enumerate(steps):
        home = latest if latest >= 0 and prompt.startswith(whole[latest]) and sees(i, latest) else -1
        if len(rows) > 1:
            best = (len(whole[home]), rows[home][-1]) if home >= 0 else (0, -1)
            for row, tokens in enumerate(whole):
                # of equal rows, the last one used
                if best < (len(tokens), rows[row][-1]) and prompt.startswith(tokens) and sees(i, row):
                    home, best = row, (len(tokens), rows[row][-1])
        if home < 0:
            home = len(rows)
            rows.append([])
            whole.append(b"")
        rows[home].append(i)
        whole[home] = prompt + response
        latest = home
    return rows


def pack(tokens: Sequence[int]) -> bytes:
    """Return tokens as the bytes of an int64 array, faster than through NumPy.
    A token that is no 64-bit integer is a DataError.

    >>> pack([1, 256]).hex()
    '01000000000000000001000000000000'
    """
    try:
        return _struct(len(tokens)).pack(*tokens)
    except struct.error as e:
        raise DataError(f"tokens must be 64-bit integers: {e}") from e


@lru_cache(maxsize=8192)
def _struct(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}q")


def _check(steps: Sequence[StepTokens]) -> None:
    previous = -1
    for step in steps:
        if step.index <= previous:
            raise DataError(f"steps must be in order, got step {step.index} after step {previous}")
        previous = step.index
        for name, tokens in (("prompt", step.prompt_ids), ("response", step.response_ids)):
            if not len(tokens):
                raise DataError(f"step {step.index} has no {name} tokens; leave out such steps")
        if step.logprobs is not None and len(step.logprobs) != len(step.response_ids):
            raise DataError(
                f"step {step.index} has {len(step.response_ids)} response tokens and {len(step.logprobs)} "
                "log-probabilities"
            )


def _fill(steps: Sequence[StepTokens]) -> TokenRow:
    prompt = list(steps[0].prompt_ids)
    response: list[int] = []
    step_ids: list[int] = []
    logprobs: list[float] = []
    spans = []
    for step in steps:
        between = list(step.prompt_ids[len(prompt) + len(response) :])  # what followed the last response
        response += between
        start, count = len(response), len(step.response_ids)
        response += step.response_ids
        step_ids += [-1] * len(between) + [step.index if step.trained else -1] * count
        logprobs += [0.0] * len(between)
        unknown = math.nan if step.trained else 0.0
        logprobs += step.logprobs if step.logprobs is not None else [unknown] * count
        spans.append((step.index, start, start + count))
    return TokenRow(prompt, response, step_ids, logprobs, tuple(spans), tuple(steps[-1].pictures))
