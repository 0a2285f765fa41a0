"""The thread that plays an episode and says why it ended, and what others may ask of it meanwhile.

Environments and tools block, and a thread can be left behind when one hangs: so a thread plays the episode, and an
async `act` is awaited on an event loop meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import logging
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import gymnasium as gym

from agent_envs.agents.calls import AsyncHost, BlockingHost, CallLog
from agent_envs.agents.handles import PlayedEnv, RecordedModel
from agent_envs.agents.loading import AgentPolicy
from agent_envs.episodes.builder import EpisodeBuilder
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.errors import (
    BackendError,
    CallLimitReached,
    ContextLengthExceeded,
    EmptyGeneration,
    EpisodeStop,
    PolicyError,
    RunBudgetSpent,
    TokenLimitReached,
)
from agent_envs.policies.policy import Action, Actor, Policy, Response
from agent_envs.registration import env_name, layers

if TYPE_CHECKING:
    from agent_envs.messages import Observation

TextEnvLike = gym.Env[Any, str]

_log = logging.getLogger(__name__)
_LOOK_AGAIN = 0.1  # seconds, while an action takes none of the time

_STOPS: dict[type[EpisodeStop], StopReason] = {
    CallLimitReached: StopReason.CALL_LIMIT,
    ContextLengthExceeded: StopReason.CONTEXT_LENGTH,
    EmptyGeneration: StopReason.EMPTY_GENERATION,
    RunBudgetSpent: StopReason.RUN_BUDGET,
    TokenLimitReached: StopReason.TOKEN_LIMIT,
    EpisodeStop: StopReason.CUT,  # after its subclasses
}


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeTask:
    """What to play: a policy and a task."""

    policy: Policy
    seed: int | None = None
    options: Mapping[str, Any] | None = None
    episode_id: str | None = None
    """The episode's name; None for a random one."""
    group_id: str | None = None
    """A name shared with the episodes it is compared with; None for the task's id."""


@runtime_checkable
class Recorder(Protocol):
    """A wrapper that keeps its own record; the rollout tells it what environments do not see."""

    def note_response(self, response: Response) -> None:
        """Take the policy's response, tokens included; the next `step` carries it out."""

    def note_end(self, reason: StopReason, error: str | None) -> None:
        """Take the reason of the episode's end. May be called from another thread, and after the last `step`."""


