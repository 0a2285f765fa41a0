"""The tasks of a run of the PyTorch loop: of each environment, or of each level of one, to train on and held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from agent_envs.adapters.curriculum import Curriculum, number_of_round, registered_id, short_names
from agent_envs.adapters.run import Record
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.episodes.record import Episode
from agent_envs.errors import ConfigError
from agent_envs.wrapping.specs import make_text_env, takes_argument


class Tasks(NamedTuple):
    """The tasks of an environment or of one of its levels."""

    name: str
    """In the metrics: ``level/2``, or the environment's id where there are several; "" if there is nothing to tell."""
    config: LoopConfig
    """The run's settings with this environment, or level, alone."""
    pool: int
    """Number of tasks to train on."""
    held_out: np.ndarray
    """Indices of the tasks to evaluate on, shape [tasks]."""
    space: gym.Space[Any]
    """Of the observations."""
    tool_instructions: str
    """The tools in words."""


class RunTasks:
    """All tasks of a run."""

    def __init__(self, config: LoopConfig) -> None:
        self.config = config
        several, names = len(config.environments) > 1, short_names(str(one.env) for _, one in config.environments)
        self.environments = [
            tasks_of(one, name if several else "") for (_, one), name in zip(config.environments, names, strict=True)
        ]
        """What is held out is of these."""
        self.trained = self.environments
        """What is trained on: the environments, or the levels of the only one."""
        if config.levels:
            levels = Curriculum(config.levels)
            plain: dict[str, Any] = {"levels": {}, "curriculum": "uniform"}
            self.trained = [
                tasks_of(dataclasses.replace(config, env_kwargs={**config.env_kwargs, **own}, **plain), name)
                for name, own in zip(levels.names, levels.env_kwargs, strict=True)
            ]

    def draw(
        self, number: int, records: Sequence[Record], refill: int = 0, count: int | None = None
    ) -> list[tuple[Tasks, np.ndarray]]:
        """Draw the tasks of an iteration, counted from 1: their indices, for each environment or level that has any.

        ``records`` are the metrics of those before, ``refill`` is the number of its further rounds before, each of
        other tasks, and ``count`` how many are drawn if not ``tasks``.
        """
        config, count = self.config, self.config.tasks if count is None else count
        rng = np.random.default_rng([config.seed, number_of_round(number, refill)])
        if config.levels:
            how: dict[str, Any] = {"seed": config.seed, "number": number, "steps": config.steps, "refill": refill}
            drawn = Curriculum(config.levels, config.curriculum).draw(count, records=records, **how)
            counts = [drawn.count(i) for i in range(len(self.trained))]
        elif len(self.trained) > 1:
            counts = rng.multinomial(count, [weight for weight, _ in config.environments]).tolist()
        else:
            counts = [count]
        return [
            (tasks, rng.choice(tasks.pool, min(of_these, tasks.pool), replace=False))
            for tasks, of_these in zip(self.trained, counts, strict=True)
            if of_these
        ]

    def tool_instructions(self, episode: Episode) -> str:
        """Return the tools of an episode's environment in words."""
        known = {registered_id(str(tasks.config.env)): tasks.tool_instructions for tasks in self.environments}
        return known[episode.env_id] if len(known) > 1 else self.environments[0].tool_instructions


def tasks_of(config: LoopConfig, name: str = "") -> Tasks:
    """Return the tasks of the only environment of a run.

    An environment without splits, such as a game by `TextGame`, is evaluated on its last tasks, which are not trained.
    """
    env_id = str(config.env)
    one_split = not takes_argument(env_id, "split")
    sizes: list[int] = []
    for split in (config.split, config.eval_split)[: 2 if config.eval_tasks and not one_split else 1]:
        taught = config.teaching.labels_at(1) and not sizes
        env = make_text_env(env_id, *config.environment_of(split, taught=taught))
        space = env.observation_space
        _, info = env.reset(options={"index": 0})  # a wrapper may reject every task
        if taught and "expert_action" not in info:
            raise ConfigError(
                f"{env_id} has no expert for the first task of its split {split!r}: leave out teacher, or take "
                "data that has one (generated tasks do)"
            )
        if not env.has_wrapper_attr("num_tasks"):
            raise ConfigError(f"{env_id} does not say how many tasks it has (num_tasks), so none can be drawn")
        sizes.append(int(env.get_wrapper_attr("num_tasks")))
        words = env.get_wrapper_attr("tool_instructions") if env.get_wrapper_attr("tools") else ""
        env.close()
    if not config.eval_tasks:
        return Tasks(name, config, sizes[0], np.arange(0), space, words)
    if one_split:
        sizes = [sizes[0] - sizes[0] // 10, sizes[0] // 10]
    first = sizes[0] if one_split else 0
    drawn = first + np.random.default_rng(config.seed).permutation(sizes[1])
    return Tasks(name, config, sizes[0], drawn[: config.eval_tasks], space, words)
