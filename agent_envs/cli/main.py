"""The `agentr1` command: the table of its subcommands. Only the one that is called is imported."""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from agent_envs._version import __version__
from agent_envs.errors import ConfigError, did_you_mean, run_command

__all__ = ["COMMANDS", "command_module", "main"]


class _Command(NamedTuple):
    """A subcommand. Its module has `add_arguments(parser)` and `run(arguments)`, which returns what to print.

    The exit status is 0, or comes with the text as `(text, status)`.
    """

    help: str
    description: str
    module: str = ""
    """By default the module of `agent_envs.cli` with the command's name."""
    posix: bool = False
    """Whether it needs Linux or macOS."""


COMMANDS: dict[str, _Command] = {
    "train": _Command(
        "train a model on an environment with verl",
        "Train a model on an environment with verl's own trainer. Run the same command again to resume a stopped run.",
        module="agent_envs.adapters.verl.run.train",
        posix=True,
    ),
    "list": _Command(
        "list the environments",
        "List every environment: what it is, which data it has on this machine, and which extras it can use.",
    ),
    "play": _Command(
        "play an environment yourself",
        "Play an environment in the terminal or in a browser: see what a policy sees, choose actions, ask for hints, "
        "undo.",
    ),
    "view": _Command(
        "turn stored episodes into an HTML page, or follow a run",
        "Write stored episodes as an HTML page: a list with filters, and every step. Or follow a run in a browser.",
    ),
    "record": _Command(
        "record an agent written elsewhere",
        "Run an OpenAI-compatible proxy in front of a model's server: each call of an agent becomes a step with its "
        "tokens.",
    ),
    "demos": _Command(
        "write an expert's episodes for supervised fine-tuning",
        "Play an environment's own expert and write its episodes as chat, in jsonl or parquet.",
    ),
    "new-task": _Command(
        "start a task of your own from a small working one",
        "Write a small working task as a package of your own (environment, data, tests, a page), to be changed.",
    ),
    "chat": _Command(
        "chat with an agent that has an environment's tools",
        "Chat with an agent: a model behind a server, a Hugging Face folder or a run's checkpoint, with an "
        "environment's tools. You ask, the agent calls tools and answers. In environments that take no questions, you "
        "advise it while it plays.",
    ),
    "rescore": _Command(
        "give stored episodes another reward",
        "Give stored episodes another reward, by replaying them or with a function, and compare old and new.",
    ),
    "plot": _Command(
        "plot training curves and what correlates with success",
        "Plot success, reward, turns and length over the steps of runs, and how they correlate.",
    ),
    "bench": _Command(
        "measure an environment's speed and memory",
        "Play an environment with its expert or at random; report steps and resets per second, and memory.",
    ),
    "prepare": _Command(
        'download the data behind data="official"',
        'Download a task\'s released data to where data="official" looks for it.',
    ),
    "eval": _Command(
        "evaluate a policy on an environment",
        "Play tasks of an environment with any policy; print success, reward and pass@k with confidence intervals.",
    ),
    "compare": _Command(
        "compare evaluations on the same tasks",
        "Compare evaluations that played the same panel of tasks: paired differences with confidence intervals.",
    ),
    "verify": _Command(
        "check this installation against committed scores",
        "Play scripted policies on a small panel of every environment and compare tasks and scores with those that "
        "are committed with the package.",
    ),
    "doctor": _Command(
        "say what is installed, what works here and what to do",
        "Look at what is installed and in which versions, try what should work on this machine, and say what to do.",
    ),
    "audit": _Command(
        "attack an environment's reward, and certify what was found",
        "Attack the reward of an environment with policies that do not do its task, and write a certificate. Each "
        "finding has the shortest episode that shows it.",
    ),
    "generate": _Command(
        "write generated tasks as files in a released format",
        "Write generated tasks in a released file format. Run the same command again to resume.",
    ),
    "index": _Command(
        "build a search index",
        "Index documents for search. Run the same command again to resume a build that was stopped.",
    ),
    "serve": _Command(
        "serve environments to trainers on other machines",
        "Serve environments over HTTP and WebSocket with OpenEnv's protocol: one episode per client, one process.",
        posix=True,
    ),
    "serve-search": _Command("serve a search index", "Serve a search index over HTTP."),
    "eval-answers": _Command(
        "official metrics of question answering",
        "Score predictions or stored episodes of HotpotQA, 2WikiMultihopQA or MuSiQue with the data set's own metrics.",
    ),
    "eval-papers": _Command(
        "precision, recall and F1 of stored paper searches",
        "Score stored episodes of paper search: precision, recall and F1 by score threshold and number of papers.",
    ),
}

_FOLDERS = ("out", "run", "checkpoint", "panel")

_EPILOG = """\
examples:
  agentr1 list                                          # every environment
  agentr1 play --env AgentR1/ALFWorld-v0                # play one yourself
  agentr1 eval --env AgentR1/GSM8KTool-v0 --policy expert --n 200 --out runs/expert
  agentr1 view runs/expert --out expert.html            # look at the episodes
  agentr1 train --env AgentR1/GSM8KTool-v0 --out runs/mine

"agentr1 COMMAND --help" lists the arguments of a command, with examples."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; `agent_envs.errors.run_command` lists them.

    Args:
        argv: The arguments; by default the process's own.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    called = given[0] if given else ""
    parser = argparse.ArgumentParser(
        prog="agentr1",
        description="Text-agent environments, and training on them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    subparsers = {
        name: commands.add_parser(
            name,
            help=command.help,
            description=textwrap.fill(command.description, 100),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, command in COMMANDS.items()
    }
    if called in COMMANDS:
        return run_command(lambda: _run(called, subparsers[called], given[1:]))
    if called and not called.startswith("-"):
        parser.error(f"unknown command {called!r:.80}.{did_you_mean(called, COMMANDS)}")
    if not parser.parse_args(given).version:
        parser.print_help()
        return 2
    return run_command(lambda: __version__)


def _run(name: str, parser: argparse.ArgumentParser, argv: Sequence[str]) -> str | tuple[str, int]:
    """Run a subcommand and return what it prints, perhaps with its exit status; only its own module is imported."""
    command = COMMANDS[name]
    if command.posix and sys.platform == "win32":
        raise ConfigError(f"agentr1 {name} needs Linux or macOS; on Windows, run it in WSL")
    module = command_module(name)
    module.add_arguments(parser)
    # Intermixed: positionals and options in any order, which a parser with subparsers cannot do.
    arguments = parser.parse_intermixed_args(argv)
    for option in _FOLDERS:
        if vars(arguments).get(option) == "":  # which as a path is the current folder
            raise ConfigError(f"--{option} is empty; give a path (was a shell variable not set?)")
    return module.run(arguments)


def command_module(name: str) -> ModuleType:
    """Import and return a subcommand's module."""
    return importlib.import_module(COMMANDS[name].module or f"agent_envs.cli.{name.replace('-', '_')}")
