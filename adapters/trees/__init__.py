"""Prefix trees: the rows of a batch as one tree in which every token that rows share is computed once.

Rows that begin with the same tokens (the episodes of a group, rebuilt prompts with the same system message) have the
same hidden states there under causal attention. A tree holds each such token once, and a row is a path from a root:

========================  =========================================================================================
``prefixes``              sorts rows by what they share, and packs them into trees; needs NumPy alone
``cuts``                  cuts sorted rows into micro-batches or ranks with as little repetition as possible
``attention``             attention over packed trees for stock Hugging Face models
``passes``                a model's outputs for tokens of rows, each computed once per tree
========================  =========================================================================================

Only the model sees trees. Log-probabilities, values and entropies come back per token of a row, where masks,
advantages, old log-probabilities and weights have been all along; so a token that several rows share gets the sum of
their gradients.
"""

from agent_envs.adapters.trees.cuts import cut, spread
from agent_envs.adapters.trees.prefixes import PackedTree, SortedRows, pack_tree, sort_rows

__all__ = ["PackedTree", "SortedRows", "cut", "pack_tree", "sort_rows", "spread"]


def __dir__() -> list[str]:
    return __all__
