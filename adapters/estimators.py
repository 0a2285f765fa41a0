"""Advantage estimators over (trajectory, step) rows: pure tensor functions, no trainer import.

A *row* is one step of one trajectory: a prompt and the response sampled for it. Every estimator returns one advantage
and one return per row; a trainer broadcasts them to the row's response tokens.

Notation: trajectory i has steps t = 0..T_i-1, reward r_t, value V_t of the state before acting (read at the last
prompt token), prompt group g(i).

=======  =====================================================================================================
``gae``   step-level GAE (Agent-R1, arXiv 2511.14460; StepPO, arXiv 2604.18401):
          delta_t = r_t + gamma V_{t+1} - V_t,  A_t = delta_t + gamma lam A_{t+1},  R_t = A_t + V_t;
          A is whitened over step rows: (A - mean) / (std + 1e-8) with the unbiased std.
``grpo``  GRPO over trajectories (arXiv 2402.03300): S_i = sum_t r_t,  A_i = (S_i - mean_g) / (std_g + 1e-6) with
          the unbiased std, the same for every step of trajectory i; without the division: Dr.GRPO (arXiv 2503.20783).
=======  =====================================================================================================

Deviations from the released Agent-R1 code, each with a numeric example in ``tests/test_estimators.py``:
- gae: a truncated trajectory bootstraps, V_T = V(final state), where that value is known;
  ``bootstrap_truncated=False`` is the released rule, V_T = 0.
- grpo: the only trajectory of a group has advantage 0 (released: its score) and is counted.
- Rows that are not valid (padding, broken episodes) enter no sum, mean or std and have advantage 0.
- Whitening a single row gives 0, and rows that are all equal give 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from agent_envs.errors import ConfigError, did_you_mean

__all__ = [
    "ESTIMATORS",
    "Advantages",
    "Estimator",
    "EstimatorOptions",
    "StepRows",
    "gae",
    "get_estimator",
    "grpo",
    "whiten",
]


@dataclass(frozen=True)
class StepRows:
    """What an estimator sees. Every tensor has shape [rows]; the order of rows is free."""

    rewards: torch.Tensor
    """Reward of the step, float."""
    trajectory: torch.Tensor
    """Number of the row's trajectory, int64."""
    step: torch.Tensor
    """Index of the step within its trajectory, int64."""
    group: torch.Tensor
    """Number of the prompt group the trajectory belongs to, int64."""
    valid: torch.Tensor
    """False for rows that must not count: padding and broken episodes, bool."""
    truncated: torch.Tensor
    """True on a trajectory's last row if a limit ended it and the task did not, bool."""
    values: torch.Tensor | None = None
    """V of the state before acting, float; None without a critic."""
    final_values: torch.Tensor | None = None
    """V of the state after the trajectory's last step, on its last row; NaN where unknown. None without a critic."""


@dataclass(frozen=True)
class EstimatorOptions:
    """Settings shared by the estimators; each reads what it needs."""

    gamma: float = 1.0
    """Discount per step."""
    lam: float = 1.0
    """GAE's lambda per step."""
    whiten: bool = True
    """gae: whiten advantages over step rows."""
    bootstrap_truncated: bool = True
    """gae: use V of the final state where a limit ended the trajectory; False: the released rule, 0."""
    norm_by_std: bool = True
    """grpo: divide by the group's standard deviation; False: Dr.GRPO."""


@dataclass(frozen=True)
class Advantages:
    """What an estimator returns; tensors of shape [rows], 0 on rows that are not valid."""

    advantages: torch.Tensor
    """Advantage of the step's action."""
    returns: torch.Tensor
    """What the critic is trained towards at the action's start (the trajectory's advantage where there is none)."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Counts worth logging."""


def whiten(x: torch.Tensor) -> torch.Tensor:
    """(x - mean) / (std + 1e-8) over all elements, with the unbiased std; zeros for fewer than two elements.

    >>> whiten(torch.tensor([1.0, 2.0, 3.0]))
    tensor([-1.,  0.,  1.])
    """
    if x.numel() < 2:
        return torch.zeros_like(x)
    return (x - x.mean()) / (x.std(unbiased=True) + 1e-8)


