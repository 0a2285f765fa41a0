"""Policy losses: the contribution of each token, given how far the policy has moved since it was sampled.

With $lp$ and $old$ the log-probabilities of a token now and when the batch was made, A its advantage, w its weight,
$rho = exp(lp - old)$, $p = exp(lp)$, $q = exp(old)$, $e_l$ and $e_h$ the clips, and $sg[]$ without a gradient:

=============  ======================================================================================================
``vanilla``    PPO's clipped objective (arXiv 1707.06347, eq. 7) with the dual clip (arXiv 1912.09729):
               $L = max(-A rho, -A clip(rho, 1 - e_l, 1 + e_h))$; where $A < 0$: $min(L, -A c)$
``reinforce``  $L = -A lp$, without ratio and clip (Williams 1992)
``gspo``       GSPO-token (arXiv 2507.18071, eq. 13-14) with a step as the sequence: $s = exp(mean(lp - old))$ over its
               tokens, token form $s_k = sg[s] pi_k / (sg[pi_k])$; $L = max(-A s_k, -A clip(s_k, 1 - e_l, 1 + e_h))$
``steppo``     the same function: StepPO (arXiv 2604.18401) is ``gspo`` over steps with the estimator ``gae``
``pspo``       the same function with PaperScout's clip, 3e-4 and 4e-4 (``loss_preset("pspo")``)
``capo``       CAPO's ratio as its figures show it: a step's log-ratio, centred, over the root of its length; see below
``gpg``        ``reinforce`` under verl's name; GPG (arXiv 2504.02546) is this loss with the estimator ``gpg``
``cispo``      MiniMax-M1 (arXiv 2506.13585, eq. 4-5): $L = -sg[clip(rho, 1 - e_l, 1 + e_h)] A lp$
``dppo_tv``    DPPO with the binary total variation (arXiv 2602.04879): $L = -sg[min(rho, c)] A lp$ where the policy
               has not moved too far in A's direction, $p - q <= e_h$ for $A > 0$ and $q - p <= e_l$ else; otherwise 0.
               $e_l$ and $e_h$ are bounds of the divergence, c is ``clip_ratio_c``
``dppo_kl``    the same with the binary divergence $q log(q/p) + (1 - q) log((1 - q)/(1 - p))$ in its place
``dro``        $L = -(A lp - beta/2 (lp - old)^2)$, after arXiv 2405.19107; ``dro_beta`` must be set
``geo_mean``   GMPO (arXiv 2507.20673, eq. 4): one ratio per step, s = exp(mean of its tokens' clipped log ratios),
               $L = -A s$, with log ratios clipped to $[-e_l, e_h]$ where A asks for more; A is the step's mean
``sapo``       SAPO (arXiv 2511.20347): $L = -A 4/tau sigmoid(tau (rho - 1))$; $tau_pos$ where $A > 0$, else $tau_neg$
``clip_cov``   Clip-Cov (arXiv 2505.22617, sec. 4.2): the clipped objective without a few tokens, drawn among those
               whose $(A - mean A)(lp - mean lp)$ is between two bounds
``kl_cov``     KL-Cov (same paper): $L = -A rho$, with ``ppo_kl_coef`` times $|lp - old|$ added on the tokens where that
               product is largest
=============  ======================================================================================================

Details: $lp - old$ is clamped to $+-20$ in ``vanilla``, $log s_k$ to at most 10, both as in verl; ``gspo`` has no dual
clip. All tokens of a step have the same s, so a step is clipped as a whole. In verl a row is one step; here step ids
mark the steps, and a row may hold several. The covariances and their means are over the trained tokens of a
micro-batch, as in verl: ``clip_cov`` and ``kl_cov`` depend on how micro-batches are cut, the others do not.

``capo``: with $S = sum_k (lp_k - old_k)$ over the step's L tokens, and $mu = (sum S) / (sum L)$ over all steps of the
mini-batch, $log w = mu + (S - L mu) / sqrt(L)$, in place of ``gspo``'s $log s = S/L$. The variance of $S - L mu$ grows
about as L does, so that steps of all lengths have ratios of one width. The released code has ``gspo``; what the figures
leave open is chosen here: the steps are those of the mini-batch over all ranks (``LossOptions.mean_log_ratio``, or
those at hand), mu is a number without a gradient, what is restored is mu, there is no dual clip, and the token form is
$w_k = sg[w] (pi_k/sg[pi_k])^{sqrt(L)}$, whose mean over the step has the gradient of w through $S / sqrt(L)$. With
$L = 1$ it is $log w = S$, and with a single step $log w = S/L$.

    One step of two tokens with ratios e^0.1 and e^0.3, advantage 1: vanilla takes min(1.105, 1.2) and min(1.350, 1.2),
    gspo takes the step's s = e^0.2 = 1.221 for both, beyond the clip:

    >>> lp, old = torch.tensor([-1.0, -1.0]), torch.tensor([-1.1, -1.3])
    >>> batch = lp, old, torch.ones(2), torch.full((2,), 0.5), torch.zeros(2, dtype=torch.int64), LossOptions()
    >>> round(float(vanilla(*batch)[0]), 4)  # -(1.10517 + 1.2) / 2
    -1.1526
    >>> round(float(gspo(*batch)[0]), 4)
    -1.2
"""

