"""A policy-gradient loop in plain PyTorch."""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError

if find_spec("torch") is None:
    raise MissingExtraError("torch", extra="hf")
