"""Episodes inside verl: the agent loop, and generation on a CPU."""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError

if find_spec("verl") is None:
    raise MissingExtraError("verl", extra="verl")
