"""verl's FSDP engines on prefix trees: actor, reference and critic compute what rows of a micro-batch share once.

verl's rows, columns and losses stay unchanged. Only three things are different: a micro-batch holds rows that share
much (``cut``), the model gets their tree, and its log-probabilities, entropies and values go back to the rows' tokens.
The engines are registered for a vendor of their own, ``TREES``, which verl chooses with VERL_ENGINE_VENDOR
(workers/engine/base.py:407).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from agent_envs.adapters.losses.distribution import entropies, log_probs_of, square_sums
from agent_envs.adapters.trees import SortedRows, cut, sort_rows
from agent_envs.adapters.trees.attention import TreePass, enable, tree_pass
from agent_envs.adapters.verl.batch.losses import LABEL_WEIGHTS, POLICY_WEIGHTS, VALUE_WEIGHTS, output_indices
from agent_envs.adapters.verl.batch.table import flat, row_offsets
from agent_envs.adapters.verl.run.process import TREES
from agent_envs.errors import ConfigError


def sorted_parts(rows: SortedRows, budget: int, count: int = 1) -> list[list[int]]:
    """Cut rows into parts of at most ``budget`` nodes, at least ``count`` of them; each is ascending row numbers.

    Every rank has as many parts as the one with the most, since their gradients are added up part by part.
    """
    parts = [part.rows.tolist() for part in cut(rows, budget)]
    while len(parts) < count:
        longest = max(range(len(parts)), key=lambda i: len(parts[i]))
        part = parts[longest]
        parts[longest : longest + 1] = [part[: len(part) // 2], part[len(part) // 2 :]]
    return [sorted(part) for part in parts]


class _Trees:
    """What both engines do differently."""

    weights: tuple[str, ...]
    """Columns of the weights in the loss, the first always there: what weighs nothing needs no output."""
    otherwise: str | None
    """Column of the tokens that need one where there is no loss; None for all of the responses."""

    def _build_module(self) -> Any:
        module = super()._build_module()  # type: ignore[misc]
        enable(module)
        return module

    def forward_backward_batch(self, data: TensorDict, loss_function: Callable, forward_only: bool = False) -> Any:
        # transformer_impl.py:740 calls a function of its module to cut micro-batches, and has no hook for it
        original = transformer_impl.prepare_micro_batches
        transformer_impl.prepare_micro_batches = _micro_batches
        try:
            return super().forward_backward_batch(data, loss_function, forward_only)  # type: ignore[misc]
        finally:
            transformer_impl.prepare_micro_batches = original

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        column = micro_batch["input_ids"]
        ids, offsets = (x.cpu().numpy() for x in (flat(column), row_offsets(column)))
        wanted = self._wanted(micro_batch, offsets)
        rows = sort_rows(ids, offsets)
        asked = np.flatnonzero(np.add.reduceat(wanted, offsets[:-1]))
        tree = tree_pass(ids, offsets, rows.only(asked) if len(asked) else rows, wanted, column.device)
        inputs = {**tree.inputs, "logits_to_keep": tree.before}
        temperature = torch.as_tensor(micro_batch["temperature"], dtype=torch.float32).unique().tolist()
        if len(temperature) != 1:
            raise ConfigError(f"the layout 'tree' needs one temperature for all rows, got {temperature}")
        return inputs, {"tree": tree, "temperature": temperature[0]}

    def _wanted(self, micro_batch: TensorDict, offsets: np.ndarray) -> np.ndarray:
        """Whether each token needs an output, shape [tokens]."""
        at = output_indices(micro_batch).cpu().numpy() + 1
        out = np.zeros(int(offsets[-1]), dtype=bool)
        names: tuple[str | None, ...] = (self.otherwise,)
        if self.weights[0] in micro_batch:
            names = tuple(name for name in self.weights if name in micro_batch)
        for name in names:
            out[at] |= True if name is None else flat(micro_batch[name]).cpu().numpy() != 0
        return out

    @staticmethod
    def _to_rows(values: torch.Tensor, tree: TreePass, micro_batch: TensorDict) -> torch.Tensor:
        """Values of the wanted tokens at the position before each, 0 elsewhere, jagged [rows, tokens] as verl's are."""
        offsets = row_offsets(micro_batch["input_ids"])
        out = values.new_zeros(int(offsets[-1])).index_copy(0, tree.tokens.to(values.device) - 1, values)
        return torch.nested.nested_tensor_from_jagged(out, offsets)


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cuda", vendor=TREES)
class TreeActor(_Trees, FSDPEngineWithLMHead):
    """The engine of actor and reference."""

    weights, otherwise = (POLICY_WEIGHTS, LABEL_WEIGHTS), "response_mask"

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        tree, temperature, logits = output_args["tree"], output_args["temperature"], output.logits[0]
        at = tree.output.to(logits.device)
        labels = flat(micro_batch["input_ids"])[tree.tokens.to(logits.device)]
        out = {"log_probs": self._to_rows(log_probs_of(logits, labels, at, temperature), tree, micro_batch)}
        if tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False):
            out["entropy"] = self._to_rows(entropies(logits, temperature)[at], tree, micro_batch)
        if tu.get_non_tensor_data(data=micro_batch, key="calculate_sum_pi_squared", default=False):
            out["sum_pi_squared"] = self._to_rows(square_sums(logits, temperature)[at], tree, micro_batch)
        return out


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cuda", vendor=TREES)
class TreeCritic(_Trees, FSDPEngineWithValueHead):
    """The engine of the critic."""

    weights, otherwise = (VALUE_WEIGHTS,), None  # the states after truncated episodes too

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        tree, values = output_args["tree"], output.logits[0].squeeze(-1).float()
        return {"values": self._to_rows(values[tree.before][tree.output.to(values.device)], tree, micro_batch)}


def _micro_batches(data: TensorDict, dp_group: Any = None, **how: Any) -> tuple[list[TensorDict], Any]:
    """verl's ``prepare_micro_batches`` with a budget of nodes; micro-batches of fixed sizes are verl's own."""
    if not tu.get_non_tensor_data(data=data, key="use_dynamic_bsz", default=True):
        return tu.chunk_tensordict(data, len(data) // data["micro_batch_size_per_gpu"]), None
    column = data["input_ids"]
    rows = sort_rows(flat(column).cpu().numpy(), row_offsets(column).cpu().numpy())
    parts = sorted_parts(rows, int(data["max_token_len_per_gpu"]))
    if dp_group is not None:
        count = torch.tensor([len(parts)], device=column.device)
        torch.distributed.all_reduce(count, op=torch.distributed.ReduceOp.MAX, group=dp_group)
        parts = sorted_parts(rows, int(data["max_token_len_per_gpu"]), int(count))
    return [tu.index_select_tensor_dict(data, part) for part in parts], parts
