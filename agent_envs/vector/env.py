"""Text environments behind Gymnasium's vector interface, none of which waits for another one without need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import gymnasium as gym
import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agent_envs.errors import ConfigError, VectorEnvError
from agent_envs.messages import Observation
from agent_envs.vector.fleet import EnvFleet, Job
from agent_envs.vector.infos import batch_infos

__all__ = ["Received", "TextVectorEnv"]

EnvFn = Callable[[], gym.Env[Any, str]]
Stepped = tuple[tuple[Observation, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
_LISTS = (Sequence, np.ndarray)


class Received(NamedTuple):
    """What some environments did, in the order in which they were ready."""

    env_ids: np.ndarray
    """Their numbers, shape [ready]."""
    observations: tuple[Observation, ...]
    """What each said (ready)."""
    rewards: np.ndarray
    """float64, shape [ready]; 0 for a reset."""
    terminations: np.ndarray
    """bool, shape [ready]."""
    truncations: np.ndarray
    """bool, shape [ready]."""
    infos: list[dict[str, Any]]
    """The info of each (ready)."""


class TextVectorEnv(VectorEnv[tuple[Observation, ...], Sequence[str | None], np.ndarray]):
    """Environments that are stepped side by side, each with its own task, and never reset by themselves.

    It equals as many single environments, each stepped on its own. Autoreset is DISABLED: an environment whose episode
    is over is reset with a mask, or left alone with the action None.

    ``step`` has to return what all have said, so it waits for the slowest of those that were given an action, and for
    nobody else. ``send`` and ``recv`` do not even do that: each environment goes on at its own pace.

    Environments that compute are stepped one after the other in the calling thread, as handing them to threads would
    take longer; once a step has taken a millisecond, those that are still to come run in a thread each. Threads are the
    process's idle ones, and go back after each call.

    An environment that raises is reported by a ``VectorEnvError``, which names it and holds what the others did. It is
    made anew at its next reset.

    Args:
        env_fns: Functions that make the environments, one each.

    Raises:
        ConfigError: The environments are none over text, or not alike.
    """

    metadata: dict[str, Any]

    def __init__(self, env_fns: Sequence[EnvFn]) -> None:
        if not env_fns:
            raise ConfigError("env_fns must hold at least one function that makes an environment")
        self._fleet = EnvFleet(env_fns)
        first = self.envs[0]
        if not first.has_wrapper_attr("instructions"):
            raise ConfigError(f"{first} is no environment over text; gymnasium.make_vec takes any")
        for env in self.envs:
            if env.observation_space != first.observation_space or env.action_space != first.action_space:
                raise ConfigError(f"the environments are not alike: {env} and {first} have other spaces")
        self.num_envs = len(self.envs)
        self.render_mode = first.render_mode
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._all = range(self.num_envs)
        self._observations: list[Observation] = [""] * self.num_envs
        self._unfit = ["was never reset"] * self.num_envs  # why it cannot be stepped, "" where it can

    @property
    def envs(self) -> list[gym.Env[Any, str]]:
        """The environments."""
        return self._fleet.envs

    # -- all at once ---------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Observation, ...], dict[str, Any]]:
        """Begin a task in each environment, or in those of a mask.

        Args:
            seed: Seeds environment i with ``seed + i``; or one seed (or None) per environment.
            options: ``"reset_mask"``: bool, shape [environments], who is reset (default: all; a call that is under way
                in one is given up). ``"env_options"``: the reset options of each environment (or None). All else goes
                to every environment.

        Returns:
            The observations of all (those that were not reset say what they said last, "" before their first reset),
            and the infos of those that were reset.

        Raises:
            ConfigError: The arguments do not fit.
            VectorEnvError: Environments raised; the others are reset.
        """
        self._check_open()
        mask, each = self._reset_options(options)
        seeds = self._seeds(seed)
        jobs = {i: Job(seed=seeds[i], options=each[i]) for i in self._all if mask[i]}
        for i in jobs:
            self._fleet.give_up(i)
        outcomes = self._perform(jobs)
        done = {i: self._note(i, outcome) for i, outcome in outcomes.items()}
        result = (tuple(self._observations), batch_infos([done[i][4] if i in done else None for i in self._all]))
        self._raise_failures(outcomes, result)
        return result

    def step(self, actions: Sequence[str | None]) -> Stepped:
        """Carry out an action in each environment; the action None leaves one alone.

        One that is left alone says what it said last, with reward 0, neither terminated nor truncated, and no info.

        Args:
            actions: Texts or None (environments).

        Returns:
            Observations (environments), rewards float64, terminations bool, truncations bool (each of shape
            [environments]), infos.

        Raises:
            gymnasium.error.ResetNeeded: An action for an environment whose episode is over; nothing has been stepped.
            gymnasium.error.AlreadyPendingCallError: An action for one that was sent another.
            ConfigError: There are more or fewer actions than environments, or one is no text.
            VectorEnvError: Environments raised; the others were stepped.
        """
        given = self._actions(actions)
        outcomes = self._perform({i: Job(action) for i, action in given.items()})
        done = {i: self._note(i, outcome) for i, outcome in outcomes.items()}
        rewards = np.array([done[i][1] if i in done else 0.0 for i in self._all], np.float64)
        ends = [np.array([i in done and done[i][k] for i in self._all], np.bool_) for k in (2, 3)]
        infos = batch_infos([done[i][4] if i in done else None for i in self._all])
        result = (tuple(self._observations), rewards, ends[0], ends[1], infos)
        self._raise_failures(outcomes, result)
        return result

    # -- each at its own pace --------------------------------------------------------------------------------------

    def send(self, actions: Mapping[int, str] | Sequence[str | None]) -> None:
        """Begin to carry out actions, each in a thread, and return at once.

        Args:
            actions: By the environment's number, or one text or None per environment.

        Raises:
            The same as ``step``, except that errors of environments come with ``recv``.
        """
        if isinstance(actions, Mapping):
            for i in actions:
                self._check_number(i)
            actions = [actions.get(i) for i in self._all]
        for i, action in self._actions(actions).items():
            self._fleet.begin(i, Job(action))

    def send_reset(
        self,
        env_ids: Sequence[int],
        *,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        """Begin to reset some environments, and return at once. Their first observations come with ``recv``.

        Args:
            env_ids: Who is reset; a call that is under way in one is given up.
            seeds: A seed or None for each (env_ids).
            options: Reset options or None for each (env_ids).

        Raises:
            ConfigError: The arguments do not fit.
        """
        self._check_open()
        for i in env_ids:
            self._check_number(i)
        for name, values in (("env_ids", set(env_ids)), ("seeds", seeds), ("options", options)):
            if values is not None and (isinstance(values, (str, Mapping)) or len(values) != len(env_ids)):
                raise ConfigError(f"{name} must have one entry for each of the {len(env_ids)} environments")
        for k, i in enumerate(env_ids):
            self._fleet.give_up(i)
            self._fleet.begin(
                i, Job(None, None if seeds is None else seeds[k], None if options is None else options[k])
            )

    def recv(self, min_ready: int = 1, timeout: float | None = None) -> Received:
        """What the environments that are ready did, waiting for ``min_ready`` of them at least.

        Args:
            min_ready: How many to wait for; no more than are under way.
            timeout: Seconds after which fewer, or none, are returned.

        Raises:
            gymnasium.error.NoAsyncCallError: None was sent anything.
            VectorEnvError: Environments raised; ``results`` has what the others did.
        """
        self._check_open()
        if not self._fleet.under_way:
            raise NoAsyncCallError("no environment is under way: send() or send_reset() comes first", "recv")
        wanted = min(min_ready, len(self._fleet.under_way))
        outcomes = self._fleet.receive(wanted, timeout)
        done = {i: self._note(i, outcome) for i, outcome in outcomes.items()}
        whole = {i: step for i, step in done.items() if not isinstance(outcomes[i], BaseException)}
        result = Received(
            np.array(list(whole), np.int64),
            tuple(step[0] for step in whole.values()),
            np.array([step[1] for step in whole.values()], np.float64),
            np.array([step[2] for step in whole.values()], np.bool_),
            np.array([step[3] for step in whole.values()], np.bool_),
            [step[4] or {} for step in whole.values()],
        )
        self._raise_failures(outcomes, result)
        return result

    # -- the rest of Gymnasium's interface -------------------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What a method (or an attribute) of each environment says."""
        found = (env.get_wrapper_attr(name) for env in self.envs)
        return tuple(value(*args, **kwargs) if callable(value) else value for value in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each environment, its wrappers looked at first."""
        return tuple(env.get_wrapper_attr(name) for env in self.envs)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment: a list or tuple has one value each, anything else is for all."""
        each = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ConfigError(f"values must have one entry for each of the {self.num_envs} environments")
        for env, value in zip(self.envs, each, strict=True):
            env.set_wrapper_attr(name, value)

    def render(self) -> tuple[Any, ...]:
        """What each environment renders."""
        return tuple(env.render() for env in self.envs)

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generator of each environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each environment's generator."""
        return self.get_attr("np_random_seed")

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments. One that is under way is closed by its thread when it comes back."""
        self._fleet.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _perform(self, jobs: Mapping[int, Job]) -> dict[int, Any]:
        try:
            return self._fleet.perform_all(jobs)
        except BaseException:  # what those that were done have said is lost
            for i in jobs:
                self._unfit[i] = "was interrupted"
            raise

    def _note(self, i: int, outcome: Any) -> tuple[Any, float, bool, bool, dict[str, Any] | None]:
        """What an outcome means for the environment; nothing new is said where it failed."""
        if isinstance(outcome, Exception):
            self._unfit[i] = "raised an error"
            return self._observations[i], 0.0, False, False, None
        observation, reward, terminated, truncated, info = outcome
        self._observations[i] = observation
        self._unfit[i] = "has come to its end" if terminated or truncated else ""
        return observation, float(reward), bool(terminated), bool(truncated), info

    def _raise_failures(self, outcomes: Mapping[int, Any], results: Any) -> None:
        errors = {i: outcome for i, outcome in outcomes.items() if isinstance(outcome, Exception)}
        if errors:
            raise VectorEnvError(errors, self.num_envs, results) from next(iter(errors.values()))

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the environments are closed")

    def _check_number(self, i: Any) -> None:
        if not _is_integer(i) or not 0 <= i < self.num_envs:
            raise ConfigError(f"environments have the numbers 0 to {self.num_envs - 1}, got {i!r}")

    def _actions(self, actions: Sequence[str | None]) -> dict[int, str]:
        """The actions by environment, once it is sure that all can be carried out."""
        self._check_open()
        if isinstance(actions, str) or not isinstance(actions, _LISTS) or len(actions) != self.num_envs:
            raise ConfigError(f"expected {self.num_envs} actions, each a text or None, got {actions!r:.80}")
        given: dict[int, str] = {}
        for i, action in enumerate(actions):
            if action is None:
                continue
            if not isinstance(action, str):
                raise ConfigError(f"the action of environment {i} must be a text or None, got {action!r:.80}")
            if i in self._fleet.under_way:
                raise AlreadyPendingCallError(f"environment {i} is under way: recv() first", "send")
            if self._unfit[i]:
                how = "reset it (options={'reset_mask': mask}), or leave it alone with the action None"
                raise ResetNeeded(f"environment {i} {self._unfit[i]}: {how}")
            given[i] = str(action)
        return given

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if _is_integer(seed):
            return [int(seed) + i for i in self._all]
        if not isinstance(seed, _LISTS) or len(seed) != self.num_envs:
            raise ConfigError(f"seed must be an integer or {self.num_envs} of them (or None), got {seed!r:.80}")
        for s in seed:
            if s is not None and not _is_integer(s):
                raise ConfigError(f"each seed must be an integer or None, got {s!r:.80}")
        return [None if s is None else int(s) for s in seed]

    def _reset_options(self, options: Mapping[str, Any] | None) -> tuple[np.ndarray, list[dict[str, Any] | None]]:
        """Who is reset, and with which options each."""
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(f"options must be a mapping, got {options!r:.80}")
        common = dict(options or {})
        mask = np.asarray(common.pop("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ConfigError(f"reset_mask must be {self.num_envs} booleans, one of them True at least, got {mask!r}")
        each = common.pop("env_options", [None] * self.num_envs)
        if isinstance(each, (str, Mapping)) or not isinstance(each, Sequence) or len(each) != self.num_envs:
            raise ConfigError(f"env_options must hold options or None for each of {self.num_envs}, got {each!r:.80}")
        for i, mine in enumerate(each):
            if mine is not None and not isinstance(mine, Mapping):
                raise ConfigError(f"env_options of environment {i} must be a mapping or None, got {mine!r:.80}")
        return mask, [{**common, **(mine or {})} or None for mine in each]


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
