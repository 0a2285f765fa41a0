"""What pictures cost: observations per second, episodes in files, and the page that shows them.

Run: python benchmarks/pictures.py [--episodes 1000]

Observations: `ImageGame` around a game whose pictures of 256 x 256 pixels are ready (what this package takes for an
observation: command, copy, digest, info), and around Gymnasium's FrozenLake, beside FrozenLake stepped and drawn
without it (what pygame takes) and `TextGame`. CPU seconds, best of five.

Episodes: games of FrozenLake of five pictures each, different ones (cells are placed at random), written and shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from agent_envs.episodes.record import write_episodes
from agent_envs.policies.scripted import RandomPolicy
from agent_envs.rollout.one import run_episode
from agent_envs.viewer.write import numbered_records, write_view
from agent_envs.wrappers import ImageGame, TextGame

SIDE = 256  # pixels
STEPS = 300  # of a measurement
PICTURES = 5  # of an episode


class ReadyGame(gym.Env[int, int]):
    """A game whose pictures are ready: it shows what is left when drawing costs nothing."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 4}  # type: ignore[misc]

    def __init__(self) -> None:
        self.render_mode = "rgb_array"
        self.observation_space = self.action_space = gym.spaces.Discrete(2)
        self._pictures = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), dtype=np.uint8)
        self._state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self._state = action
        return action, 0.0, False, False, {}

    def render(self) -> Any:
        return self._pictures[self._state]


def per_second(step: Callable[[int], object]) -> float:
    """Steps per CPU second, best of five."""
    rates = []
    for _ in range(5):
        began = time.process_time()
        for number in range(STEPS):
            step(number)
        rates.append(STEPS / (time.process_time() - began))
    return max(rates)


def lake(mode: str) -> gym.Env[Any, Any]:
    """FrozenLake without a step limit."""
    return gym.make("FrozenLake-v1", render_mode=mode, max_episode_steps=-1)


def text_steps(env: gym.Env[Any, Any], commands: tuple[str, str]) -> Callable[[int], object]:
    """A function that takes a step of a wrapped game, reset where it ends."""
    env.reset(seed=0)

    def step(number: int) -> None:
        if env.step(commands[number % 2])[2]:
            env.reset()

    return step


def bare_steps(env: gym.Env[Any, Any]) -> Callable[[int], object]:
    """A function that takes a step of FrozenLake and draws it."""
    env.reset(seed=0)

    def step(number: int) -> None:
        if env.step(0 if number % 2 else 3)[2]:
            env.reset()
        env.render()

    return step


def observations() -> None:
    """Print observations per second."""
    ready = ImageGame(ReadyGame(), actions=["a", "b"])
    rows = (
        (f"ImageGame, pictures that are ready ({SIDE} x {SIDE})", text_steps(ready, ("a", "b")), "at least 1,000"),
        ("ImageGame, FrozenLake (256 x 256)", text_steps(ImageGame(lake("rgb_array")), ("left", "up")), ""),
        ("FrozenLake stepped and drawn alone", bare_steps(lake("rgb_array")), "the limit of the row above"),
        ("TextGame, FrozenLake", text_steps(TextGame(lake("ansi")), ("left", "up")), ""),
    )
    for name, step, goal in rows:
        print(f"{name:<50}{per_second(step):>9,.0f} observations/s  {goal}", flush=True)


class Scattered(gym.Wrapper[Any, Any, Any, Any]):
    """Draws a FrozenLake and 64 coloured cells at random places, so that no two pictures are the same."""

    def render(self) -> Any:
        picture = np.array(self.env.render())
        for top, left, *colour in self.np_random.integers(0, 248, (64, 5)):
            picture[top : top + 8, left : left + 8] = colour
        return picture


def in_browser(page: Path, folder: Path) -> str:
    """How soon a browser can use a page, "" without a browser."""
    spec = importlib.util.spec_from_file_location("browser", Path(__file__).parents[1] / "tests" / "browser.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.browsers() is None:
        return "no browser here"
    with module.Browser(folder) as browser:
        browser.open(page)
        return f"opens in {int(browser.run('return document.body.dataset.ready')) / 1000:.2f} s (below 3)"


def files(count: int) -> None:
    """Print what episodes with pictures take in files and in a page."""
    game = gym.wrappers.TimeLimit(Scattered(gym.make("FrozenLake-v1", render_mode="rgb_array")), PICTURES - 1)
    env, policy = ImageGame(game), RandomPolicy(seed=0)
    some = [run_episode(env, policy, seed=seed) for seed in range(count)]
    pictures = sum(len(episode.steps) + 1 for episode in some)
    with tempfile.TemporaryDirectory() as folder:
        lines, page = Path(folder, "episodes.jsonl"), Path(folder, "page.html")
        began = time.process_time()
        write_episodes(lines, some)
        written = time.process_time()
        write_view(numbered_records([lines]), page)
        viewed = time.process_time()
        stored = list(Path(folder, "pictures").iterdir())
        size = sum(path.stat().st_size for path in stored)
        beside = sum(path.stat().st_size for path in Path(folder).glob("page_files/*"))
        print(f"{count} episodes of {pictures / count:.1f} pictures, {len(stored)} different ones")
        print(
            f"  written in {written - began:.1f} s: lines {lines.stat().st_size / 1e6:.1f} MB, PNG {size / 1e6:.1f} MB"
        )
        whole = (page.stat().st_size + beside) / 1e6
        print(f"  page in {viewed - written:.1f} s: {whole:.1f} MB (below 50); {in_browser(page, Path(folder))}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1000)
    arguments = parser.parse_args()
    observations()
    files(arguments.episodes)


if __name__ == "__main__":
    main()
