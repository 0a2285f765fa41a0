"""Which verl this adapter is written against. Most of what it hooks into is private, so another version is refused."""

from __future__ import annotations

from importlib import metadata

from agent_envs.errors import ConfigError, MissingExtraError

__all__ = ["EXPECTED_VERL", "check_version"]

EXPECTED_VERL = "0.9.1"
"""The version of verl this adapter works with."""


def check_version() -> None:
    """Make sure that the installed verl is the one this adapter is written against.

    Raises:
        MissingExtraError: verl is not installed.
        ConfigError: Another version is installed.
    """
    try:
        found = metadata.version("verl")
    except metadata.PackageNotFoundError as e:
        raise MissingExtraError("verl", extra="verl") from e
    if found != EXPECTED_VERL:
        raise ConfigError(
            f"agent_envs.adapters.verl works with verl {EXPECTED_VERL}, found verl {found}; install it with: "
            f"pip install 'verl=={EXPECTED_VERL}' (or 'agent-envs[verl]' with the project's constraints file)"
        )
