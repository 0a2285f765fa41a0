"""KL to a reference policy: estimators of it, as a loss, in the reward, and the controllers of its coefficient.

With $d = lp - ref$ of a token:

==========================  =====================================================================================
``kl``, ``k1``              $d$
``abs``                     $|d|$
``mse``, ``k2``             $d^2 / 2$
``low_var_kl``, ``k3``      $exp(-d) + d - 1$, with d clamped to $+-20$ and the result to $+-10$ (as in verl)
any of them with ``+``      the same value with the gradient of k2, whose expected gradient is that of the KL; the
                            value itself is a constant to the gradient (straight-through)
==========================  =====================================================================================

k1, k2, k3: John Schulman, "Approximating KL Divergence" (2020).

    >>> lp, ref = torch.tensor([-1.0], requires_grad=True), torch.tensor([-1.5])
    >>> [round(float(kl_penalty(lp, ref, kind).detach()), 4) for kind in ("k1", "k2", "k3", "k3+")]
    [0.5, 0.125, 0.1065, 0.1065]
    >>> kl_penalty(lp, ref, "k3+").sum().backward(); round(float(lp.grad), 4)  # d, not 1 - exp(-d)
    0.5
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from agent_envs.adapters.losses.terms import Tally, mean
from agent_envs.checks import choice, number

_PLAIN = ("abs", "k1", "k2", "k3", "kl", "low_var_kl", "mse")
KL_KINDS = tuple(sorted([*_PLAIN, *(f"{kind}+" for kind in _PLAIN)]))
"""Every kind by name."""


def kl_penalty(log_probs: torch.Tensor, ref_log_probs: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the KL estimate of each token, given tensors of one shape; see the module's docstring.

    Raises:
        ConfigError: The kind does not exist; lists the names.
    """
    choice("the kind of KL", kind, KL_KINDS)
    d = log_probs - ref_log_probs
    plain, square = kind.removesuffix("+"), 0.5 * d.square()
    if plain in ("kl", "k1"):
        out = d
    elif plain == "abs":
        out = d.abs()
    elif plain in ("mse", "k2"):
        out = square
    else:
        bounded = d.clamp(-20.0, 20.0)
        out = ((-bounded).exp() + bounded - 1).clamp(-10.0, 10.0)
    return square - square.detach() + out.detach() if kind.endswith("+") else out


def kl_loss(
    log_probs: torch.Tensor, ref_log_probs: torch.Tensor, weights: torch.Tensor, kind: str
) -> tuple[torch.Tensor, dict[str, Tally]]:
    """Return sum(weights * KL estimate), without its coefficient, and ``kl``: the mean estimate over trained tokens.

    All tensors have shape [tokens].
    """
    trained = weights != 0
    estimate = kl_penalty(torch.where(trained, log_probs, 0.0), torch.where(trained, ref_log_probs, 0.0), kind)
    return (estimate * weights).sum(), {"kl": mean(estimate, trained)}


def kl_in_reward(
    old_log_probs: torch.Tensor, ref_log_probs: torch.Tensor, step_ids: torch.Tensor, kind: str, coefficient: float
) -> tuple[torch.Tensor, float]:
    """Return the KL penalty of each token's reward: -coefficient * KL estimate.

    Args:
        old_log_probs: Log-probabilities under the policy that made the batch, shape [tokens].
        ref_log_probs: Log-probabilities under the reference, shape [tokens].
        step_ids: The step of each token, -1 for untrained ones, int64, shape [tokens].

    Returns:
        Rewards to add, 0 for untrained tokens, shape [tokens]; and the mean over steps of a step's mean estimate, with
        which to update the controller.
    """
    trained = step_ids >= 0
    estimate = kl_penalty(torch.where(trained, old_log_probs, 0.0), torch.where(trained, ref_log_probs, 0.0), kind)
    if not bool(trained.any()):
        return torch.zeros_like(estimate), 0.0
    step = step_ids.clamp(min=0)
    counts = torch.bincount(step[trained], minlength=1).double()
    sums = torch.zeros_like(counts).index_add_(0, step, estimate.double())
    present = counts > 0
    return -coefficient * estimate, float((sums[present] / counts[present]).mean())


@dataclass
class KLController:
    """The coefficient of the KL in the reward: constant, or steered to a target.

    With a target (Ziegler et al., arXiv 1909.08593, section 2.2) and n episodes in the batch (verl counts rows):
    $value <- value * (1 + clip(kl/target - 1, -0.2, 0.2) * n/horizon)$.

    >>> controller = KLController(0.1, target=0.1, horizon=10_000)
    >>> controller.update(0.5, 128); controller.value  # 0.1 * (1 + 0.2 * 0.0128)
    0.100256
    """

    value: float
    """The coefficient of the next batch."""
    target: float | None = None
    """The KL to steer to; None for a constant coefficient."""
    horizon: float = 10_000.0
    """Episodes in which the coefficient may grow or shrink by about a fifth."""

    def update(self, kl: float, n: int) -> None:
        """Update with the KL of a batch of ``n`` episodes; ignored if it is not finite."""
        if self.target is not None and math.isfinite(kl):
            self.value *= 1 + min(max(kl / self.target - 1, -0.2), 0.2) * n / self.horizon


def kl_controller(kind: str, value: float, *, target: float = 0.1, horizon: float = 10_000.0) -> KLController:
    """Return a controller: ``fixed`` or ``adaptive``.

    Raises:
        ConfigError: There is no such kind, or the coefficient is negative.
    """
    choice("the KL controller", kind, ("adaptive", "fixed"))
    number("the KL coefficient", value, minimum=0)
    if kind == "fixed":
        return KLController(value)
    number("the adaptive KL controller's target", target, above=0)
    number("the adaptive KL controller's horizon", horizon, above=0)
    return KLController(value, target, horizon)
