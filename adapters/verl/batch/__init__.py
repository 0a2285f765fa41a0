"""Batches of steps: rows, columns, layout, losses, and the trainer that uses them."""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError

if find_spec("verl") is None:
    raise MissingExtraError("verl", extra="verl")
