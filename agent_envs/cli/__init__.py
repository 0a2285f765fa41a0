"""The `agentr1` command: `main` holds the table of subcommands; each has a module of its own."""

from agent_envs.cli.main import main

__all__ = ["main"]


def __dir__() -> list[str]:
    return __all__
