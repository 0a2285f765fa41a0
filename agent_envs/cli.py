"""The `agentr1` command: `agentr1 train`, `prepare`, `generate`, `index`, `serve-search` and `eval-papers`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from agent_envs.cli_papers import add_eval_papers_arguments, run_eval_papers
from agent_envs.cli_search import add_index_arguments, add_serve_arguments, run_index, run_serve
from agent_envs.command import run_command

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
    _add_generate_arguments(
        commands.add_parser(
            "generate",
            help="write generated tasks as files in a released format",
            description="Write generated tasks in a released file format. Said again, it continues a stopped run.",
        )
    )
    add_index_arguments(
        commands.add_parser(
            "index",
            help="build a search index",
            description="Index documents for search. Said again, it continues a build that was stopped.",
        )
    )
    add_serve_arguments(
        commands.add_parser("serve-search", help="serve a search index", description="Serve searches over HTTP.")
    )
    add_eval_papers_arguments(
        commands.add_parser(
            "eval-papers",
            help="precision, recall and F1 of stored paper searches",
            description="The table of paper search from stored episodes: thresholds of score by numbers of papers.",
        )
    )
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["train"]:
        from agent_envs.adapters.verl.train import add_arguments

        add_arguments(train)
    arguments = parser.parse_args(given) if given[:1] != ["train"] else _parse_train(train, given[1:])
    if arguments.command is None and not arguments.version:
        parser.print_help()
        return 2
    return run_command(lambda: _run(arguments))


def _add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help="name of the task, such as alfworld")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write; nothing in it is overwritten")
    parser.add_argument("--n", type=int, default=1000, help="number of tasks (default: %(default)s)")
    parser.add_argument("--split", help="which of the generated splits (default: train)")
    parser.add_argument("--size", help="difficulty, as the environment's keyword takes it: 3, 2-4")
    parser.add_argument("--families", help="families of tasks, separated by commas (default: all)")
    parser.add_argument("--seed", type=int, help='0 for the tasks that data="generated" has, else others')
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _parse_train(train: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    arguments = train.parse_intermixed_args(argv)
    arguments.command, arguments.version = "train", False
    return arguments


def _run(arguments: argparse.Namespace) -> str:
    if arguments.version:
        from agent_envs import __version__

        return __version__
    if arguments.command == "train":
        from agent_envs.adapters.verl.train import run

        return run(arguments)
    if arguments.command == "prepare":
        from agent_envs.datasets.prepare import prepare

        return str(prepare(arguments.task, arguments.source, arguments.out))
    if arguments.command == "generate":
        from agent_envs.datasets.generate import generate

        options = {name: getattr(arguments, name) for name in ("split", "size", "families", "seed")}
        return str(generate(arguments.task, arguments.out, arguments.n, progress=not arguments.quiet, **options))
    if arguments.command == "index":
        return str(run_index(arguments))
    if arguments.command == "eval-papers":
        return run_eval_papers(arguments)
    return str(run_serve(arguments))


if __name__ == "__main__":
    sys.exit(main())
