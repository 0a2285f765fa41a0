"""Checks of a batch before anything is computed from it: errors that name the episode, counts for the rest."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

import torch

from agent_envs.adapters.estimators.rows import StepRows
from agent_envs.errors import DataError

_log = logging.getLogger(__name__)


@cache
def say_once(message: str) -> None:
    """Log a warning, the first time only."""
    _log.warning("%s", message)


def check_rows(rows: StepRows, group_size: int | None = None) -> dict[str, float]:
    """Check what every estimator relies on, for valid rows.

    ``group_size`` is the number of trajectories that a group should have, None for any.

    Returns:
        Counts: ``missing_steps`` (indices skipped within a trajectory: steps that were not sampled, or were lost),
        ``groups_incomplete`` (groups with a different number of trajectories), ``steps_without_tokens``. Each one that
        is not 0 is logged as a warning once.

    Raises:
        DataError: A tensor of the wrong length; a reward or value that is infinite or NaN, a baseline or final value
            that is infinite; a negative or a repeated step index; a trajectory in two groups. Names the trajectory
            and step.
    """
    check_shapes(rows)
    valid = rows.valid.nonzero().squeeze(1)
    trajectory, step = rows.trajectory[valid], rows.step[valid]
    every = torch.arange(len(rows.rewards))
    _check_finite(rows, "reward", rows.rewards, every)
    _check_finite(rows, "value", rows.values, every)
    for what, x in (("greedy baseline", rows.baseline), ("final value", rows.final_values)):  # NaN: not known
        _check_finite(rows, what, None if x is None else x.nan_to_num(0.0, torch.inf, -torch.inf), every)
    if len(valid) and int(step.min()) < 0:
        row = int(valid[step.argmin()])
        raise DataError(f"{rows.name(int(rows.trajectory[row]))} has a step with index {int(rows.step[row])}")

    order = torch.argsort(step, stable=True)
    order = order[torch.argsort(trajectory[order], stable=True)]
    t, s, group = trajectory[order], step[order], rows.group[valid][order]
    same = t[1:] == t[:-1]
    twice = same & (s[1:] == s[:-1])
    if bool(twice.any()):
        k = int(twice.nonzero()[0])
        raise DataError(f"{rows.name(int(t[k]))} has step {int(s[k])} more than once: a step is one row")
    parted = same & (group[1:] != group[:-1])
    if bool(parted.any()):
        raise DataError(f"{rows.name(int(t[int(parted.nonzero()[0])]))} is in two groups")

    begins = torch.cat([torch.ones(min(len(t), 1), dtype=torch.bool), ~same])
    previous = torch.where(begins, -1, torch.cat([s[:1], s[:-1]]))
    counts = {"missing_steps": float((s - previous - 1).sum())}
    if counts["missing_steps"]:
        say_once("some steps are missing from their trajectories; the remaining ones are treated as consecutive")
    if group_size is not None:
        sizes = torch.bincount(group[begins].unique(return_inverse=True)[1])
        counts["groups_incomplete"] = float((sizes != group_size).sum())
        if counts["groups_incomplete"]:
            say_once(f"some groups do not have {group_size} trajectories: episodes broke, or are in another batch")
    if (tokens := rows.tokens) is not None:
        row, _, size = tokens.runs
        if len(row) and not -1 <= int(row.min()) <= int(row.max()) < len(every):
            raise DataError(f"TokenRows.step_row must be -1 or the number of one of {len(every)} rows")
        _check_finite(rows, "reward of a token", tokens.rewards, tokens.step_row)
        _check_finite(rows, "value of a token", tokens.values, tokens.step_row)
        trained = torch.zeros(len(every) + 1, dtype=torch.int64).index_add_(0, row.where(row >= 0, len(every)), size)
        counts["steps_without_tokens"] = float((rows.valid & (trained[:-1] == 0)).sum())
        if counts["steps_without_tokens"]:
            say_once("some steps have no trained token: no token has their advantage")
    return counts


def check_log_probs(
    what: str,
    log_probs: torch.Tensor,
    step_row: torch.Tensor,
    trajectory: torch.Tensor,
    names: Sequence[str] | None = None,
) -> None:
    """Reject log-probabilities that are infinite, NaN or positive (beyond round-off) at a trained token.

    Args:
        what: Whose they are, for the message: "old", "reference".
        log_probs: Shape [tokens].
        step_row: The step of each token, -1 for untrained ones, shape [tokens].
        trajectory: The trajectory of each step, shape [steps].
        names: Names of trajectories by number.

    Raises:
        DataError: Names the trajectory.
    """
    wrong = (~log_probs.isfinite() | (log_probs > 1e-3)) & (step_row >= 0)
    if bool(wrong.any()):
        k = int(wrong.nonzero()[0])
        number = int(trajectory[int(step_row[k])])
        name = repr(names[number]) if names is not None else str(number)
        raise DataError(
            f"the {what} log-probability of a token of trajectory {name} is {float(log_probs[k])}; expected a "
            f"number of at most 0 ({int(wrong.sum())} such tokens)"
        )


def check_episodes(steps: Sequence[int], tokens: Sequence[int]) -> dict[str, float]:
    """Count episodes that have nothing to train, given the steps and response tokens of each; logs each kind once.

    >>> check_episodes([2, 0, 1], [10, 0, 3])
    {'episodes_without_steps': 1.0, 'episodes_without_tokens': 0.0}
    """
    without_steps = sum(s == 0 for s in steps)
    without_tokens = sum(s > 0 and n == 0 for s, n in zip(steps, tokens, strict=True))
    if without_steps:
        say_once("some episodes have no step: they are not trained on and count in the metrics only")
    if without_tokens:
        say_once("some episodes have no response token: they are not trained on and count in the metrics only")
    return {"episodes_without_steps": float(without_steps), "episodes_without_tokens": float(without_tokens)}


def note_zero_advantages(advantages: torch.Tensor, valid: torch.Tensor, estimator: str) -> dict[str, float]:
    """Return whether every advantage of a batch is 0, so that it teaches nothing; log that once."""
    if zero := bool(valid.any()) and not bool(advantages[valid].any()):
        say_once(
            f"every advantage of a batch is 0 ({estimator}): all compared rewards are equal, so the policy loss has no "
            "gradient. Harder or easier tasks, larger groups or a denser reward would change that"
        )
    return {"zero_advantage_batch": float(zero)}


def check_shapes(rows: StepRows) -> None:
    """Check that all tensors are of the same rows and tokens; raises DataError."""
    n = rows.rewards.shape[0]
    names = (
        "rewards", "trajectory", "step", "group", "valid", "truncated", "values", "final_values", "baseline", "anchor",
    )  # fmt: skip
    for name in names:
        x = getattr(rows, name)
        if x is not None and tuple(x.shape) != (n,):
            raise DataError(f"StepRows.{name} has shape {tuple(x.shape)}, expected {(n,)} like rewards")
    if rows.components is not None and rows.components.shape != (shape := (n, len(rows.component_names))):
        raise DataError(f"components have shape {tuple(rows.components.shape)}, expected {shape}: rows, names")
    if rows.tokens is not None:
        k = rows.tokens.step_row.shape
        for name in ("rewards", "values"):
            x = getattr(rows.tokens, name)
            if x is not None and x.shape != k:
                raise DataError(f"TokenRows.{name} has shape {tuple(x.shape)}, expected {tuple(k)} like step_row")


def _check_finite(rows: StepRows, what: str, x: torch.Tensor | None, row: torch.Tensor) -> None:
    """Check the numbers of valid rows, given the row of each, -1 for none."""
    if x is None or bool(x.isfinite().all()):
        return
    wrong = ~x.isfinite() & torch.cat([rows.valid, rows.valid.new_zeros(1)])[row]
    if bool(wrong.any()):
        k = int(wrong.nonzero()[0])
        at = int(row[k])
        raise DataError(
            f"the {what} of {rows.name(int(rows.trajectory[at]))} at step {int(rows.step[at])} is {float(x[k])}; "
            f"expected a finite number ({int(wrong.sum())} such)"
        )
