"""A training step in this process: verl's own workers and engines, the trainer's layout, columns and losses, no Ray.

What ``trainer`` keeps in TransferQueue lies in plain tensors here. Tests prove with it that merged and unmerged rows
train the same, the benchmarks measure it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine_workers import TrainingWorker, TrainingWorkerConfig

from agent_envs.adapters.trees import SortedRows, sort_rows
from agent_envs.adapters.verl.batch import tree_engine  # noqa: F401  registers its engines
from agent_envs.adapters.verl.batch.columns import StepColumns, step_columns
from agent_envs.adapters.verl.batch.layout import Layout, plan_layout
from agent_envs.adapters.verl.batch.losses import actor_loss, collect, critic_loss, loss_options, row_actor_loss
from agent_envs.adapters.verl.batch.table import StepTable, flat, response_index, step_table
from agent_envs.adapters.verl.config.objective import Objective
from agent_envs.adapters.verl.rollout.episode_rows import PADDING, Row
from agent_envs.adapters.verl.run import plugin  # noqa: F401  what every process of a run loads
from agent_envs.adapters.verl.run.process import process_environment

nest = torch.nested.nested_tensor_from_jagged


def build_worker(
    model_path: str,
    kind: str,
    *,
    packing: bool = False,
    micro_rows: int | None = None,
    micro_tokens: int = 16_384,
    trees: bool = False,
    learning_rate: float = 1e-2,
    total_steps: int = 10,
    seed: int = 0,
    lora_rank: int = 0,
) -> TrainingWorker:
    """verl's training worker in float32 on this machine's CPU; torch's process group must be described by variables.

    Args:
        model_path: Hugging Face folder.
        kind: ``language_model`` or ``value_model``.
        packing: Train the rows of a micro-batch as one sequence, without padding between them.
        micro_rows: Rows of a micro-batch; None for as many as have ``micro_tokens``.
        micro_tokens: Most tokens of a micro-batch.
        trees: Train the rows of a micro-batch as prefix trees.
        learning_rate: Of the optimiser.
        total_steps: Steps of its schedule.
        seed: Draws a value model's head: with some a gradient all but vanishes, and what is left differs by rounding.
        lora_rank: Of an adapter that is trained in place of the model; 0 for none.
    """
    model = HFModelConfig(
        path=model_path, use_remove_padding=packing, enable_gradient_checkpointing=False, lora_rank=lora_rank,
        override_config={"attn_implementation": "sdpa"},
    )  # fmt: skip
    engine = FSDPEngineConfig(
        strategy="fsdp2", use_torch_compile=False, seed=seed, mixed_precision={"param_dtype": "fp32"},
        use_dynamic_bsz=micro_rows is None, micro_batch_size_per_gpu=micro_rows, max_token_len_per_gpu=micro_tokens,
        infer_micro_batch_size_per_gpu=micro_rows, infer_max_token_len_per_gpu=micro_tokens,
    )  # fmt: skip
    optimizer = FSDPOptimizerConfig(lr=learning_rate, total_training_steps=total_steps)
    config = TrainingWorkerConfig(
        model_type=kind, model_config=model, engine_config=engine, optimizer_config=optimizer,
        checkpoint_config=CheckpointConfig(),
    )  # fmt: skip
    with patch.dict(os.environ, process_environment(cpu=True, trees=True) if trees else {}):
        worker = TrainingWorker(config)
    worker.reset()
    return worker


@dataclass
class LocalBatch:
    """Rows laid out for ranks and mini-batches, padding rows among them."""

    prompts: list[list[int]]
    """Prompt tokens of each row."""
    responses: list[list[int]]
    """Response tokens of each row."""
    extra: list[dict[str, Any]]
    """The rows' records."""
    uids: list[str]
    """The rows' prompt groups."""
    sampled: torch.Tensor
    """Log-probabilities when sampled, over all response tokens."""
    layout: Layout
    """Which row is where."""

    @property
    def offsets(self) -> torch.Tensor:
        """Where each row's response tokens begin and end among all of them, shape [rows + 1]."""
        return _offsets(self.responses)

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return sum(map(len, self.prompts)) + sum(map(len, self.responses))

    def table(self) -> StepTable:
        """The batch's steps."""
        order = {uid: i for i, uid in enumerate(sorted(set(self.uids)))}
        return step_table(self.extra, self.uids, self.offsets, order)

    def infer(self, worker: TrainingWorker, output: str, rank: int = 0) -> torch.Tensor:
        """A worker's ``log_probs``, ``sum_pi_squared`` or ``values`` of its rank's rows, over their response tokens."""
        rows, squares = self._rows(rank), output == "sum_pi_squared"
        asked = {"calculate_entropy": False, "calculate_sum_pi_squared": squares}
        result = worker.infer_batch(self._tensors(rows, {}, temperature=1.0, compute_loss=False, **asked))
        of = [len(self.prompts[i]) + len(self.responses[i]) for i in rows]
        lengths = torch.tensor([len(self.responses[i]) for i in rows])
        return flat(result[output])[response_index(torch.tensor([0, *of]).cumsum(0), lengths)].clone()

    def columns(
        self,
        given: Mapping[str, torch.Tensor],
        objective: Objective,
        *,
        actor_batches: int = 1,
        critic_batches: int = 1,
        baselines: Mapping[str, float] | None = None,
        label_weight: float = 0.0,
    ) -> StepColumns:
        """What the driver works out; see ``step_columns``."""
        rows = self.layout.mini_batches_of_rows
        actor, critic = rows(actor_batches), rows(critic_batches)
        return step_columns(
            self.table(), given, int(self.offsets[-1]), objective, actor, critic, baselines, label_weight
        )

    def update(
        self,
        worker: TrainingWorker,
        columns: Mapping[str, torch.Tensor],
        role: str,
        config: Any,
        *,
        mini_batches: int = 1,
        rank: int = 0,
        row_loss: Any = None,
    ) -> dict[str, float]:
        """One pass of updates over the mini-batches; its metrics.

        Args:
            worker: Of the actor or of the critic.
            columns: Everything its loss reads, each over all response tokens.
            role: ``actor`` or ``critic``.
            config: verl's configuration of it.
            mini_batches: Updates.
            rank: Whose rows.
            row_loss: The actor's loss if it was written for verl's rows.
        """
        loss = partial(actor_loss, config=config, options=loss_options(config)) if role == "actor" else None
        if row_loss is not None:
            loss = partial(row_actor_loss, config=config, function=row_loss)
        worker.set_loss_fn(loss or partial(critic_loss, config=config))
        rows = len(self.prompts) // math.gcd(mini_batches, self.layout.mini_batches)
        tensors = self._tensors(
            self._rows(rank), columns, temperature=1.0, calculate_entropy=role == "actor", global_batch_size=rows,
            mini_batch_size=rows, epochs=1, seed=1, dataloader_kwargs={"shuffle": False},
        )  # fmt: skip
        output = worker.train_mini_batch(tensors)
        return collect(tu.get(output, "metrics"), role)

    def _rows(self, rank: int) -> range:
        part = len(self.prompts) // self.layout.ranks
        return range(rank * part, (rank + 1) * part)

    def _tensors(self, rows: range, columns: Mapping[str, torch.Tensor], **settings: Any) -> Any:
        prompts, responses = [self.prompts[i] for i in rows], [self.responses[i] for i in rows]
        whole = [p + r for p, r in zip(prompts, responses, strict=True)]
        offsets = self.offsets
        part = slice(int(offsets[rows.start]), int(offsets[rows.stop]))
        own = offsets[rows.start : rows.stop + 1] - offsets[rows.start]
        data = {
            "prompts": _nested(prompts),
            "responses": _nested(responses),
            "input_ids": _nested(whole),
            "position_ids": _nested([list(range(len(ids))) for ids in whole]),
            **{name: nest(column[part], own) for name, column in columns.items()},
        }
        data["response_mask"] = data["loss_mask"] = nest(torch.ones(int(own[-1]), dtype=torch.int64), own)
        return tu.get_tensordict(data, non_tensor_dict=settings)


