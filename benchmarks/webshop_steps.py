"""What WebShop's steps cost: steps a second on an action mix, resets, memory, and the reward beside thefuzz's.

The mix is that of the traces of the original environment where they are found (--data FOLDER with trace_*.jsonl), else
a random clicker's on the generated catalogue. Rates are per CPU second of one core. The original made about 110 steps
a second, with resets of 2 ms, in 478 MB, at 1,000 products.

    python benchmarks/webshop_steps.py [--data FOLDER]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym

import agent_envs  # noqa: F401  (registers the ids)
from agent_envs.envs.webshop.fuzzy import alike

ENV = "AgentR1/WebShop-v0"
TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "webshop_synthetic"
ENVS = 200

Episodes = list[tuple[int, list[str]]]
"""Goals, and the actions of an episode for each."""


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def traced(folder: Path) -> Iterator[tuple[dict[str, Any], Episodes]]:
    """Arguments of an environment and what the traces do in it."""
    for name, human, mode in (
        ("human_text", True, "text"),
        ("human_text_rich", True, "text_rich"),
        ("synth_text", False, "text"),
    ):
        episodes: Episodes = []
        for line in (folder / f"trace_{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["action"] is None:
                episodes.append((row["goal"], []))
            else:
                episodes[-1][1].append(row["action"])
        yield {"data": str(folder), "human_goals": human, "mode": mode, "tagger": "rule"}, episodes


def clicked() -> Iterator[tuple[dict[str, Any], Episodes]]:
    """The same of a random clicker on the generated catalogue."""
    env = gym.make(ENV, split="all")
    rng = random.Random(0)
    episodes: Episodes = []
    for goal in range(100):
        actions: list[str] = []
        _, info = env.reset(options={"goal": goal})
        ended = False
        while not ended:
            choices = info["available_actions"]["clickables"]
            query = env.unwrapped.task.goal.query  # type: ignore[attr-defined]
            actions.append(f"search[{query}]" if choices == ["search"] else f"click[{rng.choice(choices)}]")
            _, _, terminated, truncated, info = env.step(actions[-1])
            ended = terminated or truncated
        episodes.append((goal, actions))
    yield {"data": "generated"}, episodes


def steps_per_second(sources: list[tuple[dict[str, Any], Episodes]], *, remember: bool) -> float:
    """Resets and steps by CPU second; without `remember` every search is made again."""
    spent, steps = 0.0, 0
    for arguments, episodes in sources:
        env = gym.make(ENV, split="all", max_episode_steps=100, **arguments)
        env.reset(seed=0)
        catalog = env.unwrapped.site.catalog  # type: ignore[attr-defined]
        begin = time.process_time()
        for goal, actions in episodes:
            env.reset(options={"goal": goal})
            for action in actions:
                if not remember:
                    catalog._remembered_search.cache_clear()
                env.step(action)
            steps += 1 + len(actions)
        spent += time.process_time() - begin
    return steps / spent


def memory(arguments: dict[str, Any]) -> tuple[float, float]:
    """kB of a further environment in the middle of an episode, MB of the process."""
    gc.collect()
    before, envs = resident_bytes(), []
    for seed in range(ENVS):
        env = gym.make(ENV, split="all", **arguments)
        env.reset(seed=seed)
        for action in (f"search[{env.unwrapped.task.goal.query}]", "click[next >]", "click[< prev]"):  # type: ignore[attr-defined]
            env.step(action)
        envs.append(env)
    gc.collect()
    return (resident_bytes() - before) / ENVS / 1e3, resident_bytes() / 1e6


def matching(catalog: Any) -> tuple[float, float] | None:
    """Microseconds of a comparison of two attributes: ours, thefuzz's on difflib; None where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from thefuzz import fuzz
        except ImportError:
            return None
    words = sorted({attribute for product in catalog.products() for attribute in product.attributes})
    rng = random.Random(0)
    pairs = list({(rng.choice(words), rng.choice(words)) for _ in range(20_000)})
    times = []
    for compare in (alike, fuzz.token_set_ratio):
        begin = time.process_time()
        for first, second in pairs:
            compare(first, second)
        times.append((time.process_time() - begin) / len(pairs) * 1e6)
    return times[0], times[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=TRACES, help=f"folder with traces (default: {TRACES})")
    folder = parser.parse_args().data
    found = (folder / "trace_human_text.jsonl").is_file()
    sources = list(traced(folder) if found else clicked())
    arguments = sources[0][0]
    print(
        f"{sum(1 + len(a) for _, e in sources for _, a in e)} steps of {'the traces' if found else 'a random clicker'}"
    )
    print(f"{'first time':28}{steps_per_second(sources, remember=True):10,.0f} steps/s")
    print(f"{'searches remembered':28}{steps_per_second(sources, remember=True):10,.0f} steps/s")
    print(f"{'every search made again':28}{steps_per_second(sources, remember=False):10,.0f} steps/s")
    env = gym.make(ENV, split="all", **arguments)
    env.reset(seed=0)
    begin = time.process_time()
    for goal in range(1000):
        env.reset(options={"goal": goal})
    print(f"{'reset':28}{(time.process_time() - begin) * 1e3:10,.0f} us")
    each, whole = memory(arguments)
    print(f"{'a further environment':28}{each:10,.0f} kB")
    print(f"{'the process':28}{whole:10,.0f} MB")
    times = matching(env.unwrapped.site.catalog)  # type: ignore[attr-defined]
    if times:
        print(f"{'comparing two attributes':28}{times[0]:10,.1f} us; thefuzz on difflib {times[1]:,.1f} us")


if __name__ == "__main__":
    main()
