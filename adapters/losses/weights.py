"""The weight of each token: 1 over the number that the loss is a mean of, made once per mini-batch.

With $N_steps$ steps, $N_traj$ trajectories, $N_tokens$ tokens in all, $T_i$ steps in trajectory i, $n_t$ tokens in t:

==============  ====================  ===============================================================================
``trajectory``  $1/(N_traj T_i n_t)$  every episode counts the same, within it every step, within it every token
``row``         $1/(N_steps n_t)$     every step counts the same: verl's and Agent-R1's seq-mean-token-mean over step
                                      rows; an episode's share of the gradient grows with its number of steps
``token``       $1/N_tokens$          every token counts the same: verl's token-mean
==============  ====================  ===============================================================================

The weights of a mini-batch add up to 1. Padding and steps without a trained token are not counted.

    Two episodes, one of a single step with 2 tokens, one of two steps with 1 and 4 tokens:

    >>> lengths, trajectory = torch.tensor([2, 1, 4]), torch.tensor([0, 1, 1])
    >>> step_weights("trajectory", lengths, trajectory).tolist()
    [0.25, 0.25, 0.0625]
    >>> [round(w, 4) for w in step_weights("row", lengths, trajectory).tolist()]
    [0.1667, 0.3333, 0.0833]
    >>> [round(w, 4) for w in step_weights("token", lengths, trajectory).tolist()]
    [0.1429, 0.1429, 0.1429]
"""

from __future__ import annotations

import torch

from agent_envs.checks import choice

WEIGHTINGS = ("row", "token", "trajectory")
"""The names: what a mini-batch's loss is a mean over."""


def step_weights(
    weighting: str, lengths: torch.Tensor, trajectory: torch.Tensor, mini_batch: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return the weight of one trained token of each step.

    Args:
        weighting: ``trajectory``, ``row`` or ``token``.
        lengths: Trained tokens of each step, 0 for padding and broken episodes, int64, shape [steps].
        trajectory: Trajectory of each step, any int64, shape [steps].
        mini_batch: Mini-batch of each step, int64, shape [steps]; None for a single one. All steps of a trajectory are
            in the same one.
        counts: How much each step counts beside the others, float, shape [steps]; None for all the same.

    Returns:
        float32, shape [steps]; 0 where ``lengths`` is 0.

    Raises:
        ConfigError: The weighting does not exist; lists the names.
    """
    choice("weighting", weighting, WEIGHTINGS)
    out = torch.zeros(lengths.shape[0], dtype=torch.float64, device=lengths.device)
    kept = (lengths > 0).nonzero().squeeze(1)  # [kept steps]
    if not kept.numel():
        return out.float()
    n = lengths[kept].double()
    batch = torch.zeros_like(kept) if mini_batch is None else mini_batch[kept].unique(return_inverse=True)[1]

    def total(x: torch.Tensor) -> torch.Tensor:  # [kept steps] -> its sum over the step's mini-batch, [kept steps]
        return torch.zeros(int(batch.max()) + 1, dtype=torch.float64, device=x.device).index_add_(0, batch, x)[batch]

    part = torch.ones_like(n) if counts is None else 1.0 / counts[kept].double()  # [kept steps] 1 over what it counts
    if weighting == "token":
        out[kept] = 1.0 / (total(n / part) * part)
    elif weighting == "row":
        out[kept] = 1.0 / (total(1.0 / part) * part * n)
    else:
        which = trajectory[kept].unique(return_inverse=True)[1]
        part = torch.bincount(which)[which].double() * part  # T_i of the step's trajectory
        out[kept] = 1.0 / (total(1.0 / part) * part * n)  # the T_i-th parts of all its steps make one trajectory
    return out.float()


def token_weights(
    weighting: str, lengths: torch.Tensor, trajectory: torch.Tensor, step_ids: torch.Tensor,
    mini_batch: torch.Tensor | None = None, counts: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return ``step_weights`` for every token, float32 in the shape of ``step_ids``.

    Args:
        weighting: As for ``step_weights``, like the other arguments.
        step_ids: The step of each token, -1 for tokens that are not trained, int64, any shape.

    >>> token_weights("row", torch.tensor([2, 1]), torch.tensor([0, 0]), torch.tensor([-1, 0, 0, -1, 1])).tolist()
    [0.0, 0.25, 0.25, 0.0, 0.5]
    """
    per_step = step_weights(weighting, lengths, trajectory, mini_batch, counts)
    return torch.cat([per_step, per_step.new_zeros(1)])[step_ids]  # -1 reads the last one


def action_start(step_ids: torch.Tensor) -> torch.Tensor:
    """Return True at the first token of every step, where a step-level critic reads V of the state before acting.

    The critic's weights are ``token_weights`` with lengths of 1 at these tokens, 0 elsewhere.

    Args:
        step_ids: The step of each token in the order of the tokens, -1 for untrained ones, int64, shape [tokens]. Only
            untrained tokens may stand between tokens of a step.

    >>> action_start(torch.tensor([-1, 0, 0, -1, 0, 1, 1, 2])).tolist()
    [False, True, False, False, False, True, False, True]
    """
    trained = (step_ids >= 0).nonzero().squeeze(1)
    ids = step_ids[trained]
    first = torch.ones_like(ids, dtype=torch.bool)
    first[1:] = ids[1:] != ids[:-1]
    out = torch.zeros_like(step_ids, dtype=torch.bool)
    out[trained[first]] = True
    return out
