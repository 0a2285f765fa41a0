"""Continuous batching over a Hugging Face causal model: sequences join and leave at any decoding iteration.

The key-value cache is one preallocated buffer per layer, [slots, heads, positions, head dimension]; a sequence owns a
slot while it runs. The slot keeps its content until it is needed, so that a prompt that extends an earlier one (the
next step of an episode) or shares its beginning (the system message, the other samples of a group) is only computed
from where it differs.

Every token is sampled in a decode iteration over one token per row; prompts are computed in separate forward passes
over all but their last token, a bounded number of tokens at a time.

Transformers' own continuous batching (``generate_batch``, 5.9.0) needs 8.8 s after its warm-up for 128
prompts of 200 tokens and 40 new tokens each on one core; this engine needs about 0.5 s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from agent_envs.errors import BackendError, needs_extra
from agent_envs.policies.local.requests import Engine, Request

with needs_extra("hf"):
    import torch

_ATTENTION = "agentr1_grouped"
_OTHER_ATTENTION = ("sliding_window", "softcap", "s_aux")  # Transformers' arguments that change the result

_PREFILL_TOKENS = 8192  # padded tokens of one prompt pass: bounds its memory
_CACHE_BYTES = 4 << 30  # upper limit of the key-value cache on a CPU; pages never written cost nothing
_CACHE_SHARE = 0.5  # of an accelerator's free memory, what PyTorch keeps for this process included


class _SlotCache:
    """The ``past_key_values`` of the model's attention layers: writes into the slots and returns their content."""

    is_compileable = False

    def __init__(self, keys: list[torch.Tensor], values: list[torch.Tensor]) -> None:
        self.keys, self.values = keys, values
        self.rows = torch.empty(0, dtype=torch.int64)  # [rows] slot of each row; all tensors are on the model's device
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
            held = buffer[:, :, : self.length]  # cut first: indexing copies
            out.append(held[: len(self.rows)] if self.contiguous else held[self.rows])
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
    """Grouped-query attention for Transformers that does not copy keys and values for every query head.

    The query heads that share a key-value head are laid out as more query positions, which gives the same products.
    Shapes: query [rows, heads, tokens, dim]; key, value [rows, key-value heads, positions, dim]; attention_mask, 0
    where a token attends and -inf elsewhere, [rows, 1, tokens, positions]; result [rows, tokens, heads, dim].
    """
    if other := [name for name in _OTHER_ATTENTION if kwargs.get(name) is not None]:
        raise BackendError(f"this engine does not support {', '.join(other)}, which the model's attention needs")
    rows, heads, tokens, dim = query.shape
    groups = heads // key.shape[1]
    if groups > 1:
        query = query.reshape(rows, key.shape[1], groups * tokens, dim)
        attention_mask = attention_mask.repeat(1, 1, groups, 1) if tokens > 1 else attention_mask
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(rows, heads, tokens, dim).transpose(1, 2).contiguous(), None


