"""`agentr1 play`: play an environment in the terminal or in a browser."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from agent_envs import checks
from agent_envs.cli.arguments import EnvChoice, add_address, add_env_arguments, chosen_env
from agent_envs.cli.play_game import PlayGame
from agent_envs.cli.play_session import PlaySession
from agent_envs.cli.replays import episode_choice, given_env, stored_episode
from agent_envs.episodes.record import Episode
from agent_envs.errors import ConfigError, DataError
from agent_envs.wrapping.recorded import run_settings

__all__ = ["add_arguments", "run"]

_EPILOG = """\
You see what a policy sees: the instructions, the observation and the available actions. A number takes one of them (you
are asked for a tool's arguments, or give them at once: "1 12*7"); other lines are your actions, word for word.

  /expert  show the expert's action      /undo     take back the last action      /history  show the actions so far
  /new     draw another task             /restart  start this task again          /help     list all commands

With --replay, the actions of a stored episode are taken first, all of them or those before --step, in the environment
that the run.json beside it names; you go on from there. With --web, the same session is a page in your browser; the
address that is printed holds its token.

examples:
  agentr1 play --env AgentR1/ALFWorld-v0 --env-kwargs '{"size": 1}'
  agentr1 play --env AgentR1/GSM8KTool-v0 --split test --index 3 --save mine.jsonl     # agentr1 view mine.jsonl
  agentr1 play --env FrozenLake-v1 --env-kwargs '{"render_mode": "ansi"}' --wrapper TextGame
  agentr1 play --env AgentR1/WebShop-v0 --web --save mine.jsonl
  agentr1 play --replay runs/eval/episodes.jsonl --line 12 --step 3
  printf '/expert play\\n/quit\\n' | agentr1 play --env AgentR1/WebShop-v0 --seed 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_env_arguments(parser)
    add = parser.add_argument
    add("--index", type=int, metavar="N", help="play task N of the split (default: one is drawn)")
    add("--seed", type=int, help="seed for drawing tasks (default: a new one each time)")
    add("--save", metavar="FILE", help="append every episode to this file")
    add("--replay", metavar="FILE", help="take the actions of an episode in this file first")
    add("--line", type=int, metavar="N", help="the line of the episode in the file, from 1")
    add("--step", type=int, metavar="N", help="take its first N actions only (default: all)")
    add("--web", action="store_true", help="play in a browser")
    add_address(add, port=0)


def run(arguments: argparse.Namespace) -> str:
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else checks.integer("--seed", arguments.seed, minimum=0)
    save = None if arguments.save is None else Path(arguments.save)
    if save is not None and save.is_dir():
        raise ConfigError(f"--save {save} is a folder; give a file in it")
    episode, choice = _replayed(arguments)
    env = choice.make()
    try:
        index = arguments.index if episode is None else episode.index
        game = PlayGame(env, index=index, seed=seed, save=save)
        game.begin(None if episode is None else (episode.seed, episode.index))
        if episode is not None:
            _replay(game, episode, len(episode.steps) if arguments.step is None else arguments.step)
        if arguments.web:
            from agent_envs.cli.play_web import play_in_browser
            from agent_envs.serving.access import read_token

            token = read_token(arguments.token_file)
            play_in_browser(game, host=arguments.host, port=arguments.port, token=token)
        else:
            session = PlaySession(game)
            if sys.stdin.isatty():
                _complete(session)
            session.run()
    finally:
        env.close()
    if not game.played:
        return ""
    summary = f"{game.played} episode{'s' * (game.played != 1)} played, {game.solved} solved"
    return summary if save is None else f"{summary}; in {save}"


def _replayed(arguments: argparse.Namespace) -> tuple[Episode | None, EnvChoice]:
    """Return the episode to replay, if there is one, and the environment."""
    if arguments.replay is None:
        for option in ("line", "step"):
            if vars(arguments)[option] is not None:
                raise ConfigError(f"--{option} says what of an episode is replayed; give --replay FILE too")
        return None, chosen_env(arguments)
    for option in ("index", "seed"):
        if vars(arguments)[option] is not None:
            raise ConfigError(f"--{option} chooses a task, and --replay takes the episode's; leave one out")
    episode, path = stored_episode(arguments.replay, arguments.line)
    if episode.index is None and episode.seed is None:
        raise DataError(f"episode {episode.episode_id!r} has neither an index nor a seed, so its task is unknown")
    if arguments.step is not None:
        checks.integer("--step", arguments.step, minimum=0, maximum=len(episode.steps))
    if arguments.run:
        return episode, chosen_env(arguments)
    settings = {} if arguments.bare else run_settings(path)
    return episode, episode_choice(given_env(arguments), settings, episode, trust=bool(arguments.trust))


def _replay(game: PlayGame, episode: Episode, count: int) -> None:
    """Take the first actions of an episode, and say where the play differs from the record."""
    differing = game.replay(episode.steps[:count])
    taken = len(game.turns)
    notes = [f"{differing} observations differ from the record"] if differing else []
    notes += [f"the episode ended after {taken} of them"] if taken < count else []
    different = f" ({'; '.join(notes)}: is this the environment it was played in?)" if notes else ""
    sys.stderr.write(f"agentr1: replayed {taken} of {len(episode.steps)} actions{different}\n")


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
