"""The `agentr1` command: a table of its subcommands, of which only the one that is called is imported."""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from agent_envs.errors import did_you_mean, run_command

__all__ = ["main"]


class _Command(NamedTuple):
    """A subcommand. Its module has `add_arguments(parser)` and `run(arguments) -> str`, which returns what to print."""

    module: str
    help: str
    description: str


_COMMANDS = {
    "train": _Command(
        "agent_envs.adapters.verl.run.train",
        "train a model on an environment with verl",
        "Train a model on an environment with verl's own trainer. Said again, it continues a stopped run.",
    ),
    "list": _Command(
        "agent_envs.cli.list",
        "which environments there are",
        "Every environment: what it is, what data it has on this machine, and which extras it could use.",
    ),
    "play": _Command(
        "agent_envs.cli.play",
        "play an environment yourself",
        "Play an environment in the terminal: what a policy sees, with actions to choose, hints and undo.",
    ),
    "view": _Command(
        "agent_envs.cli.view",
        "make an HTML page of stored episodes",
        "Write stored episodes as one HTML file that needs nothing else: a list with filters, and every step.",
    ),
    "record": _Command(
        "agent_envs.cli.record",
        "record what an agent written elsewhere does",
        "An OpenAI-compatible proxy before a model's server: each call of an agent becomes a step with its tokens.",
    ),
    "demos": _Command(
        "agent_envs.cli.demos",
        "write an expert's episodes for supervised fine-tuning",
        "Play an environment's own expert and write its episodes as chat, in jsonl or parquet.",
    ),
    "new-task": _Command(
        "agent_envs.cli.new_task",
        "write a small real task of your own, to be changed",
        "Write a small real task as a package of your own: environment, data, tests and a page, which work at once.",
    ),
    "chat": _Command(
        "agent_envs.cli.chat",
        "talk with an agent that has an environment's tools",
        "Talk with an agent: a model at a server, a Hugging Face folder or a run's checkpoint, with an environment's "
        "tools. You ask, its calls run, it answers; in environments that take no questions you advise it as it plays.",
    ),
    "rescore": _Command(
        "agent_envs.cli.rescore",
        "give stored episodes another reward",
        "Give stored episodes another reward, by playing them again or by a function, and compare old and new.",
    ),
    "plot": _Command(
        "agent_envs.cli.plot",
        "draw curves of runs and what goes with success",
        "Draw success, reward, turns and length of runs over their steps, and how these go together.",
    ),
    "bench": _Command(
        "agent_envs.cli.bench",
        "measure an environment's speed and memory",
        "Play an environment with its expert or at random, and say how fast it steps and resets, and what it weighs.",
    ),
    "prepare": _Command(
        "agent_envs.cli.prepare",
        'fetch the data behind data="official"',
        'Put a task\'s released data where data="official" looks for it.',
    ),
    "eval": _Command(
        "agent_envs.cli.eval",
        "evaluate a policy on an environment",
        "Play tasks of an environment with any policy and print success, reward and pass@k with their intervals.",
    ),
    "generate": _Command(
        "agent_envs.cli.generate",
        "write generated tasks as files in a released format",
        "Write generated tasks in a released file format. Said again, it continues a stopped run.",
    ),
    "index": _Command(
        "agent_envs.cli.index",
        "build a search index",
        "Index documents for search. Said again, it continues a build that was stopped.",
    ),
    "serve": _Command(
        "agent_envs.cli.serve",
        "serve environments to trainers on other machines",
        "Serve environments over HTTP and WebSocket: OpenEnv's protocol, an episode per client, all in one process.",
    ),
    "serve-search": _Command("agent_envs.cli.serve_search", "serve a search index", "Serve searches over HTTP."),
    "eval-papers": _Command(
        "agent_envs.cli.eval_papers",
        "precision, recall and F1 of stored paper searches",
        "The table of paper search from stored episodes: thresholds of score by numbers of papers.",
    ),
}

_EPILOG = """\
examples:
  agentr1 list                                          # every environment
  agentr1 play --env AgentR1/ALFWorld-v0                # play one yourself
  agentr1 eval --env AgentR1/GSM8KTool-v0 --policy expert --n 200 --out runs/expert
  agentr1 view runs/expert --out expert.html            # look at the episodes
  agentr1 train --env AgentR1/GSM8KTool-v0 --out runs/mine

agentr1 COMMAND --help has the arguments of each, with examples."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit status.

    0: done; 1: something failed on the way; 2: bad input. Errors of this library are one message, not a traceback.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    called = given[0] if given else ""
    parser = argparse.ArgumentParser(
        prog="agentr1",
        description="Text-agent environments, and training on them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    module = None
    for name, command in _COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=command.help,
            description=textwrap.fill(command.description, 100),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == called:
            module = importlib.import_module(command.module)
            module.add_arguments(subparser)
            # positionals and options in any order, which subparsers cannot do
            chosen = subparser
    if module is not None:
        arguments = chosen.parse_intermixed_args(given[1:])
        return run_command(lambda: module.run(arguments))
    if called and not called.startswith("-"):
        parser.error(f"unknown command {called!r:.80}.{did_you_mean(called, _COMMANDS)}")
    arguments = parser.parse_args(given)
    if not arguments.version:
        parser.print_help()
        return 2
    return run_command(_version)


def _version() -> str:
    from agent_envs import __version__

    return __version__
