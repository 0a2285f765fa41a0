"""Training with verl 0.9.1: its configuration, its runs, its rollout and its batches.

Modules with an ``__all__`` are for users; the others are the adapter's own.
"""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError


def need_verl() -> None:
    """Raise MissingExtraError where verl is not installed, without importing it, which takes seconds."""
    if find_spec("verl") is None:
        raise MissingExtraError("verl", extra="verl")
