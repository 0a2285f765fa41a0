"""The server around the CPU engine: requests arrive on event loops, one thread generates for all of them."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from agent_envs.adapters.verl.cpu_engine import BatchEngine, Completion
from agent_envs.adapters.verl.sampling import SamplingParams
from agent_envs.errors import BackendError

__all__ = ["GenerateServer", "load_engine"]

logger = logging.getLogger(__name__)


def load_engine(
    model_path: str, *, max_length: int, max_rows: int, seed: int = 0, trust_remote_code: bool = False
) -> BatchEngine:
    """An engine in float32 for a Hugging Face model, a folder or a name.

    A response ends at the stop tokens of the model's generation config, else of its config, else of its tokenizer.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        model_path, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=trust_remote_code
    )
    stop = model.generation_config.eos_token_id if model.generation_config is not None else None
    if stop is None:
        stop = model.config.eos_token_id
    if stop is None:
        stop = AutoTokenizer.from_pretrained(model_path, trust_remote_code=trust_remote_code).eos_token_id
    stops = [] if stop is None else [stop] if isinstance(stop, int) else list(stop)
    return BatchEngine(model, max_length=max_length, max_rows=max_rows, stop_token_ids=stops, seed=seed)


class GenerateServer:
    """Serves one engine to any number of coroutines.

    Args:
        engine: The engine; from here on only the server's thread touches it.
    """

    def __init__(self, engine: BatchEngine) -> None:
        self._engine = engine
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending: set[asyncio.Future[Any]] = set()  # touched by the server's thread only
        self._thread = threading.Thread(target=self._serve, name="agent_envs-generate", daemon=True)
        self._thread.start()

    async def generate(self, prompt_ids: list[int], params: SamplingParams) -> Completion:
        """Generate one response, batched with whatever else is running.

        Raises:
            ConfigError: The prompt is empty or leaves no room for a token.
            BackendError: The model failed.
        """
        return await self._ask(lambda done: self._engine.submit(prompt_ids, params, on_done=done))

    async def load_weights(self, weights: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Replace the model's weights between two iterations.

        Raises:
            BackendError: They do not fit.
        """
        await self._tell(lambda: self._engine.load_weights(weights, version))

    async def clear_cache(self) -> None:
        """Forget cached keys and values."""
        await self._tell(self._engine.clear_cache)

    async def abort(self) -> None:
        """Finish every request with what it has."""
        await self._tell(self._engine.abort)

    def close(self) -> None:
        """Stop the thread."""
        self._commands.put(None)
        self._thread.join()

    async def _tell(self, action: Callable[[], None]) -> None:
        def call(done: Callable[[Any], None]) -> None:
            action()
            done(None)

        await self._ask(call)

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

        self._commands.put(command)
        return await future

    def _serve(self) -> None:
        while True:
            try:
                command = self._commands.get(block=not self._engine.busy)
            except queue.Empty:
                self._step()
                continue
            if command is None:
                return
            command()

    def _step(self) -> None:
        try:
            self._engine.step()
        except Exception as e:
            logger.exception("the CPU engine failed")
            error = BackendError(f"the CPU engine failed: {type(e).__name__}: {e}")
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