def local_batch(
    rows: Sequence[tuple[str, str, Row]],
    *,
    filler_id: int,
    ranks: int = 1,
    mini_batches: int = 1,
    row_multiple: int = 1,
    seed: int = 0,
    trees: bool = False,
) -> LocalBatch:
    """Lay rows out as the trainer does.

    Args:
        rows: Prompt group, trajectory ("{group}_{session}") and row.
        filler_id: Token of padding rows.
        ranks: Data-parallel ranks.
        mini_batches: Mini-batches of whole trajectories.
        row_multiple: Rows per rank and mini-batch are a multiple of this.
        seed: Which groups meet in a mini-batch.
        trees: Whether ranks get rows that share much.
    """
    lengths = [len(row.tokens.prompt_ids) + len(row.tokens.response_ids) for _, _, row in rows]
    layout = plan_layout(
        [name for _, name, _ in rows], lengths, mini_batches=mini_batches, ranks=ranks, row_multiple=row_multiple,
        seed=seed, groups=[group for group, _, _ in rows], trees=_sorted(rows) if trees else None,
    )  # fmt: skip
    placed = [None if i is None else rows[i] for i in layout.order]
    return LocalBatch(
        prompts=[[filler_id] if item is None else list(item[2].tokens.prompt_ids) for item in placed],
        responses=[[filler_id] if item is None else list(item[2].tokens.response_ids) for item in placed],
        extra=[dict(PADDING) if item is None else item[2].fields(item[1]) for item in placed],
        uids=["padding" if item is None else item[0] for item in placed],
        sampled=torch.tensor([x for item in placed for x in ([0.0] if item is None else item[2].tokens.logprobs)]),
        layout=layout,
    )


def _sorted(rows: Sequence[tuple[str, str, Row]]) -> SortedRows:
    whole = [[*row.tokens.prompt_ids, *row.tokens.response_ids] for _, _, row in rows]
    return sort_rows(np.array([token for ids in whole for token in ids]), _offsets(whole).numpy())


def _offsets(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    return torch.tensor([0, *map(len, rows)]).cumsum(0)


def _nested(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    return nest(torch.tensor([token for row in rows for token in row]), _offsets(rows))
