"""Rewards before they reach the estimator: process rewards from components, and scaling by the deviation of returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from agent_envs.adapters.estimators.checks import check_rows, check_shapes, say_once
from agent_envs.adapters.estimators.rows import StepRows
from agent_envs.adapters.estimators.segments import discounted_sums, lay_out
from agent_envs.checks import choice, number
from agent_envs.errors import DataError, did_you_mean


def component_table(parts: Sequence[Mapping[str, float]]) -> tuple[torch.Tensor, list[str]]:
    """Return the reward components of steps as float64 of shape [steps, components], and the components' names.

    float64 like the rewards: the rest of a reward without its components must be exactly 0 if it is 0.

    >>> table, names = component_table([{"format": 0.1}, {"answer": 1.0}])
    >>> table.tolist(), names
    ([[0.0, 0.1], [1.0, 0.0]], ['answer', 'format'])
    """
    names = sorted({name for each in parts for name in each})
    rows = [[float(each.get(name, 0.0)) for name in names] for each in parts]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(parts), len(names)), names


@dataclass(frozen=True)
class ProcessRewards:
    """Which components of the steps' rewards are process rewards, and how they are mixed in. Off by default.

    Raises:
        ConfigError: The normalisation does not exist, or a weight is not finite.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each component (a name of ``info["reward_components"]``) within the process reward; empty: off."""
    normalize: str | None = None
    """``prime``: see ``prime_normalised``. None: as they are."""
    weight: float = 1.0
    """Weight of the process reward, normalised or not, relative to the rest of the reward."""

    def __post_init__(self) -> None:
        choice("normalize_process_rewards", self.normalize, (None, "prime"))
        for name, weight in self.weights.items():
            number(f"the weight of {name!r}", weight)
        number("the weight of the process reward", self.weight)


def process_rewards(rows: StepRows, options: ProcessRewards) -> tuple[StepRows, dict[str, float]]:
    """Return the rows with the process reward mixed into the steps' rewards, or the same rows if it is off.

    With $c_k$ the components and $w_k$ their weights, $p_t = sum_k w_k c_{k,t}$ is the process reward of a step and
    $o_t = r_t - sum_k c_{k,t}$ the rest of its reward: $r_t <- o_t + weight * p_t$, with p normalised if asked for.
    Estimators over tokens place r_t on the step's last token, where a tool call ends.

    Args:
        rows: Rows without rewards of tokens; a KL is taken from those afterwards.
        options: Which components to use and how.

    Returns:
        The rows; and if it is on, ``process_rewards/{mean,max,min,count}`` of p before normalisation over the steps
        that have one, ``process_rewards/components_missing`` (components that no step of the batch has; logged once
        with those there are) and ``process_rewards/scale``, the divisor.

    Raises:
        DataError: A number is not finite, or tokens have rewards already.
    """
    if not options.weights:
        return rows, {}
    check_shapes(rows)
    names = list(rows.component_names)
    missing = [name for name in options.weights if name not in names]
    for name in missing:
        say_once(f"no step of a batch has the reward component {name!r}, which counts as 0.{did_you_mean(name, names)}")
    if rows.tokens is not None and rows.tokens.rewards is not None:
        raise DataError("process rewards are mixed into the rewards of steps, but the tokens have rewards already")
    weights = {name: weight for name, weight in options.weights.items() if name in names}
    every = rows.rewards.new_zeros(len(rows.rewards), 0) if rows.components is None else rows.components
    c = every[:, [names.index(name) for name in weights]].double()  # [rows, chosen]
    c = torch.where(rows.valid[:, None], c, 0.0)
    wrong = ~c.isfinite().all(1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise DataError(
            f"a reward component of {rows.name(int(rows.trajectory[row]))} at step {int(rows.step[row])} is not a "
            "finite number"
        )
    p = c @ torch.tensor(list(weights.values()), dtype=torch.float64)  # [rows]
    seen = p[p != 0]
    metrics = {"process_rewards/count": float(len(seen)), "process_rewards/components_missing": float(len(missing))}
    if len(seen):
        summaries = {"mean": seen.mean(), "max": seen.max(), "min": seen.min()}
        metrics |= {f"process_rewards/{name}": float(value) for name, value in summaries.items()}
    if options.normalize == "prime":
        p, metrics["process_rewards/scale"] = prime_normalised(rows, p)
    mixed = torch.where(rows.valid, rows.rewards.double() - c.sum(1) + options.weight * p, rows.rewards.double())
    return replace(rows, rewards=mixed.to(rows.rewards.dtype)), metrics


def prime_normalised(rows: StepRows, p: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Divide process rewards by the batch's largest reward-to-go (PRIME, arXiv 2502.01456, its ``batch_norm``).

    $c_t = p_t + p_{t+1} + ...$ within the trajectory; $p <- p / (max |c| + 1e-6)$ over the batch, of several
    environments over each one's part of it. Zeros stay zeros.

    Takes the whole batch, before it is split over ranks: the scale depends on all of it. Returns the process rewards,
    float64, shape [rows], and the divisor, the largest of several.

    Rewards to go 0.5 + 1.5 = 2, 1.5 and -1, so everything is divided by 2.
    """
    scale = torch.full((len(p),), 1e-6, dtype=torch.float64)
    for _, own in rows.by_env():
        steps = lay_out(replace(rows, valid=own))
        scale[own] += float(discounted_sums(steps.take(p), steps.lengths, 1.0).abs().max())
    return torch.where(rows.valid, p.double() / scale, 0.0), max([1e-6, *scale[rows.valid].tolist()])


