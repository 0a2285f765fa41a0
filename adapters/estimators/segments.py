"""Sums, means and recursions over trajectories and groups, without a Python loop over rows or tokens.

Estimators work on *laid out* rows: the valid ones, ordered by trajectory and step, so that a trajectory is a segment
of consecutive elements. Results are computed in float64 and scattered back to the caller's order in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from agent_envs.adapters.estimators.rows import StepRows
from agent_envs.errors import ConfigError

_BLOCK = 16


def whiten(x: torch.Tensor) -> torch.Tensor:
    """$(x - mean) / (std + 1e-8)$ over all elements, with the unbiased std; zeros for fewer than two elements.

    >>> whiten(torch.tensor([1.0, 2.0, 3.0]))
    tensor([-1.,  0.,  1.])
    """
    if x.numel() < 2 or bool(x.max() == x.min()):
        return torch.zeros_like(x)
    return (x - x.mean()) / (x.std(unbiased=True) + 1e-8)


def masked_whiten(x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """$(x - mean) / sqrt(var + 1e-8)$ with the unbiased variance, as verl whitens tokens.

    ``weight`` is how many tokens each element stands for; None for one each. Zeros for fewer than two tokens and for
    equal elements.
    """
    if weight is None:
        if x.numel() < 2 or torch.equal(*torch.aminmax(x)):
            return torch.zeros_like(x)
        centred = x - x.mean()
        return centred.mul_((torch.linalg.vector_norm(centred).square() / (x.numel() - 1) + 1e-8).rsqrt())
    n = weight.sum()
    weighed = x[weight > 0]
    if float(n) < 2 or bool(weighed.max() == weighed.min()):
        return torch.zeros_like(x)
    centred = x - (x * weight).sum() / n
    return centred * ((centred.square() * weight).sum() / (n - 1) + 1e-8).rsqrt()


@dataclass(frozen=True)
class StepLayout:
    """The valid rows ordered by trajectory and step."""

    row: torch.Tensor
    """Index of each into ``StepRows``, shape [n]."""
    trajectory: torch.Tensor
    """Its trajectory as 0..m-1, not decreasing, shape [n]."""
    lengths: torch.Tensor
    """Steps of each trajectory, shape [m]."""
    rows: int
    """Rows there are in all."""

    @cached_property
    def last(self) -> torch.Tensor:
        """Index of each trajectory's last step, shape [m]."""
        return self.lengths.cumsum(0) - 1

    def take(self, x: torch.Tensor) -> torch.Tensor:
        """[rows] -> [n], in float64."""
        return x[self.row].double()

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        """[n] -> [rows] in float32, 0 elsewhere."""
        out = torch.zeros(self.rows, dtype=torch.float32)
        out[self.row] = x.float()
        return out

    def scores(self, rows: StepRows) -> torch.Tensor:
        """Sum of the rewards of each trajectory, shape [m]."""
        return segment_sums(self.take(rows.rewards), self.trajectory, len(self.lengths))

    def discount(self, rows: StepRows, gamma: float) -> float | torch.Tensor:
        """Return gamma to the number of environment steps until each step's next one, shape [n], or gamma itself.

        A call of the model without an environment step costs no discount (Sutton, Precup, Singh 1999).
        """
        if rows.time is None or gamma == 1:
            return gamma
        time = self.take(rows.time)
        until = next_in_segment(time, self.lengths) - time
        until[self.last] = 1.0
        return gamma**until

    def groups(self, rows: StepRows) -> tuple[torch.Tensor, int]:
        """The group of each trajectory as 0..k-1, shape [m], and k."""
        if not len(self.lengths):
            return self.lengths, 0
        number = rows.group[self.row[self.last]].unique(return_inverse=True)[1]
        return number, int(number.max()) + 1

    def final_values(self, rows: StepRows, bootstrap: bool) -> tuple[torch.Tensor, dict[str, float]]:
        """V of the state after each trajectory, 0 where the task ended it or V is not known, shape [m]."""
        ends = self.row[self.last] if len(self.lengths) else self.row
        cut = rows.truncated[ends]
        value = torch.full((len(ends),), torch.nan, dtype=torch.float64)
        if bootstrap and rows.final_values is not None:
            value = torch.where(cut, rows.final_values[ends].double(), torch.nan)
        return value.nan_to_num(0.0), {"truncated": float(cut.sum()), "bootstrapped": float((~value.isnan()).sum())}