from __future__ import annotations

import math

import torch

from agent_envs.adapters.losses.terms import (
    LARGEST,
    LARGEST_OF_STEP,
    LossOptions,
    PolicyLoss,
    TokenLosses,
    Tokens,
    clip,
    policy_loss_of,
)
from agent_envs.checks import choice, load_function
from agent_envs.errors import ConfigError


@policy_loss_of
def vanilla(t: Tokens, options: LossOptions) -> TokenLosses:
    """PPO's clipped objective with the dual clip; see the module's docstring."""
    a = t.advantages
    losses, clipped = clip(t.log_ratio.clamp(-LARGEST, LARGEST).exp(), a, options)
    if options.clip_ratio_c is None:
        return TokenLosses(losses, clipped)
    bound = -a * options.clip_ratio_c
    lower = (a < 0) & (losses > bound)
    return TokenLosses(torch.where(a < 0, torch.minimum(losses, bound), losses), clipped, lower)


@policy_loss_of
def reinforce(t: Tokens, options: LossOptions) -> TokenLosses:
    """$-A log pi$; the old log-probabilities are used for metrics only."""
    return TokenLosses(-t.advantages * t.log_probs)


@policy_loss_of
def gspo(t: Tokens, options: LossOptions) -> TokenLosses:
    """The clipped objective with one ratio per step; see the module's docstring."""
    log_s = t.step_means(t.log_ratio.detach())
    own = t.log_probs - t.log_probs.detach()  # 0 with the gradient of lp
    ratio = (own + log_s[t.step]).clamp(max=LARGEST_OF_STEP).exp()
    return TokenLosses(*clip(ratio, t.advantages, options), log_ratios=log_s)


@policy_loss_of
def capo(t: Tokens, options: LossOptions) -> TokenLosses:
    """The clipped objective with one centred ratio per step; see the module's docstring."""
    log_ratio, lengths = t.log_ratio.detach(), t.counts.clamp(min=1.0)
    mu = options.mean_log_ratio
    if mu is None:
        mu = log_ratio.sum() / t.counts.sum().clamp(min=1.0)
    root = lengths.sqrt()
    log_w = mu + root * (t.step_means(log_ratio) - mu)  # (S - L mu) / sqrt(L)
    own = root[t.step] * (t.log_probs - t.log_probs.detach())  # 0 with the gradient of sqrt(L) lp
    ratio = (own + log_w[t.step]).clamp(max=LARGEST_OF_STEP).exp()
    return TokenLosses(*clip(ratio, t.advantages, options), log_ratios=log_w)


@policy_loss_of
def cispo(t: Tokens, options: LossOptions) -> TokenLosses:
    """The policy gradient with clipped importance weights; see the module's docstring."""
    ratio = t.log_ratio.detach().clamp(-LARGEST, LARGEST).exp()
    bounded = ratio.clamp(1 - options.clip_ratio_low, 1 + options.clip_ratio_high)
    return TokenLosses(-bounded * t.advantages * t.log_probs, bounded != ratio)


@policy_loss_of
def dppo_tv(t: Tokens, options: LossOptions) -> TokenLosses:
    """DPPO with the binary total variation; see the module's docstring."""
    p, q = t.log_probs.detach().exp(), t.old.exp()
    return _dppo(t, p - q <= options.clip_ratio_high, q - p <= options.clip_ratio_low, options)


