"""The `agentr1` command: `agentr1 train` and `agentr1 prepare`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from agent_envs.errors import AgentEnvsError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit status.

    0: done; 1: something failed on the way; 2: bad input. Errors of this library are one message, not a traceback.
    """
    parser = argparse.ArgumentParser(prog="agentr1", description="Text-agent environments, and training on them.")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    train = commands.add_parser(
        "train",
        help="train a model on an environment with verl",
        description="Train a model on an environment with verl's own trainer. Said again, it continues a stopped run.",
    )
    prepare = commands.add_parser(
        "prepare",
        help='fetch the data behind data="official"',
        description='Put a task\'s released data where data="official" looks for it.',
    )
    prepare.add_argument("task", help="name of the task, such as gsm8k")
    prepare.add_argument("--from", dest="source", metavar="PATH", help="released files on this machine, when offline")
    prepare.add_argument(
        "--out", metavar="DIR", help="where to put it (default: $AGENT_ENVS_DATA or ~/.cache/agent_envs)"
    )
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["train"]:
        from agent_envs.adapters.verl.train import add_arguments

        add_arguments(train)
    arguments = parser.parse_args(given) if given[:1] != ["train"] else _parse_train(train, given[1:])
    try:
        return _run(parser, arguments)
    except AgentEnvsError as e:
        from agent_envs.errors import BackendError

        print(f"agentr1: {e}", file=sys.stderr)
        return 1 if isinstance(e, BackendError) else 2
    except KeyboardInterrupt:
        print("agentr1: stopped; the same command continues", file=sys.stderr)
        return 130


def _parse_train(train: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    arguments = train.parse_intermixed_args(argv)
    arguments.command, arguments.version = "train", False
    return arguments


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if arguments.version:
        from agent_envs import __version__

        print(__version__)
        return 0
    if arguments.command == "train":
        from agent_envs.adapters.verl.train import run

        print(run(arguments))
        return 0
    if arguments.command == "prepare":
        from agent_envs.datasets.prepare import prepare

        print(prepare(arguments.task, arguments.source, arguments.out))
        return 0
    parser.print_help()
    return 2


if __name__ == "__main__":
    sys.exit(main())
