"""Prefix merging: the steps of an episode as as few rows as the prompts allow, each token computed once.

An episode's steps are (prompt, response) pairs. Where a prompt extends the previous prompt + response, as in a chat
that only grows, both steps fit into one row: under causal attention every token of the longer row has the hidden state
it has in its own step's row. A prompt that was rebuilt or truncated opens a new row; steps of several interleaved
contexts (a sub-agent, a prompt rebuilt in between) find their own among the open rows.

==========  =========================================================================================================
``merged``  as few rows as possible: a step joins the row whose tokens are the longest prefix of its prompt
``steps``   one row per step
``stream``  one row per episode, for trainers that know no other; refused where a prompt does not extend the row
==========  =========================================================================================================

In a row the first step's prompt is the prompt and everything after it the response. ``step_ids`` says for each response
token which step's policy wrote it, -1 for what the policy did not write. The value of the state before step t is read
at the position before the first token of step t, in every layout the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_envs.errors import ConfigError, DataError, did_you_mean

__all__ = ["LAYOUTS", "StepTokens", "TokenRow", "merge_steps", "plan_rows"]

LAYOUTS = ("merged", "steps", "stream")
"""What ``merge_steps`` takes."""

_TAIL = 8  # tokens compared before whole prefixes are


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The tokens of one step."""

    index: int
    """Index of the step within its episode; what ``step_ids`` holds for its response."""
    prompt_ids: Sequence[int]
    """Prompt tokens, shape [prompt tokens]; at least one."""
    response_ids: Sequence[int]
    """Response tokens as sampled, shape [response tokens]; at least one."""
    logprobs: Sequence[float] | None = None
    """Log-probability of each response token when it was sampled (nats), shape [response tokens]; None for zeros."""
    trained: bool = True
    """False where the response must not be trained: its tokens have the step id -1."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One row of a batch: one or more steps of an episode."""

    prompt_ids: list[int]
    """The first step's prompt, shape [prompt tokens]."""
    response_ids: list[int]
    """Everything after it: responses, and between them what the environment said, shape [response tokens]."""
    step_ids: list[int]
    """Step that wrote each response token, -1 where the policy did not, shape [response tokens]."""
    logprobs: list[float]
    """Log-probability of each response token when it was sampled, 0 where the policy did not write it."""
    spans: tuple[tuple[int, int, int], ...]
    """Per step in order: its index, and where its response begins and ends within ``response_ids``."""

    @property
    def response_mask(self) -> list[int]:
        """1 for every token that is trained, shape [response tokens]."""
        return [int(step >= 0) for step in self.step_ids]


def merge_steps(steps: Sequence[StepTokens], layout: str = "merged") -> list[TokenRow]:
    """The rows of an episode, in the order of each row's first step.

    Args:
        steps: The episode's steps in the order they were taken.
        layout: ``merged``, ``steps`` or ``stream``.

    Returns:
        Every step in exactly one row; no row for no step.

    Raises:
        ConfigError: An unknown layout.
        DataError: A step without prompt or response tokens, steps out of order, log-probabilities that do not fit, or a
            prompt that does not extend the row where ``stream`` allows only one.

    >>> told = StepTokens(0, [1, 2], [3], [-0.5]), StepTokens(1, [1, 2, 3, 9], [4, 5], [-0.1, -0.2])
    >>> row, = merge_steps(told)
    >>> row.prompt_ids, row.response_ids, row.step_ids
    ([1, 2], [3, 9, 4, 5], [0, -1, 1, 1])
    >>> len(merge_steps(told, "steps"))
    2
    """
    _check(steps)
    if layout == "steps":
        plan = [[i] for i in range(len(steps))]
    elif layout in LAYOUTS:
        plan = plan_rows([(step.prompt_ids, step.response_ids) for step in steps])
    else:
        raise ConfigError(f"unknown layout {layout!r}.{did_you_mean(layout, LAYOUTS)}")
    if layout == "stream" and len(plan) > 1:
        raise DataError(
            f"the prompt of step {steps[plan[1][0]].index} does not extend the prompt and response before it, so one "
            "row cannot hold the episode exactly; use the layout 'merged' or 'steps'"
        )
    return [_fill([steps[i] for i in row]) for row in plan]


