"""The server around an engine: requests arrive on event loops, one thread generates for all of them."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from agent_envs.errors import BackendError
from agent_envs.policies.local.engine import BatchEngine
from agent_envs.policies.local.padded_engine import PaddedEngine
from agent_envs.policies.local.requests import Completion
from agent_envs.policies.local.sampling import SamplingParams

__all__ = ["GenerateServer"]

logger = logging.getLogger(__name__)


class GenerateServer:
    """Serves one engine to any number of coroutines.

    Args:
        engine: The engine; from here on only the server's thread touches it.
    """

    def __init__(self, engine: BatchEngine | PaddedEngine) -> None:
        self._engine = engine
        self._linger = engine.linger if isinstance(engine, PaddedEngine) else 0.0
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending: set[asyncio.Future[Any]] = set()  # touched by the server's thread only
        self._thread = threading.Thread(target=self._serve, name="agent_envs-generate", daemon=True)
        self._thread.start()

    async def generate(self, prompt_ids: list[int], params: SamplingParams) -> Completion:
        """Generate one response, batched with whatever else is running; a cancelled one ends at its next token.

        Raises:
            ConfigError: The prompt is empty or leaves no room for a token.
            BackendError: The model failed.
        """
        submitted: list[Completion] = []

        def cancel() -> None:
            for request in submitted:
                request.cancelled = True

        try:
            return await self._ask(lambda done: submitted.append(self._engine.submit(prompt_ids, params, on_done=done)))
        except asyncio.CancelledError:
            cancel()
            self._commands.put(cancel)  # it may be submitted only now
            raise

    def close(self, *, wait: bool = True) -> None:
        """Stop the thread, and wait until it has; whoever still waits for a response gets a BackendError."""
        self._commands.put(None)
        if wait:
            self._thread.join()

    async def _ask(self, call: Callable[[Callable[[Any], None]], Any]) -> Any:
        """Run ``call`` in the server's thread; the result is what it gives to its argument."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def deliver(value: Any) -> None:
            self._pending.discard(future)
            loop.call_soon_threadsafe(_resolve, future, value)

        def command() -> None:
            self._pending.add(future)
            try:
                call(deliver)
            except Exception as e:  # noqa: BLE001  it goes to whoever asked
                deliver(e)

        if not self._thread.is_alive():
            raise BackendError("the policy or server that generates was closed")
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
                while not self._commands.empty():  # whoever asked just now is told, too
                    late = self._commands.get()
                    if late is not None:
                        late()
                self._fail(BackendError("the policy or server that generates was closed"))
                return
            command()
            if idle and self._linger:
                time.sleep(self._linger)

    def _step(self) -> None:
        try:
            self._engine.step()
        except Exception as e:
            logger.exception("generation failed")
            self._fail(BackendError(f"generation failed: {type(e).__name__}: {e}"))

    def _fail(self, error: BackendError) -> None:
        """Drop every request; whoever waits gets the error."""
        self._engine.reset()
        for future in list(self._pending):
            self._pending.discard(future)
            future.get_loop().call_soon_threadsafe(_resolve, future, error)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if future.done():  # cancelled meanwhile
        return
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
