"""Packed trees through stock Hugging Face models: attention by transformers' own interface, and outputs per token.

``enable`` gives a model the attention implementation ``agentr1_tree``. A pass with the argument ``tree``, the plan of a
packed tree, attends along its paths; any other pass is ``sdpa``, with its masks. There are two ways to compute it:

========  =========================================================================================================
``sdpa``  on any device. The sequence is cut into pieces of one row each. The queries of a piece are consecutive, its
          keys are gathered from the row's path, so that only ancestors are compared: no mask of [nodes, nodes].
          Pieces of similar sizes share a call of PyTorch's scaled_dot_product_attention.
``flex``  PyTorch's FlexAttention, compiled once for all shapes (``dynamic=True``), for GPUs. The block mask is computed
          from the ends of subtrees, without a comparison of all pairs.
========  =========================================================================================================

Sliding windows are windows of positions along a path, as in rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from agent_envs.adapters.trees.prefixes import PackedTree, SortedRows, cut, pack_tree
from agent_envs.checks import choice
from agent_envs.errors import ConfigError, needs_extra

with needs_extra("hf"):
    import torch
    from torch.nn.attention.flex_attention import BlockMask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

TREE_ATTENTION = "agentr1_tree"
"""Name of the attention implementation."""
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Model types that are proved to give the same outputs for trees and rows."""

_ROPES_OF_LENGTH = ("dynamic", "longrope")
"""Whose frequencies change with the longest sequence of a pass (transformers/modeling_rope_utils.py)."""
_PIECE = 256
"""Most queries of a piece whose keys begin before them."""
_BLOCK = 128
"""Nodes of a block of FlexAttention's mask."""
_PADDED = 1.3
"""How many times the pairs of a bucket's pieces may be compared because of padding."""


def check_model(config: Any) -> None:
    """Check that a model of this Hugging Face configuration can be trained on trees.

    Raises:
        ConfigError: It is of another family, its attention has dropout, or its positions depend on the longest row.
    """
    if config.model_type not in FAMILIES:
        raise ConfigError(
            f"trees are proved for models of the types {', '.join(FAMILIES)}, this one is {config.model_type!r}: "
            "use the layout 'merged'"
        )
    if (rope := (config.rope_parameters or {}).get("rope_type", "default")) in _ROPES_OF_LENGTH:
        raise ConfigError(
            f"trees need rotary positions that do not depend on the longest row of a pass, this model has {rope!r}: "
            "use the layout 'merged'"
        )
    if dropout := float(config.attention_dropout):
        raise ConfigError(f"trees need a model without dropout in attention, this one has {dropout}: set it to 0")


def takes_trees(config: Any) -> bool:
    """Return whether ``check_model`` accepts a configuration."""
    try:
        check_model(config)
    except ConfigError:
        return False
    return True


def enable(model: Any) -> None:
    """Let a Hugging Face model take packed trees; passes without ``tree`` compute what they would with ``sdpa``."""
    check_model(model.config)
    model.set_attn_implementation(TREE_ATTENTION)


@dataclass(frozen=True)
class Bucket:
    """Pieces of similar size, padded to the largest."""

    queries: torch.Tensor
    """Node of each query, int64, shape [pieces x queries]."""
    keys: torch.Tensor
    """Node of each key, a path from its root, int64, shape [pieces x keys]."""
    depth: torch.Tensor
    """Depth of each query, int64, shape [pieces, queries]."""
    causal: bool
    """Whether all queries are at the beginning of their paths: query i is key i."""
    masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None) -> torch.Tensor | None:
        """Return which keys each query sees, [pieces, 1, queries, keys]; None for all up to itself."""
        count = len(self.keys) // len(self.depth)
        if self.causal and (window is None or window >= count):
            return None
        if window not in self.masks:
            key = torch.arange(count, device=self.keys.device)
            seen = key <= self.depth[..., None]
            if window is not None:
                seen &= key > self.depth[..., None] - window
            self.masks[window] = seen[:, None]
        return self.masks[window]


@dataclass(frozen=True)
class SdpaPlan:
    """How to attend over a packed tree with scaled_dot_product_attention."""

    buckets: tuple[Bucket, ...]
    back: torch.Tensor
    """Where the output of each node is among those of all buckets, int64, shape [nodes]."""

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, window: int | None
    ) -> torch.Tensor:
        """Return the attention of a packed tree, [1, nodes, heads, size], given tensors [1, heads, nodes, size]."""
        out = []
        q, k, v = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))  # [nodes, heads, size]
        repeats = query.shape[1] // key.shape[1]
        for bucket in self.buckets:
            own_q, own_k, own_v = (
                x.index_select(0, nodes).unflatten(0, (len(bucket.depth), -1)).transpose(1, 2)
                for x, nodes in ((q, bucket.queries), (k, bucket.keys), (v, bucket.keys))
            )
            if repeats > 1:
                own_k, own_v = own_k.repeat_interleave(repeats, 1), own_v.repeat_interleave(repeats, 1)
            mask = bucket.mask(window)
            done = scaled_dot_product_attention(own_q, own_k, own_v, mask, is_causal=mask is None, scale=scale)
            out.append(done.transpose(1, 2).flatten(0, 1).flatten(1))
        return torch.cat(out).index_select(0, self.back).view(1, len(self.back), query.shape[1], -1)