class BatchEngine(Engine):
    """Generates for any number of requests at once; a BackendError if the model has layers without full attention.

    At most `max_rows` sequences run at once, fewer if their cache would not fit: 4 GiB on a CPU, half of an
    accelerator's free memory. `Engine` describes the other arguments.
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
        super().__init__(model, max_length=max_length, stop_token_ids=stop_token_ids, seed=seed)
        heads = config.num_key_value_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        dtype = next(model.parameters()).dtype
        row_bytes = 2 * config.num_hidden_layers * heads * dim * max_length * dtype.itemsize
        room = _CACHE_BYTES
        if self._device.type == "cuda":
            reserved = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
            room = int(_CACHE_SHARE * (torch.cuda.mem_get_info(self._device)[0] + reserved))
        self.slots = max(1, min(max_rows, room // row_bytes))
        shape = (self.slots, heads, max_length, dim)
        layers = range(config.num_hidden_layers)
        self._cache = _SlotCache(*([_zeros(shape, dtype, self._device) for _ in layers] for _ in range(2)))
        self._content = np.full((self.slots, max_length), -1, dtype=np.int64)  # tokens whose keys a slot holds
        self._length = np.zeros(self.slots, dtype=np.int64)  # how many
        self._used = np.zeros(self.slots, dtype=np.int64)  # clock of the last use, to evict the oldest
        self._clock = 0
        self.tokens_computed = 0

    def clear_cache(self) -> None:
        """Forget all cached keys and values; running requests are recomputed."""
        super().clear_cache()
        self._length[:] = 0
        self._waiting.extendleft(reversed(self._running.values()))
        self._running.clear()

    @torch.inference_mode()
    def step(self) -> None:
        """Admit waiting requests, then sample one token for every running one."""
        self._admit()
        if not self._running:
            return
        self._clock += 1
        slots = sorted(self._running)
        requests = [self._running[slot] for slot in slots]
        contiguous = 2 * len(slots) >= slots[-1] + 1  # idle rows in between cost less than copying the cache
        rows = np.arange(slots[-1] + 1) if contiguous else np.asarray(slots)
        in_batch = np.searchsorted(rows, slots)
        position = np.minimum(self._length[rows], self.max_length - 1)
        tokens = np.zeros(len(rows), dtype=np.int64)
        tokens[in_batch] = [(request.token_ids or request.prompt_ids)[-1] for request in requests]
        logits = self._forward(rows, tokens[:, None], position[:, None], contiguous)
        self._content[slots, position[in_batch]] = tokens[in_batch]
        self._length[slots] += 1
        self._used[slots] = self._clock
        self._sample(requests, logits[in_batch, -1])
        for slot, request in zip(slots, requests, strict=True):
            if request.ends(self.stop_token_ids):
                del self._running[slot]
                request.finish("completed")

    def _admit(self) -> None:
        """Give waiting requests a slot and compute their prompts except for the last token."""
        later: list[int] = []  # slots
        batch: list[tuple[int, int]] = []  # (slot, cached tokens)
        seen: set[tuple[int, ...]] = set()
        while self._waiting and len(self._running) < self.slots:
            request = self._waiting.popleft()
            tokens, key = _prompt(request), tuple(request.tokens)
            slot, cached = self._choose_slot(tokens)
            self._running[slot] = request
            if cached < len(tokens) and key in seen:
                later.append(slot)  # the same prompt is being computed: copy it afterwards
                self._length[slot] = 0
            else:
                seen.add(key)
                batch.append((slot, cached))
                self._length[slot] = cached
        self._prefill(batch)
        self._prefill([(slot, self._copy_prefix(_prompt(self._running[slot]), slot)) for slot in later])

    def _choose_slot(self, tokens: np.ndarray) -> tuple[int, int]:
        """Return a free slot and how many of ``tokens`` it holds, from its own past or copied from another slot."""
        common = self._common(tokens)
        free = np.ones(self.slots, dtype=bool)
        free[[*self._running]] = False
        extended = np.where(free & (common == self._length), common, 0)  # slots that would lose nothing
        own = int(np.argmax(extended))
        if not extended[own]:
            age = np.where(self._length > 0, self._used, -1)
            own = int(np.argmin(np.where(free, age, np.iinfo(np.int64).max)))
        return own, self._copy_prefix(tokens, own, common)

    def _common(self, tokens: np.ndarray) -> np.ndarray:
        """Return how many leading ``tokens`` each slot holds, shape [slots]."""
        equal = self._content[:, : len(tokens)] == tokens
        leading = np.where(equal.all(axis=1), len(tokens), np.argmin(equal, axis=1)) if len(tokens) else 0
        return np.minimum(leading, self._length)

    def _copy_prefix(self, tokens: np.ndarray, slot: int, common: np.ndarray | None = None) -> int:
        """Copy to ``slot`` as many of ``tokens`` as any slot holds; return how many."""
        common = self._common(tokens) if common is None else common
        source = int(np.argmax(common))
        n = int(common[source])
        if n > common[slot]:
            for buffer in (*self._cache.keys, *self._cache.values):
                buffer[slot, :, :n] = buffer[source, :, :n]
            self._content[slot, :n] = tokens[:n]
            self._length[slot] = n
        return max(n, int(common[slot]))

    def _prefill(self, batch: list[tuple[int, int]]) -> None:
        """Compute the missing keys of each slot, longest first, in passes of a bounded size."""
        todo = []
        for slot, cached in batch:
            request = self._running[slot]
            tokens = _prompt(request)
            if not request.token_ids:
                request.cached_tokens = cached
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
            ids, positions = np.zeros((2, len(part), width), dtype=np.int64)
            for i, (slot, cached, tokens) in enumerate(part):
                piece = tokens[cached : cached + width]
                ids[i, : len(piece)] = piece
                # padding writes where the row's next token will go anyway, or to its last position again
                positions[i] = np.minimum(cached + np.arange(width), self.max_length - 1)
                self._content[slot, cached : cached + len(piece)] = piece
                self._length[slot] = cached + len(piece)
                if cached + len(piece) < len(tokens):
                    todo.append((slot, cached + len(piece), tokens))
            self._forward(np.asarray([slot for slot, _, _ in part]), ids, positions, contiguous=False)

    def _forward(self, rows: np.ndarray, ids: np.ndarray, positions: np.ndarray, contiguous: bool) -> torch.Tensor:
        """Run the model over ``ids`` at ``positions``, both [rows, tokens]; return logits of each row's last token."""
        cache, position_ids = self._cache, torch.from_numpy(positions).to(self._device)
        cache.rows, cache.positions = torch.from_numpy(rows).to(self._device), position_ids
        cache.length, cache.contiguous = int(positions.max()) + 1, contiguous
        later = torch.arange(cache.length, device=self._device) > position_ids[:, None, :, None]
        # [rows, 1, tokens, positions]; as numbers, which attention would otherwise make of it in every layer
        mask = torch.zeros(later.shape, dtype=cache.keys[0].dtype, device=self._device).masked_fill_(later, -torch.inf)
        self.tokens_computed += ids.size
        config = self.model.config
        before, config._attn_implementation = config._attn_implementation, _ATTENTION
        try:
            return self.model(
                input_ids=torch.from_numpy(ids).to(self._device),
                attention_mask=mask,
                position_ids=position_ids,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits
        finally:
            config._attn_implementation = before  # other users of the model find it unchanged


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return zeros; on a CPU memory that nobody has written yet, so that only what is used takes time and room."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)


def _prompt(request: Request) -> np.ndarray:
    """Return the tokens to compute before the next one is sampled: all but the last."""
    return np.asarray(request.tokens[:-1], dtype=np.int64)
