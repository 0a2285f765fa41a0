"""Rewards as pure functions, one module per task."""

from agent_envs.rewards import gsm8k, qa

__all__ = ["gsm8k", "qa"]
