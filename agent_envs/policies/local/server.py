"""Serves an engine to coroutines: requests arrive on event loops, one thread generates for all of them."""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

from agent_envs.errors import BackendError
from agent_envs.pictures.picture import Picture
from agent_envs.policies.local.requests import Engine, Request
from agent_envs.policies.local.sampling import SamplingParams
from agent_envs.threads import run_in_thread

__all__ = ["GenerateServer"]

logger = logging.getLogger(__name__)
_CLOSED = "the policy or server that generates was closed"


class GenerateServer:
    """Serves one engine, which only its thread uses from now on, to any number of coroutines."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending: set[asyncio.Future[Any]] = set()  # used by the server's thread only
        self._stopped = run_in_thread(self._serve)

    async def generate(
        self, prompt_ids: list[int], params: SamplingParams, pictures: Sequence[Picture] = ()
    ) -> Request:
        """Generate one response, batched with all others; a cancelled one ends at its next token.

        Raises:
            ConfigError: The prompt is empty, leaves no room for a token, or has pictures that the model cannot see.
            BackendError: The model failed.
        """
        submitted: list[Request] = []

        def cancel() -> None:
            for request in submitted:
                request.cancelled = True

        try:
            return await self.call(
                lambda done: submitted.append(self._engine.submit(prompt_ids, params, on_done=done, pictures=pictures))
            )
        except asyncio.CancelledError:
            cancel()
            self._commands.put(cancel)  # it may be submitted only after this
            raise

    def close(self, *, wait: bool = True) -> None:
        """Stop generating; callers that still wait for a response get a BackendError."""
        self._commands.put(None)
        if wait:
            self._stopped.result()

    async def call(self, function: Callable[[Callable[[Any], None]], Any]) -> Any:
        """Run ``function`` in the server's thread, between two steps of the engine.

        Args:
            function: Gets a function, to which it passes its result at once or later.

        Raises:
            BackendError: The server was closed; what ``function`` raises is raised here too.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def deliver(value: Any) -> None:
            self._pending.discard(future)
            loop.call_soon_threadsafe(_resolve, future, value)

        def command() -> None:
            self._pending.add(future)
            try:
                function(deliver)
            except Exception as e:  # noqa: BLE001  the caller gets it
                deliver(e)

        if self._stopped.done():
            raise BackendError(_CLOSED)
        self._commands.put(command)
        return await future

    def _serve(self) -> None:
        while True:
            idle = not self._engine.busy
            try:
                command = self._commands.get(block=idle)
            except queue.Empty:
                self._step()
                continue
            if command is None:
                while not self._commands.empty():  # the latest callers get the error too
                    late = self._commands.get()
                    if late is not None:
                        late()
                self._fail(BackendError(_CLOSED))
                return
            command()
            if idle and self._engine.linger:
                time.sleep(self._engine.linger)

    def _step(self) -> None:
        try:
            self._engine.step()
        except Exception as e:
            logger.exception("generation failed")
            self._fail(BackendError(f"generation failed: {type(e).__name__}: {e}"))

    def _fail(self, error: BackendError) -> None:
        """Drop all requests; their callers get the error."""
        self._engine.reset()
        for future in list(self._pending):
            self._pending.discard(future)
            future.get_loop().call_soon_threadsafe(_resolve, future, error)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if future.done():  # cancelled
        return
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
