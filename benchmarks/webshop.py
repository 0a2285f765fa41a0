"""What WebShop costs: opening, stepping, searching, memory. Run: python benchmarks/webshop.py [--full FOLDER]

Steps are the actions of recorded episodes (`--traces`, by default ../shared/data/webshop_synthetic), or, without them,
those of the expert and of a random clicker in turns. The peer, stepped in the same run, is the plain way to write the
same environment, which is also the original's: pages are made as HTML and read back with a parser, search scores
documents with dictionaries, and every ratio of the reward is worked out by difflib.

`--full FOLDER` adds a generated catalogue of 1.18 million products, which is built in that folder the first time (some
minutes, 2 GB). Times are CPU seconds unless they are said to be of a fresh process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter, defaultdict
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import agent_envs  # noqa: F401  (registers the ids)
from agent_envs.datasets.webshop.catalog import convert, open_catalog
from agent_envs.datasets.webshop.generated.shop import GeneratedShop
from agent_envs.datasets.webshop.products import Goal, Product, search_text
from agent_envs.envs.webshop.fuzzy import alike
from agent_envs.envs.webshop.reward import basic_color
from agent_envs.envs.webshop.site import Site, Visit, parse_action
from agent_envs.retrieval.analysis.analyzer import analyze

ENV_ID = "AgentR1/WebShop-v0"
FULL = 1_180_000

_FRESH = """
import resource, sys, time
import gymnasium as gym, agent_envs
begin = time.perf_counter()
env = gym.make({env_id!r}, data={data!r}, products={products!r})
observation, info = env.reset(seed=0)
opened = time.perf_counter() - begin
for seed in range({episodes}):
    env.reset(seed=seed)
    while True:
        *_, terminated, truncated, info = env.step(env.unwrapped.expert_action())
        if terminated or truncated:
            break
