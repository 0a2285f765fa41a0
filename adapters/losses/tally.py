"""Metrics that add up exactly over micro-batches: a total with its count, or a maximum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch


class Tally(NamedTuple):
    """One metric of a part of a batch."""

    total: torch.Tensor
    """Sum over the counted elements, or the largest of them, scalar without a graph."""
    count: torch.Tensor
    """Number of elements, scalar."""
    largest: bool = False
    """Whether ``total`` is a maximum."""


def mean(x: torch.Tensor, counted: torch.Tensor) -> Tally:
    """Return the mean of ``x`` over the elements where ``counted``, a bool tensor of the same shape, is True."""
    return Tally(torch.where(counted, x.detach().double(), 0.0).sum(), counted.sum())


def maximum(x: torch.Tensor, counted: torch.Tensor) -> Tally:
    """Return the maximum of the elements where ``counted`` is True; minus infinity if there are none."""
    values = torch.where(counted, x.detach().double(), -torch.inf)
    return Tally(values.amax() if values.numel() else values.new_tensor(-torch.inf), counted.sum(), largest=True)


def merge(parts: Iterable[Mapping[str, Tally]]) -> dict[str, Tally]:
    """Return the metrics of all parts together.

    >>> a = {"x": Tally(torch.tensor(3.0), torch.tensor(2))}
    >>> b = {"x": Tally(torch.tensor(6.0), torch.tensor(1))}
    >>> averages(merge([a, b]))
    {'x': 3.0}
    """
    out: dict[str, Tally] = {}
    for part in parts:
        for name, new in part.items():
            if (old := out.get(name)) is not None:
                total = torch.maximum(old.total, new.total) if old.largest else old.total + new.total
                new = Tally(total, old.count + new.count, old.largest)
            out[name] = new
    return out


def averages(metrics: Mapping[str, Tally]) -> dict[str, float]:
    """Return the metrics as numbers, without those that have no elements.

    >>> averages({"x": Tally(torch.tensor(0.0), torch.tensor(0))})
    {}
    """
    return {
        name: float(tally.total if tally.largest else tally.total / tally.count)
        for name, tally in metrics.items()
        if int(tally.count)
    }
