"""Environments of which each does one thing at a time, in whichever thread, and is replaced where it breaks.

What threads a vector environment needs is decided here; ``agent_envs.vector.make`` has Gymnasium's interface to it.
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

__all__ = ["EnvFleet", "Job"]

_Step = tuple[Any, SupportsFloat, bool, bool, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What one environment is to do: carry out an action, or reset where there is none."""

    action: str | None = None
    seed: int | None = None
    options: Mapping[str, Any] | None = None

    def run(self, env: gym.Env[Any, str]) -> _Step:
        if self.action is not None:
            return env.step(self.action)
        options = None if self.options is None else dict(self.options)
        observation, info = env.reset(seed=self.seed, options=options)
        return observation, 0.0, False, False, info


class EnvFleet:
    """Some environments, what each is doing at the moment, and which have to be made anew.

    All methods are called by one thread; the environments run in others.

    Args:
        env_fns: Functions that make the environments, one each.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gym.Env[Any, str]]]) -> None:
        self._env_fns = tuple(env_fns)
        self.envs = [env_fn() for env_fn in env_fns]
        self.under_way: set[int] = set()
        """Who was told to ``begin`` something that was not received."""
        self._ready: SimpleQueue[tuple[int, int, _Step | Exception]] = SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._tickets = [0] * len(self.envs)  # a job whose ticket is no longer valid was given up
        self._busy: set[int] = set()  # at work at this moment
        self._broken = [False] * len(self.envs)  # to be made anew

    def perform_all(self, jobs: Mapping[int, Job]) -> dict[int, _Step | Exception]:
        """The outcome of each job: what ``step`` returned, or the exception."""
        calls = {i: functools.partial(self._perform, i, self._tickets[i], job) for i, job in jobs.items()}
        try:
            return run_side_by_side(calls)
        except BaseException:  # an interrupt: where the others are is not known
            for i in jobs:
                self.give_up(i)
            raise

    def begin(self, i: int, job: Job) -> None:
        """Begin a job in a thread; ``receive`` has its outcome."""
        ticket = self._tickets[i]
        self.under_way.add(i)
        run_in_thread(lambda: self._ready.put((i, ticket, self._perform(i, ticket, job))))

    def receive(self, wanted: int, timeout: float | None) -> dict[int, _Step | Exception]:
        """The outcomes that are there, waiting for ``wanted`` of them or ``timeout`` seconds."""
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

    def give_up(self, i: int) -> bool:
        """Forget what an environment was told; whether it is at it at this moment, and is replaced at its next reset.

        The thread that is at it closes it when it comes back.
        """
        self.under_way.discard(i)
        with self._lock:
            self._tickets[i] += 1
            busy = i in self._busy
            self._busy.discard(i)
            self._broken[i] = self._broken[i] or busy
        return busy

    def close(self) -> None:
        """Close all that are not at work, side by side; the others are closed when they come back."""
        idle = [env for i, env in enumerate(self.envs) if not self.give_up(i)]
        run_side_by_side({k: functools.partial(close_env, env) for k, env in enumerate(idle)})

    def _perform(self, i: int, ticket: int, job: Job) -> _Step | Exception:
        with self._lock:
            if ticket != self._tickets[i]:
                return RuntimeError("given up before it began")  # nobody reads it
            self._busy.add(i)
            env, broken = self.envs[i], self._broken[i]
        outcome: _Step | Exception | None = None
        try:
            if job.action is None and broken:
                env = self._env_fns[i]()
            outcome = job.run(env)
        except Exception as e:  # noqa: BLE001  reported beside what the others did
            outcome = e
        finally:
            failed = outcome is None or isinstance(outcome, Exception)
            with self._lock:
                given_up = ticket != self._tickets[i]
                if not given_up:
                    self._busy.discard(i)
                    self.envs[i], self._broken[i] = env, failed
            if given_up or failed:
                close_env(env)
        return outcome
