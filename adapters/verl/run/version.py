"""Which verl this adapter is written against. Most of what it hooks into is private, so another version is refused."""

from __future__ import annotations

from agent_envs.errors import check_release

__all__ = ["EXPECTED_VERL", "check_version"]

EXPECTED_VERL = "0.9.1"
"""The version of verl this adapter works with."""


def check_version() -> None:
    """Make sure that the installed verl is the one this adapter is written against.

    Raises:
        MissingExtraError: verl is not installed.
        ConfigError: Another version is installed.
    """
    check_release("verl", EXPECTED_VERL, None, "verl")