def gae(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """Step-level GAE; see the module's docstring.

    Raises:
        ConfigError: There are no values.
    """
    if rows.values is None:
        raise ConfigError("the estimator 'gae' needs values: train with a critic, or use 'grpo'")
    valid = rows.valid.nonzero().squeeze(1)  # [valid rows]
    values = rows.values.double()
    rewards = rows.rewards.double()
    trajectory, rank, last = _lay_out(rows, valid)
    trajectories, steps = _shape(trajectory, rank)

    def grid(x: torch.Tensor) -> torch.Tensor:  # [rows] -> [trajectories, steps], 0 where there is no step
        out = torch.zeros(trajectories, steps, dtype=torch.float64)
        out[trajectory, rank] = x[valid]
        return out

    exists = torch.zeros(trajectories, steps + 1, dtype=torch.bool)
    exists[trajectory, rank] = True
    v = torch.zeros(trajectories, steps + 1, dtype=torch.float64)
    v[:, :steps] = grid(values)
    cut = rows.truncated[valid] & last
    known = torch.zeros_like(cut)
    if options.bootstrap_truncated and rows.final_values is not None:
        final = rows.final_values.double()[valid]
        known = cut & ~final.isnan()
        v[trajectory[known], rank[known] + 1] = final[known]
    r = grid(rewards)
    advantage = torch.zeros(trajectories, steps + 1, dtype=torch.float64)
    for t in range(steps - 1, -1, -1):
        delta = r[:, t] + options.gamma * v[:, t + 1] - v[:, t]
        carried = options.gamma * options.lam * advantage[:, t + 1]
        advantage[:, t] = torch.where(exists[:, t], delta + carried, 0.0)
    a = advantage[trajectory, rank]
    returns = a + values[valid]
    metrics = {"truncated": float(cut.sum()), "bootstrapped": float(known.sum())}
    return Advantages(_spread(whiten(a) if options.whiten else a, valid, rows), _spread(returns, valid, rows), metrics)


def grpo(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """GRPO over trajectories; see the module's docstring."""
    valid = rows.valid.nonzero().squeeze(1)
    trajectory, rank, _ = _lay_out(rows, valid)
    trajectories, _ = _shape(trajectory, rank)
    score = torch.zeros(trajectories, dtype=torch.float64)
    score.index_add_(0, trajectory, rows.rewards.double()[valid])
    group_of = torch.zeros(trajectories, dtype=torch.int64)
    group_of[trajectory] = rows.group[valid]
    advantage = torch.zeros(trajectories, dtype=torch.float64)
    singles = equal = 0
    for g in group_of.unique():
        members = group_of == g
        s = score[members]
        if s.numel() == 1:
            singles += 1
            continue
        centred = s - s.mean()
        equal += bool(s.max() == s.min())
        advantage[members] = centred / (s.std(unbiased=True) + 1e-6) if options.norm_by_std else centred
    a = advantage[trajectory]
    spread = _spread(a, valid, rows)
    return Advantages(spread, spread.clone(), {"groups_of_one": float(singles), "groups_without_signal": float(equal)})


def _lay_out(rows: StepRows, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per valid row: its trajectory as 0..n-1, its rank among that trajectory's steps, whether it is the last."""
    if valid.numel() == 0:
        return valid, valid, valid.bool()
    trajectory = rows.trajectory[valid].unique(return_inverse=True)[1]
    step = rows.step[valid]
    order = torch.argsort(step, stable=True)
    order = order[torch.argsort(trajectory[order], stable=True)]
    counts = torch.bincount(trajectory)
    starts = counts.cumsum(0) - counts
    rank = torch.empty_like(step)
    rank[order] = torch.arange(valid.numel()) - starts[trajectory[order]]
    return trajectory, rank, rank == counts[trajectory] - 1


def _shape(trajectory: torch.Tensor, rank: torch.Tensor) -> tuple[int, int]:
    """(number of trajectories, most steps); (0, 0) where there is no row."""
    return (int(trajectory.max()) + 1, int(rank.max()) + 1) if trajectory.numel() else (0, 0)


def _spread(x: torch.Tensor, valid: torch.Tensor, rows: StepRows) -> torch.Tensor:
    """[valid rows] -> [rows] in float32, 0 elsewhere."""
    out = torch.zeros(rows.rewards.shape[0], dtype=torch.float32)
    out[valid] = x.float()
    return out


@dataclass(frozen=True)
class Estimator:
    """An estimator and what a trainer must know to use it."""

    name: str
    """What ``algorithm.adv_estimator`` calls it."""
    compute: Callable[[StepRows, EstimatorOptions], Advantages]
    """The function."""
    needs_critic: bool
    """Whether rows must carry values."""
    critic_at_action_start: bool
    """Whether the critic learns only at the first response position (the value of the state before acting)."""


ESTIMATORS: dict[str, Estimator] = {
    "gae": Estimator("gae", gae, needs_critic=True, critic_at_action_start=True),
    "grpo": Estimator("grpo", grpo, needs_critic=False, critic_at_action_start=False),
}


def get_estimator(name: str) -> Estimator:
    """The estimator called ``name``.

    Raises:
        ConfigError: There is none; lists what there is.
    """
    try:
        return ESTIMATORS[name]
    except KeyError:
        raise ConfigError(f"unknown advantage estimator {name!r}.{did_you_mean(name, ESTIMATORS)}") from None
