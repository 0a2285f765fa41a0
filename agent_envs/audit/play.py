"""Plays any environment over text, with or without this package's contract, by the rollout's runner."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.audit.guard import Guard, Stuck
from agent_envs.checks import integer
from agent_envs.episodes.record import Episode, Step, StopReason
from agent_envs.errors import AgentEnvsError, ConfigError, EpisodeStop
from agent_envs.messages import observation_text
from agent_envs.policies.policy import Response
from agent_envs.registration import layers, make_env, offered_tools
from agent_envs.rollout.episode_run import EpisodeRun, EpisodeTask
from agent_envs.text_env import TextEnv
from agent_envs.threads import background_loop
from agent_envs.wrappers.text_game import TextGame

_STALLED = 3  # times that an action may change nothing before an episode is left
_MOST_STEPS = 200  # of an episode without a limit of its own


@dataclass(frozen=True, slots=True)
class View:
    """What an attack sees before it acts: all that a policy sees."""

    task: int
    """The task's index, or the seed of a reset."""
    start: str
    """The first observation."""
    observation: str
    """The latest observation."""
    info: dict[str, Any]
    """The latest info."""
    env: gym.Env[Any, Any]
    """The environment, for experts and listed actions."""
    step: int = 0
    """Actions so far."""

    @property
    def instructions(self) -> str:
        """How to act, as the environment says it in this task."""
        return str(self.env.get_wrapper_attr("instructions"))


Act = Callable[[View], str | None]
"""Returns the next action; None leaves the episode."""


class Played(Episode):
    """An episode that was played, and what an audit asks of it."""

    __slots__ = ()

    @property
    def task(self) -> int:
        """The task's index, or the seed of the reset."""
        return (self.index or 0) if self.seed is None else self.seed

    @property
    def start(self) -> str:
        """The first observation."""
        return str(self.steps[0].observation if self.steps else self.final_observation)

    @property
    def actions(self) -> list[str]:
        """What was said."""
        return [step.action for step in self.steps]

    @property
    def over(self) -> bool:
        """Whether the task or a limit ended it."""
        return self.stop_reason in (StopReason.TERMINATED, StopReason.TRUNCATED)

    @property
    def info(self) -> dict[str, Any]:
        """The latest info."""
        return self.steps[-1].info if self.steps else self.reset_info

    @property
    def told(self) -> bool | None:
        """Whether the info of the last step calls the task solved; None if it says nothing."""
        told = self.info.get("success") if self.steps else None
        return None if told is None else bool(told)

    @property
    def last(self) -> str:
        """The last observation."""
        return str(self.final_observation)

    @property
    def transcript(self) -> list[tuple[Any, ...]]:
        """What the same actions must lead to again: observation, reward, end, truncation and success of each step."""
        shown = [*(step.observation for step in self.steps), self.final_observation]
        told = [(str(step.reward), step.terminated, step.truncated, step.info.get("success")) for step in self.steps]
        return [(text, *rest) for text, rest in zip(shown, [("", False, False, None), *told], strict=True)]

    def extended(self, action: str, *result: Any) -> Played:
        """Return the episode with one more step: an action and what `step` returned for it."""
        observation, reward, terminated, truncated, info = result
        step = Step(self.last, action, float(reward), bool(terminated), bool(truncated), dict(info))
        return dataclasses.replace(self, steps=(*self.steps, step), final_observation=_text(observation))


class _Said(Response):
    """An action that may be empty, as those of silent policies are."""

    @property
    def empty(self) -> bool:
        return False


