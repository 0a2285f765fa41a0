"""The version of verl that this adapter supports. It hooks into private code, so other versions are rejected."""

from __future__ import annotations

from agent_envs.errors import check_release

__all__ = ["EXPECTED_VERL", "check_version"]

EXPECTED_VERL = "0.9.1"


def check_version() -> None:
    """Check that the supported version of verl is installed; see ``check_release`` for what is raised."""
    check_release("verl", EXPECTED_VERL, None, "verl")