@policy_loss_of
def dppo_kl(t: Tokens, options: LossOptions) -> TokenLosses:
    """DPPO with the binary Kullback-Leibler divergence; see the module's docstring."""
    p, q = t.log_probs.detach().exp(), t.old.exp()
    divergence = -q * t.log_ratio.detach() + (1 - q) * ((1 - q + 1e-8) / (1 - p + 1e-8)).log()
    up, down = divergence <= options.clip_ratio_high, divergence <= options.clip_ratio_low
    return _dppo(t, up | (p <= q), down | (p >= q), options)


def _dppo(t: Tokens, up: torch.Tensor, down: torch.Tensor, options: LossOptions) -> TokenLosses:
    """Keep the tokens that may become more likely (``up``) or less likely, as their advantages ask for."""
    allowed = torch.where(t.advantages > 0, up, down)
    ratio = t.log_ratio.detach().clamp(-LARGEST, LARGEST).exp()
    truncated = ratio.clamp(max=options.clip_ratio_c or math.inf)
    losses = -torch.where(allowed, t.advantages, 0.0) * truncated * t.log_probs
    return TokenLosses(losses, ~allowed, allowed & (ratio > truncated))


@policy_loss_of
def dro(t: Tokens, options: LossOptions) -> TokenLosses:
    """Direct reward optimisation; see the module's docstring."""
    if options.dro_beta is None:
        raise ConfigError("the loss dro needs dro_beta, the coefficient of its squared log ratio, above 0")
    return TokenLosses(0.5 * options.dro_beta * t.log_ratio.square() - t.advantages * t.log_probs)


@policy_loss_of
def geo_mean(t: Tokens, options: LossOptions) -> TokenLosses:
    """The geometric mean of a step's clipped ratios; see the module's docstring."""
    bounded, sign = t.log_ratio.clamp(-options.clip_ratio_low, options.clip_ratio_high), t.advantages.sign()
    s = t.step_means(sign * torch.minimum(sign * t.log_ratio, sign * bounded)).exp()
    losses = -(t.step_means(t.advantages) * s)[t.step]
    if t.is_weights is not None:
        losses = losses * t.step_means((torch.where(t.trained, t.is_weights, 1.0) + 1e-10).log()).exp().detach()[t.step]
    clipped = bounded != t.log_ratio
    return TokenLosses(losses, clipped & (t.advantages > 0), clipped & (t.advantages < 0), corrected=True)


@policy_loss_of
def sapo(t: Tokens, options: LossOptions) -> TokenLosses:
    """A soft gate in place of the clip; see the module's docstring."""
    ratio = t.log_ratio.clamp(-LARGEST, LARGEST).exp()
    tau = torch.where(t.advantages > 0, options.tau_pos, options.tau_neg).to(ratio.dtype)
    return TokenLosses(-t.advantages * torch.sigmoid(tau * (ratio - 1.0)) * (4.0 / tau))


@policy_loss_of
def clip_cov(t: Tokens, options: LossOptions) -> TokenLosses:
    """The clipped objective without a few tokens of large covariance; see the module's docstring.

    The tokens are drawn from a generator that restarts in each micro-batch, so a resumed run draws the same.
    """
    losses, clipped = clip(t.log_ratio.exp(), t.advantages, options)
    covariance = _covariance(t)
    may = t.trained & ~clipped & (covariance > options.clip_cov_lb) & (covariance < options.clip_cov_ub)
    candidates = may.nonzero().squeeze(1)
    count = max(int(options.clip_cov_ratio * int(t.trained.sum())), 1)
    order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(len(candidates)))
    left_out = torch.zeros_like(t.trained)
    left_out[candidates[order[:count].to(candidates.device)]] = True
    return TokenLosses(losses.masked_fill(left_out, 0.0), left_out)


@policy_loss_of
def kl_cov(t: Tokens, options: LossOptions) -> TokenLosses:
    """The objective without a clip, penalised where the covariance is largest; see the module's docstring."""
    count = int(t.trained.sum())
    count = min(count, max(1, int(count * options.kl_cov_ratio)))
    penalised = torch.zeros_like(t.trained)
    penalised[_covariance(t).masked_fill(~t.trained, -torch.inf).topk(count).indices] = True
    penalty = torch.where(penalised, options.ppo_kl_coef * t.log_ratio.abs(), 0.0)
    return TokenLosses(-t.advantages * t.log_ratio.exp() + penalty, penalised)


