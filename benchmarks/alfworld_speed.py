"""ALFWorld's engines side by side, and its experts by family. Run: python benchmarks/alfworld_speed.py [--data FOLDER]

Three engines play the same games with the same commands in one run: the stock engine (the alfworld package's own
wrappers around TextWorld, unchanged), the same with this project's caches (`engine="textworld"`), and the native one.
Times are seconds; every step includes the list of admissible commands. Without --data, generated houses are played.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym

import agent_envs  # noqa: F401  (registers the ids)
from agent_envs.datasets.alfworld.generate import generate_alfworld
from agent_envs.datasets.alfworld.rows import load_problem
from agent_envs.envs.alfworld.engine import begin, intro, play
from agent_envs.envs.alfworld.game import GroundedGame

ENV = "AgentR1/ALFWorld-v0"
STEPS = {"native env": 4000, "native engine": 8000, "textworld": 400, "stock": 40}
RESETS = {"native env": 200, "native engine": 500, "textworld": 20, "stock": 3}

Game = tuple[Callable[[], list[str]], Callable[[str], tuple[list[str], bool]]]
"""Restarts the game and gives the admissible commands; gives a command and gets them and whether it is over."""


def stock_game(file: Path) -> Game:
    """The package's own engine; loading is part of its first reset."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs import PddlEnv

    infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    env = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))

    def reset() -> list[str]:
        env.load(str(file))  # as its Gym interface does at every reset
        return env.reset().admissible_commands

    def step(command: str) -> tuple[list[str], bool]:
        state, _, done = env.step(command)
        return state.admissible_commands, done

    return reset, step


def env_game(folder: Path, split: str, game: str, engine: str) -> Game:
    """The environment with one of its engines, without a step limit."""
    env = gym.make(ENV, data=folder, split=split, engine=engine, max_episode_steps=-1)

    def reset() -> list[str]:
        return env.reset(options={"game": game})[1]["admissible_commands"]

    def step(command: str) -> tuple[list[str], bool]:
        _, _, terminated, _, info = env.step(command)
        return info["admissible_commands"], terminated

    return reset, step


def native_game(file: Path) -> Game:
    """The native engine without an environment around it."""
    house = GroundedGame(load_problem(file), str(file))
    state = begin(house)

    def reset() -> list[str]:
        nonlocal state
        state = begin(house)
        intro(house, state)
        return state.commands

    def step(command: str) -> tuple[list[str], bool]:
        play(house, state, command)
        return state.commands, state.won

    return reset, step