class RewardScale:
    """Divides rewards by the standard deviation of the episodes' discounted returns, without centring them.

    It is the unbiased standard deviation of $R_i = sum_t gamma^t r_t$ over trajectories: of the batch, or of all
    batches so far including this one, and 1 if it is 0. Each of several environments has its own. ``released`` is that
    of Agent-R1's releases (Engstrom et al., arXiv 2005.12729): $sqrt(var + 1e-8)$ with the population variance of
    $R_t = gamma R_{t-1} + r_t$ over all steps so far, begun as 1e-4 steps of mean 0 and variance 1.

    Args:
        kind: ``batch``, ``running`` or ``released``.
        gamma: Discount per step.

    Returns 1 and 3 have the standard deviation 1.4142.
    """

    def __init__(self, kind: str, gamma: float = 1.0) -> None:
        self.kind = choice("scale_rewards", kind, ("batch", "running", "released"))
        self.gamma = gamma
        self._moments: dict[str, tuple[float, float, float]] = {}  # count, mean and squares, by environment

    def scale(self, rows: StepRows) -> tuple[StepRows, dict[str, float]]:
        """Return the rows with scaled rewards (those of tokens and of greedy episodes too), and ``reward_scale``.

        Of several environments, ``reward_scale/ENV`` is each one's.

        Raises:
            DataError: A reward is not a finite number; names the trajectory. The moments so far are kept.
        """
        check_rows(rows)
        every, found = torch.ones(len(rows.rewards) + 1, dtype=torch.float64), dict[str, float]()  # -1 reads the last
        for name, own in rows.by_env():
            steps = lay_out(replace(rows, valid=own))
            r, lengths = steps.take(rows.rewards), steps.lengths
            if self.kind == "released":
                returns = discounted_sums(r.flip(0), lengths.flip(0), self.gamma)  # [steps], what was paid until then
            else:
                returns = discounted_sums(r, lengths, steps.discount(rows, self.gamma))[lengths.cumsum(0) - lengths]
            found[name] = every[:-1][own] = self._update(name, returns)
        if len(found) < 2:
            every[:] = next(iter(found.values()), 1.0)
        tokens, sigma = rows.tokens, every[:-1]
        if tokens is not None and tokens.rewards is not None:
            tokens = replace(tokens, rewards=tokens.rewards / every[tokens.step_row])
        baseline = None if rows.baseline is None else rows.baseline / sigma
        metrics = {f"reward_scale/{name}": value for name, value in found.items()}
        metrics = metrics if len(found) > 1 else {"reward_scale": float(every[-1])}
        return replace(rows, rewards=rows.rewards / sigma, tokens=tokens, baseline=baseline), metrics

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"moments": dict(self._moments)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._moments = {name: (float(n), float(mean), float(sq)) for name, (n, mean, sq) in state["moments"].items()}

    def _update(self, env: str, x: torch.Tensor) -> float:
        """Merge the moments of ``x`` into an environment's so far (Chan et al. 1979); return the deviation."""
        start = (1e-4, 0.0, 1e-4) if self.kind == "released" else (0.0, 0.0, 0.0)
        count, mean, squares = start if self.kind == "batch" else self._moments.get(env, start)
        n, own = len(x), float(x.mean())
        total, shift = count + n, own - mean
        squares += float((x - own).square().sum()) + shift * shift * count * n / total
        mean += shift * n / total
        self._moments[env] = total, mean, squares
        if self.kind == "released":
            return math.sqrt(squares / total + 1e-8)
        sigma = math.sqrt(squares / (total - 1)) if total > 1 else 0.0
        return sigma if sigma > 1e-8 * max(1.0, abs(mean)) else 1.0
