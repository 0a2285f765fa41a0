"""Generation requests, how their tokens are sampled from a model's logits, and the queue that both engines share.

The random numbers belong to the request: what it samples does not depend on what runs beside it (up to rounding, which
a batch's shape can change). A token's log-probability is the one with which it was sampled: under the softmax of the
logits divided by the temperature, among the tokens that ``top_k`` and ``top_p`` leave (at temperature 0: of the logits
themselves). Without these two it is the one that a trainer computes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agent_envs.errors import BackendError, ConfigError, did_you_mean, needs_extra
from agent_envs.pictures.picture import Picture

with needs_extra("hf"):
    import torch


# Settings of vLLM's SamplingParams that are accepted only with a value that changes nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, None), "presence_penalty": (0, None), "frequency_penalty": (0, None),
    "min_p": (0, None), "min_tokens": (0, None), "n": (1, None),
    "stop": (None, [], ()), "logit_bias": (None, {}), "bad_words": (None, [], ()),
    "detokenize": (True, False, None), "skip_special_tokens": (True, False, None),
}  # fmt: skip

_GREEDY = 1e-5  # lower temperatures take the most likely token, as in vLLM; dividing logits by them would overflow


@dataclass(frozen=True)
class SamplingParams:
    """How to sample one response."""

    max_tokens: int
    """Most tokens of the response."""
    temperature: float = 1.0
    """Logits are divided by it; 0 takes the most likely token."""
    top_k: int = -1
    """Sample from the k most likely tokens; -1 or 0 for all."""
    top_p: float = 1.0
    """Sample from the fewest tokens whose total probability reaches p."""
    seed: int | None = None
    """Seed of this response; None makes one from the engine's seed and the prompt."""
    used_draws: int = 0
    """Random numbers of that seed to leave out: tokens at the end of the prompt that were sampled with them."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the response, besides the engine's."""
    ignore_eos: bool = False
    """Ignore stop tokens and sample up to the length limit."""

    @classmethod
    def from_dict(cls, params: Mapping[str, Any], default_max_tokens: int) -> SamplingParams:
        """Read a dictionary with vLLM's names; a ConfigError if a setting is unknown, unsupported or out of range."""
        values = {k: v for k, v in params.items() if v is not None}
        limit = [values.pop(k) for k in ("max_tokens", "max_new_tokens") if k in values]
        values.pop("logprobs", None)
        for name, neutral in _NEUTRAL.items():
            if name in values and values.pop(name) not in neutral:
                raise ConfigError(
                    f"this engine does not support {name}={params[name]!r}; leave it out (neutral: {neutral[0]!r}) "
                    "or use another rollout engine"
                )
        known = cls.__dataclass_fields__
        if unknown := [name for name in values if name not in known]:
            raise ConfigError(f"unknown sampling setting {unknown[0]!r}.{did_you_mean(unknown[0], known)}")
        values["stop_token_ids"] = tuple(values.get("stop_token_ids", ()))
        out = cls(max_tokens=int(min(limit, default=default_max_tokens)), **values)
        if not out.temperature >= 0 or not 0 < out.top_p <= 1 or out.max_tokens < 1 or out.top_k < -1:
            raise ConfigError(
                "expected temperature >= 0, 0 < top_p <= 1, top_k >= -1 and max_tokens >= 1, got "
                f"{out.temperature}, {out.top_p}, {out.top_k} and {out.max_tokens}"
            )
        if out.used_draws < 0 or (out.used_draws and out.seed is None):
            raise ConfigError(f"expected used_draws >= 0, above 0 only with a seed, got {out.used_draws}")
        return out if out.temperature >= _GREEDY else replace(out, temperature=0.0)


def sample(
    logits: torch.Tensor, params: Sequence[SamplingParams], uniforms: np.ndarray
) -> tuple[list[int], list[float]]:
    """Sample one token per row by inverting the cumulative distribution at a given number in [0, 1).

    Returns tokens and their log-probabilities. ``logits`` are of shape [rows, vocabulary]; one that is NaN or +inf, or
    a row of -inf, is a BackendError.
    """
    temperatures = torch.tensor([p.temperature or 1.0 for p in params], device=logits.device)[:, None]
    log_probs = torch.log_softmax(logits.float() / temperatures, dim=-1)
    if broken := log_probs.isnan().any(dim=-1).nonzero().squeeze(1).tolist():
        raise BackendError(
            f"the model's logits are NaN or infinite in {len(broken)} of {len(params)} sampled rows: its weights are "
            "broken, by a diverged update (lower the learning rate) or a damaged checkpoint"
        )
    weights = log_probs.double().exp()
    truncated = [row for row, p in enumerate(params) if p.temperature and (p.top_k > 0 or p.top_p < 1)]
    for row in truncated:
        weights[row] = _truncate(weights[row], params[row])
    cumulative = weights.cumsum(dim=-1)
    target = torch.from_numpy(uniforms).to(logits.device)[:, None] * cumulative[:, -1:]
    # the first token whose cumulative weight exceeds the target: tokens of weight 0 are never chosen
    tokens = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)
    if greedy := [row for row, p in enumerate(params) if not p.temperature]:
        tokens[greedy] = logits[greedy].argmax(dim=-1)
    chosen = log_probs.gather(1, tokens[:, None]).squeeze(1)
    for row in truncated:
        chosen[row] = (weights[row, tokens[row]] / cumulative[row, -1]).log()
    return tokens.tolist(), chosen.tolist()


def _truncate(weights: torch.Tensor, p: SamplingParams) -> torch.Tensor:
    """Return ``weights`` [vocabulary] with 0 outside the top k, and outside the nucleus of mass ``top_p`` in these."""
    ordered, order = weights.sort(descending=True)
    if p.top_k > 0:
        ordered[p.top_k :] = 0
    ordered = ordered / ordered.sum()
    before = ordered.cumsum(0) - ordered
    ordered[before >= p.top_p] = 0
    return torch.zeros_like(weights).scatter_(0, order, ordered)


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

    `max_length` is the most tokens of prompt and response together, and `seed` is of requests without one.
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
