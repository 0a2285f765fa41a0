"""Helpers of the trainer that need none of its state: names and order of rows, columns, files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from agent_envs.adapters.verl.batch.table import StepTable
from agent_envs.adapters.verl.rollout.episode_rows import PADDING
from agent_envs.errors import ConfigError
from agent_envs.files import write_text

__all__ = [
    "INPUTS",
    "TOKENS",
    "LogThen",
    "by_submission",
    "episode_path",
    "mini_batches",
    "nest",
    "padding",
    "plain",
    "repair_tracker",
    "row_multiple",
    "with_token_values",
    "write_lines",
]


TOKENS = ("prompts", "responses", "input_ids", "position_ids", "response_mask", "loss_mask")
"""Columns of every request to the workers, which do not need records and messages."""

INPUTS = "multi_modal_inputs"
"""Column of what a vision-language model gets beside the tokens: the pixels of a row's pictures and their sizes."""


class LogThen:
    """A logger that calls a function after writing each record."""

    def __init__(self, logger: Any, after: Callable[[], None]) -> None:
        self.logger = logger
        self.after = after

    def log(self, *args: Any, **kwargs: Any) -> None:
        self.logger.log(*args, **kwargs)
        self.after()

    def __getattr__(self, name: str) -> Any:
        """The logger's other methods: verl calls ``finish`` at the end."""
        return getattr(self.logger, name)


def mini_batches(name: str, config: Any, run: Any, rows: int | None = None) -> int:
    """Return the mini-batches per training batch; both sizes count prompts, each with ``rollout.n`` trajectories.

    With ``rows``, the number of the batch's rows, a mini-batch is as many rows as it would have trajectories.
    """
    size, total = int(config.ppo_mini_batch_size), int(run.data.train_batch_size)
    if rows is not None:
        return max(1, math.ceil(rows / (size * int(run.actor_rollout_ref.rollout.n))))
    if size < 1 or total % size:
        raise ConfigError(f"{name}.ppo_mini_batch_size must divide data.train_batch_size ({total} prompts), got {size}")
    return total // size


def row_multiple(config: Any, *, critic: bool, reference: bool) -> int:
    """Return the number that the rows per rank and mini-batch must be a multiple of: fixed micro-batch sizes."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    fixed = [] if actor.use_dynamic_bsz else [actor.ppo_micro_batch_size_per_gpu]
    if not rollout.log_prob_use_dynamic_bsz:
        fixed.append(rollout.log_prob_micro_batch_size_per_gpu)
    if critic and not config.critic.use_dynamic_bsz:
        fixed += [config.critic.ppo_micro_batch_size_per_gpu, config.critic.get("forward_micro_batch_size_per_gpu")]
    if reference and not config.actor_rollout_ref.ref.log_prob_use_dynamic_bsz:
        fixed.append(config.actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu)
    return math.lcm(*(int(size) for size in fixed if size))


def by_submission(keys: Sequence[str], prompts: Mapping[str, int]) -> list[int]:
    """Return the indices of the rows sorted by prompt as submitted, session and output.

    ``keys`` are verl's row names, "{uid}_{session}_{output}", shape [rows]; ``prompts`` has the position of each
    prompt's uid, which is random. Rows of an unknown one come last.

    >>> by_submission(["b_0_10", "b_0_2", "a_0_0"], {"a": 1, "b": 0})
    [1, 0, 2]
    """

    def key(row: int) -> tuple[int, str, int, int]:
        uid, session, output = keys[row].rsplit("_", 2)
        return prompts.get(uid, len(prompts)), uid, int(session), int(output)

    return sorted(range(len(keys)), key=key)


def nest(column: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return [tokens] as a jagged column [rows, tokens of the row]."""
    return torch.nested.nested_tensor_from_jagged(column, offsets)


def padding(sample: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the columns of a padding row, which nothing is learned from, made of those of a row as short as can be."""
    extra = {**plain(sample["extra_fields"]), **PADDING, "episode": "", "error": ""}
    nobody = torch.tensor([-1])
    written = {column: nobody for column in ("step_ids", "versions") if column in sample}
    return {**sample, **written, "uid": name, "extra_fields": extra}


def plain(value: Any) -> dict:
    """Unwrap a dictionary that TransferQueue may have wrapped."""
    return value if isinstance(value, dict) else dict(value.data)


def repair_tracker(folder: Path) -> None:
    """Point verl's tracker at the newest complete checkpoint if a kill left it empty.

    verl rewrites ``latest_checkpointed_iteration.txt`` in place, after everything else (trainer_base.py:1013).
    """
    tracker = folder / "latest_checkpointed_iteration.txt"
    if not tracker.exists() or tracker.read_text().strip().isdigit():
        return
    complete = [int(p.parent.name.rsplit("_", 1)[1]) for p in folder.glob("global_step_*/data.pt")]
    if complete:
        write_text(tracker, str(max(complete)))
    else:
        tracker.unlink()


def episode_path(folder: str | os.PathLike[str], phase: str, step: int) -> Path:
    """Return the file of a step's episodes, such as ``train-000007.jsonl``: one episode per line."""
    return Path(folder) / f"{phase}-{step:06d}.jsonl"


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines to a file, which appears whole or not at all; a step that is played again replaces it."""
    write_text(path, "".join(f"{line}\n" for line in lines))


def with_token_values(
    lines: Sequence[str],
    table: StepTable,
    advantages: torch.Tensor,
    trained: torch.Tensor,
    entropies: torch.Tensor | None = None,
) -> list[str]:
    """Return lines of episodes with what training made of their tokens, for `agentr1 view`.

    The info of each trained step gets ``response_advantages``, ``response_mask``, which has 0 for tokens that are not
    trained, and ``response_entropies`` if they are given, all of shape [response tokens].

    Args:
        lines: Episodes as ``Episode.to_json`` returns them.
        table: The batch's steps.
        advantages: Advantage of every response token of the batch, shape [size].
        trained: Whether it has a weight in the policy's loss, bool, shape [size].
        entropies: Entropy of the distribution it was sampled from, in nats, shape [size]; None if it is not known.
    """
    values = {"response_advantages": advantages, "response_mask": trained.int()}
    values |= {} if entropies is None else {"response_entropies": entropies}
    steps: dict[str, dict[int, tuple[int, int]]] = {}
    for trajectory, index, start, length in zip(
        table.steps.trajectory.tolist(),
        table.steps.step.tolist(),
        table.start.tolist(),
        table.length.tolist(),
        strict=True,
    ):
        steps.setdefault(table.names[trajectory], {})[index] = (start, start + length)
    written = []
    for line in lines:
        episode = json.loads(line)
        for index, (start, end) in steps.get(episode["episode_id"], {}).items():
            if index < len(episode["steps"]) and len(episode["steps"][index]["response_ids"] or ()) == end - start:
                episode["steps"][index]["info"] |= {
                    name: [round(value, 6) for value in each[start:end].tolist()] for name, each in values.items()
                }
        written.append(json.dumps(episode))
    return written
