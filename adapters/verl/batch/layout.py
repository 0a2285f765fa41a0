"""Which row goes into which mini-batch, on which rank.

verl cuts a batch into equal mini-batches of rows, so the number of updates would depend on how many rows the episodes
have. Here a mini-batch holds whole groups, drawn at random, the same number (to within one) in each, or whole
trajectories where there are fewer groups than mini-batches. Its ranks get about the same number of tokens and are
filled to the same number of rows with padding rows, which count nowhere. On prefix trees a rank gets rows that share
much.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agent_envs.adapters.trees import SortedRows, spread


@dataclass(frozen=True)
class Layout:
    """An order of rows: rank by rank, mini-batch by mini-batch."""

    order: tuple[int | None, ...]
    """Row numbers, None for a padding row; shape [ranks x mini-batches x rows per part]."""
    ranks: int
    """Data-parallel ranks."""
    mini_batches: int
    nodes: int | None = None
    """Tokens of all parts if each holds every token of its trees once, without padding rows; None without trees."""

    @property
    def rows_per_part(self) -> int:
        """Rows of one mini-batch on one rank."""
        return len(self.order) // (self.ranks * self.mini_batches)

    def mini_batches_of_rows(self, wanted: int) -> torch.Tensor:
        """Return the mini-batch of every row if ``wanted`` are asked for, int64, shape [rows]."""
        fine = torch.arange(len(self.order)) // self.rows_per_part % self.mini_batches
        return fine * math.gcd(wanted, self.mini_batches) // self.mini_batches


def plan_layout(
    trajectories: Sequence[Hashable],
    lengths: Sequence[int],
    *,
    mini_batches: int,
    ranks: int,
    row_multiple: int = 1,
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
    trees: SortedRows | None = None,
) -> Layout:
    """Spread groups or trajectories over mini-batches and the rows of each mini-batch over ranks.

    ``trajectories``, ``lengths`` in tokens and ``groups`` are those of the rows; without groups every trajectory is
    alone. Where there are fewer trajectories than ``mini_batches``, these are fewer. Rows per rank and mini-batch are a
    multiple of ``row_multiple`` (a fixed micro-batch size). ``trees`` are the rows if they are trained as trees.
    """
    members = _members(trajectories)
    if groups is not None and len(together := _members(groups)) >= mini_batches:
        members = together
    np.random.default_rng(seed).shuffle(members)
    count = max(1, math.gcd(mini_batches, len(members)) if len(members) < mini_batches else mini_batches)
    # the draw depends on the number of groups or trajectories only, not on the rows that hold them
    batches = [[row for rows in members[b::count] for row in rows] for b in range(count)]
    nodes = None
    if trees is None:
        parts = [_split(rows, lengths, ranks) for rows in batches]  # [mini-batches][ranks]
    else:
        shares = [spread(trees.only(rows), ranks) for rows in batches]
        nodes = sum(part.nodes for batch in shares for part in batch)
        parts = [[part.rows.tolist() for part in batch] + [[]] * (ranks - len(batch)) for batch in shares]
    per_part = max(len(part) for batch in parts for part in batch)
    per_part = math.ceil(max(per_part, 1) / row_multiple) * row_multiple
    by_rank = [batch[rank] for rank in range(ranks) for batch in parts]
    order = (row for part in by_rank for row in [*part, *[None] * (per_part - len(part))])
    return Layout(tuple(order), ranks, count, nodes)


def _members(names: Sequence[Hashable]) -> list[list[int]]:
    """The rows of each name, in the order of their first rows."""
    rows_of: dict[Hashable, list[int]] = {}
    for row, name in enumerate(names):
        rows_of.setdefault(name, []).append(row)
    return list(rows_of.values())


def _split(rows: list[int], lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Rows over ranks with about equal tokens.

    The longest come first, so that micro-batches cut in this order hold rows of about the same length. One rank may get
    more rows than another; short padding rows make up for it.
    """
    parts: list[list[int]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for row in sorted(rows, key=lambda r: lengths[r], reverse=True):
        rank = min(range(ranks), key=lambda r: (load[r], len(parts[r])))
        parts[rank].append(row)
        load[rank] += lengths[row]
    return parts
