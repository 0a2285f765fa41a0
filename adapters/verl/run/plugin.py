"""The module that every process of a run loads when it imports verl, through ``VERL_USE_EXTERNAL_MODULES``.

Registers the agent loop, the trainer and, where ``VERL_PLATFORM=cpu``, the platform and the generation server
of a machine without an accelerator. Every patch names the verl 0.9.1 file and line it changes and why.

A run has half a dozen processes, and each needs a part of verl: a patch waits until its module is imported, which
saves every process seconds of imports.
"""

from __future__ import annotations

import functools
import os
import pkgutil
from typing import Any

from agent_envs.adapters.verl.run.process import TREES
from agent_envs.errors import check_release, needs_extra

with needs_extra("verl"):
    from wrapt import when_imported

check_release("verl", "verl")
_CPU = os.environ.get("VERL_PLATFORM") == "cpu"

if _CPU:
    # before any part of verl asks for the current platform, or for vLLM
    from agent_envs.adapters.verl.run.cpu_platform import answer_for_vllm

    answer_for_vllm()


@when_imported("verl.experimental.agent_loop.agent_loop")
def _register_agent_loop(module: Any) -> None:
    # by name, like verl's own: the module is loaded where it is used
    module._agent_loop_registry["agentr1_env"] = {
        "_target_": "agent_envs.adapters.verl.rollout.agent_loop.EnvAgentLoop"
    }


@when_imported("verl.experimental.agent_loop.agent_loop")
def _use_row_inputs(module: Any) -> None:
    """experimental/agent_loop/agent_loop.py:868 and :920 make a row's pictures and positions of its decoded text.

    That needs a processor (with torchvision) and may give other tokens than the row has; rows of this package bring
    theirs.
    """
    worker = module.AgentLoopWorker
    inputs_of, positions_of = worker._compute_multi_modal_inputs, worker._compute_position_ids

    def _compute_multi_modal_inputs(self: Any, output: Any, input_ids: Any) -> dict[str, Any]:
        own = getattr(output, "model_inputs", None)  # verl's own agent loops have other outputs
        return inputs_of(self, output, input_ids) if own is None else dict(own)

    def _compute_position_ids(self: Any, input_ids: Any, mask: Any, inputs: dict[str, Any], *rest: Any) -> Any:
        own = inputs.pop("position_ids", None)
        return positions_of(self, input_ids, mask, inputs, *rest) if own is None else own[None]

    worker._compute_multi_modal_inputs = _compute_multi_modal_inputs
    worker._compute_position_ids = _compute_position_ids


@when_imported("verl.workers.rollout.base")
def _register_rollout(module: Any) -> None:
    module._ROLLOUT_REGISTRY["agentr1_cpu", "async"] = "agent_envs.adapters.verl.rollout.cpu_rollout.CPURollout"


@when_imported("verl.workers.rollout.replica")
def _register_replica(module: Any) -> None:
    replica = "agent_envs.adapters.verl.rollout.cpu_rollout:CPUReplica"
    module.RolloutReplicaRegistry.register("agentr1_cpu", lambda: pkgutil.resolve_name(replica))


@when_imported("verl.trainer.ppo.v1.trainer_sync")
def _register_trainer(module: Any) -> None:
    from agent_envs.adapters.verl.batch import trainer  # registers itself

    if hasattr(trainer, "StepTrainer"):  # it is not what is being imported, and waits for verl
        from agent_envs.adapters.verl.batch import asynchronous  # noqa: F401


@when_imported("verl.workers.engine_workers")
def _register_trees(module: Any) -> None:
    if os.environ.get("VERL_ENGINE_VENDOR") == TREES:
        from agent_envs.adapters.verl.batch import tree_engine  # noqa: F401


@when_imported("verl.workers.engine.base")
def _know_mini_batches(module: Any) -> None:
    """workers/engine/base.py:113 gives a loss one micro-batch at a time; some need to know the whole mini-batch."""
    original = module.BaseEngine.train_batch

    def train_batch(self: Any, data: Any, loss_function: Any) -> Any:
        from agent_envs.adapters.verl.batch.losses import of_mini_batch

        return original(self, data, of_mini_batch(self, data, loss_function))

    module.BaseEngine.train_batch = train_batch


@when_imported("verl.utils.model")
def _patch_value_model(module: Any) -> None:
    """utils/model.py:649 loads every critic with FlashAttention 2, whatever the configuration says.

    A machine without flash-attn, with a GPU or not, sets ``critic.model.override_config.attn_implementation`` to
    another implementation; FlashAttention itself still takes verl's path.
    """
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