def _covariance(t: Tokens) -> torch.Tensor:
    """(A - mean A)(lp - mean lp) of each token, with means over the trained ones, shape [tokens]."""
    a, lp, count = t.advantages, t.log_probs.detach(), t.trained.sum().clamp(min=1)
    return (a - a.sum() / count) * (lp - lp.sum() / count)


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "capo": capo, "cispo": cispo, "clip_cov": clip_cov, "dppo_kl": dppo_kl, "dppo_tv": dppo_tv, "dro": dro,
    "geo_mean": geo_mean, "gpg": reinforce, "gspo": gspo, "kl_cov": kl_cov, "pspo": gspo, "reinforce": reinforce,
    "sapo": sapo, "steppo": gspo, "vanilla": vanilla,
}  # fmt: skip
"""Policy losses by name."""

LOSS_PRESETS: dict[str, LossOptions] = {
    "cispo": LossOptions(clip_ratio_low=1.0),  # no lower bound, as in the paper's runs
    "dppo_kl": LossOptions(clip_ratio_low=0.05, clip_ratio_high=0.05, clip_ratio_c=20.0),
    "dppo_tv": LossOptions(clip_ratio_low=0.15, clip_ratio_high=0.15, clip_ratio_c=20.0),
    "dro": LossOptions(dro_beta=1.0),
    "geo_mean": LossOptions(clip_ratio_low=0.4, clip_ratio_high=0.4),
    "pspo": LossOptions(clip_ratio_low=3e-4, clip_ratio_high=4e-4, clip_ratio_c=10.0),
}
"""The options of losses whose defaults differ from those of ``LossOptions``."""


def policy_loss(name: str) -> PolicyLoss:
    """Return a policy loss by name.

    Args:
        name: One of ``POLICY_LOSSES``, or ``module:name`` of a ``PolicyLoss`` of your own. The module is imported.

    Raises:
        ConfigError: There is no such loss; lists the names.
    """
    if ":" in name:
        return load_function(name, "the policy loss")
    if name == "bypass_mode":
        raise ConfigError("'bypass_mode' is no loss: name one, and set algorithm.rollout_correction.bypass_mode")
    return POLICY_LOSSES[choice("the policy loss", name, POLICY_LOSSES)]


def loss_preset(name: str) -> LossOptions:
    """Return the default options of a policy loss. Raises ConfigError as ``policy_loss`` does."""
    policy_loss(name)
    return LOSS_PRESETS.get(name, LossOptions())


_WITHOUT_RATIO = ("dro", "gpg", "reinforce")


class RatioWatch:
    """Reports once, after ``patience`` training steps, that a run's ratios never left 1.

    With one mini-batch per batch, the policy being updated is the one that sampled: rho = 1 for every token, no clip
    acts, and ``steppo``, ``gspo``, ``pspo`` and ``vanilla`` are the same update.

    >>> watch = RatioWatch("steppo", patience=2)
    >>> watch.update(0.0), watch.update(0.0)[:33], watch.update(0.0)
    (None, 'no ratio of the steppo loss has l', None)

    Args:
        loss: Name of the policy loss.
        patience: Training steps to wait for.
        updates: Updates that a batch is divided into, if its old log-probabilities are computed by the trained model.
            With one update the ratios then differ from 1 by rounding alone, which in bfloat16 they always do.
    """

    def __init__(self, loss: str, patience: int = 3, updates: int | None = None) -> None:
        self.loss, self.patience, self.updates = loss, patience, updates
        self._still = 0  # training steps; -1 once a ratio has moved

    def update(self, moved: float) -> str | None:
        """Record a training step's ``ratio/moved`` (over its mini-batches); return the notice when it first applies."""
        if moved > 0 and self.updates != 1:
            self._still = -1
        if self._still < 0 or self.loss in _WITHOUT_RATIO:
            return None
        self._still += 1
        if self._still != self.patience:
            return None
        return (
            f"no ratio of the {self.loss} loss has left 1, apart from rounding, in {self.patience} training steps: "
            "clipping never acts and the update equals the plain policy gradient. Use at least two mini-batches per "
            "batch (verl: a smaller ppo_mini_batch_size; PyTorch loop: mini_batches) or more than one epoch "
            "(ppo_epochs; epochs)"
        )
