"""Text environments behind Gymnasium's vector interface that wait for each other only where they must."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agent_envs import checks
from agent_envs.errors import ConfigError, VectorEnvError
from agent_envs.messages import Observation
from agent_envs.vector.fleet import Command, EnvFleet
from agent_envs.vector.infos import batch_infos

EnvFn = Callable[[], gym.Env[Any, str]]
Stepped = tuple[tuple[Observation, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
_LISTS = (Sequence, np.ndarray)


class Received(NamedTuple):
    """The results of the environments that are ready, in the order in which they became so."""

    env_ids: np.ndarray
    """The environments' numbers, shape [ready]."""
    observations: tuple[Observation, ...]
    """The observation of each (ready)."""
    rewards: np.ndarray
    """float64, shape [ready]; 0 for a reset."""
    terminations: np.ndarray
    """bool, shape [ready]."""
    truncations: np.ndarray
    """bool, shape [ready]."""
    infos: list[dict[str, Any]]
    """The info of each (ready)."""


class TextVectorEnv(VectorEnv[tuple[Observation, ...], Sequence[str | None], np.ndarray]):
    """Environments that are stepped side by side, each with its own task, and that never reset themselves.

    It does exactly what the same number of single environments would do. Autoreset is DISABLED: reset an environment
    whose episode is over with a mask, or leave it alone with the action None.

    `step` returns the results of all environments, so it waits for the slowest one that was given an action. With
    `send` and `recv` each environment runs at its own pace.

    Short steps run one after the other in the calling thread, because handing them to threads would take longer; once a
    step has taken a millisecond, the remaining ones run in a thread each. Threads are shared by the whole process.

    If environments raise, a `VectorEnvError` names them and holds the results of the others. An environment that raised
    is replaced at its next reset.

    Args:
        env_fns: Functions that make the environments, one each.

    Raises:
        ConfigError: The environments are not text environments, or their spaces differ.
    """

    metadata: dict[str, Any]

    def __init__(self, env_fns: Sequence[EnvFn]) -> None:
        if not env_fns:
            raise ConfigError("env_fns must hold at least one function that makes an environment")
        self._fleet = EnvFleet(env_fns)
        first = self.envs[0]
        if not first.has_wrapper_attr("instructions"):
            raise ConfigError(f"{first} is not a text environment; gymnasium.make_vec takes any environment")
        for env in self.envs:
            if env.observation_space != first.observation_space or env.action_space != first.action_space:
                raise ConfigError(f"the environments must have the same spaces; those of {env} and {first} differ")
        self.num_envs = len(self.envs)
        self.render_mode = first.render_mode
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._all = range(self.num_envs)
        self._observations: list[Observation] = [""] * self.num_envs
        self._unfit = ["was never reset"] * self.num_envs  # why it cannot be stepped, "" if it can

    @property
    def envs(self) -> list[gym.Env[Any, str]]:
        """The environments."""
        return self._fleet.envs

    # -- all at once ---------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Observation, ...], dict[str, Any]]:
        """Start a task in each environment, or in those that a mask selects.

        Args:
            seed: Seeds environment i with `seed + i`; or one seed (or None) per environment.
            options: `"reset_mask"`: bool, shape [environments], which ones to reset (default: all; their pending
                actions are abandoned). `"env_options"`: the reset options of each environment (or None). Everything
                else goes to every environment.

        Returns:
            The observations of all environments (the last one for those that were not reset, "" before their first
            reset), and the infos of those that were reset.

        Raises:
            ConfigError: An argument is wrong.
            VectorEnvError: Some environments raised; the others were reset.
        """
        self._check_open()
        mask, each = self._reset_options(options)
        seeds = self._seeds(seed)
        commands = {i: Command(seed=seeds[i], options=each[i]) for i in self._all if mask[i]}
        for i in commands:
            self._fleet.abandon(i)
        outcomes = self._perform(commands)
        done = {i: self._note(i, outcome) for i, outcome in outcomes.items()}
        result = (tuple(self._observations), batch_infos([done[i][4] if i in done else None for i in self._all]))
        self._raise_failures(outcomes, result)
        return result

    def step(self, actions: Sequence[str | None]) -> Stepped:
        """Carry out an action in each environment; the action None leaves one alone.

        The result of one that is left alone is its last observation, reward 0, no end and no info.

        Args:
            actions: A text or None for each (environments).

        Returns:
            Observations (environments), rewards float64, terminations bool, truncations bool (each of shape
            [environments]), infos.

        Raises:
            gymnasium.error.ResetNeeded: An action for an environment whose episode is over; nothing was stepped.
            gymnasium.error.AlreadyPendingCallError: An action for one whose last `send` is pending.
            ConfigError: The number of actions is not that of environments, or one is not a string.
            VectorEnvError: Some environments raised; the others were stepped.
        """
        outcomes = self._perform({i: Command(action) for i, action in self._actions(actions).items()})
        done = {i: self._note(i, outcome) for i, outcome in outcomes.items()}
        rewards = np.array([done[i][1] if i in done else 0.0 for i in self._all], np.float64)
        ends = [np.array([i in done and done[i][k] for i in self._all], np.bool_) for k in (2, 3)]
        infos = batch_infos([done[i][4] if i in done else None for i in self._all])
        result = (tuple(self._observations), rewards, ends[0], ends[1], infos)
        self._raise_failures(outcomes, result)
        return result

    # -- each at its own pace --------------------------------------------------------------------------------------

    def send(self, actions: Mapping[int, str] | Sequence[str | None]) -> None:
        """Start to carry out actions, each in a thread, and return at once.

        It raises what `step` raises, except that `recv` reports errors of environments.

        Args:
            actions: A mapping from environment number to action, or an action or None for each environment.
        """
        if isinstance(actions, Mapping):
            for i in actions:
                self._check_number(i)
            actions = [actions.get(i) for i in self._all]
        for i, action in self._actions(actions).items():
            self._fleet.begin(i, Command(action))

    def send_reset(
        self,
        env_ids: Sequence[int],
        *,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        """Start to reset some environments and return at once; `recv` returns their first observations.

        Args:
            env_ids: The environments to reset; their pending actions are abandoned.
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
        nothing = [None] * len(env_ids)
        for i, seed, its_options in zip(env_ids, seeds or nothing, options or nothing, strict=True):
            self._fleet.abandon(i)
            self._fleet.begin(i, Command(None, seed, its_options))

    def recv(self, min_ready: int = 1, timeout: float | None = None) -> Received:
        """Return the results of the environments that are ready; wait for at least `min_ready` of them.

        Args:
            min_ready: How many to wait for; at most those that are pending.
            timeout: Seconds after which fewer, or none, are returned.

        Raises:
            gymnasium.error.NoAsyncCallError: Nothing is pending.
            VectorEnvError: Some environments raised; `results` holds those of the others.
        """
        self._check_open()
        if not self._fleet.under_way:
            raise NoAsyncCallError("nothing is pending; call send() or send_reset() first", "recv")
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
        """Call a method of each environment (or read an attribute) and return the results."""
        return tuple(value(*args, **kwargs) if callable(value) else value for value in self.get_attr(name))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each environment; its wrappers are searched first."""
        return tuple(env.get_wrapper_attr(name) for env in self.envs)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment: a list or tuple holds one value each, anything else is for all."""
        each = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ConfigError(f"values must have one entry for each of the {self.num_envs} environments")
        for env, value in zip(self.envs, each, strict=True):
            env.set_wrapper_attr(name, value)

    def render(self) -> tuple[Any, ...]:
        """Render each environment."""
        return tuple(env.render() for env in self.envs)

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generator of each environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each environment's generator."""
        return self.get_attr("np_random_seed")

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments; the thread of one that is still working closes it when it returns."""
        self._fleet.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _perform(self, commands: Mapping[int, Command]) -> dict[int, Any]:
        try:
            return self._fleet.perform_all(commands)
        except BaseException:  # the results of those that were done are lost
            for i in commands:
                self._unfit[i] = "was interrupted"
            raise

    def _note(self, i: int, outcome: Any) -> tuple[Any, float, bool, bool, dict[str, Any] | None]:
        """Note an outcome and return it as a step; after a failure with the last observation."""
        if isinstance(outcome, Exception):
            self._unfit[i] = "raised an error"
            return self._observations[i], 0.0, False, False, None
        observation, reward, terminated, truncated, info = outcome
        self._observations[i] = observation
        self._unfit[i] = "has finished its episode" if terminated or truncated else ""
        return observation, float(reward), bool(terminated), bool(truncated), info

    def _raise_failures(self, outcomes: Mapping[int, Any], results: Any) -> None:
        errors = {i: outcome for i, outcome in outcomes.items() if isinstance(outcome, Exception)}
        if errors:
            raise VectorEnvError(errors, self.num_envs, results) from next(iter(errors.values()))

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the environments are closed")

    def _check_number(self, i: Any) -> None:
        checks.integer("an environment's number", i, minimum=0, maximum=self.num_envs - 1)

    def _actions(self, actions: Sequence[str | None]) -> dict[int, str]:
        """Return the actions by environment after checking that all of them can be carried out."""
        self._check_open()
        if isinstance(actions, str) or not isinstance(actions, _LISTS) or len(actions) != self.num_envs:
            raise ConfigError(f"actions must be {self.num_envs} texts or None, got {checks.shown(actions)}")
        chosen: dict[int, str] = {}
        for i, action in enumerate(actions):
            if action is None:
                continue
            if not isinstance(action, str):
                raise ConfigError(f"the action of environment {i} must be a text or None, got {checks.shown(action)}")
            if i in self._fleet.under_way:
                raise AlreadyPendingCallError(
                    f"the last action of environment {i} is pending; call recv() first", "send"
                )
            if self._unfit[i]:
                how = "reset it (options={'reset_mask': mask}), or leave it alone with the action None"
                raise ResetNeeded(f"environment {i} {self._unfit[i]}: {how}")
            chosen[i] = str(action)
        return chosen

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
            return [int(seed) + i for i in self._all]
        if not isinstance(seed, _LISTS) or len(seed) != self.num_envs:
            raise ConfigError(f"seed must be an integer or {self.num_envs} of them (or None), got {checks.shown(seed)}")
        return [None if one is None else checks.integer("each seed", one) for one in seed]

    def _reset_options(self, options: Mapping[str, Any] | None) -> tuple[np.ndarray, list[dict[str, Any] | None]]:
        """Return the mask of environments to reset, and the options of each."""
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(f"options must be a mapping, got {checks.shown(options)}")
        common = dict(options or {})
        mask = np.asarray(common.pop("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ConfigError(f"reset_mask must be {self.num_envs} booleans, at least one of them True, got {mask!r}")
        each = common.pop("env_options", [None] * self.num_envs)
        if isinstance(each, (str, Mapping)) or not isinstance(each, Sequence) or len(each) != self.num_envs:
            raise ConfigError(f"env_options must hold {self.num_envs} mappings or None, got {checks.shown(each)}")
        for i, mine in enumerate(each):
            if mine is not None and not isinstance(mine, Mapping):
                raise ConfigError(f"env_options of environment {i} must be a mapping or None, got {checks.shown(mine)}")
        return mask, [{**common, **(mine or {})} or None for mine in each]
