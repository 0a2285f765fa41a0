"""Give recorded episodes another reward: replay their actions in another environment, or apply a function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.episodes.plain import recorded, to_json_types
from agent_envs.episodes.record import Episode, Step
from agent_envs.errors import ConfigError

RewardFunction = Callable[[Episode], "float | Sequence[float]"]
"""Returns the return of an episode, or the reward of each step."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replayed episode."""

    episode: Episode
    """The recorded episode with the rewards and the info of the replay."""
    differing: int
    """Number of observations that differ from the recorded ones."""
    left: int
    """Number of recorded steps after the end of the replay."""


def replay(env: gym.Env[Any, str], episode: Episode) -> Replayed:
    """Replay the actions of a recorded episode on the same task.

    What the policy saw and wrote stays as recorded, tokens included; rewards, `terminated` and info come from the
    replay. Steps after the end of the replay are kept with reward 0.

    Args:
        env: The environment, with different arguments or wrappers than when the episode was recorded.
        episode: An episode with an index or a seed.

    Raises:
        TaskIndexError: The environment has no task with the episode's index.
    """
    options = None if episode.index is None else {"index": episode.index}
    observation, info = env.reset(seed=episode.seed, options=options)
    reset_info = {**episode.reset_info, **to_json_types(info)}
    steps: list[Step] = []
    differing, left, ended = 0, 0, False
    for step in episode.steps:
        if ended:
            left += 1
            steps.append(_rewarded(step, 0.0, {}))
            continue
        differing += recorded(observation) != step.observation
        observation, reward, terminated, truncated, info = env.step(step.action)
        ended = bool(terminated or truncated)
        info = {**step.info, **to_json_types(info)}
        cut = step.truncated or bool(truncated and not terminated)
        steps.append(replace(step, reward=float(reward), terminated=bool(terminated), truncated=cut, info=info))
    if episode.steps and not left:
        differing += recorded(observation) != episode.final_observation
    return Replayed(replace(episode, steps=tuple(steps), reset_info=reset_info), differing, left)


def reward_by(function: RewardFunction, episode: Episode, name: str) -> Episode:
    """Return the episode with the rewards that a function computes.

    Args:
        function: Takes the recorded episode and returns one number, for the last step, or a number for each step.
        name: The name of the reward's only component in the result.

    Raises:
        ConfigError: The function returns anything else.
    """
    result = function(episode)
    count = len(episode.steps)
    one = isinstance(result, (int, float, np.number))
    try:
        rewards = [float(result)] if one else [float(reward) for reward in result]  # type: ignore[arg-type, union-attr]
    except (TypeError, ValueError) as e:
        raise ConfigError(f"{name} must return a number, or one for each step, got {result!r:.80}") from e
    if one:
        rewards = [0.0] * (count - 1) + rewards if count else []
    if len(rewards) != count or not all(map(math.isfinite, rewards)):
        raise ConfigError(
            f"{name} must return a finite number, or one for each of the {count} steps of episode "
            f"{episode.episode_id!r}, got {result!r:.80}"
        )
    steps = [_rewarded(step, reward, {name: reward}) for step, reward in zip(episode.steps, rewards, strict=True)]
    return replace(episode, steps=tuple(steps))


def _rewarded(step: Step, reward: float, components: dict[str, float]) -> Step:
    return replace(step, reward=reward, info={**step.info, "reward_components": components})
