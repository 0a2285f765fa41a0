"""The version of verl that this adapter supports. It hooks into private code, so other versions are rejected."""

from __future__ import annotations

from agent_envs.errors import check_release

__all__ = ["EXPECTED_VERL", "check_version"]

EXPECTED_VERL = "0.9.1"
"""The version of verl this adapter works with."""


def check_version() -> None:
    """Check that the installed verl is the supported version.

    Raises:
        MissingExtraError: verl is not installed.
        ConfigError: Another version is installed.
    """
    check_release("verl", EXPECTED_VERL, None, "verl")
