"""`agentr1 play`: play an environment in the terminal."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from agent_envs import checks
from agent_envs.cli.arguments import add_env_arguments, chosen_env
from agent_envs.cli.play_session import PlaySession
from agent_envs.errors import ConfigError
from agent_envs.policies.terminal import tolerant_streams

__all__ = ["add_arguments", "run"]

_EPILOG = """\
You see what a policy sees: the instructions, the observation and the available actions. A number takes one of them (you
are asked for a tool's arguments, or give them at once: "1 12*7"); other lines are your actions, word for word.

  /expert  show the expert's action      /undo     take back the last action      /history  show the actions so far
  /new     draw another task             /restart  start this task again          /help     list all commands

examples:
  agentr1 play --env AgentR1/ALFWorld-v0 --env-kwargs '{"size": 1}'
  agentr1 play --env AgentR1/GSM8KTool-v0 --split test --index 3 --save mine.jsonl     # agentr1 view mine.jsonl
  agentr1 play --env FrozenLake-v1 --env-kwargs '{"render_mode": "ansi"}' --wrapper TextGame
  printf '/expert play\\n/quit\\n' | agentr1 play --env AgentR1/WebShop-v0 --seed 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_env_arguments(parser)
    add = parser.add_argument
    add("--index", type=int, metavar="N", help="play task N of the split (default: one is drawn)")
    add("--seed", type=int, help="seed for drawing tasks (default: a new one each time)")
    add("--save", metavar="FILE", help="append every episode to this file")


def run(arguments: argparse.Namespace) -> str:
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else checks.integer("--seed", arguments.seed, minimum=0)
    tolerant_streams()
    save = None if arguments.save is None else Path(arguments.save)
    if save is not None and save.is_dir():
        raise ConfigError(f"--save {save} is a folder; give a file in it")
    env = chosen_env(arguments).make()
    try:
        session = PlaySession(env, index=arguments.index, seed=seed, save=save)
        if sys.stdin.isatty():
            _complete(session)
        session.run()
    finally:
        env.close()
    if not session.played:
        return ""
    summary = f"{session.played} episode{'s' * (session.played != 1)} played, {session.solved} solved"
    return summary if save is None else f"{summary}; in {save}"


def _complete(session: PlaySession) -> None:
    """Let the tab key complete commands and actions."""
    try:
        import readline
    except ImportError:  # not every Python has it
        return

    def complete(text: str, state: int) -> str | None:
        matching = [word for word in session.words() if word.startswith(text)]
        return matching[state] if state < len(matching) else None

    readline.set_completer(complete)
    readline.set_completer_delims("")
    readline.parse_and_bind("tab: complete")