print(opened, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


class _Reader(HTMLParser):
    """Collects the texts of a page and what can be clicked."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.clickables: list[str] = []
        self._button = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._button = tag == "button"

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())
            if self._button:
                self.clickables.append(data.strip().lower())


class PlainShop:
    """The peer: the same pages and reward, written plainly; which page follows which is the environment's own `Site`.

    Args:
        products: The catalogue.
        goals: What to buy.
        prices: What products cost.
    """

    def __init__(self, products: list[Product], goals: list[Goal], prices: dict[str, float]) -> None:
        self.products = {product.asin: product for product in products}
        self.goals, self.prices = goals, prices
        self.site = Site(self, self._buy)  # type: ignore[arg-type]
        self.postings: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.lengths = {}
        for product in products:
            counts = Counter(analyze(search_text(product)))
            self.lengths[product.asin] = sum(counts.values())
            for term, count in counts.items():
                self.postings[term].append((product.asin, count))
        self.average = sum(self.lengths.values()) / len(products)

    def search(self, query: str, k: int) -> list[str]:
        """The best products, by BM25."""
        scores: dict[str, float] = defaultdict(float)
        for term in analyze(query):
            found = self.postings.get(term, ())
            idf = math.log(1 + (len(self.products) - len(found) + 0.5) / (len(found) + 0.5))
            for asin, count in found:
                norm = 0.9 * (0.6 + 0.4 * self.lengths[asin] / self.average)
                scores[asin] += idf * count / (count + norm)
        return sorted(scores, key=lambda asin: (-scores[asin], asin))[:k]

    def reset(self, number: int) -> str:
        """Begin a goal."""
        self.goal = self.goals[number]
        self.session = self.site.start(str(number), self.goal.instruction)
        return self._show()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Carry out an action."""
        name, argument = parse_action(action)
        if name == "search" and argument:
            self.session.query, self.session.found = argument, self.search(argument, 50)
            self.site._results(self.session, 1)
        elif name == "click" and argument in self.reader.clickables:
            self.session.reward = 0.0
            if self.site.click(self.session, argument, self.site.page(self.session)):
                return self._show(), self.session.reward, True
        return self._show(), 0.0, False

    def product(self, asin: str) -> Product | None:
        """The product with this id."""
        return self.products.get(asin)

    def _show(self) -> str:
        page = self.site.page(self.session)
        tags = {"button": "button", "option": "button", "product": "button", "text": "div"}
        body = "".join(f"<{tags[kind]}>{escape(text)}</{tags[kind]}>" for kind, text in page.texts)
        self.reader = _Reader()
        self.reader.feed(f"<html><head></head><body><div>{body}</div></body></html>")
        return " [SEP] ".join(self.reader.texts)

    def _buy(self, session: Visit, product: Product) -> tuple[float, dict[str, Any]]:
        goal = self.goal
        attributes = sum(
            any(alike(has, wanted) for has in product.attributes)
            or wanted in f"{product.title} {' '.join(product.bullets)} {product.description}".lower()
            for wanted in goal.attributes
        )
        options = [basic_color(value) for value in session.options.values()]
        wanted = goal.options.values() if isinstance(goal.options, dict) else goal.options
        chosen = sum(any(alike(has, basic_color(value)) for has in options) for value in wanted)
        cheap = self.prices[product.asin] <= goal.price_upper
        return (attributes + chosen + cheap) / (len(goal.attributes) + len(goal.options) + 1), {}


def read_traces(folder: Path) -> list[tuple[int, list[str]]]:
    """Goals and actions of the recorded episodes."""
    episodes: list[tuple[int, list[str]]] = []
    for path in sorted(folder.glob("trace_human_text.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            step = json.loads(line)
            if step["t"] == 0:
                episodes.append((step["goal"], []))
            else:
                episodes[-1][1].append(step["action"])
    return episodes


def played(env: gym.Env[str, str], count: int) -> list[tuple[int, list[str]]]:
    """Episodes of the expert and of a random clicker in turns."""
    shop: Any = env.unwrapped
    rng = np.random.default_rng(0)
    episodes = []
    for number in range(count):
        env.reset(options={"goal": number})
        actions: list[str] = []
        while len(actions) < 15:
            clickables = list(shop.page.clickables)
            random = f"click[{clickables[rng.integers(len(clickables))]}]" if not shop.page.search_bar else None
            actions.append(random if number % 2 and random else shop.expert_action())
            if env.step(actions[-1])[2]:
                break
        episodes.append((number, actions))
    return episodes


def step_all(shop: Any, episodes: list[tuple[int, list[str]]], seconds: float) -> float:
    """Actions per CPU second over the episodes, resets included, again and again until the time is over."""
    steps, begin = 0, time.process_time()
    while time.process_time() - begin < seconds:
        for number, actions in episodes:
            shop.reset(options={"goal": number}) if isinstance(shop, gym.Env) else shop.reset(number)
            for action in actions:
                shop.step(action)
            steps += len(actions)
    return steps / (time.process_time() - begin)


def fresh(data: str, products: int | None, episodes: int) -> tuple[float, float]:
    """Seconds to open a catalogue in a fresh process, and that process's largest memory in MB after some episodes."""
    code = _FRESH.format(env_id=ENV_ID, data=data, products=products, episodes=episodes)
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return float(output[0]), float(output[1])


def search_times(catalog: Any, queries: list[str]) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds, none of the queries seen before."""
    catalog.search("warm up of the engine", 50)
    times = []
    for query in queries:
        begin = time.process_time()
        catalog.search(query, 50)
        times.append((time.process_time() - begin) * 1e3)
    return statistics.median(times), float(np.percentile(times, 99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=Path(__file__).parents[2] / "shared/data/webshop_synthetic")
    parser.add_argument("--full", type=Path, metavar="FOLDER", help="also 1.18 million products, kept in this folder")
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    rows: list[tuple[str, str, str]] = []

    with tempfile.TemporaryDirectory() as cache:
        os.environ["AGENT_ENVS_DATA"] = cache
        built, _ = fresh("generated", None, 0)
        opened, memory = fresh("generated", None, 50)
        rows.append(("1,000 generated products, converted and opened", f"{built:.2f} s", "original 1.75 s"))
        rows.append(("the same, opened again", f"{opened:.3f} s", "below 1 s"))
        rows.append(("whole process after 50 episodes", f"{memory:.0f} MB", "below 300 MB; original 478 MB"))
        kwargs: dict[str, Any] = {"split": "all"}
        if arguments.traces.is_dir():
            goals, prices = arguments.traces / "goals_human_seed0.jsonl", arguments.traces / "prices_seed0.json"
            kwargs |= {"data": str(arguments.traces), "goals": str(goals), "prices": str(prices), "tagger": "rule"}
        env = gym.make(ENV_ID, max_episode_steps=10_000, **kwargs)
        env.reset()
        shop: Any = env.unwrapped
        episodes = read_traces(arguments.traces) if arguments.traces.is_dir() else played(env, 200)
        catalog = shop.site.catalog
        products = list(catalog.products())
        all_goals = list(shop.tasks.goals)
        peer = PlainShop(products, all_goals, {product.asin: catalog.price(product.asin) for product in products})
        speeds: dict[str, list[float]] = defaultdict(list)
        for _ in range(3):
            speeds["gym.make"].append(step_all(env, episodes, arguments.seconds))
            speeds["unwrapped"].append(step_all(shop, episodes, arguments.seconds))
            speeds["peer"].append(step_all(peer, episodes, arguments.seconds))
        best = {name: statistics.median(values) for name, values in speeds.items()}
        mix = Counter(action.partition("[")[0] for _, actions in episodes for action in actions)
        said = ", ".join(f"{count} {name}" for name, count in mix.most_common(2))
        rows.append((f"steps ({said}), gym.make", f"{best['gym.make']:,.0f} /s", "at least 3,000; original 110"))
        rows.append(("the same, without wrappers", f"{best['unwrapped']:,.0f} /s", ""))
        ratio = f"ours is {best['gym.make'] / best['peer']:.1f} times as fast"
        rows.append(("the same, the peer", f"{best['peer']:,.0f} /s", ratio))
        begin = time.process_time()
        for number in range(1_000):
            env.reset(options={"goal": number % len(all_goals)})
        rows.append(("reset", f"{(time.process_time() - begin):.3f} ms", "original 2 ms"))
        median, slow = search_times(catalog, [goal.instruction for goal in all_goals[:400]])
        rows.append(
            ("search, 1,000 products", f"{median:.2f} ms", f"{slow:.2f} ms at the 99th percentile; original 12")
        )
        begin = time.process_time()
        for goal in all_goals[:400]:
            peer.search(goal.instruction, 50)
        rows.append(("the same, the peer", f"{(time.process_time() - begin) / 400 * 1e3:.2f} ms", ""))
        tracemalloc.start()
        envs = [gym.make(ENV_ID, **kwargs) for _ in range(100)]
        for number, one in enumerate(envs):
            one.reset(options={"goal": number})
            one.step(f"search[{all_goals[number].instruction}]")
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        rows.append(("memory per further environment", f"{used / 100 / 1e3:.1f} kB", "below 100 kB"))
    if arguments.full:
        rows += full_rows(arguments.full)
    width = max(len(row[0]) for row in rows)
    for name, value, target in rows:
        print(f"{name:<{width}}  {value:>12}  {target}")


def full_rows(folder: Path) -> list[tuple[str, str, str]]:
    """The figures of a full-size catalogue."""
    rows = []
    if not folder.exists():
        begin = time.perf_counter()
        convert(GeneratedShop(FULL), folder)
        rows.append((f"{FULL:,} products, converted", f"{time.perf_counter() - begin:.0f} s", ""))
    fresh(str(folder), None, 0)  # the system has its files at hand, as after building them
    opened, memory = fresh(str(folder), None, 50)
    rows.append((f"{FULL:,} products, opened in a fresh process", f"{opened:.3f} s", "below 1 s"))
    rows.append(
        ("whole process after 50 episodes", f"{memory:.0f} MB", "below 2,000 MB resident, files' pages included")
    )
    catalog = open_catalog(folder)
    goals = catalog.goals(True)
    for engine in ("auto", "numpy"):
        if engine == "numpy":
            catalog._index._engine, catalog._index._compiled = engine, None
            catalog._cached_search.cache_clear()
        median, slow = search_times(catalog, [goals[number].instruction for number in range(300)])
        name = "search with numba, if installed" if engine == "auto" else "search with numpy"
        rows.append(
            (f"{name}, {FULL:,} products", f"{median:.1f} ms", f"{slow:.1f} ms at the 99th percentile; below 20")
        )
    return rows


if __name__ == "__main__":
    main()
