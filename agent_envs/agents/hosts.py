"""Where an agent runs: in the thread that plays, or on the event loop, which hands that thread what blocks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, Protocol


class Player(Protocol):
    """Who plays the episode and keeps its clocks."""

    loop: asyncio.AbstractEventLoop

    def begin_step(self) -> None:
        """Restart the clock of a step; raises if nobody waits for the episode any more."""

    def untimed(self) -> contextlib.AbstractContextManager[None]:
        """Stop the clocks while the model answers, if its part is not timed."""

    def wait(self, action: Any, jobs: SimpleQueue[Callable[[], None] | None] | None = None) -> Any:
        """Await something on the loop, and meanwhile do the jobs that are put into a queue."""


class BlockingHost:
    """Runs an agent in the thread that plays, where the environment lives."""

    def __init__(self, episode: Player) -> None:
        self.episode = episode

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run what blocks."""
        return function(*arguments)

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine on the episode's loop, and return its result."""
        return self.episode.wait(coroutine)

    def play(self, agent: Callable[..., Any], env: Any, model: Any) -> None:
        """Run the agent to its end."""
        agent(env, model)


class AsyncHost(BlockingHost):
    """Runs an agent on the event loop; the thread that plays does what blocks."""

    def __init__(self, episode: Player) -> None:
        super().__init__(episode)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Return a future of what the function returns in the thread that plays."""
        loop = self.episode.loop
        done = loop.create_future()

        def settle(take: Callable[[Any], None], value: Any) -> None:
            if not done.done():  # it was cancelled
                take(value)

        def job() -> None:
            try:
                settled = done.set_result, function(*arguments)
            except BaseException as e:  # noqa: BLE001  it is raised in the agent
                settled = done.set_exception, e
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, *settled)

        self._jobs.put(job)
        return done

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Return the coroutine, which the agent awaits."""
        return coroutine

    def play(self, agent: Callable[..., Any], env: Any, model: Any) -> None:
        """Run the agent to its end, and meanwhile what it hands over."""
        self.episode.wait(agent(env, model), self._jobs)
