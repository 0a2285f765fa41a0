"""What a run is configured to do: YAML groups that Hydra composes with verl's own, and what Python works out."""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError

if find_spec("verl") is None:
    raise MissingExtraError("verl", extra="verl")
