"""Serves an engine to coroutines: requests come from any event loop, one thread generates for all of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from agent_envs.errors import BackendError
from agent_envs.pictures.picture import Picture
from agent_envs.policies.local.requests import Engine, Request, SamplingParams
from agent_envs.threads import LoopThread

T = TypeVar("T")

logger = logging.getLogger(__name__)


class GenerateServer:
    """Serves one engine, which only its thread uses from now on, to any number of coroutines."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = LoopThread("agent_envs-generate")
        self._lock, self._closed = threading.Lock(), False
        self._waiting: set[asyncio.Future[Request]] = set()  # this and the next are used by the server's thread only
        self._steps: asyncio.Task[None] | None = None

    async def generate(
        self, prompt_ids: list[int], params: SamplingParams, pictures: Sequence[Picture] = ()
    ) -> Request:
        """Generate one response, batched with all others; a cancelled one ends at its next token."""
        submitted: list[Request] = []
        cancelled = False

        async def respond() -> Request:
            response: asyncio.Future[Request] = self._thread.loop.create_future()

            def take(request: Request) -> None:
                if not response.done():  # it may be cancelled
                    response.set_result(request)

            request = self._engine.submit(prompt_ids, params, take, pictures)
            submitted.append(request)
            request.cancelled = cancelled
            self._waiting.add(response)
            if self._steps is None:
                self._steps = asyncio.create_task(self._step_until_idle())
            return await response

        try:
            return await self._run(respond())
        except asyncio.CancelledError:
            cancelled = True
            for request in submitted:  # at once, even if the thread is within a step
                request.cancelled = True
            raise

    async def call(self, function: Callable[[], T]) -> T:
        """Call `function` in the server's thread, between two steps of the engine."""

        async def called() -> T:
            return function()

        return await self._run(called())

    def close(self, *, wait: bool = True) -> None:
        """Stop generating; callers that still wait for a response get a BackendError."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._thread.stop(wait=wait)

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        closed = BackendError("the policy or server that generates was closed")
        with self._lock:  # what comes later than the thread's end would wait for ever
            if self._closed:
                coroutine.close()
                raise closed
            result = self._thread.submit(coroutine)
        try:
            return await asyncio.wrap_future(result)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise closed from None

    async def _step_until_idle(self) -> None:
        await asyncio.sleep(self._engine.linger)
        while self._engine.busy:
            try:
                self._engine.step()
            except Exception as e:
                logger.exception("generation failed")
                self._engine.reset()  # drops all requests, whose callers get the error
                for response in self._waiting:
                    if not response.done():
                        response.set_exception(BackendError(f"generation failed: {type(e).__name__}: {e}"))
            self._waiting = {response for response in self._waiting if not response.done()}
            for _ in range(2):  # what came meanwhile becomes a task, which submits it
                await asyncio.sleep(0)
        self._steps = None
