"""verl's agent loop workers without a queue: what the agent loop returns comes back as rows, unpadded.

RayPPOTrainer's own workers take one output per episode and pad it to the longest prompt and response
(experimental/agent_loop/agent_loop.py); these take any number, and leave the tokens as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ray
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopManager, AgentLoopOutput, AgentLoopWorker
from verl.protocol import DataProto

from agent_envs.adapters.verl.rollout.pictures import POSITIONS

__all__ = ["ROW_MANAGER", "RowManager", "RowWorker", "as_rows"]

ROW_MANAGER = "agent_envs.adapters.verl.rollout.row_manager.RowManager"
"""Value of ``actor_rollout_ref.rollout.agent.agent_loop_manager_class``."""


def as_rows(outputs: Sequence[AgentLoopOutput], prompt: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an episode's rows with the columns that verl's v1 trainers store (v1/agent_loop_tq.py:187).

    ``prompt`` has the ``uid``, ``session_id`` and ``data_source``; the rows' names are "{uid}_{session}_{output}".
    """
    found = []
    for i, output in enumerate(outputs):
        row = output.as_dict()
        row["input_ids"] = torch.cat([row["prompts"], row["responses"]])
        inputs = getattr(output, "model_inputs", None)  # verl's own agent loops have other outputs
        if inputs is None:
            row["position_ids"] = torch.arange(len(row["input_ids"]))
        else:
            row["multi_modal_inputs"] = dict(inputs)
            row["position_ids"] = row["multi_modal_inputs"].pop(POSITIONS)
        row["loss_mask"] = row["response_mask"]
        row["key"] = f"{prompt['uid']}_{prompt['session_id']}_{i}"
        found.append({**row, "uid": prompt["uid"], "data_source": prompt.get("data_source", "unknown")})
    return found


class RowWorker(AgentLoopWorker):
    """Plays episodes and returns their rows."""

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> list[dict[str, Any]]:
        return as_rows(output if isinstance(output, list) else [output], kwargs)

    def _postprocess(
        self, inputs: Any, input_non_tensor_batch: dict | None = None, validate: bool = False
    ) -> list[dict[str, Any]]:
        return [row for each in inputs for row in each]


class RowManager(AgentLoopManager):
    """Spreads episodes over workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.agent_loop_workers_class = ray.remote(RowWorker)
        super().__init__(*args, **kwargs)

    def generate_sequences(self, prompts: DataProto) -> list[dict[str, Any]]:
        """Play an episode for each row of ``prompts``; return the rows of all."""
        workers = self.agent_loop_workers
        parts = prompts.split(math.ceil(len(prompts) / len(workers)))
        asked = [worker.generate_sequences.remote(part) for worker, part in zip(workers, parts, strict=False)]
        return [row for rows in ray.get(asked) for row in rows]