@dataclass(frozen=True)
class FlexPlan:
    """How to attend over a packed tree with FlexAttention."""

    end: torch.Tensor
    """Where the descendants of each node end, int64, shape [nodes]."""
    position: torch.Tensor
    """Depth of each node, int64, shape [nodes]."""
    masks: dict[int | None, BlockMask] = field(default_factory=dict)

    def block_mask(self, window: int | None) -> BlockMask:
        """Return the mask of a layer: which blocks of keys each block of queries sees, wholly or in part."""
        if window not in self.masks:
            self.masks[window] = _block_mask(self.end, self.position, window)
        return self.masks[window]

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, window: int | None
    ) -> torch.Tensor:
        """Return the attention of a packed tree, as ``SdpaPlan.attend``."""
        mask, grouped = self.block_mask(window), query.shape[1] != key.shape[1]
        out = _compiled()(query, key, value, block_mask=mask, scale=scale, enable_gqa=grouped)
        return out.transpose(1, 2).contiguous()


Plan = SdpaPlan | FlexPlan
"""What the argument ``tree`` of a model's pass takes."""


def plan_attention(tree: PackedTree, device: torch.device | str = "cpu", kind: str | None = None) -> Plan:
    """Return how to attend over a packed tree on a device.

    Args:
        tree: The tree, of at least one node.
        device: Where the model is.
        kind: ``sdpa`` or ``flex``; None for flex on a GPU and sdpa elsewhere.
    """
    device = torch.device(device)
    kind = kind or ("flex" if device.type == "cuda" else "sdpa")
    if choice("the kind of tree attention", kind, ("flex", "sdpa")) == "flex":
        return FlexPlan(torch.from_numpy(tree.end).to(device), torch.from_numpy(tree.position_ids).to(device))
    back = np.empty(len(tree), dtype=np.int64)
    buckets, at = [], 0
    for part in _buckets(_pieces(tree)):
        most_q, most_k = max(end - begin for _, begin, end in part), max(end for _, _, end in part)
        queries, keys = np.zeros((len(part), most_q), np.int64), np.zeros((len(part), most_k), np.int64)
        depth = np.zeros((len(part), most_q), np.int64)
        for i, (start, begin, end) in enumerate(part):
            path = tree.path[start : start + end]
            queries[i, : end - begin], keys[i, :end] = path[begin:], path
            depth[i, : end - begin] = np.arange(begin, end)
            back[path[begin:]] = np.arange(at, at + end - begin)
            at += most_q
        q, k, d = (torch.from_numpy(x).to(device) for x in (queries.ravel(), keys.ravel(), depth))
        buckets.append(Bucket(q, k, d, causal=not any(begin for _, begin, _ in part)))
    return SdpaPlan(tuple(buckets), torch.from_numpy(back).to(device))


def _pieces(tree: PackedTree) -> list[tuple[int, int, int]]:
    """Where a row begins in ``tree.path``, and the depths from and to which its own nodes are queries."""
    out, start = [], 0
    for length, shared in zip(tree.rows.lengths.tolist(), tree.rows.shared.tolist(), strict=True):
        step = _PIECE if shared else max(length, 1)  # a whole row has PyTorch's causal kernel
        out += [(start, begin, min(begin + step, length)) for begin in range(shared, length, step)]
        start += length
    return out