def lay_out(rows: StepRows) -> StepLayout:
    """The valid rows ordered by trajectory and step."""
    valid = rows.valid.nonzero().squeeze(1)
    order = valid[torch.argsort(rows.step[valid], stable=True)]
    order = order[torch.argsort(rows.trajectory[order], stable=True)]
    name = rows.trajectory[order]
    starts = torch.ones_like(name, dtype=torch.bool)
    starts[1:] = name[1:] != name[:-1]
    number = starts.cumsum(0) - 1
    return StepLayout(order, number, torch.bincount(number), rows.rewards.shape[0])


@dataclass(frozen=True)
class TokenLayout:
    """The trained tokens ordered by trajectory, step and position."""

    token: torch.Tensor | None
    """Index of each into ``TokenRows``, shape [k]; None where they are all trained and in order already."""
    counts: torch.Tensor
    """Tokens of each step laid out, shape [n]."""
    lengths: torch.Tensor
    """Tokens of each trajectory, shape [m]."""
    tokens: int
    """Tokens there are in all."""

    @cached_property
    def first(self) -> torch.Tensor:
        """Index of each step's first token, of the next one's where it has none, shape [n]."""
        return self.counts.cumsum(0) - self.counts

    @cached_property
    def written(self) -> torch.Tensor:
        """The steps that have tokens, shape [steps with tokens]."""
        return self.counts.nonzero().squeeze(1)

    @cached_property
    def last(self) -> torch.Tensor:
        """Index of the last token of every step that has one, shape [steps with tokens]."""
        return self.counts[self.written].cumsum(0) - 1

    def take(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens] -> [k], in float64."""
        return (x if self.token is None else x[self.token]).double()

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        """[k] -> [tokens] in float32, 0 elsewhere."""
        if self.token is None:
            return x.float()
        out = torch.zeros(self.tokens, dtype=torch.float32)
        out[self.token] = x.float()
        return out

    def step_means(self, x: torch.Tensor) -> torch.Tensor:
        """[k] -> the mean over each step's tokens, 0 for a step without, shape [n]."""
        sums = torch.segment_reduce(x, "sum", lengths=self.counts, initial=0.0, unsafe=True)
        return sums / self.counts.clamp(min=1)


def lay_out_tokens(rows: StepRows, steps: StepLayout, estimator: str) -> TokenLayout:
    """The trained tokens of valid rows, ordered. Raises ConfigError if there are no tokens."""
    if rows.tokens is None:
        raise ConfigError(f"the estimator {estimator!r} works on tokens: give StepRows.tokens")
    n = len(steps.row)
    place = torch.full((steps.rows + 1,), -1, dtype=torch.int64)  # its last element answers for -1
    place[steps.row] = torch.arange(n)
    row, begin, size = rows.tokens.runs
    step = place[row]  # [runs]
    placed = (step >= 0).nonzero().squeeze(1)
    step, order = step[placed].sort(stable=True)
    begin, size = begin[placed][order], size[placed][order]
    counts = torch.zeros(n, dtype=torch.int64).index_add_(0, step, size)
    lengths = torch.zeros(len(steps.lengths), dtype=torch.int64).index_add_(0, steps.trajectory, counts)
    total = len(rows.tokens.step_row)
    shift = begin - (size.cumsum(0) - size)  # [runs] how far a run moves
    token = None
    if bool(shift.any()) or int(size.sum()) != total:
        token = torch.repeat_interleave(shift, size)
        token += torch.arange(len(token))
    return TokenLayout(token, counts, lengths, total)


def segment_sums(x: torch.Tensor, segment: torch.Tensor, count: int) -> torch.Tensor:
    """Sums over the elements of each segment, shape [count]."""
    return torch.zeros(count, dtype=torch.float64).index_add_(0, segment, x.double())


