"""The steps of a training batch, independent of the rows that hold their tokens.

Steps are numbered by prompt as submitted, session and step index, and their tokens are listed in that order. So rows,
padding and the order in which episodes came back do not matter: everything computed from a table is the same for merged
and unmerged rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from agent_envs.adapters.estimators import StepRows, component_table
from agent_envs.errors import DataError


@dataclass(frozen=True)
class StepTable:
    """The trained steps of a batch, and where it has their tokens; tensors have shape [steps] unless noted."""

    steps: StepRows
    """What an estimator needs of them, except the critic's values."""
    row: torch.Tensor
    """Row of the batch that holds the step, int64."""
    start: torch.Tensor
    """Index of the step's first token among all response tokens of the batch, int64."""
    length: torch.Tensor
    """Tokens of the step, int64."""
    final: torch.Tensor
    """On a trajectory's last step: index of the token before which the state after it is read, -1 for none, int64."""
    places: tuple[int, ...]
    """Index of each step in its episode."""
    names: tuple[str, ...]
    """Name of each trajectory, shape [trajectories]."""
    groups: tuple[str, ...]
    """Name of each prompt group, shape [groups]."""
    tokens: torch.Tensor
    """Indices of the steps' tokens among all response tokens of the batch, step by step, int64, shape [tokens]."""
    step_of: torch.Tensor
    """The step of each of these tokens, int64, shape [tokens]."""
    counts: torch.Tensor
    """How much each step counts."""
    label: torch.Tensor | None = None
    """The step whose label each response token of the batch is in, -1 for none, int64; None if there is no label."""

    def __len__(self) -> int:
        return len(self.row)

    def pad(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape [tokens] to [steps, longest step], with zeros after each step's tokens."""
        width = int(self.length.max()) if len(self) else 0
        out = torch.zeros(len(self), width, dtype=x.dtype)
        out[self.step_of, self.position] = x
        return out

    @property
    def position(self) -> torch.Tensor:
        """Position of each token within its step, int64, shape [tokens]."""
        return torch.arange(len(self.tokens)) - (self.length.cumsum(0) - self.length)[self.step_of]

    def spread(self, x: torch.Tensor, size: int, fill: float = 0.0) -> torch.Tensor:
        """Spread [tokens] to all response tokens of the batch, shape [size], with ``fill`` elsewhere."""
        out = torch.full((size,), fill, dtype=x.dtype)
        out[self.tokens] = x
        return out


def step_table(
    extra: Sequence[Mapping[str, Any]], uids: Sequence[str], offsets: torch.Tensor, prompts: Mapping[str, int]
) -> StepTable:
    """Return the trained steps of rows, from their records, prompt groups and the bounds of their response tokens.

    ``prompts`` has the position of each prompt as submitted.
    """
    rows = []
    final_at: dict[str, int] = {}
    for row, (fields, uid) in enumerate(zip(extra, uids, strict=True)):
        if fields["kind"] not in ("step", "value"):
            continue
        begin, end = int(offsets[row]), int(offsets[row + 1])
        name, part = fields["trajectory"], fields.get("part", "")
        if fields["value_at"] >= 0:
            final_at[name] = begin + fields["value_at"]
        for step in fields["steps"]:
            start, stop = begin + step["start"], begin + step["end"]
            if not begin <= start < stop <= end:
                raise DataError(f"episode {name}: step {step['index']} has no tokens, or tokens outside its row")
            key = (prompts.get(uid, len(prompts)), uid, int(name.rpartition("_")[2]), part, step["index"])
            rows.append((key, row, (name, part), uid, step, start, stop))
    rows.sort(key=lambda item: item[0])
    steps = [item[4] for item in rows]
    own = [item[2] for item in rows]  # the trajectory of each
    role = [part.partition("/")[0] for _, part in own]
    of_rows = [extra[item[1]] for item in rows]
    peers = [(item[3], who, row.get("peers", "")) for item, who, row in zip(rows, role, of_rows, strict=True)]
    numbers, groups, roles = ({key: i for i, key in enumerate(dict.fromkeys(keys))} for keys in (own, peers, role))
    played = [row.get("record", {}).get("env", "") for row in of_rows]
    envs = {env: i for i, env in enumerate(dict.fromkeys(played))}
    last = {key: i for i, key in enumerate(own)}
    final = [final_at.get(key[0], -1) if last[key] == i else -1 for i, key in enumerate(own)]
    texts = {text: i for i, text in enumerate(dict.fromkeys(step["anchor"] for step in steps))}
    components, component_names = component_table([step["components"] for step in steps])

    def ints(values: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.int64)

    number_of = {(item[2], item[4]["index"]): i for i, item in enumerate(rows)}
    label = None
    for fields, begin in zip(extra, offsets.tolist(), strict=False):
        for index, start, end in fields.get("labels", ()):
            label = torch.full((int(offsets[-1]),), -1) if label is None else label
            name = fields["trajectory"], fields.get("part", "")
            label[begin + start : begin + end] = number_of[name, index]
    start, length = ints(item[5] for item in rows), ints(item[6] - item[5] for item in rows)
    step_of = torch.arange(len(rows)).repeat_interleave(length)
    return StepTable(
        steps=StepRows(
            rewards=torch.tensor([step["reward"] for step in steps], dtype=torch.float64),
            trajectory=ints(numbers[key] for key in own),
            step=ints(step["index"] for step in steps),
            group=ints(groups[key] for key in peers),
            valid=torch.ones(len(rows), dtype=torch.bool),
            truncated=torch.tensor([bool(s["truncated"] and not s["terminated"]) for s in steps], dtype=torch.bool),
            anchor=ints(texts[step["anchor"]] for step in steps),
            anchor_texts=list(texts),
            components=components if component_names else None,
            component_names=component_names,
            time=ints(step["time"] for step in steps) if steps and "time" in steps[0] else None,
            role=ints(map(roles.__getitem__, role)) if len(roles) > 1 else None,
            env=ints(envs[env] for env in played) if len(envs) > 1 else None,
            env_names=tuple(envs),
            names=tuple(name for name, _ in numbers),
        ),
        row=ints(item[1] for item in rows),
        start=start,
        length=length,
        final=ints(final),
        places=tuple(step.get("place", step["index"]) for step in steps),
        names=tuple(name for name, _ in numbers),
        groups=tuple(uid for uid, _, _ in groups),
        tokens=torch.arange(int(length.sum())) - (length.cumsum(0) - length - start)[step_of],
        step_of=step_of,
        counts=torch.tensor([row.get("share", 1.0) for row in of_rows]),
        label=label,
    )


def flat(column: torch.Tensor) -> torch.Tensor:
    """Return the values of a column, shape [tokens]: a jagged one, or one tensor if all rows have the same length."""
    if not column.is_nested:
        return column.reshape(-1)
    return torch.cat(column.unbind()) if column.lengths() is not None else column.values()


def row_offsets(column: torch.Tensor) -> torch.Tensor:
    """Return where each row of a column begins and ends among all its tokens, shape [rows + 1]."""
    return column.offsets() if column.is_nested else torch.arange(len(column) + 1) * column.shape[1]


def response_index(sequence_offsets: torch.Tensor, response_lengths: torch.Tensor) -> torch.Tensor:
    """Return the index of a model's output for each response token: one position before it.

    ``sequence_offsets`` says where each row begins and ends among all tokens, shape [rows + 1]; ``response_lengths``
    has shape [rows], the result [response tokens].

    >>> response_index(torch.tensor([0, 5, 8]), torch.tensor([2, 1])).tolist()
    [2, 3, 6]
    """
    first = response_lengths.cumsum(0) - response_lengths
    begin = sequence_offsets[1:] - response_lengths - 1  # [rows]
    row = torch.arange(len(response_lengths), device=begin.device).repeat_interleave(response_lengths)
    return torch.arange(len(row), device=begin.device) + (begin - first)[row]
