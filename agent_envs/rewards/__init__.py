"""Rewards as pure functions, one module per task."""

from agent_envs.rewards import math_answers as gsm8k
from agent_envs.rewards import short_answers as qa

__all__ = ["gsm8k", "qa"]


def __dir__() -> list[str]:
    return __all__
