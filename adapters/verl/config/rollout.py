"""What a rollout engine must give the trainer, checked before anything is started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_envs.errors import ConfigError, first_line
from agent_envs.policies.local.positions import context_positions

__all__ = ["SEEDED", "check_context", "check_log_probs", "read_config"]

SEEDED = ("agentr1_cpu", "vllm")
"""The rollout engines that take a seed with each request."""

_TRUNCATED = ("agentr1_cpu", "vllm")  # those whose log-probabilities are of the distribution that was sampled from
_CORRECTION = "algorithm.rollout_correction"


def check_log_probs(config: Any) -> None:
    """Check that the sampler's log-probabilities exist where they are used, and are of what they are taken for.

    Raises:
        ConfigError: A setting that does not fit.
    """
    rollout = config.actor_rollout_ref.rollout
    correction = config.algorithm.get("rollout_correction") or {}
    bypass, corrected = bool(correction.get("bypass_mode", False)), correction.get("rollout_is")
    if not rollout.calculate_log_probs:
        used = [f"{name}={correction[name]}" for name in ("rollout_is", "rollout_rs") if correction.get(name)]
        used += ["bypass_mode=True"] if bypass else []
        if used:
            raise ConfigError(
                f"actor_rollout_ref.rollout.calculate_log_probs must be True: {_CORRECTION}.{used[0]} uses the "
                "sampler's log-probabilities"
            )
        return
    truncated = [
        f"actor_rollout_ref.rollout.{name}={value}"
        for name, value, off in (
            ("top_p", rollout.top_p, rollout.top_p >= 1),
            ("top_k", rollout.top_k, rollout.top_k <= 0),
        )
        if not off
    ]
    if rollout.name == "vllm":
        engine = (rollout.get("engine_kwargs") or {}).get("vllm") or {}
        mode = engine.get("logprobs_mode", rollout.get("logprobs_mode"))
        same = mode == "raw_logprobs" and rollout.temperature == 1 and not truncated
        if mode != "processed_logprobs" and not same:
            raise ConfigError(
                "actor_rollout_ref.rollout.logprobs_mode must be processed_logprobs: with the temperature, top_p and "
                f"top_k of this run vLLM's {mode} are not those of the distribution it samples from"
            )
    if not truncated:
        return
    if rollout.name not in _TRUNCATED:
        raise ConfigError(
            f"{truncated[0]}: it is not known of the rollout engine {rollout.name!r} whether its log-probabilities "
            f"are of the truncated distribution; train with top_p=1 and top_k=-1, or with {' or '.join(_TRUNCATED)}"
        )
    if bypass or corrected is None:
        raise ConfigError(
            f"{truncated[0]} samples from fewer tokens than the trainer computes probabilities over: add "
            f"{_CORRECTION}.bypass_mode=False {_CORRECTION}.rollout_is=token, which corrects for it, or leave it out"
        )


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
