"""The `agentr1` command: the table of its subcommands. Only the one that is called is imported."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from agent_envs._version import __version__
from agent_envs.cli.options import add_options, spelled
from agent_envs.errors import ConfigError, run_command


class _Command(NamedTuple):
    """A subcommand: a module of `agent_envs.cli` with its name.

    The module's docstring is the command's manual, its `Options` are a dataclass, and `run(options)` returns what to
    print. The exit status is 0, or comes with the text as `(text, status)`.
    """

    group: str
    help: str
    posix: bool = False
    """Whether it needs Linux or macOS."""


COMMANDS: dict[str, _Command] = {
    "list": _Command("play", "list the environments"),
    "play": _Command("play", "play an environment yourself, in the terminal or in a browser"),
    "chat": _Command("play", "chat with an agent that has an environment's tools"),
    "new-task": _Command("play", "start a task of your own from a small working one"),
    "doctor": _Command("play", "say what is installed, what works here and what to do"),
    "verify": _Command("play", "check on this machine what README claims"),
    "eval": _Command("evaluate", "evaluate a policy on an environment"),
    "compare": _Command("evaluate", "compare evaluations on the same tasks"),
    "view": _Command("evaluate", "turn stored episodes into an HTML page, or follow a run"),
    "score": _Command("evaluate", "score stored episodes again: another reward, or tables of paper search"),
    "audit": _Command("evaluate", "attack an environment's reward, and certify what was found"),
    "train": _Command("train", "train a model on an environment with verl", posix=True),
    "plot": _Command("train", "plot training curves and what correlates with success"),
    "ratios": _Command("train", "fit how a run's log-ratios grow with the lengths of steps"),
    "model": _Command("train", "get a language model by name, as a Hugging Face folder"),
    "export": _Command("train", "write a run's model as a Hugging Face folder"),
    "demos": _Command("train", "write an expert's episodes for supervised fine-tuning"),
    "prepare": _Command("data", 'download the data behind data="official"'),
    "generate": _Command("data", "write generated houses as game files of ALFWorld"),
    "index": _Command("data", "build a search index"),
    "serve": _Command("serve", "serve environments to trainers on other machines", posix=True),
    "serve-search": _Command("serve", "serve a search index"),
    "serve-model": _Command("serve", "serve a model with vLLM, for chat and eval", posix=True),
    "record": _Command("serve", "record an agent written elsewhere, by a proxy of its model's server"),
}

_PATHS = ("out", "run", "checkpoint", "panel")
_OWN_CODE = re.compile(r"""(?:^|[\s=,(\[{"'])[\w.]+:(?:[^\W\d]|\d+-)""", re.MULTILINE)
"""A module:name among the arguments. Only then is the current folder searched: it may be somebody else's run."""

_EXAMPLES = """
examples:
  agentr1 list                                          # every environment
  agentr1 play --env AgentR1/ALFWorld-v0                # play one yourself
  agentr1 eval --env AgentR1/GSM8KTool-v0 --policy expert --n 200 --out runs/expert
  agentr1 view runs/expert --out expert.html            # look at the episodes
  agentr1 train --env AgentR1/GSM8KTool-v0 --out runs/mine

"agentr1 COMMAND --help" lists the options of a command, with examples."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; `agent_envs.errors.run_command` lists them.

    Args:
        argv: The arguments; by default the process's own.
    """
    called, *given = [*(sys.argv[1:] if argv is None else argv)] or [""]
    if called in COMMANDS:
        return run_command(lambda: _run(called, given))
    lines: list[str] = []
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:12}  {each.help}" for name, each in COMMANDS.items() if each.group == group]
    about, more = "Text-agent environments, and training on them.", "\n".join([*lines[1:], _EXAMPLES])
    parser = _Parser("agentr1", about, more, usage="agentr1 COMMAND [OPTION ...]")
    parser.add_argument("--version", action="store_true", help="print the version and exit")

    def plain() -> str | tuple[str, int]:
        if called and not called.startswith("-"):
            parser.refuse(f"unknown command {called!r:.80}", called, COMMANDS)
        asked = parser.parse_args([called, *given] if called else [])
        return __version__ if asked.version else (parser.format_help(), 2)

    return run_command(plain)


class _Parser(argparse.ArgumentParser):
    """Answers a mistake by one line, with the option that was meant, instead of all options there are."""

    def __init__(self, prog: str, about: str, manual: str, **more: Any) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=about, epilog=manual, formatter_class=form, **more)

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].partition(" ")[0].partition("=")[0]
        self.refuse(message.removeprefix("argument "), unknown, self._option_string_actions)

    def refuse(self, problem: str, name: str, names: Iterable[str]) -> NoReturn:
        """Raise a ConfigError that says the problem with a name, and the one that was meant."""
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(f"{problem}; {meant}{self.prog} --help lists what there is")


def _run(name: str, argv: Sequence[str]) -> str | tuple[str, int]:
    """Run a subcommand and return what it prints, perhaps with its exit status."""
    if COMMANDS[name].posix and sys.platform == "win32":
        raise ConfigError(f"agentr1 {name} needs Linux or macOS; on Windows, run it in WSL")
    if _OWN_CODE.search("\n".join(argv)) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as with `python -m`
    module = _module(name)
    # Intermixed: positionals and options in any order.
    options = module.Options(**vars(command_parser(name).parse_intermixed_args(argv)))
    for path in _PATHS:
        if vars(options).get(path) == "":  # which as a path is the current folder
            raise ConfigError(f"{spelled(path)} is empty; give a path (was a shell variable not set?)")
    # With --json, what libraries print, such as Ray of a lost worker, is kept out of the object.
    with contextlib.redirect_stdout(sys.stderr if vars(options).get("json") else sys.stdout):
        return module.run(options)


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a subcommand's options, with its manual."""
    module = _module(name)
    about, _, manual = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    parser = _Parser(f"agentr1 {name}", about, manual)
    add_options(parser, module.Options)
    return parser


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"agent_envs.cli.{name.replace('-', '_')}")
