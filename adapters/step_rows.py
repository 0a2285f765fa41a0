"""The input of an estimator from a batch of episodes, for trainers that assemble it in one process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_envs.adapters.batches import LAST_STATE, TokenBatch, build_batch
from agent_envs.adapters.estimators import StepRows, TokenRows, component_table
from agent_envs.adapters.teacher import LabelsOf, with_labels
from agent_envs.adapters.trained import Trained
from agent_envs.errors import needs_extra

with needs_extra("hf"):
    import torch


def step_batch(
    parts: Trained, layout: str = "merged", baselines: Sequence[float] | None = None, labels_of: LabelsOf | None = None
) -> tuple[TokenBatch, StepRows, torch.Tensor, torch.Tensor]:
    """Return the tokens and the steps of trajectories.

    The layout of the rows is as for ``build_batch``. ``baselines`` are for ``remax``: of each episode, the return of a
    greedy episode of the same task. ``labels_of`` is a teacher.

    Returns:
        The rows of tokens, and of labels; the steps, sorted by trajectory and index, of which one that is not valid was
        never taken (it stands for the state that a limit left an episode in); and of each token the step that wrote it
        and the step whose label it is in, -1 for none, int64, shape [tokens].
    """
    tokens = build_batch(parts.episodes, layout)
    taken = [  # index, step, and the info that the policy had before it acted
        (t, step, episode.steps[t - 1].info if t else episode.reset_info)
        for episode in parts.episodes
        for t, step in enumerate(episode.steps)
        if step.prompt_ids and step.response_ids
    ]
    label = np.full(len(tokens.input_ids), -1)
    if labels_of is not None:
        states = zip(tokens.episode, taken, strict=True)
        ids = labels_of([(parts.episodes[i], step, info) for i, (_, step, info) in states])
        tokens, label = with_labels(tokens, [step for _, step, _ in taken], ids)
    trajectory = torch.from_numpy(tokens.episode)
    valid = torch.tensor([LAST_STATE not in step.info for _, step, _ in taken], dtype=torch.bool)
    wrote = torch.from_numpy(tokens.step_ids)
    wrote = torch.where(torch.cat([valid, valid.new_zeros(1)])[wrote], wrote, -1)  # -1 reads the last one
    anchors = [str(info.get("anchor", "")) for _, _, info in taken]
    numbers = {text: i for i, text in enumerate(dict.fromkeys(anchors))}
    components, names = component_table([step.info.get("reward_components") or {} for _, step, _ in taken])
    envs = {env: i for i, env in enumerate(dict.fromkeys(episode.env_id for episode in parts.episodes))}
    steps = StepRows(
        rewards=torch.from_numpy(tokens.rewards),
        trajectory=trajectory,
        step=torch.tensor([t for t, _, _ in taken], dtype=torch.int64),
        group=torch.tensor(parts.groups)[trajectory],
        valid=valid,
        truncated=torch.tensor([step.truncated and not step.terminated for _, step, _ in taken], dtype=torch.bool),
        tokens=TokenRows(wrote),
        baseline=None if baselines is None else torch.tensor(baselines).double()[parts.source][trajectory],
        anchor=torch.tensor([numbers[anchor] for anchor in anchors], dtype=torch.int64),
        anchor_texts=list(numbers),
        components=components if names else None,
        component_names=names,
        time=torch.tensor([step.time or 0 for _, step, _ in taken], dtype=torch.int64) if parts.timed else None,
        role=None if parts.roles is None else torch.tensor(parts.roles)[trajectory],
        env=torch.tensor([envs[e.env_id] for e in parts.episodes])[trajectory] if len(envs) > 1 else None,
        names=[episode.episode_id for episode in parts.episodes],
    )
    return tokens, steps, wrote, torch.from_numpy(label)
