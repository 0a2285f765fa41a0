"""How the steps of episodes become rows of tokens, with what an estimator needs of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agent_envs.adapters.estimators import StepRows
from agent_envs.adapters.step_rows import step_batch
from agent_envs.adapters.teacher import LabelsOf
from agent_envs.adapters.trained import trained
from agent_envs.adapters.trees import SortedRows, sort_rows
from agent_envs.episodes.record import Episode
from agent_envs.pictures.picture import Picture
from agent_envs.prompts.pictures import PictureTokens


@dataclass(frozen=True)
class Batch:
    """Episodes as tensors on the CPU: the tokens of all rows one after another, and a record of every step."""

    ids: torch.Tensor
    """Tokens, int64, shape [tokens]."""
    row: torch.Tensor
    """Row of each token, ascending, int64, shape [tokens]. A row holds as many steps as fit."""
    step: torch.Tensor
    """Step that wrote each token, -1 for what is not trained (prompts, tool results); int64, shape [tokens]."""
    sampled: torch.Tensor
    """Log-probability of each token when it was sampled, float32, shape [tokens]."""
    start: torch.Tensor
    """Index of each step's first token, int64, shape [steps]."""
    steps: StepRows
    """Reward, trajectory, group, ... of each step, sorted by trajectory and index. A step that is not valid was never
    taken: it stands for the state that a limit left an episode in."""
    trees: SortedRows | None = None
    """What the rows share, if the models take them as prefix trees."""
    image_tokens: PictureTokens | None = None
    """Those of the models, if they take pictures."""
    pictures: Sequence[Sequence[Picture]] = ()
    """The pictures of each row, if the models take pictures."""
    label: torch.Tensor | None = None
    """Step whose label each token is in, -1 for none, int64, shape [tokens]; None without a teacher."""
    counts: torch.Tensor | None = None
    """How much each step counts, shape [steps], if groups branch."""
    tasks: torch.Tensor | None = None
    """Task of each step, whose groups a mini-batch holds together, int64, shape [steps], if groups branch."""


def assemble(
    episodes: Sequence[Episode], groups: Sequence[int], baselines: Sequence[float] | None = None,
    layout: str = "merged", image_tokens: PictureTokens | None = None, gamma: float = 1.0, roles: Sequence[str] = (),
    labels_of: LabelsOf | None = None, counts: Sequence[float] | None = None, tasks: Sequence[int] | None = None,
) -> Batch:  # fmt: skip
    """Return the batch of some episodes, without broken ones and without steps that have no tokens.

    Args:
        episodes: Episodes with the tokens of every step; for a critic as ``with_last_state`` returns them.
        groups: Group of each episode: those of one task are compared.
        baselines: For ``remax``: for each episode, the return of a greedy episode of the same task.
        layout: ``steps`` (a row per step), ``merged``, or ``tree``: merged rows, what they share computed once.
        image_tokens: Those of a vision-language model; a row must have as many as its pictures give features, or a
            DataError is raised.
        gamma, roles: See `agent_envs.adapters.trained`.
        labels_of: A teacher; None for none.
        counts, tasks: For groups that branch: of each episode, see `segments`.
    """
    parts = trained(episodes, groups, gamma, roles)
    tokens, steps, wrote, label = step_batch(parts, "merged" if layout == "tree" else layout, baselines, labels_of)
    row = torch.arange(len(tokens.offsets) - 1).repeat_interleave(torch.from_numpy(np.diff(tokens.offsets)))
    ids, sampled, start = (torch.from_numpy(x) for x in (tokens.input_ids, tokens.logprobs, tokens.start))
    trees = sort_rows(tokens.input_ids, tokens.offsets) if layout == "tree" else None
    source = torch.tensor(parts.source, dtype=torch.int64)[steps.trajectory]
    pictures = tokens.pictures or ((),) * (len(tokens.offsets) - 1)
    if image_tokens is not None:
        for shown, seen in zip(np.split(tokens.input_ids, tokens.offsets[1:-1]), pictures, strict=True):
            image_tokens.check(shown.tolist(), seen)
    return Batch(
        ids, row, wrote, sampled, start, steps, trees, image_tokens, pictures, None if labels_of is None else label,
        *(None if values is None else torch.tensor(values)[source] for values in (counts, tasks)),
    )  # fmt: skip