class _Stage(gym.Wrapper[Any, Any, Any, Any]):
    """Shows an environment as the runner needs it: observations as text, with instructions and tools."""

    def __init__(self, env: gym.Env[Any, Any], arena: Arena) -> None:
        super().__init__(env)
        self._shared = arena  # no part of snapshots

    @property
    def instructions(self) -> str:
        return str(_attribute(self.env, "instructions", ""))

    @property
    def tools(self) -> list[Any]:
        return list(_attribute(self.env, "tools", ()))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._shared.paid = 0.0
        with self._shared.guard.call(None):
            try:
                observation, info = self.env.reset(seed=seed, options=options)
            except ConfigError as e:
                self._shared.refused = e
                raise
        return _text(observation), dict(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        began = time.perf_counter()
        with self._shared.guard.call(action):
            observation, reward, terminated, truncated, info = self.env.step(action)
        self._shared.seconds = time.perf_counter() - began
        self._shared.paid += float(reward)
        return _text(observation), float(reward), bool(terminated), bool(truncated), dict(info)


class _Player:
    """Policy and actor of one episode, which an attack plays; it keeps the action whose step may raise."""

    def __init__(self, arena: Arena, task: int, act: Act, patient: bool) -> None:
        self.arena, self.task, self.attack, self.patient = arena, task, act, patient
        self.actions: list[str] = []
        self._observations: list[str] = []
        self._env: Any = None

    def start(self, env: gym.Env[Any, Any]) -> _Player:
        self._env = env
        return self

    def act(self, observation: Any, info: dict[str, Any]) -> Response:
        self._observations.append(observation)
        actions, start = self.actions, self._observations[0]
        same = len({*self._observations[-_STALLED:]}) == len({*actions[-_STALLED:]}) == 1 and len(actions) >= _STALLED
        if len(actions) > self.arena.limit or (same and not self.patient and not self.arena.paid):
            raise EpisodeStop
        action = self.attack(View(self.task, start, observation, info, self._env, len(actions)))
        if action is None or not self._env.action_space.contains(action):
            raise EpisodeStop
        actions.append(action)
        return _Said(action)


class Arena:
    """An environment under attack: it is made here, as often as needed, and every episode is played here.

    Args:
        source: An id or a spec, or a function that makes the environment. Discrete actions are played by their names,
            and observations that are no text are shown as one.
        env_kwargs: Its keyword arguments.
        tasks: Number of tasks to play.
        guard: What an environment that never returns is left by.
    """

    def __init__(self, source: Any, env_kwargs: Mapping[str, Any], tasks: int, guard: Guard | None = None) -> None:
        self.source, self.env_kwargs, self.guard = source, env_kwargs, guard or Guard(math.inf)
        self.episodes = 0
        self.paid = self.seconds = 0.0
        """What the episode being played has earned, and how long its latest step took."""
        self.refused: ConfigError | None = None
        """Why the environment does not take the latest reset."""
        self.watch: Callable[[Played], None] = lambda played: None
        """Sees every episode that ends."""
        self._made: list[gym.Env[Any, Any]] = []
        self.env = self.fresh()
        tools = offered_tools(self.env) if self.env.has_wrapper_attr("format_call") else []
        self.functions = [tool["function"] for tool in tools]
        """The tools that can be called."""
        base = self.env.unwrapped
        size = base.num_tasks if isinstance(base, TextEnv) else None
        self.indexed = size is not None or any(isinstance(layer, TextGame) for layer in layers(self.env))
        wanted = integer("tasks", tasks, minimum=1)
        if size is None:
            self.tasks = list(range(wanted))
        else:
            drawn = np.random.default_rng(0).choice(size, min(wanted, size), replace=False)
            self.tasks = sorted(map(int, drawn))
        limits = [layer._max_episode_steps for layer in layers(self.env) if isinstance(layer, gym.wrappers.TimeLimit)]
        self.limit = min([_MOST_STEPS, *limits])

    def fresh(self, **kwargs: Any) -> gym.Env[Any, Any]:
        """Return another instance, which `close` closes; some arguments may be others."""
        arguments = {**self.env_kwargs, **kwargs}
        env = self.source(**arguments) if callable(self.source) else make_env(self.source, **arguments)
        staged = _Stage(TextGame(env) if isinstance(env.action_space, gym.spaces.Discrete) else env, self)
        self._made.append(staged)
        return staged

    def close(self) -> None:
        """Close every instance."""
        for env in self._made:
            with contextlib.suppress(Exception):
                env.close()

    def sample(self, most: int) -> list[int]:
        """Return at most so many of the tasks, from all over them."""
        return self.tasks[:: -(-len(self.tasks) // most)]

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return a call of a tool as the environment reads it."""
        return str(self.env.get_wrapper_attr("format_call")(name, arguments))

    def play(
        self, task: int, act: Act, *, options: Mapping[str, Any] | None = None, patient: bool = False, env: Any = None
    ) -> Played:
        """Play an episode.

        Args:
            task: The task.
            act: Chooses the actions. One that the action space does not contain leaves the episode.
            options: Further options of the reset.
            patient: Whether to go on although the same action changes nothing, as far as the limit.
            env: An instance other than the first.

        Returns:
            The episode. What the environment raises is its `error`, and is not raised.

        Raises:
            ConfigError: The environment refuses the reset.
            Stuck: The environment did not return in time.
        """
        self.episodes += 1
        self.refused, self.guard.task = None, task
        reset_options = {**({"index": task} if self.indexed else {}), **(options or {})}
        player = _Player(self, task, act, patient)
        runner = EpisodeTask(player, None if self.indexed else task, reset_options or None, episode_id="")
        run = EpisodeRun(self.env if env is None else env, runner, background_loop())
        error, stuck = None, None
        try:
            run.play()
        except Stuck as e:
            error, stuck = f"it did not return in {self.guard.seconds:g} seconds", e
        except SystemExit:
            error = traceback.format_exc()
        if self.refused is not None:
            raise self.refused
        episode = run.episode()
        values = {field.name: getattr(episode, field.name) for field in dataclasses.fields(episode)}
        played = Played(**{**values, "error": error or episode.error})
        if played.error and len(player.actions) > len(played.steps):  # the action that failed
            played = played.extended(player.actions[-1], played.last, 0.0, False, False, {})
        if stuck is not None:
            stuck.played = played
            raise stuck
        self.watch(played)
        return played


def scripted(actions: Sequence[str]) -> Act:
    """Return what plays some actions in order and then leaves.

    >>> scripted(["a", "b"])(View(0, "", "", {}, env=None, step=1))
    'b'
    """
    return lambda view: actions[view.step] if view.step < len(actions) else None


def _attribute(env: gym.Env[Any, Any], name: str, default: Any) -> Any:
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else default


def _text(observation: Any) -> str:
    if isinstance(observation, Mapping) and "text" not in observation:
        return "\n".join(f"{name}: {value}" for name, value in observation.items())
    try:
        return observation_text(observation)
    except (AgentEnvsError, TypeError, KeyError, AttributeError):
        return str(observation)
