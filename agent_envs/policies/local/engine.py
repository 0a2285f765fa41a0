"""Continuous batching over a Hugging Face causal model: sequences join and leave at any decoding iteration.

The key-value cache is one preallocated buffer per layer, [slots, heads, positions, head dimension]; a sequence owns a
slot while it runs. A finished sequence's slot keeps its content until the slot is needed, so that a prompt that extends
an earlier one (the next step of an episode), or shares its beginning with one (the system message, the other samples of
a group), is only computed from where it differs.

Every token is sampled from a decode iteration over one token per row; prompts are computed in separate forward passes
over all but their last token, a bounded number of tokens at a time.

Transformers' own continuous batching (``generate_batch``, 5.9.0) needs 8.8 s after its warm-up for 128
prompts of 200 tokens and 40 new tokens each on one core, where this engine needs about 0.5 s, so it does not
serve here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from agent_envs.errors import BackendError
from agent_envs.policies.local.requests import Completion, Requests
from agent_envs.policies.local.sampling import SamplingParams, sample

__all__ = ["BatchEngine"]

_ATTENTION = "agentr1_grouped"
_OTHER_ATTENTION = ("sliding_window", "softcap", "s_aux")  # what changes the result, as Transformers passes it

_PREFILL_TOKENS = 8192  # padded tokens of one prompt pass: bounds its memory
_CACHE_BYTES = 4 << 30  # upper limit of the key-value cache on a CPU; pages that are never written cost nothing
_CACHE_SHARE = 0.5  # of an accelerator's free memory


class _SlotCache:
    """What a model's attention layers call ``past_key_values``: writes into the slots, returns what is there."""

    is_compileable = False

    def __init__(self, keys: list[torch.Tensor], values: list[torch.Tensor]) -> None:
        self.keys, self.values = keys, values
        self.rows = torch.empty(0, dtype=torch.int64)  # [rows] slot of each row, on the model's device as all of it
        self.positions = torch.empty(0, 0, dtype=torch.int64)  # [rows, tokens] where each token goes
        self.length = 0  # positions that any row attends to
        self.contiguous = False  # rows are slots 0..n-1

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out = []
        for buffer, new in ((self.keys[layer_idx], keys), (self.values[layer_idx], values)):
            # new: [rows, heads, tokens, dim]; advanced indices with a slice between put tokens second
            buffer[self.rows[:, None], :, self.positions] = new.transpose(1, 2)
            rows = buffer[: len(self.rows)] if self.contiguous else buffer[self.rows]
            out.append(rows[:, :, : self.length])
        return out[0], out[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length


def _grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Grouped-query attention without copying keys and values for every query head, as an attention of Transformers.

    The query heads that share a key-value head are laid out as further query positions, which gives the same products.

    Args:
        module: The attention layer.
        query: Shape [rows, heads, tokens, dim].
        key, value: Shape [rows, key-value heads, positions, dim].
        attention_mask: True where a token attends, shape [rows, 1, tokens, positions].
        scaling: Factor of the products.
        kwargs: What Transformers passes to every implementation.

    Returns:
        Shape [rows, tokens, heads, dim], and no weights.

    Raises:
        BackendError: The model's attention is another one.
    """
    other = [name for name in _OTHER_ATTENTION if kwargs.get(name) is not None]
    if other:
        raise BackendError(f"this engine computes attention without {', '.join(other)}, which the model has")
    rows, heads, tokens, dim = query.shape
    groups = heads // key.shape[1]
    if groups > 1:
        query = query.reshape(rows, key.shape[1], groups * tokens, dim)
        attention_mask = attention_mask.repeat(1, 1, groups, 1) if tokens > 1 else attention_mask
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(rows, heads, tokens, dim).transpose(1, 2).contiguous(), None


class BatchEngine:
    """Generates for any number of requests at once. Not thread-safe: one thread calls its methods.

    Args:
        model: A causal language model with full attention in every layer.
        max_length: Most tokens of prompt and response together.
        max_rows: Most sequences that run at once; further ones wait. Fewer where their cache would not fit: 4 GiB on a
            CPU, half of an accelerator's free memory.
        stop_token_ids: Tokens that end a response.
        seed: Seed of requests that bring none.

    Raises:
        BackendError: The model has layers without full attention.
    """

    def __init__(
        self, model: torch.nn.Module, *, max_length: int, max_rows: int, stop_token_ids: Iterable[int], seed: int = 0
    ) -> None:
        config: Any = model.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise BackendError(f"this engine needs full attention in every layer, the model has {sorted(kinds)}")
        from transformers import AttentionInterface

        AttentionInterface.register(_ATTENTION, _grouped_attention)
        self.model: Any = model.eval()
        self.max_length = max_length
        self.stop_token_ids = frozenset(stop_token_ids)
        self.version: int | None = None
        heads = config.num_key_value_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        dtype, self._device = next(model.parameters()).dtype, next(model.parameters()).device
        row_bytes = 2 * config.num_hidden_layers * heads * dim * max_length * dtype.itemsize
        room = _CACHE_BYTES
        if self._device.type == "cuda":
            room = int(_CACHE_SHARE * torch.cuda.mem_get_info(self._device)[0])
        self.slots = max(1, min(max_rows, room // row_bytes))
        shape = (self.slots, heads, max_length, dim)
        layers = range(config.num_hidden_layers)
        buffers = [[torch.zeros(shape, dtype=dtype, device=self._device) for _ in layers] for _ in range(2)]
        self._cache = _SlotCache(buffers[0], buffers[1])
        self._content = np.full((self.slots, max_length), -1, dtype=np.int64)  # tokens whose keys a slot holds
        self._length = np.zeros(self.slots, dtype=np.int64)  # how many
        self._used = np.zeros(self.slots, dtype=np.int64)  # clock of the last use, to evict the oldest
        self._clock = 0
        self._running: dict[int, Completion] = {}
        self._waiting: deque[Completion] = deque()
        self._requests = Requests(max_length, seed)
        self.tokens_computed = 0

    @property
    def busy(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self._running or self._waiting)

    def submit(
        self,
        prompt_ids: list[int],
        params: SamplingParams,
        on_done: Callable[[Completion], None] | None = None,
    ) -> Completion:
        """Queue a request.

        A request without a seed draws from one made of the engine's seed, the prompt, and how often this prompt has
        come under the current weights.

        Raises:
            ConfigError: The prompt is empty or leaves no room for a token.
        """
        request = self._requests.make(prompt_ids, params, on_done)
        self._waiting.append(request)
        return request

    def load_weights(self, weights: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Replace weights by name; everything cached is dropped and running requests go on under the new weights.

        Raises:
            BackendError: A name is unknown, a shape differs, or weights are missing.
        """
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
        """Forget all cached keys and values; running requests are computed again."""
        self._length[:] = 0
        self._requests.forget()
        self._waiting.extendleft(reversed(self._running.values()))
        self._running.clear()

    def abort(self) -> None:
        """Finish every request with what it has."""
        for request in [*self._running.values(), *self._waiting]:
            request.finish("aborted")
        self._running.clear()
        self._waiting.clear()

    def reset(self) -> None:
        """Drop every request without finishing it, and the cache."""
        self._running.clear()
        self._waiting.clear()
        self.clear_cache()

    @torch.inference_mode()
    def step(self) -> None:
        """Admit what fits, then sample one token for every running request."""
        self._admit()
        if not self._running:
            return
        self._clock += 1
        slots = sorted(self._running)
        contiguous = 2 * len(slots) >= slots[-1] + 1  # idle rows in between cost less than copying the cache
        rows = np.arange(slots[-1] + 1) if contiguous else np.asarray(slots)
        position = np.minimum(self._length[rows], self.max_length - 1)
        tokens = np.zeros(len(rows), dtype=np.int64)
        index = {slot: i for i, slot in enumerate(rows.tolist())}
        for slot, request in self._running.items():
            tokens[index[slot]] = request.token_ids[-1] if request.token_ids else request.prompt_ids[-1]
        logits = self._forward(rows, tokens[:, None], position[:, None], contiguous)
        here = [index[slot] for slot in slots]
        requests = [self._running[slot] for slot in slots]
        self._content[slots, position[here]] = tokens[here]
        self._length[slots] += 1
        self._used[slots] = self._clock
        uniforms = np.array([r.uniforms[len(r.token_ids)] for r in requests])
        sampled, log_probs = sample(logits[here, -1], [r.params for r in requests], uniforms)
        for slot, request, token, log_prob in zip(slots, requests, sampled, log_probs, strict=True):
            request.token_ids.append(token)
            request.log_probs.append(log_prob)
            first = self.version if len(request.token_ids) == 1 else request.versions[0]
            request.versions = (first, self.version)
            if request.ends(self.stop_token_ids):
                del self._running[slot]
                request.finish("completed")

    def run(self) -> None:
        """Step until nothing is left."""
        while self.busy:
            self.step()

    def _admit(self) -> None:
        """Give waiting requests a slot and compute their prompts, all but the last token."""
        later: list[tuple[int, Completion]] = []
        batch: list[tuple[int, int, Completion]] = []  # (slot, cached tokens, request)
        seen: set[tuple[int, ...]] = set()
        while self._waiting and len(self._running) + len(batch) + len(later) < self.slots:
            request = self._waiting.popleft()
            taken = {slot for slot, _, _ in batch} | {slot for slot, _ in later}
            tokens = np.asarray(request.tokens[:-1], dtype=np.int64)
            slot, cached = self._place(tokens, taken)
            key = tuple(request.tokens)
            if cached < len(tokens) and key in seen:
                later.append((slot, request))  # the same prompt is being computed: copy it afterwards
                self._length[slot] = 0
            else:
                seen.add(key)
                batch.append((slot, cached, request))
                self._length[slot] = cached
        self._prefill(batch)
        followers = []
        for slot, request in later:
            tokens = np.asarray(request.tokens[:-1], dtype=np.int64)
            followers.append((slot, self._copy_prefix(tokens, slot), request))
        self._prefill(followers)

    def _place(self, tokens: np.ndarray, taken: set[int]) -> tuple[int, int]:
        """A free slot and how many of ``tokens`` it holds now, from its own past or copied from another slot."""
        common = self._common(tokens)
        free = np.ones(self.slots, dtype=bool)
        free[[*self._running, *taken]] = False
        extended = np.where(free & (common == self._length), common, 0)  # slots of which nothing would be lost
        own = int(np.argmax(extended))
        if not extended[own]:
            age = np.where(self._length > 0, self._used, -1)
            own = int(np.argmin(np.where(free, age, np.iinfo(np.int64).max)))
        return own, self._copy_prefix(tokens, own, common)

    def _common(self, tokens: np.ndarray) -> np.ndarray:
        """How many leading ``tokens`` each slot holds, shape [slots]."""
        equal = self._content[:, : len(tokens)] == tokens
        leading = np.where(equal.all(axis=1), len(tokens), np.argmin(equal, axis=1)) if len(tokens) else 0
        return np.minimum(leading, self._length)

    def _copy_prefix(self, tokens: np.ndarray, slot: int, common: np.ndarray | None = None) -> int:
        """Make ``slot`` hold as much of ``tokens`` as any slot does; returns how much."""
        common = self._common(tokens) if common is None else common
        source = int(np.argmax(common))
        n = int(common[source])
        if n > common[slot]:
            for buffer in (*self._cache.keys, *self._cache.values):
                buffer[slot, :, :n] = buffer[source, :, :n]
            self._content[slot, :n] = tokens[:n]
            self._length[slot] = n
        return max(n, int(common[slot]))

    def _prefill(self, batch: list[tuple[int, int, Completion]]) -> None:
        """Compute the missing keys of each slot, longest first, in passes of a bounded size."""
        todo = []
        for slot, cached, request in batch:
            self._running[slot] = request
            tokens = np.asarray(request.tokens[:-1], dtype=np.int64)
            self._used[slot] = self._clock
            if cached < len(tokens):
                todo.append((slot, cached, tokens))
            else:
                self._length[slot] = len(tokens)
        todo.sort(key=lambda x: len(x[2]) - x[1], reverse=True)
        while todo:
            slot, cached, tokens = todo[0]
            width = min(len(tokens) - cached, _PREFILL_TOKENS)
            part = todo[: max(1, _PREFILL_TOKENS // width)]
            todo = todo[len(part) :]
            ids = np.zeros((len(part), width), dtype=np.int64)
            positions = np.zeros((len(part), width), dtype=np.int64)
            for i, (slot, cached, tokens) in enumerate(part):
                piece = tokens[cached : cached + width]
                ids[i, : len(piece)] = piece
                # padding writes where the row's next token will be written anyway, or again its last position
                positions[i] = np.minimum(cached + np.arange(width), self.max_length - 1)
                self._content[slot, cached : cached + len(piece)] = piece
                self._length[slot] = cached + len(piece)
                if cached + len(piece) < len(tokens):
                    todo.append((slot, cached + len(piece), tokens))
            self._forward(np.asarray([slot for slot, _, _ in part]), ids, positions, contiguous=False)

    def _forward(self, rows: np.ndarray, ids: np.ndarray, positions: np.ndarray, contiguous: bool) -> torch.Tensor:
        """One pass over ``ids`` [rows, tokens] at ``positions`` [rows, tokens]; logits of each row's last token."""
        cache, where = self._cache, torch.from_numpy(positions).to(self._device)
        cache.rows, cache.positions = torch.from_numpy(rows).to(self._device), where
        cache.length, cache.contiguous = int(positions.max()) + 1, contiguous
        mask = (
            torch.arange(cache.length, device=self._device) <= where[:, None, :, None]
        )  # [rows, 1, tokens, positions]
        self.tokens_computed += ids.size
        config = self.model.config
        before, config._attn_implementation = config._attn_implementation, _ATTENTION
        try:
            out = self.model(
                input_ids=torch.from_numpy(ids).to(self._device),
                attention_mask=mask,
                position_ids=where,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        finally:
            config._attn_implementation = before  # whoever else uses the model finds it as it was
        return out.logits
