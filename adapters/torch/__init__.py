"""A policy-gradient loop in plain PyTorch."""

from agent_envs.errors import needs_extra

with needs_extra("hf"):
    import torch  # noqa: F401
