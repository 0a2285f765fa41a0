"""What vLLM's worker needs changed on a machine without an accelerator, so that verl can send it new weights.

vLLM's worker process loads this module because ``rollout.engine_kwargs.vllm.worker_extension_cls`` names its class
(the preset cpu-vllm), before it builds the model; no other process does.
"""

from __future__ import annotations

from typing import Any

from agent_envs.errors import needs_extra

with needs_extra("vllm"):
    import torch
    import vllm.model_executor.layers.utils as layers
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
    from vllm.v1.worker.cpu_worker import CPUWorker

_LOSES_WEIGHTS = 2  # the level of sleep after which a GPU worker has no weights any more


class WorkerExtension(vLLMColocateWorkerExtension):
    """verl's own, under a name of this module."""


def _keep_weights(layer: Any, remove_weight: bool) -> None:
    """Compute a linear layer with its weights as they are.

    model_executor/layers/utils.py:234 packs them for a kernel and drops the originals: no later ones could be loaded.
    """
    layer.cpu_linear = torch.nn.functional.linear


def _sleep(self: Any, level: int = 1) -> None:
    """Lose the weights as a GPU does: v1/worker/cpu_worker.py ignores sleep, which would hide weights never sent."""
    if level == _LOSES_WEIGHTS:
        for parameter in self.model_runner.model.parameters():
            parameter.data.zero_()


def _wake_up(self: Any, tags: list[str] | None = None) -> None:
    """Nothing is given back; the trainer sends the weights."""


layers.dispatch_cpu_unquantized_gemm = _keep_weights
CPUWorker.sleep, CPUWorker.wake_up = _sleep, _wake_up
