"""A model's own configuration: whether a run's context fits into it, whether it sees, and what pictures go with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_envs.errors import ConfigError, first_line
from agent_envs.policies.local.positions import context_positions
from agent_envs.prompts.pictures import ARCHITECTURES

__all__ = ["SEEDED", "check_context", "check_vision", "read_config", "sees_pictures"]

SEEDED = ("agentr1_cpu", "vllm")
"""The rollout engines that take a seed with each request, and pictures."""


def check_context(model: str, config: Any) -> None:
    """Check that the longest prompt and response fit into the model's positions.

    Args:
        model: A Hugging Face folder, or a name on the hub.
        config: verl's configuration.

    Raises:
        ConfigError: They do not fit, or the model's `config.json` cannot be read.
    """
    rollout, data = config.actor_rollout_ref.rollout, config.data
    length = rollout.get("max_model_len") or data.max_prompt_length + data.max_response_length
    engine = (rollout.get("engine_kwargs") or {}).get(rollout.name) or {}
    if engine.get("hf_overrides") or config.actor_rollout_ref.model.get("override_config", {}).get("rope_scaling"):
        return  # whoever changes the positions says how many there are
    positions = context_positions(read_config(model))
    if positions is not None and length > positions:
        raise ConfigError(
            f"prompts of {data.max_prompt_length} and responses of {data.max_response_length} tokens "
            f"(data.max_prompt_length, data.max_response_length, a context of {length}) do not fit into the "
            f"{positions} positions of {model}"
        )


def read_config(model: str) -> Mapping[str, Any]:
    """Return the configuration of a model, a Hugging Face folder or a name on the hub.

    Raises:
        ConfigError: It cannot be read.
    """
    path = Path(model) / "config.json"
    if path.is_file():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise ConfigError(f"{path} cannot be read as JSON: {first_line(e)}") from e
        if not isinstance(found, dict):
            raise ConfigError(f"{path} must be a JSON object")
        return found
    from transformers import AutoConfig

    try:
        return dict(AutoConfig.from_pretrained(model, trust_remote_code=False).to_dict())
    except (OSError, ValueError) as e:
        raise ConfigError(f"--model {model}: its configuration cannot be read: {first_line(e)}") from e


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
        f"actor_rollout_ref.rollout.name={rollout}": rollout not in SEEDED,
        "actor_rollout_ref.model.lora_rank": bool(model.get("lora_rank") or model.get("lora_adapter_path")),
        "actor_rollout_ref.model.use_fused_kernels=True": bool(model.get("use_fused_kernels")),
    }
    if found := [name for name, asked in refused.items() if asked]:
        raise ConfigError(
            f"training a vision-language model with verl does not go with {', '.join(found)}: leave that out"
        )
