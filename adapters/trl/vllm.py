"""The policy that samples from the vLLM of TRL's trainer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_envs.errors import BackendError
from agent_envs.pictures.picture import Picture
from agent_envs.policies.tokens import Sampled, TokenPolicy


class TRLVLLMPolicy(TokenPolicy):
    """Samples from a trainer's vLLM: what is asked for while it is busy is its next batch."""

    def __init__(self, tokenizer: Any, generation: Any, **how: Any) -> None:
        ends = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
        super().__init__(tokenizer, stop_token_ids=ends, **how)
        self._generation = generation
        self._waiting: list[tuple[list[int], asyncio.Future[Sampled]]] = []
        self._busy: asyncio.Task[None] | None = None

    async def sample(
        self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture] = ()
    ) -> Sampled:
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt_ids, future))
        if self._busy is None or self._busy.done():
            self._busy = asyncio.create_task(self._serve())
        sampled = await future
        return Sampled(sampled.token_ids[:max_tokens], (sampled.log_probs or ())[:max_tokens] or None)

    async def _serve(self) -> None:
        await asyncio.sleep(0.01)  # those that start together arrive one after the other
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                _, ids, logprobs, _ = await asyncio.to_thread(
                    self._generation.generate, prompts=[prompt for prompt, _ in batch], images=None, num_generations=1
                )
            except Exception as e:  # noqa: BLE001  it goes to the episodes, whose steps record it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(BackendError(f"TRL's vLLM failed: {e}"))
                continue
            for (_, future), tokens, tops in zip(batch, ids, logprobs, strict=True):
                if not future.done():  # given up meanwhile
                    future.set_result(Sampled(list(tokens), [top[0] for top in tops]))
