"""The version of verl that this adapter supports. It hooks into private code, so other versions are rejected."""

from __future__ import annotations

from agent_envs.adapters.verl.run.symbols import moved
from agent_envs.errors import ConfigError, check_release

__all__ = ["check_version"]


def check_version() -> None:
    """Check that the supported version of verl is installed.

    Raises:
        MissingExtraError: It is not installed.
        ConfigError: Another version is; the message says what of it is not where this adapter looks for it.
    """
    try:
        check_release("verl", "verl")
    except ConfigError as e:
        gone = moved()
        what = "; ".join(f"{symbol.file}: {symbol.name} ({symbol.purpose})" for symbol in gone)
        raise ConfigError(f"{e}. Of verl's names that the adapter needs, this one lacks {what or 'none'}") from e
