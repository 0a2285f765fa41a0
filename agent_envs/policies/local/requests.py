"""Generation requests, the random numbers they are sampled with, and the queue that both engines share.

The random numbers belong to the request: what it samples does not depend on what runs beside it (up to rounding, which
a batch's shape can change).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_envs.errors import BackendError, ConfigError
from agent_envs.pictures.picture import Picture
from agent_envs.policies.local.sampling import SamplingParams, sample

if TYPE_CHECKING:
    import torch


@dataclass
class Request:
    """A waiting, running or finished request."""

    prompt_ids: list[int]
    """Prompt tokens, shape [prompt tokens]."""
    params: SamplingParams
    """How to sample."""
    uniforms: np.ndarray
    """One number in [0, 1) for each token that may be sampled, shape [max tokens]."""
    on_done: Callable[[Request], None] | None = None
    """Called in the engine's thread when the request has finished."""
    token_ids: list[int] = field(default_factory=list)
    """Sampled tokens, the stop token included."""
    log_probs: list[float] = field(default_factory=list)
    """Log-probability of each sampled token under the distribution it was sampled from (nats)."""
    stop_reason: str = ""
    """``completed`` (a stop token or the length limit) or ``aborted``."""
    cancelled: bool = False
    """Whether nobody waits for it any more, so that it ends at its next token. Any thread may set it."""
    versions: tuple[int | None, int | None] = (None, None)
    """Weight versions at the first and at the last sampled token."""
    pictures: Sequence[Picture] = ()
    """The pictures of the prompt, in the order of their tokens."""
    cached_tokens: int = 0
    """Prompt tokens that were not computed, since the engine had them from another request."""

    @property
    def tokens(self) -> list[int]:
        """Prompt and response so far."""
        return self.prompt_ids + self.token_ids

    def ends(self, stop_token_ids: Collection[int]) -> bool:
        """Return whether it ends here: at a stop token, at its length limit, or because it was cancelled."""
        if self.cancelled:
            return True
        token = self.token_ids[-1]
        stopped = token in stop_token_ids or token in self.params.stop_token_ids
        return (stopped and not self.params.ignore_eos) or len(self.token_ids) == len(self.uniforms)

    def finish(self, reason: str) -> None:
        """Set the stop reason and call `on_done`."""
        self.stop_reason = reason
        if self.on_done is not None:
            self.on_done(self)


class Engine:
    """Base of the engines: a model and a queue of requests. Not thread-safe: one thread calls its methods.

    Args:
        model: A causal language model.
        max_length: Most tokens of prompt and response together.
        stop_token_ids: Tokens that end a response.
        seed: Seed of requests without one.
    """

    linger = 0.0
    """Seconds to wait for more requests after the first one of a burst."""
    sees = False
    """Whether the model takes pictures."""

    def __init__(self, model: torch.nn.Module, *, max_length: int, stop_token_ids: Iterable[int], seed: int) -> None:
        self.model: Any = model.eval()
        self.max_length = max_length
        self.stop_token_ids = frozenset(stop_token_ids)
        self._device = next(model.parameters()).device
        self._seed = seed
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}  # by the slot of the cache that they own
        self._same_prompt = Counter[int]()  # how often a prompt has come
        self.version: int | None = None
        """Version of the weights, if they are replaced."""

    @property
    def busy(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self._running or self._waiting)

    def submit(
        self,
        prompt_ids: list[int],
        params: SamplingParams,
        on_done: Callable[[Request], None] | None = None,
        pictures: Sequence[Picture] = (),
    ) -> Request:
        """Queue a request; a ConfigError if its prompt is empty, leaves no room, or has pictures that nobody sees.

        The seed of a request without one is made of the engine's seed, the prompt, and how often this prompt has come
        (under the current weights, if they change).
        """
        room = self.max_length - len(prompt_ids)
        if not prompt_ids or room < 1:
            expected = f"a prompt of 1 to {self.max_length - 1} tokens (max_model_len {self.max_length})"
            raise ConfigError(f"expected {expected}, got {len(prompt_ids)}")
        if pictures and not self.sees:
            raise ConfigError(f"{type(self.model).__name__} takes text alone, got a prompt of {len(pictures)} pictures")
        if params.seed is None:
            key = hash(tuple(prompt_ids))
            entropy = [self._seed, len(prompt_ids), key & 0xFFFFFFFFFFFFFFFF, self._same_prompt[key]]
            self._same_prompt[key] += 1
        else:
            entropy = [params.seed]
        rng = np.random.default_rng(entropy)
        rng.random(params.used_draws)
        uniforms = rng.random(min(params.max_tokens, room))
        request = Request(list(prompt_ids), params, uniforms, on_done, pictures=pictures)
        self._waiting.append(request)
        return request

    def load_weights(self, weights: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Replace all weights by name; drops the cache, and running requests continue under the new weights."""
        tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
        try:
            missing, unexpected = self.model.load_state_dict(dict(weights), strict=False)
        except RuntimeError as e:
            raise BackendError(f"the trainer's weights do not fit the engine's model: {e}") from e
        if unexpected or set(missing) - tied:
            raise BackendError(f"weight names differ: missing {sorted(set(missing) - tied)}, unknown {unexpected}")
        self.version = version
        self.clear_cache()

    def clear_cache(self) -> None:
        """Forget what was computed for earlier requests."""
        self._same_prompt.clear()

    def abort(self) -> None:
        """Finish all requests with what they have."""
        requests = [*self._running.values(), *self._waiting]
        self._running.clear()
        self._waiting.clear()
        for request in requests:
            request.finish("aborted")

    def step(self) -> None:
        """Do the next piece of work."""
        raise NotImplementedError

    def _sample(self, requests: Sequence[Request], logits: torch.Tensor) -> list[int]:
        """Sample the next token of each request from logits of shape [requests, vocabulary], and return the tokens."""
        uniforms = np.array([request.uniforms[len(request.token_ids)] for request in requests])
        tokens, log_probs = sample(logits, [request.params for request in requests], uniforms)
        for request, token, log_prob in zip(requests, tokens, log_probs, strict=True):
            request.versions = (request.versions[0] if request.token_ids else self.version, self.version)
            request.token_ids.append(token)
            request.log_probs.append(log_prob)
        return tokens

    def run(self) -> None:
        """Step until nothing is left."""
        while self.busy:
            self.step()

    def reset(self) -> None:
        """Drop all requests without finishing them, and what was computed for them."""
        self._running.clear()
        self.clear_cache()
        self._waiting.clear()