def seconds(action: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(game: Game, steps: int, resets: int) -> tuple[float, float, float]:
    """First reset and later resets in seconds, and steps per second with random admissible commands."""
    reset, step = game
    first = seconds(reset)
    later = statistics.median(seconds(reset) for _ in range(resets))
    rng, commands, spent = random.Random(0), reset(), 0.0
    for _ in range(steps):
        command = rng.choice(commands)
        start = time.perf_counter()
        commands, over = step(command)
        spent += time.perf_counter() - start
        if over:
            commands = reset()
    return first, later, steps / spent


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """TextWorld changes sys.argv and writes to standard output."""
    argv = sys.argv[:]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        sys.argv = argv


def resident() -> float:
    """Resident memory of this process in kB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return float(line.split()[1])
    raise RuntimeError("no VmRSS in /proc/self/status")


def memory(envs: int, resets: int) -> tuple[float, float]:
    """kB that Python holds per further native environment, each in a game of its own; kB that resets add to all."""
    first = gym.make(ENV)
    for seed in range(300):
        first.reset(seed=seed)
    tracemalloc.start()
    made = [gym.make(ENV) for _ in range(envs)]
    for index, env in enumerate(made):
        env.reset(seed=index)
        env.step("look")
    each = tracemalloc.get_traced_memory()[0] / 1024 / envs
    tracemalloc.stop()
    before = resident()
    for seed in range(resets):
        first.reset(seed=seed)
        first.step("look")
    return each, resident() - before


def engines(folder: Path, split: str, count: int) -> None:
    """The table of engines."""
    games = gym.make(ENV, data=folder, split=split).unwrapped.tasks  # type: ignore[attr-defined]
    by_size = sorted(games, key=lambda game: len(GroundedGame(load_problem(game.file)).receptacles))
    chosen = [by_size[round(i * (len(by_size) - 1) / max(count - 1, 1))] for i in range(min(count, len(by_size)))]
    print(f"{'receptacles':>11} {'engine':14} {'first reset ms':>14} {'reset ms':>10} {'steps/s':>10} {'x stock':>8}")
    for game in chosen:
        file = Path(game.file)
        kinds: dict[str, Callable[[], Game]] = {
            "native env": lambda game=game: env_game(folder, split, game.task_id, "native"),  # type: ignore[misc]
            "native engine": lambda file=file: native_game(file),  # type: ignore[misc]
            "textworld": lambda game=game: env_game(folder, split, game.task_id, "textworld"),  # type: ignore[misc]
            "stock": lambda file=file: stock_game(file),  # type: ignore[misc]
        }
        places, lines = len(GroundedGame(load_problem(file)).receptacles), []
        for name, make in kinds.items():
            with quiet():
                made: list[Game] = []
                making = seconds(lambda made=made, make=make: made.append(make()))  # type: ignore[misc]
                first, reset, speed = measure(made[0], STEPS[name], RESETS[name])
            lines.append((name, 1e3 * (making + first), 1e3 * reset, speed))
        for name, load, reset, speed in lines:
            print(f"{places:11} {name:14} {load:14.1f} {reset:10.3f} {speed:10.0f} {speed / lines[-1][-1]:8.0f}")


def experts(count: int, split: str, **kwargs: Any) -> None:
    """The table of experts by family."""
    print(f"\n{'expert':8} {'family':32} {'won':>11} {'commands':>9} {'most':>5} {'ms/decision':>12} {'slowest':>8}")
    for expert in ("oracle", "explore"):
        env = gym.make(ENV, expert=expert, split=split, **kwargs)
        lengths: dict[str, list[int]] = defaultdict(list)
        won: dict[str, int] = defaultdict(int)
        spent: dict[str, list[float]] = defaultdict(list)
        for index in range(min(count, env.unwrapped.num_tasks)):  # type: ignore[attr-defined]
            _, info = env.reset(options={"index": index})
            family, over, steps = info["task_family"], False, 0
            while not over:
                start = time.thread_time()
                action = env.unwrapped.expert_action()  # type: ignore[attr-defined]
                spent[family].append(time.thread_time() - start)
                _, _, terminated, truncated, info = env.step(action)
                over, steps = terminated or truncated, steps + 1
            lengths[family].append(steps)
            won[family] += info["success"]
        for family, some in sorted(lengths.items()):
            times = spent[family]
            print(
                f"{expert:8} {family:32} {won[family]:4} of {len(some):4} {statistics.mean(some):9.1f} {max(some):5} "
                f"{1e3 * statistics.mean(times):12.3f} {1e3 * max(times):8.2f}"
            )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with real games (json_2.1.1)")
    parser.add_argument("--split", default="valid_train", help="split of --data (default: %(default)s)")
    parser.add_argument("--games", type=int, default=3, help="games the engines play (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=1000, help="episodes of each expert (default: %(default)s)")
    parser.add_argument("--no-engines", action="store_true", help="the experts alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("ALFWORLD_DATA", scratch)
        folder, split = arguments.data, arguments.split
        if folder is None:
            folder, split = Path(scratch), "train"
            generate_alfworld(folder, arguments.games, size=3, progress=False)
        if not arguments.no_engines:
            engines(folder, split, arguments.games)
            each, grown = memory(100, 2000)
            print(f"memory per further native environment: {each:.0f} kB; after 2,000 more resets: {grown:+.0f} kB")
        if arguments.data is not None:
            print(f"\nreal games: {json.dumps(str(arguments.data))[1:-1]}, {split}")
            experts(arguments.episodes, split, data=folder)
        print("\ngenerated games: valid_unseen")
        experts(arguments.episodes, "valid_unseen")


if __name__ == "__main__":
    main()