def _buckets(pieces: Sequence[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """Pieces of similar sizes together; those that are whole rows apart from the others."""
    out: list[list[tuple[int, int, int]]] = []
    pairs = most = 0
    for piece in sorted(pieces, key=lambda piece: (piece[1] > 0, -piece[2], piece[1])):
        _, begin, end = piece
        if out and (begin > 0) == (out[-1][0][1] > 0):
            most_q = max(most, end - begin)
            padded = most_q * out[-1][0][2] * (len(out[-1]) + 1)
            if padded <= _PADDED * (pairs + (end - begin) * end):
                out[-1].append(piece)
                pairs, most = pairs + (end - begin) * end, most_q
                continue
        out.append([piece])
        pairs, most = (end - begin) * end, end - begin
    return out


def _block_mask(end: torch.Tensor, position: torch.Tensor, window: int | None) -> BlockMask:
    nodes = len(end)
    blocks = -(-nodes // _BLOCK)
    ends = torch.nn.functional.pad(end, (0, blocks * _BLOCK - nodes)).view(blocks, _BLOCK)
    first = torch.arange(blocks, device=end.device) * _BLOCK  # [blocks]
    before = first < first[:, None]  # [query blocks, key blocks]
    # the subtree of some key reaches into the block of queries, or those of all keys reach beyond it
    some = (before & (ends.amax(1) > first[:, None])) | (first == first[:, None])
    full = before & (ends.amin(1) >= (first[:, None] + _BLOCK).clamp(max=nodes))
    if window is not None:
        full = torch.zeros_like(full)  # positions decide too

    def sees(batch: torch.Tensor, head: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        seen = (k <= q) & (q < end[k])
        return seen if window is None else seen & (position[q] - position[k] < window)

    def listed(which: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        order = which.int().argsort(dim=1, descending=True, stable=True)
        return which.sum(1).int()[None, None], order.int()[None, None]

    return BlockMask.from_kv_blocks(
        *listed(some & ~full), *listed(full), BLOCK_SIZE=_BLOCK, mask_mod=sees, seq_lengths=(nodes, nodes)
    )


@lru_cache(maxsize=1)
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


def _tree_attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor | None, *, scaling: float | None = None, sliding_window: int | None = None,
    tree: Plan | None = None, **kwargs: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """transformers' interface of an attention function."""
    if tree is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    return tree.attend(query, key, value, scaling, sliding_window), None


AttentionInterface.register(TREE_ATTENTION, _tree_attention)
AttentionMaskInterface.register(TREE_ATTENTION, sdpa_mask)


@dataclass(frozen=True)
class TreePass:
    """A forward pass over packed trees, for some tokens of their rows."""

    inputs: dict[str, Any]
    """Arguments of the model: ``input_ids``, ``position_ids``, ``attention_mask`` and ``tree``."""
    before: torch.Tensor
    """Nodes from which the wanted tokens are predicted, each once, int64, shape [outputs]."""
    tokens: torch.Tensor
    """The wanted tokens, as indices into the tokens of all rows, int64, shape [wanted]."""
    output: torch.Tensor
    """Index into ``before`` for each wanted token, int64, shape [wanted]."""

    def logits(self, model: Any) -> torch.Tensor:
        """Return a causal language model's logits, or a critic's values, at ``before``: [outputs, vocabulary or 1]."""
        if model.config._attn_implementation != TREE_ATTENTION:
            enable(model)
        out = model(**self.inputs, use_cache=False, logits_to_keep=self.before).logits[0]
        return out if len(out) == len(self.before) else out[self.before]  # a critic's head takes all nodes


def tree_pass(
    ids: np.ndarray, offsets: np.ndarray, rows: SortedRows, wanted: np.ndarray, device: torch.device | str,
    kind: str | None = None,
) -> TreePass:  # fmt: skip
    """Pack rows for one pass.

    Args:
        ids: Tokens of all rows, int64, shape [tokens].
        offsets: Where each row begins and ends among them, int64, shape [rows + 1].
        rows: The rows of the pass, from ``sort_rows(ids, offsets)``.
        wanted: The tokens that outputs are asked for, bool, shape [tokens]; the first token of a row is predicted from
            nothing and cannot be one.
        device: Where the model is.
        kind: Of the attention, as for ``plan_attention``.
    """
    tree = pack_tree(ids, offsets, rows)
    moved = offsets[rows.rows] - (np.cumsum(rows.lengths) - rows.lengths)
    tokens = np.arange(len(tree.path)) + np.repeat(moved, rows.lengths)  # index of each token of the paths
    at = np.flatnonzero(wanted[tokens])
    before, output = np.unique(tree.path[at - 1], return_inverse=True)
    inputs = {
        "input_ids": torch.from_numpy(tree.input_ids)[None].to(device),
        "position_ids": torch.from_numpy(tree.position_ids)[None].to(device),
        # transformers leaves a mask of four dimensions unchanged, and the plan takes its place
        "attention_mask": torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=device),
        "tree": plan_attention(tree, device, kind),
    }
    return TreePass(inputs, torch.from_numpy(before).to(device), torch.from_numpy(tokens[at]), torch.from_numpy(output))


def tree_passes(
    ids: np.ndarray, offsets: np.ndarray, rows: SortedRows, wanted: np.ndarray, budget: int,
    device: torch.device | str,
) -> Iterator[TreePass]:  # fmt: skip
    """Yield the passes, of at most ``budget`` nodes each, over the rows that have wanted tokens; see ``tree_pass``."""
    asked = np.add.reduceat(wanted, offsets[:-1]) if len(offsets) > 1 else np.zeros(0)
    for part in cut(rows.only(np.flatnonzero(asked)), budget):
        yield tree_pass(ids, offsets, part, wanted, device)
