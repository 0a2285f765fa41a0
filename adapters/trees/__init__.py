"""Prefix trees: the rows of a batch as one tree in which every token that rows share is computed once.

Rows that begin with the same tokens (the episodes of a group, rebuilt prompts with the same system message) have the
same hidden states there under causal attention. A tree holds each such token once, and a row is a path from a root:

========================  =========================================================================================
``prefixes``              sorts rows by what they share, packs them into trees, and cuts them into micro-batches or
                          ranks with as little repetition as possible; needs NumPy alone
``attention``             packed trees through stock Hugging Face models: attention, and outputs per token, each once
========================  =========================================================================================

Only the model sees trees. Log-probabilities, values and entropies come back per token of a row, where masks,
advantages, old log-probabilities and weights have been all along; so a token that several rows share gets the sum of
their gradients.
"""

from agent_envs.adapters.trees.prefixes import PackedTree, SortedRows, cut, pack_tree, sort_rows, spread

__all__ = ["PackedTree", "SortedRows", "cut", "pack_tree", "sort_rows", "spread"]


def __dir__() -> list[str]:
    return __all__