def next_in_segment(x: torch.Tensor, lengths: torch.Tensor, after: torch.Tensor | float = 0.0) -> torch.Tensor:
    """The element after each one; ``after`` (shape [segments] or a number) for the last of a segment.

    >>> next_in_segment(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 0, 1]), torch.tensor([7.0, 8.0, 9.0])).tolist()
    [2.0, 7.0, 9.0]
    """
    out = torch.empty_like(x)
    out[:-1] = x[1:]
    full = lengths > 0
    ends = lengths.cumsum(0)[full] - 1
    out[ends] = after[full].to(x.dtype) if isinstance(after, torch.Tensor) else after
    return out


def discounted_sums(x: torch.Tensor, lengths: torch.Tensor, discount: float | torch.Tensor) -> torch.Tensor:
    """$y_k = x_k + discount * y_{k+1}$ within each segment: a reverse scan. A tensor has the discount after each k.

    Segments are cut into blocks; a matrix of powers of the discount does the sums within blocks, the same recursion
    with $discount^block$ does them over blocks. Nothing is divided by a power, so no discount (between 0 and
    1) and no length loses digits. ``x`` has the segments one after another, ``lengths`` the elements of each.

    >>> discounted_sums(torch.tensor([1.0, 2.0, 4.0, 8.0]).double(), torch.tensor([3, 1]), 0.5).tolist()
    [3.0, 4.0, 4.0, 8.0]
    """
    longest = int(lengths.max()) if lengths.numel() else 0
    if isinstance(discount, torch.Tensor):
        sums, first = x.clone(), lengths.cumsum(0) - lengths
        for k in range(longest - 2, -1, -1):  # as many rounds as the longest segment has elements, a few hundred
            at = first[lengths > k + 1] + k
            sums[at] += discount[at] * sums[at + 1]
        return sums
    if longest < 2 or discount == 0:
        return x.clone()
    size = min(_BLOCK, longest)
    blocks = (lengths + size - 1).div(size, rounding_mode="floor")  # [segments]
    full = blocks > 0
    filled = torch.full((int(blocks.sum()),), size)  # [blocks] elements of each
    filled[blocks.cumsum(0)[full] - 1] = (lengths - (blocks - 1) * size)[full]
    slot = (torch.arange(size) < filled[:, None]).view(-1).nonzero().squeeze(1)  # [elements] where each stands
    grid = torch.zeros(len(filled) * size, dtype=x.dtype)
    grid[slot] = x
    power = torch.arange(size)[:, None] - torch.arange(size)  # [from, to]
    matrix = torch.where(power >= 0, discount ** power.clamp(min=0).double(), 0.0).to(x.dtype)
    sums = grid.view(-1, size) @ matrix  # [blocks, size] within blocks
    if longest > size:
        heads = discounted_sums(sums[:, 0].contiguous(), blocks, discount**size)
        carried = next_in_segment(heads, blocks)  # y at the start of the following block
        sums.addmm_(carried[:, None], (discount ** (size - torch.arange(size, dtype=x.dtype)))[None])
    return sums.view(-1)[slot]


def group_centred(
    x: torch.Tensor, group: torch.Tensor, groups: int, *, by_std: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x minus its group's mean, over $std + 1e-6$ with the unbiased std if asked for.

    Args:
        x: float64, shape [elements].
        group: 0..groups-1, shape [elements].

    Returns:
        Shape [elements], exactly 0 in a group of one and where all elements of the group are equal; the number of
        elements of each group, and whether all of it are equal, shape [groups].
    """
    n = torch.bincount(group, minlength=groups)
    centred = x - (segment_sums(x, group, groups) / n.clamp(min=1))[group]
    bounds = torch.zeros(2, groups, dtype=x.dtype)
    bounds[0].scatter_reduce_(0, group, x, "amin", include_self=False)
    bounds[1].scatter_reduce_(0, group, x, "amax", include_self=False)
    equal = bounds[0] == bounds[1]
    centred = torch.where(equal[group], 0.0, centred)
    if by_std:
        var = segment_sums(centred.square(), group, groups) / (n - 1).clamp(min=1)
        centred = centred / (var.sqrt() + 1e-6)[group]
    return centred, n, equal
