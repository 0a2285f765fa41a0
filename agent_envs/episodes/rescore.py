"""Stored episodes under another reward: actions replayed in another environment, or a function of the episode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.episodes.record import Episode, Step, to_json_types
from agent_envs.errors import ConfigError

__all__ = ["Replayed", "RewardFunction", "replay", "reward_by"]

RewardFunction = Callable[[Episode], "float | Sequence[float]"]
"""From an episode to its return, or to the reward of each step."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """An episode that was played again."""

    episode: Episode
    """The stored episode with the rewards of the replay, and the info it gave."""
    differing: int
    """Observations that were others than the stored ones."""
    left: int
    """Stored steps that could not be played again because the replay had ended."""


def replay(env: gym.Env[Any, str], episode: Episode) -> Replayed:
    """Play a stored episode's actions again, on the same task.

    What the policy saw and wrote stays as it was stored, tokens included; rewards, `terminated` and info are the
    replay's. Steps after the replay's end keep their place with reward 0.

    Args:
        env: Made with other arguments or in other wrappers than the episode's own.
        episode: A stored episode with an index or a seed.

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
        differing += to_json_types(observation) != to_json_types(step.observation)
        observation, reward, terminated, truncated, info = env.step(step.action)
        ended = bool(terminated or truncated)
        info = {**step.info, **to_json_types(info)}
        cut = step.truncated or bool(truncated and not terminated)
        steps.append(replace(step, reward=float(reward), terminated=bool(terminated), truncated=cut, info=info))
    if episode.steps and not left:
        differing += to_json_types(observation) != to_json_types(episode.final_observation)
    return Replayed(replace(episode, steps=tuple(steps), reset_info=reset_info), differing, left)


def reward_by(function: RewardFunction, episode: Episode, name: str) -> Episode:
    """The episode with the rewards that a function gives: a number for the last step, or one for every step.

    Args:
        function: Gets the episode as it was stored.
        episode: The episode.
        name: Of the only reward component from now on.

    Raises:
        ConfigError: It gives something else, or not as many numbers as there are steps.
    """
    given = function(episode)
    count = len(episode.steps)
    one = isinstance(given, (int, float, np.number))
    try:
        rewards = [float(given)] if one else [float(each) for each in given]  # type: ignore[arg-type, union-attr]
    except (TypeError, ValueError) as e:
        raise ConfigError(f"{name} has to return a number, or one for every step; got {given!r:.80}") from e
    if one:
        rewards = [0.0] * (count - 1) + rewards if count else []
    if len(rewards) != count or not all(map(math.isfinite, rewards)):
        raise ConfigError(
            f"{name} has to return a finite number, or one for each of the {count} steps of episode "
            f"{episode.episode_id!r}; got {given!r:.80}"
        )
    steps = [_rewarded(step, reward, {name: reward}) for step, reward in zip(episode.steps, rewards, strict=True)]
    return replace(episode, steps=tuple(steps))


def _rewarded(step: Step, reward: float, components: dict[str, float]) -> Step:
    return replace(step, reward=reward, info={**step.info, "reward_components": components})
