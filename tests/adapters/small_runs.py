"""Runs of the PyTorch loop that are as small as they can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_envs.adapters.torch.loop import train
from agent_envs.adapters.torch.settings import LoopConfig


def small_run(out: Path | str, model: str, **settings: Any) -> LoopConfig:
    """Two tasks for two episodes of two steps each, one at a time, so that a run repeats what another one did."""
    common = {
        "env": "AgentR1/ALFWorld-v0", "env_kwargs": {"size": 1, "max_episode_steps": 2}, "tasks": 2, "group": 2,
        "eval_tasks": 0, "max_response_tokens": 6, "save_every": 1, "warmup": 0, "concurrency": 1, "device": "cpu",
    }  # fmt: skip
    return LoopConfig(**{**common, "out": str(out), "model": model, **settings})


def whole_and_in_parts(config: LoopConfig) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What a run leaves, in ``whole`` of its folder; and what it leaves in ``parts`` if it is stopped and goes on."""
    whole, parts = (replace(config, out=f"{config.out}/{name}") for name in ("whole", "parts"))
    train(replace(parts, minutes=1e-6))  # stops after an iteration
    return train(whole), train(parts)
