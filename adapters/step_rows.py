"""The input of an estimator from a batch of episodes, for trainers that assemble it in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.adapters.batches import LAST_STATE, TokenBatch
from agent_envs.adapters.estimators import StepRows, TokenRows, component_table
from agent_envs.adapters.trained import Trained
from agent_envs.episodes.record import Episode, Step
from agent_envs.errors import needs_extra

with needs_extra("hf"):
    import torch

TakenStep = tuple[int, Step, Mapping[str, Any]]
"""The index of a step in its episode, the step, and the info that the policy had before it acted."""


def steps_taken(episodes: Sequence[Episode]) -> list[TakenStep]:
    """Return the steps of a batch's episodes that have tokens, in the order of the batch."""
    return [
        (t, step, episode.steps[t - 1].info if t else episode.reset_info)
        for episode in episodes
        for t, step in enumerate(episode.steps)
        if step.prompt_ids and step.response_ids
    ]


def step_rows(
    tokens: TokenBatch, parts: Trained, taken: Sequence[TakenStep], baselines: Sequence[float] | None = None
) -> StepRows:
    """Return reward, trajectory, group, ... of each step, sorted by trajectory and index.

    A step that is not valid was never taken: it stands for the state that a limit left an episode in. The step of each
    token (``tokens.step_row``) is -1 for what is not trained.

    Args:
        tokens: The batch of ``parts.episodes``.
        parts: The trajectories.
        taken: Their steps, as ``steps_taken`` returns them.
        baselines: For ``remax``: for each episode, the return of a greedy episode of the same task.
    """
    trajectory = torch.from_numpy(tokens.episode)
    valid = torch.tensor([LAST_STATE not in step.info for _, step, _ in taken], dtype=torch.bool)
    wrote = torch.from_numpy(tokens.step_ids)
    wrote = torch.where(torch.cat([valid, valid.new_zeros(1)])[wrote], wrote, -1)  # -1 reads the last one
    anchors = [str(info.get("anchor", "")) for _, _, info in taken]
    numbers = {text: i for i, text in enumerate(dict.fromkeys(anchors))}
    components, names = component_table([step.info.get("reward_components") or {} for _, step, _ in taken])
    envs = {env: i for i, env in enumerate(dict.fromkeys(episode.env_id for episode in parts.episodes))}
    return StepRows(
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
