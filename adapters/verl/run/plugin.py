"""The module that every process of a run loads when it imports verl, through ``VERL_USE_EXTERNAL_MODULES``.

Registers the agent loop, the trainer and, where ``VERL_PLATFORM=cpu``, the platform and the generation server
of a machine without an accelerator. Every patch names the verl 0.9.1 file and line it changes and why.
"""

from __future__ import annotations

import os
from typing import Any

from agent_envs.adapters.verl.run.version import check_version

check_version()

if os.environ.get("VERL_PLATFORM") == "cpu":
    # before any part of verl asks for the current platform
    from agent_envs.adapters.verl.run import cpu_platform  # noqa: F401


def _register() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    # By name, like verl's own engines: the modules are loaded where they are used, not in every process.
    _agent_loop_registry["agentr1_env"] = {"_target_": "agent_envs.adapters.verl.rollout.agent_loop.EnvAgentLoop"}
    _ROLLOUT_REGISTRY["agentr1_cpu", "async"] = "agent_envs.adapters.verl.rollout.cpu_rollout.CPURollout"

    def load_replica() -> type:
        from agent_envs.adapters.verl.rollout.cpu_rollout import CPUReplica

        return CPUReplica

    RolloutReplicaRegistry.register("agentr1_cpu", load_replica)

    from agent_envs.adapters.verl.batch import trainer  # noqa: F401  registers itself


def _patch_value_model() -> None:
    """utils/model.py:649 loads every critic with FlashAttention 2, whatever the configuration says.

    A machine without flash-attn, with a GPU or not, sets ``critic.model.override_config.attn_implementation`` to
    another implementation; FlashAttention itself still takes verl's path.
    """
    import verl.utils.model as module

    original = module.load_valuehead_model

    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        attention = model_config._attn_implementation
        if attention in (None, "flash_attention_2"):
            return original(local_path, torch_dtype, model_config, trust_remote_code)
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path, dtype=torch_dtype, config=model_config, attn_implementation=attention,
            trust_remote_code=trust_remote_code,
        )  # fmt: skip

    module.load_valuehead_model = load_valuehead_model


def _patch_trl() -> None:
    """models/transformers/monkey_patch.py:352 imports a class of TRL's PPO that TRL has removed, if TRL is installed.

    No engine of verl uses it.
    """
    import verl.models.transformers.monkey_patch as module

    module.is_trl_available = lambda: False


def _patch_process_group() -> None:
    """utils/distributed.py:89 asks for the backend "cpu:gloo,cpu:gloo", which torch rejects: a device twice."""
    import verl.utils.distributed as module

    original = module.initialize_global_process_group_ray

    def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        original(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    module.initialize_global_process_group_ray = initialize_global_process_group_ray


def _patch_pinned_memory() -> None:
    """workers/engine/fsdp/transformer_impl.py:462 pins the reference model's memory, which needs an accelerator."""
    import verl.workers.engine.fsdp.transformer_impl as module
    from torch.distributed.fsdp import CPUOffloadPolicy

    module.CPUOffloadPolicy = lambda pin_memory=False: CPUOffloadPolicy(pin_memory=False)


def _patch_log_probabilities() -> None:
    """utils/torch_functional.py:173 loops over tokens if FlashAttention is not installed.

    With a small model that takes half the time of an update. Computing all tokens at once needs memory for a second
    copy of the logits; verl's loop saves it where it matters, on a GPU.
    """
    import torch
    import verl.utils.torch_functional as module

    def logprobs_from_logits_v2(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        flat = logits.reshape(-1, logits.shape[-1])
        loss = torch.nn.functional.cross_entropy(flat, labels.reshape(-1), reduction="none")
        return -loss.view(labels.shape)

    module.logprobs_from_logits_v2 = logprobs_from_logits_v2


_patch_value_model()
_patch_trl()
if os.environ.get("VERL_PLATFORM") == "cpu":
    _patch_process_group()
    _patch_pinned_memory()
    _patch_log_probabilities()
_register()
