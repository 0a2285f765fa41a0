"""A request to an engine and what came of it, and the random numbers it is sampled with.

They belong to the request: what a request samples does not depend on what runs beside it (up to the rounding of sums,
which a batch's shape can change).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from agent_envs.errors import ConfigError
from agent_envs.policies.local.sampling import SamplingParams

__all__ = ["Completion", "Requests"]


@dataclass
class Completion:
    """A running or finished request."""

    prompt_ids: list[int]
    """Prompt tokens, shape [prompt tokens]."""
    params: SamplingParams
    """How to sample."""
    uniforms: np.ndarray
    """One number in [0, 1) per token that may be sampled, shape [max tokens]."""
    on_done: Callable[[Completion], None] | None = None
    """Called in the engine's thread when the request has finished."""
    token_ids: list[int] = field(default_factory=list)
    """Sampled tokens, the stop token included."""
    log_probs: list[float] = field(default_factory=list)
    """Log-probability of each sampled token under the temperature-scaled softmax over the whole vocabulary (nats)."""
    stop_reason: str = ""
    """``completed`` (a stop token or the length limit) or ``aborted``."""
    cancelled: bool = False
    """Whether nobody waits for it any more: it ends at its next token. Any thread may say so."""
    versions: tuple[int | None, int | None] = (None, None)
    """Weight versions at the first and at the last sampled token."""

    @property
    def tokens(self) -> list[int]:
        """Prompt and response so far."""
        return self.prompt_ids + self.token_ids

    def ends(self, stop_token_ids: Collection[int]) -> bool:
        """Whether its last token ends it: a stop token, or the last one it may have, or that is waited for."""
        if self.cancelled:
            return True
        token = self.token_ids[-1]
        stopped = token in stop_token_ids or token in self.params.stop_token_ids
        return (stopped and not self.params.ignore_eos) or len(self.token_ids) == len(self.uniforms)

    def finish(self, reason: str) -> None:
        """Note why it ended and tell whoever asked."""
        self.stop_reason = reason
        if self.on_done is not None:
            self.on_done(self)


class Requests:
    """Makes requests, and counts those that are alike: each draws numbers of its own.

    Args:
        max_length: Most tokens of prompt and response together.
        seed: Seed of requests that bring none.
    """

    def __init__(self, max_length: int, seed: int) -> None:
        self.max_length = max_length
        self.seed = seed
        self._same_prompt: dict[int, int] = {}

    def make(
        self, prompt_ids: Sequence[int], params: SamplingParams, on_done: Callable[[Completion], None] | None
    ) -> Completion:
        """A request. One without a seed gets it from this one's, its prompt, and how often this prompt has come.

        Raises:
            ConfigError: The prompt is empty or leaves no room for a token.
        """
        room = self.max_length - len(prompt_ids)
        if not prompt_ids or room < 1:
            raise ConfigError(
                f"expected a prompt of 1 to {self.max_length - 1} tokens (max_model_len {self.max_length}), "
                f"got {len(prompt_ids)}"
            )
        if params.seed is None:
            key = hash(tuple(prompt_ids))
            count = self._same_prompt.get(key, 0)
            self._same_prompt[key] = count + 1
            entropy = [self.seed, len(prompt_ids), key & 0xFFFFFFFFFFFFFFFF, count]
        else:
            entropy = [params.seed]
        uniforms = np.random.default_rng(entropy).random(min(params.max_tokens, room))
        return Completion(list(prompt_ids), params, uniforms, on_done)

    def forget(self) -> None:
        """Begin to count anew."""
        self._same_prompt.clear()
