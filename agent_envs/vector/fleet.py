"""The environments of a vector and their threads: each does one thing at a time and is replaced if it breaks.

`agent_envs.vector.env` puts Gymnasium's interface over it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs.rollout.episode_run import close_env
from agent_envs.threads import run_in_thread, run_side_by_side

_Step = tuple[Any, SupportsFloat, bool, bool, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """What one environment should do: carry out an action, or reset if there is none."""

    action: str | None = None
    seed: int | None = None
    options: Mapping[str, Any] | None = None

    def run(self, env: gym.Env[Any, str]) -> _Step:
        """Carry it out; a reset returns reward 0 and no end."""
        if self.action is not None:
            return env.step(self.action)
        options = None if self.options is None else dict(self.options)
        observation, info = env.reset(seed=self.seed, options=options)
        return observation, 0.0, False, False, info


class EnvFleet:
    """Some environments, what each is doing right now, and which must be replaced.

    One thread calls all methods; the environments run in others. Each is made by a function of its own.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gym.Env[Any, str]]]) -> None:
        self._env_fns = tuple(env_fns)
        self.envs = [env_fn() for env_fn in env_fns]
        self.under_way: set[int] = set()
        """Environments whose last command was begun and not yet received."""
        self._ready: SimpleQueue[tuple[int, int, _Step | Exception]] = SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._tickets = [0] * len(self.envs)  # a command with an older ticket was abandoned
        self._busy: set[int] = set()  # carrying out a command right now
        self._broken = [False] * len(self.envs)  # to be replaced at the next reset

    def perform_all(self, commands: Mapping[int, Command]) -> dict[int, _Step | Exception]:
        """Carry out commands and return the outcome of each: what `step` returned, or the exception."""
        calls = {i: functools.partial(self._perform, i, self._tickets[i], command) for i, command in commands.items()}
        try:
            return run_side_by_side(calls)
        except BaseException:  # an interrupt: the others may be anywhere
            for i in commands:
                self.abandon(i)
            raise

    def begin(self, i: int, command: Command) -> None:
        """Begin a command in a thread; `receive` returns its outcome."""
        ticket = self._tickets[i]
        self.under_way.add(i)
        run_in_thread(lambda: self._ready.put((i, ticket, self._perform(i, ticket, command))))

    def receive(self, wanted: int, timeout: float | None) -> dict[int, _Step | Exception]:
        """Return the outcomes that are ready; wait until there are `wanted` of them, at most `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        outcomes: dict[int, _Step | Exception] = {}
        while True:
            left = 0.0 if len(outcomes) >= wanted else None
            if left is None and until is not None:
                left = max(0.0, until - time.monotonic())
            try:
                i, ticket, outcome = self._ready.get(left != 0.0, left)
            except Empty:
                return outcomes
            if ticket == self._tickets[i]:
                self.under_way.discard(i)
                outcomes[i] = outcome

    def abandon(self, i: int) -> bool:
        """Forget an environment's command; return whether it is being carried out right now.

        If so, its thread closes the environment when it returns, and the next reset replaces it.
        """
        self.under_way.discard(i)
        with self._lock:
            self._tickets[i] += 1
            busy = i in self._busy
            self._busy.discard(i)
            self._broken[i] = self._broken[i] or busy
        return busy

    def close(self) -> None:
        """Close all idle environments, side by side; the threads of the others close them when they return."""
        idle = [env for i, env in enumerate(self.envs) if not self.abandon(i)]
        run_side_by_side({k: functools.partial(close_env, env) for k, env in enumerate(idle)})

    def _perform(self, i: int, ticket: int, command: Command) -> _Step | Exception:
        with self._lock:
            if ticket != self._tickets[i]:
                return RuntimeError("abandoned before it began")  # nobody reads it
            self._busy.add(i)
            env, broken = self.envs[i], self._broken[i]
        outcome: _Step | Exception | None = None
        try:
            if command.action is None and broken:
                env = self._env_fns[i]()
            outcome = command.run(env)
        except Exception as e:  # noqa: BLE001  reported beside what the others did
            outcome = e
        finally:
            failed = outcome is None or isinstance(outcome, Exception)
            with self._lock:
                abandoned = ticket != self._tickets[i]
                if not abandoned:
                    self._busy.discard(i)
                    self.envs[i], self._broken[i] = env, failed
            if abandoned or failed:
                close_env(env)
        return outcome
