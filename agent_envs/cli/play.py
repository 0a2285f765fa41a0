"""Play an environment in the terminal or in a browser: see what a policy sees, choose actions, ask for hints, undo.

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

from __future__ import annotations

import contextlib
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from agent_envs import checks
from agent_envs.cli.environments import RunOptions, of_episode
from agent_envs.cli.options import AddressOptions, File, given_options, option, serve_page
from agent_envs.cli.play_game import PlayGame
from agent_envs.cli.play_terminal import PlayTerminal
from agent_envs.episodes.record import Episode, stored_episodes
from agent_envs.episodes.run_folder import episode_paths
from agent_envs.errors import ConfigError, DataError
from agent_envs.text import count_of
from agent_envs.wrapping.recorded import RecordedEnv, run_settings
from agent_envs.wrapping.specs import make_text_env


@dataclass(kw_only=True)
class Options(RunOptions, AddressOptions):
    index: int | None = option(None, "play task N of the split (default: one is drawn)")
    seed: int | None = option(None, "seed for drawing tasks (default: a new one each time)")
    save: File | None = option(None, "append every episode to this file")
    replay: File | None = option(None, "take the actions of an episode in this file first")
    line: int | None = option(None, "the line of the episode in the file, from 1")
    step: int | None = option(None, "take its first N actions only (default: all)")
    web: bool = option(False, "play in a browser")
    port: int = option(0, "port to listen on, 0 for any")


def run(options: Options) -> str:
    seed = secrets.randbelow(1 << 31) if options.seed is None else checks.integer("--seed", options.seed, minimum=0)
    save = None if options.save is None else Path(options.save)
    if save is not None and save.is_dir():
        raise ConfigError(f"--save {save} is a folder; give a file in it")
    episode, choice = _replayed(options)
    with contextlib.closing(make_text_env(*choice)) as env:
        if episode is None:
            game = PlayGame(env, index=options.index, seed=seed, save=save)
        else:
            game = PlayGame(env, index=episode.index, seed=episode.seed, save=save)
            count = len(episode.steps) if options.step is None else options.step
            differing, taken = game.replay(episode.steps[:count]), len(game.turns)
            notes = [f"{count_of(differing, 'observation')} not as recorded"] if differing else []
            notes += [f"the episode ended after {taken} of them"] if taken < count else []
            different = f" ({'; '.join(notes)}: is this the environment it was played in?)" if notes else ""
            sys.stderr.write(f"agentr1: replayed {taken} of {len(episode.steps)} actions{different}\n")
        try:
            if options.web:
                from agent_envs.cli.play_web import play_server

                serve_page(play_server(game, host=options.host, port=options.port, token=options.token()))
            else:
                PlayTerminal(game).run()
        finally:
            game.end()
    if not game.played:
        return ""
    summary = f"{count_of(game.played, 'episode')} played, {game.solved} solved"
    return summary if save is None else f"{summary}; in {save}"


def _replayed(options: Options) -> tuple[Episode | None, RecordedEnv]:
    """Return the episode to replay, if there is one, and the environment."""
    if options.replay is None:
        if given := [*given_options(options, ["line", "step"])]:
            raise ConfigError(f"--{given[0]} says what of an episode is replayed; give --replay FILE too")
        return None, options.chosen_env()
    if given := [*given_options(options, ["index", "seed"])]:
        raise ConfigError(f"--{given[0]} chooses a task, and --replay takes the episode's; leave one out")
    episode, path = _stored_episode(options.replay, options.line)
    if episode.index is None and episode.seed is None:
        raise DataError(f"episode {episode.episode_id!r} has neither an index nor a seed, so its task is unknown")
    if options.step is not None:
        checks.integer("--step", options.step, minimum=0, maximum=len(episode.steps))
    if options.run:
        return episode, options.chosen_env()
    settings = {} if options.bare else run_settings(path)
    return episode, of_episode(options.given_env(), settings, episode, trust=options.trust)


def _stored_episode(source: str, line: int | None) -> tuple[Episode, Path]:
    """Return the episode in a line of a file, or the only one, and the file."""
    paths = episode_paths([source])
    if len(paths) > 1:
        raise ConfigError(f"--replay {source} has {len(paths)} files of episodes, such as {paths[0]}; name one")
    if line is not None:
        checks.integer("--line", line, minimum=1)
    stored = stored_episodes(paths[0], line)
    episode, _ = next(stored, (None, None))
    if episode is None:
        raise ConfigError(f"{paths[0]} has no episode" + ("" if line is None else f" in line {line}"))
    if line is None and next(stored, None) is not None:
        raise ConfigError(f"{paths[0]} has several episodes; choose one with --line N")
    return episode, paths[0]
