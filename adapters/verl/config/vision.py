"""Which models see, and what a run of one cannot do, said before anything starts."""

from __future__ import annotations

from typing import Any

from agent_envs.adapters.verl.config.rollout import read_config
from agent_envs.errors import ConfigError
from agent_envs.prompts.pictures import ARCHITECTURES

__all__ = ["check_vision", "sees_pictures"]

_ENGINES = ("agentr1_cpu", "vllm")


def sees_pictures(model: str) -> bool:
    """Return whether pictures are shown to a model, a Hugging Face folder or a name on the hub.

    One whose configuration cannot be read, or of another kind than `ARCHITECTURES`, gets text alone.
    """
    try:
        return read_config(model).get("model_type") in ARCHITECTURES
    except ConfigError:
        return False


def check_vision(config: Any, *, needs_critic: bool) -> None:
    """Check that verl can train a vision-language model as a run asks for.

    Args:
        config: verl's configuration, every reference resolved.
        needs_critic: Whether the estimator does.

    Raises:
        ConfigError: Something that is not done with pictures.
    """
    model, own = config.actor_rollout_ref.model, config.get("agentr1") or {}
    rollout, mode = config.actor_rollout_ref.rollout.name, own.get("mode", "sync")
    refused = {
        f"the critic of algorithm.adv_estimator={config.algorithm.adv_estimator}": needs_critic,
        "agentr1.layout=tree": own.get("layout") == "tree",
        f"agentr1.mode={mode}": mode != "sync",
        f"model_engine={config.model_engine}": config.model_engine != "dp",
        f"actor_rollout_ref.rollout.name={rollout}": rollout not in _ENGINES,
        "actor_rollout_ref.model.lora_rank": bool(model.get("lora_rank") or model.get("lora_adapter_path")),
        "actor_rollout_ref.model.use_fused_kernels=True": bool(model.get("use_fused_kernels")),
    }
    if found := [name for name, asked in refused.items() if asked]:
        raise ConfigError(
            f"training a vision-language model with verl does not go with {', '.join(found)}: leave that out"
        )