class EpisodeRun:
    """One episode being played: one thread writes, and whoever waits for it reads, and may abandon it.

    `env` is the environment, or a function that makes it in the thread that plays; `loop` awaits an async `act`.
    """

    def __init__(
        self,
        env: TextEnvLike | Callable[[], TextEnvLike],
        task: EpisodeTask,
        loop: asyncio.AbstractEventLoop,
        *,
        close_on_error: bool = False,
    ) -> None:
        self.env: TextEnvLike | None = env if isinstance(env, gym.Env) else None
        self.loop = loop
        self.thread_id: int | None = None
        self.started = self.step_started = time.monotonic()
        self._make_env = None if isinstance(env, gym.Env) else env
        self._task = task
        self._record = EpisodeBuilder("", task.seed, task.options, task.episode_id, task.group_id)
        self._close_on_error = close_on_error
        self._is_untimed, self._waiting = False, 0  # whether calls of the model take none of the time; how many wait
        self._waiting_since: float | None = None
        self._calls: CallLog | None = None  # of an agent
        self._acting: asyncio.Task[Any] | None = None  # the policy's `act` on the loop
        self._recorders: list[Recorder] = []
        self._pending: Future[Action] | None = None
        self._stop_reason = StopReason.ERROR
        self._error: str | None = None
        self._lock = threading.Lock()  # guards the two flags and what abandon() reads
        self._finished = False
        self._abandoned = False

    def play(self) -> None:
        """Play to the end in this thread.

        This is the one place where every exception is caught: environments, tools and policies are other people's
        code, and a failed episode is a record of the failure, not the end of a batch.
        """
        try:
            self._stop_reason = self._play()
        except tuple(_STOPS) as e:
            self._stop_reason = next(reason for kind, reason in _STOPS.items() if isinstance(e, kind))
            self._error = str(e) or None
        except Exception:  # noqa: BLE001
            self._stop_reason, self._error = StopReason.ERROR, traceback.format_exc()
        if not self._abandoned:
            self._tell_recorders(self._stop_reason, self._error)

    def play_apart(self) -> None:
        """Run `play` as the body of a thread, where SystemExit and its like cannot be raised any further."""
        self.thread_id = threading.get_ident()
        try:
            self.play()
        except BaseException:  # noqa: BLE001  it would be lost with the thread, and the waiter would wait for ever
            self._stop_reason, self._error = StopReason.ERROR, traceback.format_exc()
        with self._lock:
            self._finished = not self._abandoned
        failed = self._close_on_error and self._stop_reason is StopReason.ERROR
        if self.env is not None and (failed or not self._finished):
            close_env(self.env)

    def abandon(self) -> bool:
        """Abandon the episode unless it has just ended; return whether it was abandoned."""
        with self._lock:
            self._abandoned = not self._finished
        if self._abandoned and self._pending is not None:
            self._pending.cancel()
        return self._abandoned

    def time_left(self, step_timeout: float | None, episode_timeout: float | None) -> tuple[StopReason, float | None]:
        """Return which time-out comes next and the seconds until then, None without one."""
        waiting_since = self._waiting_since
        now = time.monotonic() if waiting_since is None else waiting_since
        step = None if step_timeout is None else self.step_started + step_timeout - now
        episode = None if episode_timeout is None else self.started + episode_timeout - now
        reason, seconds = StopReason.STEP_TIMEOUT, step
        if step is None or (episode is not None and episode <= step):
            reason, seconds = StopReason.EPISODE_TIMEOUT, episode
        if waiting_since is not None and seconds is not None:
            seconds = max(seconds, _LOOK_AGAIN)
        return reason, seconds

    def episode(self, timeout: StopReason | None = None) -> Episode:
        """Return the record of a finished episode, or of one abandoned because of a time-out."""
        reason, error = self._stop_reason, self._error
        if timeout is not None:
            frame = sys._current_frames().get(self.thread_id or 0)
            stack = "".join(traceback.format_stack(frame)) if frame is not None else "(not started)\n"
            where = f"{timeout.value} at step {len(self._record.steps)}"
            reason, error = timeout, f"{where}. The thread was here (most recent call last):\n{stack}"
            self._tell_recorders(reason, error)
        self._record.env_id = env_name(self.env)
        if self._calls is not None:
            self._calls.fill(self._record)
        return self._record.end(reason, error)

    def _play(self) -> StopReason:
        if self.env is None:
            assert self._make_env is not None
            self.env = self._make_env()
        env = self.env
        options = None if self._task.options is None else dict(self._task.options)
        observation, info = env.reset(seed=self._task.seed, options=options)
        record = self._record
        record.reset(env, observation, info)
        self._recorders = [layer for layer in layers(env) if _records(type(layer))]  # type: ignore[misc, arg-type]
        if isinstance(self._task.policy, AgentPolicy):
            return self._play_agent(self._task.policy, env, observation, info)
        actor = self._task.policy.start(env)
        while not self._abandoned:
            self.step_started = time.monotonic()
            response = self._act(actor, observation, info)
            if response.empty:
                raise EmptyGeneration(f"the policy returned no text or no token at step {len(record.steps)}")
            for recorder in self._recorders:
                recorder.note_response(response)
            result = env.step(response.text)
            observation, info = result[0], result[4]
            step = record.transition(env, response.text, result, response)
            with self._lock:
                if self._abandoned:
                    break
                record.add(step, observation)
            if record.reason is not None:
                return record.reason
        return StopReason.ERROR  # abandoned: nobody reads it

    def _play_agent(
        self, policy: AgentPolicy, env: TextEnvLike, observation: Observation, info: dict[str, Any]
    ) -> StopReason:
        """Let an agent play: an async one on the loop, which hands this thread what blocks; another one here."""
        model = policy.open(env)
        self._is_untimed = bool(getattr(policy.policy, "untimed", False))
        host = AsyncHost(self) if policy.is_async else BlockingHost(self)
        self._calls = log = CallLog(env, observation, info, host)
        log.score, log.record = policy.score, self._record
        try:
            host.play(policy.agent, PlayedEnv(log), RecordedModel(log, model))
            log.judge(None)
        except EpisodeStop:
            raise
        except Exception as e:
            if e is log.failure or isinstance(e, BackendError) or not log.replies:
                raise
            self._error = traceback.format_exc()
            return StopReason.AGENT_ERROR
        finally:
            for end in log.on_end:
                end()
        return StopReason.at_end(log.terminated, log.info)

    def _act(self, actor: Actor, observation: Observation, info: dict[str, Any]) -> Response:
        action: Any = actor.act(observation, info)
        if not isinstance(action, (str, Response)) and inspect.isawaitable(action):
            self._is_untimed = getattr(actor, "untimed", False)
            with self.untimed():
                action = self.wait(action)
        if isinstance(action, str):
            return Response(action)
        if isinstance(action, Response):
            return action
        kind = type(action).__name__
        raise PolicyError(f"act() must return a str or a Response, got {kind}: {action!r:.80}")

    def begin_step(self) -> None:
        """Restart the clock of a step; an EpisodeStop if nobody waits for the episode any more."""
        if self._abandoned:
            raise EpisodeStop("nobody waits for the episode any more")
        self.step_started = time.monotonic()

    @contextlib.contextmanager
    def untimed(self) -> Iterator[None]:
        """Stop the clocks of the time-outs while the model answers, if its part is not timed."""
        if not self._is_untimed:
            yield
            return
        self._waiting += 1
        if self._waiting == 1:
            self._waiting_since = time.monotonic()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and self._waiting_since is not None:
                waited = time.monotonic() - self._waiting_since
                self.started += waited
                self.step_started += waited
                self._waiting_since = None

    def wait(self, action: Awaitable[Any], jobs: SimpleQueue[Callable[[], None] | None] | None = None) -> Any:
        """Await something on the loop, and meanwhile do the jobs that are put into a queue."""
        if asyncio._get_running_loop() is self.loop:
            if inspect.iscoroutine(action):
                action.close()
            raise PolicyError(
                "an async act() would wait for the event loop that waits for it; await arun_episode() here instead"
            )
        future = self._pending = asyncio.run_coroutine_threadsafe(self._awaited(action), self.loop)
        if self._abandoned:
            future.cancel()
        try:
            if jobs is not None:
                future.add_done_callback(lambda _: jobs.put(None))
                for job in iter(jobs.get, None):
                    job()
            return future.result()
        finally:
            future.cancel()  # no effect once it is done; after KeyboardInterrupt it is not

    async def _awaited(self, awaitable: Awaitable[Action]) -> Action:
        self._acting = asyncio.current_task()
        return await awaitable

    def blocks_loop(self) -> bool:
        """Return whether this episode's own `act` is what keeps its loop busy right now."""
        return self._acting is not None and asyncio.current_task(self.loop) is self._acting

    def _tell_recorders(self, reason: StopReason, error: str | None) -> None:
        for recorder in self._recorders:
            try:
                recorder.note_end(reason, error)
            except Exception:  # noqa: BLE001  a full disk must not cost the episode itself
                _log.warning("%s could not record an episode", type(recorder).__name__, exc_info=True)


@functools.cache
def _records(kind: type) -> bool:
    return issubclass(kind, Recorder)  # looked up once: it takes as long as a step of a small environment


def close_env(env: TextEnvLike) -> None:
    """Close an environment; a failure is logged, not raised."""
    try:
        env.close()
    except Exception:  # noqa: BLE001  a failed close must not cost the episodes that were played
        _log.warning("closing %s failed", env_name(env), exc_info=True)