def plan_rows(steps: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[int]]:
    """Which steps share a row: each joins the open row that is the longest prefix of its prompt.

    The row of the step before is tried first; its content is compared once, so an episode that only grows costs one
    pass over its prompts. Other open rows are compared only where their length and last tokens fit.

    Args:
        steps: (prompt, response) tokens of each step, in order.

    Returns:
        Positions in ``steps``, row by row in the order of their first steps.

    >>> plan_rows([([1], [2]), ([1, 2, 3], [4]), ([7], [8]), ([1, 2, 3, 4], [5])])
    [[0, 1, 3], [2]]
    """
    pairs = [(_plain(prompt), _plain(response)) for prompt, response in steps]
    rows: list[list[int]] = []
    latest = -1  # the row of the step before
    # [length][last tokens] -> rows: what is open, by the step each row ends with
    open_rows: dict[int, dict[tuple[int, ...], list[int]]] = {}
    longest = 0
    for i, (prompt, response) in enumerate(pairs):
        home = -1
        if latest >= 0 and _extends(prompt, *pairs[rows[latest][-1]]):
            home = latest
        floor = 0 if home < 0 else _length(pairs[rows[home][-1]])
        if len(rows) > 1 and min(longest, len(prompt)) > floor:
            home = _search(prompt, floor, open_rows, rows, pairs, home)
        if home < 0:
            home = len(rows)
            rows.append([i])
        else:
            before = pairs[rows[home][-1]]
            open_rows[_length(before)][_tail(*before)].remove(home)
            rows[home].append(i)
        length = len(prompt) + len(response)
        open_rows.setdefault(length, {}).setdefault(_tail(prompt, response), []).append(home)
        longest = max(longest, length)
        latest = home
    return rows


_Tokens = list[int] | tuple[int, ...]
_Pair = tuple[_Tokens, _Tokens]


def _search(
    prompt: _Tokens,
    floor: int,
    open_rows: dict[int, dict[tuple[int, ...], list[int]]],
    rows: list[list[int]],
    pairs: Sequence[_Pair],
    home: int,
) -> int:
    """The open row longer than ``floor`` that is the longest prefix of ``prompt``; ``home`` where there is none."""
    for length in sorted((n for n in open_rows if floor < n <= len(prompt)), reverse=True):
        for row in reversed(open_rows[length].get(tuple(prompt[max(0, length - _TAIL) : length]), [])):
            if _extends(prompt, *pairs[rows[row][-1]]):
                return row
    return home


def _extends(prompt: _Tokens, before: _Tokens, response: _Tokens) -> bool:
    start, end = len(before), len(before) + len(response)
    if len(prompt) < end or prompt[end - 1] != response[-1]:
        return False
    return _same(prompt[start:end], response) and _same(prompt[:start], before)


def _same(part: _Tokens, whole: _Tokens) -> bool:
    return part == whole if type(part) is type(whole) else list(part) == list(whole)


def _tail(prompt: _Tokens, response: _Tokens) -> tuple[int, ...]:
    if len(response) >= _TAIL:
        return tuple(response[-_TAIL:])
    return (*prompt[-(_TAIL - len(response)) :], *response)


def _length(pair: _Pair) -> int:
    return len(pair[0]) + len(pair[1])


def _plain(tokens: Sequence[int]) -> _Tokens:
    return tokens if isinstance(tokens, (list, tuple)) else [int(token) for token in tokens]


def _check(steps: Sequence[StepTokens]) -> None:
    previous = -1
    for step in steps:
        if step.index <= previous:
            raise DataError(f"steps are expected in order, got step {step.index} after step {previous}")
        previous = step.index
        for name, tokens in (("prompt", step.prompt_ids), ("response", step.response_ids)):
            if not len(tokens):
                raise DataError(f"step {step.index} has no {name} tokens; leave such steps out")
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
        said = list(step.prompt_ids[len(prompt) + len(response) :])  # what came between the two responses
        response += said
        start, count = len(response), len(step.response_ids)
        response += step.response_ids
        step_ids += [-1] * len(said) + [step.index if step.trained else -1] * count
        logprobs += [0.0] * len(said)
        logprobs += step.logprobs if step.logprobs is not None else [0.0] * count
        spans.append((step.index, start, start + count))
    return TokenRow(prompt, response, step_ids, logprobs, tuple(spans))