@when_imported("verl.workers.engine_workers")
def _seed_engines(module: Any) -> None:
    """workers/engine_workers.py:173 draws what a model's folder lacks, a critic's layer or a LoRA, from any numbers.

    Only Megatron's engine uses the seed that all of them have.
    """
    original = module.TrainingWorker.reset

    @functools.wraps(original)  # with how verl dispatches it
    def reset(self: Any) -> Any:
        import torch

        torch.manual_seed(self.engine_config.seed)
        return original(self)

    module.TrainingWorker.reset = reset


@when_imported("verl.models.transformers.monkey_patch")
def _patch_trl(module: Any) -> None:
    """models/transformers/monkey_patch.py:352 imports a class of TRL's PPO that TRL has removed, if TRL is installed.

    No engine of verl uses it.
    """
    module.is_trl_available = lambda: False


@when_imported("verl.models.transformers.monkey_patch")
@when_imported("verl.models.transformers.qwen2_vl")
def _patch_vision(module: Any) -> None:
    from agent_envs.adapters.verl.batch import vision_models

    of_all = module.__name__.endswith("monkey_patch")
    (vision_models.patch_forward if of_all else vision_models.patch_qwen2_vl)(module)


def _patch_process_group(module: Any) -> None:
    """utils/distributed.py:89 asks for the backend "cpu:gloo,cpu:gloo", which torch rejects: a device twice."""
    original = module.initialize_global_process_group_ray

    def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        original(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    module.initialize_global_process_group_ray = initialize_global_process_group_ray


def _patch_pinned_memory(module: Any) -> None:
    """workers/engine/fsdp/transformer_impl.py:462 pins the reference model's memory, which needs an accelerator."""
    from torch.distributed.fsdp import CPUOffloadPolicy

    module.CPUOffloadPolicy = lambda pin_memory=False: CPUOffloadPolicy(pin_memory=False)


@when_imported("verl.utils.torch_functional")
def _patch_log_probabilities(module: Any) -> None:
    """utils/torch_functional.py:173 loops over tokens if FlashAttention is not installed: a graph of one node each."""
    import torch

    from agent_envs.adapters.losses.distribution import log_probs_of

    def logprobs_from_logits_v2(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return log_probs_of(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)).view(labels.shape)

    module.logprobs_from_logits_v2 = logprobs_from_logits_v2


def _patch_load_balancer(module: Any) -> None:
    """workers/rollout/llm_server.py:506 starts a process that is asked before and told after every request.

    With one server there is nothing to balance: on a CPU that process costs as much as the requests.
    """
    original = module.LLMServerManager._init_global_load_balancer

    async def _init_global_load_balancer(self: Any) -> None:
        from agent_envs.adapters.verl.rollout.cpu_rollout import ROLLOUT_NAME, OnlyServer

        if self.rollout_config.name != ROLLOUT_NAME or len(self.server_handles) != 1:
            await original(self)
        else:
            self.global_load_balancer = OnlyServer(self.server_addresses[0], self.server_handles[0])

    module.LLMServerManager._init_global_load_balancer = _init_global_load_balancer


@when_imported("verl.trainer.ppo.v1.trainer_separate_async")
def _patch_separate(module: Any) -> None:
    """trainer/ppo/v1/trainer_separate_async.py:181 passes ``flush`` to ``logger.info``, which is a TypeError.

    It is said only with ``hybrid_engine=False``, which cannot work without this.
    """
    info = module.logger.info
    module.logger.info = lambda *args, flush=None, **kwargs: info(*args, **kwargs)


def _patch_saved_shards(module: Any) -> None:
    """utils/fsdp_utils.py:1180 saves a shard with ``.cpu()``, which on a CPU is the live tensor and no copy."""
    original = module.fsdp2_sharded_save_to_cpu

    def fsdp2_sharded_save_to_cpu(model: Any) -> Any:
        saved, spec = original(model)
        return {name: (tensor.clone(), each) for name, (tensor, each) in saved.items()}, spec

    module.fsdp2_sharded_save_to_cpu = fsdp2_sharded_save_to_cpu


if _CPU:
    when_imported("verl.utils.distributed")(_patch_process_group)
    when_imported("verl.workers.engine.fsdp.transformer_impl")(_patch_pinned_memory)
    when_imported("verl.workers.rollout.llm_server")(_patch_load_balancer)
    when_imported("verl.utils.fsdp_utils")(_patch_saved_shards)
