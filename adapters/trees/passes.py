"""A model's outputs for tokens of rows, computed on packed trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_envs.adapters.trees.attention import TREE_ATTENTION, enable, plan_attention
from agent_envs.adapters.trees.cuts import cut
from agent_envs.adapters.trees.prefixes import SortedRows, pack_tree
from agent_envs.errors import needs_extra

with needs_extra("hf"):
    import torch


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
