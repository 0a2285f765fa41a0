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
from collections.abc import Callable
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


def _replaces(module: str, name: str, *, when: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a function in the place of one of verl's, or of a method, once its module is imported; it gets that first."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def replace(loaded: Any) -> None:
            owner, _, attribute = name.rpartition(".")
            place = getattr(loaded, owner) if owner else loaded
            original = getattr(place, attribute)

            @functools.wraps(original)  # with how verl dispatches it
            def replacement(*args: Any, **kwargs: Any) -> Any:
                return function(original, *args, **kwargs)

            setattr(place, attribute, replacement)

        if when:
            when_imported(module)(replace)
        return function

    return decorate


@when_imported("verl.experimental.agent_loop.agent_loop")
def _register_agent_loop(module: Any) -> None:
    # by name, like verl's own: the module is loaded where it is used
    module._agent_loop_registry["agentr1_env"] = {
        "_target_": "agent_envs.adapters.verl.rollout.agent_loop.EnvAgentLoop"
    }


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


@_replaces("verl.experimental.agent_loop.agent_loop", "AgentLoopWorker._compute_multi_modal_inputs")
def _take_row_inputs(original: Any, self: Any, output: Any, input_ids: Any) -> dict[str, Any]:
    """experimental/agent_loop/agent_loop.py:868 and :920 make a row's pictures and positions of its decoded text.

    That needs a processor (with torchvision) and may give other tokens than the row has; rows of this package bring
    theirs.
    """
    own = getattr(output, "model_inputs", None)  # verl's own agent loops have other outputs
    return original(self, output, input_ids) if own is None else dict(own)


@_replaces("verl.experimental.agent_loop.agent_loop", "AgentLoopWorker._compute_position_ids")
def _take_row_positions(original: Any, self: Any, input_ids: Any, mask: Any, inputs: dict[str, Any], *rest: Any) -> Any:
    own = inputs.pop("position_ids", None)
    return original(self, input_ids, mask, inputs, *rest) if own is None else own[None]


@_replaces("verl.workers.engine.base", "BaseEngine.train_batch")
def _know_mini_batches(original: Any, self: Any, data: Any, loss_function: Any) -> Any:
    """workers/engine/base.py:113 gives a loss one micro-batch at a time; some need to know the whole mini-batch."""
    from agent_envs.adapters.verl.batch.losses import of_mini_batch

    return original(self, data, of_mini_batch(self, data, loss_function))


@_replaces("verl.utils.model", "load_valuehead_model")
def _load_critic(original: Any, local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """utils/model.py:649 loads every critic with FlashAttention 2, whatever the configuration says.

    A machine without flash-attn, with a GPU or not, sets ``critic.model.override_config.attn_implementation`` to
    another implementation; FlashAttention itself still takes verl's path.
    """
    attention = model_config._attn_implementation
    if attention in (None, "flash_attention_2"):
        return original(local_path, torch_dtype, model_config, trust_remote_code)
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, attn_implementation=attention,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip


@_replaces("verl.workers.engine_workers", "TrainingWorker.reset")
def _seed_engine(original: Any, self: Any) -> Any:
    """workers/engine_workers.py:173 draws what a model's folder lacks, a critic's layer or a LoRA, from any numbers.

    Only Megatron's engine uses the seed that all of them have.
    """
    import torch

    torch.manual_seed(self.engine_config.seed)
    return original(self)


@_replaces("verl.models.transformers.monkey_patch", "is_trl_available")
def _without_trl(original: Any) -> bool:
    """models/transformers/monkey_patch.py:352 imports a class of TRL's PPO that TRL has removed, if TRL is installed.

    No engine of verl uses it.
    """
    return False


@_replaces("verl.models.transformers.monkey_patch", "apply_monkey_patch")
def _leave_out_pictures(original: Any, model: Any, *args: Any, **kwargs: Any) -> None:
    """models/transformers/monkey_patch.py:262 prepares every model that an engine has loaded.

    What a vision-language model says of the next token is left without the tokens that stand for pictures, which no
    server samples.
    """
    from agent_envs.policies.local.padded_engine import without_tokens
    from agent_envs.prompts.pictures import ARCHITECTURES

    original(model, *args, **kwargs)
    head = model.get_output_embeddings()
    if model.config.model_type in ARCHITECTURES and head is not None:
        reserved = [model.config.image_token_id, model.config.video_token_id]
        head.register_forward_hook(lambda layer, given, logits: without_tokens(logits, reserved))


@_replaces("verl.models.transformers.qwen2_vl", "_get_input_embeds")
def _embed_without_pictures(
    original: Any, model: Any, ids: Any, mask: Any = None, pixel_values: Any = None, videos: Any = None, *rest: Any
) -> tuple[Any, Any]:
    """models/transformers/qwen2_vl.py:313 takes the vision tower's output for a tensor where there is no picture.

    The tower is computed all the same, since ranks that share its weights wait for each other.
    """
    import torch
    from verl.models.transformers.qwen2_vl import unpack_visual_output

    if pixel_values is not None or videos is not None:
        return original(model, ids, mask, pixel_values, videos, *rest)
    config, words = model.config.vision_config, model.get_input_embeddings()(ids)
    side = 2 * config.spatial_merge_size
    patches = words.new_zeros(side * side, config.in_channels * config.temporal_patch_size * config.patch_size**2)
    grid = torch.tensor([[1, side, side]], device=words.device)
    features, _ = unpack_visual_output(model.visual(patches, grid_thw=grid))
    return words + 0.0 * features.mean(), mask


@when_imported("verl.models.transformers.qwen2_vl")
def _attend_without_flash(module: Any) -> None:
    """models/transformers/qwen2_vl.py:203 calls FlashAttention where rows are packed, whatever the configuration says.

    Transformers' own attention is read before verl replaces it.
    """
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLAttention
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLAttention

    flash, plain = module.qwen2_vl_attn_forward, {k: k.forward for k in (Qwen2VLAttention, Qwen2_5_VLAttention)}

    def qwen2_vl_attn_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.config._attn_implementation == "flash_attention_2":
            return flash(self, *args, **kwargs)
        return plain[type(self)](self, *args, **kwargs)

    module.qwen2_vl_attn_forward = qwen2_vl_attn_forward


@_replaces("verl.utils.distributed", "initialize_global_process_group_ray", when=_CPU)
def _name_one_backend(original: Any, timeout_second: int | None = None, backend: str | None = None) -> None:
    """utils/distributed.py:89 asks for the backend "cpu:gloo,cpu:gloo", which torch rejects: a device twice."""
    original(timeout_second=timeout_second, backend=backend or "cpu:gloo")


@_replaces("verl.workers.engine.fsdp.transformer_impl", "CPUOffloadPolicy", when=_CPU)
def _pin_nothing(original: Any, pin_memory: bool = False) -> Any:
    """workers/engine/fsdp/transformer_impl.py:462 pins the reference model's memory, which needs an accelerator."""
    return original(pin_memory=False)


@_replaces("verl.utils.torch_functional", "logprobs_from_logits_v2")
def _log_probabilities(original: Any, logits: Any, labels: Any) -> Any:
    """utils/torch_functional.py:173 loops over tokens if FlashAttention is not installed: a graph of one node each."""
    from agent_envs.adapters.losses.distribution import log_probs_of

    return log_probs_of(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)).view(labels.shape)


@_replaces("verl.workers.rollout.llm_server", "LLMServerManager._init_global_load_balancer", when=_CPU)
async def _balance_no_load(original: Any, self: Any) -> None:
    """workers/rollout/llm_server.py:506 starts a process that is asked before and told after every request.

    With one server there is nothing to balance: on a CPU that process costs as much as the requests.
    """
    from agent_envs.adapters.verl.rollout.cpu_rollout import ROLLOUT_NAME, OnlyServer

    if self.rollout_config.name != ROLLOUT_NAME or len(self.server_handles) != 1:
        await original(self)
    else:
        self.global_load_balancer = OnlyServer(self.server_addresses[0], self.server_handles[0])


@when_imported("verl.trainer.ppo.v1.trainer_separate_async")
def _patch_separate(module: Any) -> None:
    """trainer/ppo/v1/trainer_separate_async.py:181 passes ``flush`` to ``logger.info``, which is a TypeError.

    It is said only with ``hybrid_engine=False``, which cannot work without this.
    """
    info = module.logger.info
    module.logger.info = lambda *args, flush=None, **kwargs: info(*args, **kwargs)


@_replaces("verl.utils.fsdp_utils", "fsdp2_sharded_save_to_cpu", when=_CPU)
def _save_copies(original: Any, model: Any) -> Any:
    """utils/fsdp_utils.py:1180 saves a shard with ``.cpu()``, which on a CPU is the live tensor and no copy."""
    saved, spec = original(model)
    return {name: (tensor.clone(), each) for name, (tensor, each) in saved.items()}, spec
