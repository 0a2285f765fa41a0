"""Helpers of the trainer that need none of its state: names and order of rows, columns, files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from agent_envs.adapters.verl.batch.table import StepTable
from agent_envs.adapters.verl.rollout.episode_rows import PADDING

TOKENS = ("prompts", "responses", "input_ids", "position_ids", "response_mask", "loss_mask")
"""Columns of every request to the workers, which do not need records and messages."""

INPUTS = "multi_modal_inputs"
"""Column of what a vision-language model gets beside the tokens: the pixels of a row's pictures and their sizes."""


def mini_batches(config: Any, run: Any, rows: int | None = None) -> int:
    """Return the mini-batches per training batch; both sizes count prompts, each with ``rollout.n`` trajectories.

    With ``rows``, the number of the batch's rows, a mini-batch is as many rows as it would have trajectories.
    """
    size = int(config.ppo_mini_batch_size)
    if rows is not None:
        return max(1, math.ceil(rows / (size * int(run.actor_rollout_ref.rollout.n))))
    return int(run.data.train_batch_size) // size


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


def read(batch: KVBatchMeta, *names: str) -> dict[str, Any]:
    """Return those columns of a batch that there are: tensors, anything else as lists."""
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))
    columns = {name: data.get(name) for name in list(data.keys())}
    return {name: x if isinstance(x, torch.Tensor) else x.tolist() for name, x in columns.items()}


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


def padding(sample: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the columns of a padding row, which nothing is learned from, made of those of a row as short as can be."""
    extra = {**plain(sample["extra_fields"]), **PADDING, "episode": "", "error": ""}
    nobody = torch.tensor([-1])
    written = {column: nobody for column in ("step_ids", "versions") if column in sample}
    return {**sample, **written, "uid": name, "extra_fields": extra}


def plain(value: Any) -> dict:
    """Unwrap a dictionary that TransferQueue may have wrapped."""
    return value if isinstance(value, dict) else dict(value.data)


def with_token_values(
    lines: Sequence[str],
    table: StepTable,
    advantages: torch.Tensor,
    trained: torch.Tensor,
    entropies: torch.Tensor | None = None,
) -> list[str]:
    """Return lines of episodes with what training made of their tokens, for `agentr1 view`.

    The info of each trained step gets ``response_advantages``, ``response_mask``, which has 0 for tokens that are not
    trained, and ``response_entropies`` (nats) if they are given. All three are over the batch's response tokens.
    """
    values = {"response_advantages": advantages, "response_mask": trained.int()}
    values |= {} if entropies is None else {"response_entropies": entropies}
    spans = torch.stack([table.steps.trajectory, table.start, table.start + table.length], dim=1)
    steps: dict[str, dict[int, tuple[int, int]]] = {}
    for place, (trajectory, start, end) in zip(table.places, spans.tolist(), strict=True):
        steps.setdefault(table.names[trajectory], {})[place] = (start, end)
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


def take_baselines(batch: KVBatchMeta, session: int, returns: dict[str, float]) -> KVBatchMeta:
    """Remove the greedy episodes, of each prompt's ``session``, from a batch and from TransferQueue; return the rest.

    ``returns`` gets their returns by uid, none for episodes that failed.
    """
    greedy = {key: None for key in batch.keys if key.rsplit("_", 2)[1] == str(session)}
    if not greedy:
        return batch
    keys = list(greedy)
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    for key, value in zip(keys, list(data["extra_fields"]), strict=True):
        fields = plain(value)
        if not fields["error"]:
            returns[key.rsplit("_", 2)[0]] = float(fields["record"]["return"])
    tq.kv_clear(keys=keys, partition_id=batch.partition_id)
    return batch.select_keys([key for key in batch.keys if key not in greedy])
