"""`agentr1 play`: a person plays an environment in the terminal."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from agent_envs.cli.env_arguments import add_env_arguments, chosen_env
from agent_envs.cli.play_session import Session
from agent_envs.errors import ConfigError
from agent_envs.policies.terminal import tolerant_streams

__all__ = ["add_arguments", "run"]

_EPILOG = """\
You see what a policy sees: the instructions, the observation, and the actions on offer. A number chooses one of them (a
tool's arguments are asked for: "1", or "1 12*7" at once); everything else you write is your action, word for word.

  /expert  what the expert would do      /undo     take the last action back      /history  what was done
  /new     another task                  /restart  this task again                /help     all of them

examples:
  agentr1 play --env AgentR1/ALFWorld-v0 --env-kwargs '{"size": 1}'
  agentr1 play --env AgentR1/GSM8KTool-v0 --split test --index 3 --save mine.jsonl     # agentr1 view mine.jsonl
  agentr1 play --env FrozenLake-v1 --env-kwargs '{"render_mode": "ansi"}' --wrapper TextGame
  printf '/expert play\\n/quit\\n' | agentr1 play --env AgentR1/WebShop-v0 --seed 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 play`."""
    parser.epilog = _EPILOG
    add_env_arguments(parser)
    add = parser.add_argument
    add("--index", type=int, metavar="N", help="play task N of the split (default: one is drawn)")
    add("--seed", type=int, help="seed of which tasks are drawn (default: another one each time)")
    add("--save", metavar="FILE", help="add every episode to this episodes.jsonl")


def run(arguments: argparse.Namespace) -> str:
    """Play; how it went."""
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else arguments.seed
    if seed < 0:
        raise ConfigError(f"--seed must be at least 0, got {seed}")
    tolerant_streams()
    save = None if arguments.save is None else Path(arguments.save)
    if save is not None and save.is_dir():
        raise ConfigError(f"--save {save} is a folder; name a file in it")
    env = chosen_env(arguments).make()
    try:
        session = Session(env, index=arguments.index, seed=seed, save=save)
        if sys.stdin.isatty():
            _complete(session)
        session.run()
    finally:
        env.close()
    if not session.played:
        return ""
    said = f"{session.played} episode{'s' * (session.played != 1)} played, {session.solved} solved"
    return said if save is None else f"{said}; in {save}"


def _complete(session: Session) -> None:
    """The tab key completes commands and actions."""
    try:
        import readline
    except ImportError:  # a Python without it: lines are typed whole
        return

    def complete(text: str, state: int) -> str | None:
        fitting = [word for word in session.words() if word.startswith(text)]
        return fitting[state] if state < len(fitting) else None

    readline.set_completer(complete)
    readline.set_completer_delims("")
    readline.parse_and_bind("tab: complete")
