"""What paper search costs and how hard it is: steps against the bare backend, memory, the generator, expert and search.

A step of five parallel calls is compared in the same run with the same five calls made to the backend without an
environment. Step rates are per CPU second.

    python benchmarks/papersearch.py [--papers 100000] [--episodes 200] [--stream 1000000]
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import resource
import statistics
import tempfile
import time
import tracemalloc
from typing import Any

import gymnasium as gym

import agent_envs  # noqa: F401
from agent_envs.datasets.papersearch.corpus import generated_papers
from agent_envs.datasets.papersearch.generated.literature import WORDS, Literature, literature
from agent_envs.datasets.papersearch.generated.queries import GeneratedQueries
from agent_envs.envs.papersearch.expert import parse_query
from agent_envs.retrieval.papers.local import LocalPapers

ENV = "AgentR1/PaperSearch-v0"
CALLS = 5
TURNS = 4
Row = tuple[str, str, str]


def resident_megabytes() -> float:
    """Most memory the process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def generator(stream: int) -> list[Row]:
    times = []
    for papers in (2000, 2001, 2002):
        begin = time.process_time()
        LocalPapers.build(Literature("train", papers).rows())
        times.append(time.process_time() - begin)
    begin = time.process_time()
    for _ in Literature("train", stream).rows():
        pass
    streamed = time.process_time() - begin
    return [
        ("2,000 papers, written and indexed", f"{statistics.median(times):.2f} s", "below 1 s"),
        (f"{stream:,} papers, streamed", f"{streamed:.0f} s", f"{stream / streamed:,.0f} a second"),
    ]


def plan(papers: int, episodes: int, expand: bool) -> list[tuple[int, list[list[tuple[str, str]]]]]:
    """Episodes of four turns of five calls, which are the same with and without an environment."""
    env: Any = gym.make(ENV, papers=papers, split="validation").unwrapped
    planned = []
    for index in range(episodes):
        env.reset(options={"index": index})
        _, named = parse_query(env.task.query) or ("", {"a": env.task.query})
        name = named.get("a") or named["x"]
        turns = []
        for turn in range(TURNS):
            searches = CALLS if not expand else 2
            calls = [("search", f"{name} {WORDS['settings'][turn * CALLS + n]}") for n in range(searches)]
            known = [p.paper.id for p in env.state.ranked(expanded=False)]
            calls += [("expand", paper_id) for paper_id in known[: CALLS - searches]]
            env.step(text(env, calls))
            turns.append(calls)
        planned.append((index, turns))
    return planned


def text(env: Any, calls: list[tuple[str, str]]) -> str:
    keys = {"search": "query", "expand": "paper_id"}
    return "\n".join(env.format_call(tool, {keys[tool]: asked}) for tool, asked in calls)


def speed(papers: int, episodes: int) -> list[Row]:
    begin = time.perf_counter()
    backend = generated_papers(literature("validation", papers))
    built = time.perf_counter() - begin
    rows: list[Row] = [(f"{papers:,} papers, indexed on disk", f"{built:.1f} s", "")]
    for expand, what in ((False, "5 searches"), (True, "2 searches and 3 expansions")):
        planned = plan(papers, episodes, expand)
        rates: dict[str, list[float]] = {"step": [], "bare": []}
        for _ in range(3):
            env: Any = gym.make(ENV, papers=papers, split="validation").unwrapped
            backend._found.cache_clear()  # every search is made
            spent = 0.0
            for index, turns in planned:
                env.reset(options={"index": index})
                texts = [text(env, calls) for calls in turns]
                start = time.process_time()
                for written in texts:
                    env.step(written)
                spent += time.process_time() - start
            rates["step"].append(len(planned) * TURNS / spent)
            backend._found.cache_clear()
            start = time.process_time()
            for index, turns in planned:
                date = env.tasks[index].date
                for tool, asked in itertools.chain.from_iterable(turns):
                    if tool == "search":
                        backend.search(asked, 10, date)
                    else:
                        backend.expand(asked)
            rates["bare"].append(len(planned) * TURNS / (time.process_time() - start))
        step, bare = (statistics.median(rates[name]) for name in ("step", "bare"))
        rows.append((f"steps with {what}", f"{step:,.0f}/s", "at least 1,000/s per core at 100,000 papers"))
        rows.append(("  the same calls to the bare backend", f"{bare:,.0f}/s", f"a step takes {bare / step:.2f} times"))
    return [*rows, ("most memory resident so far", f"{resident_megabytes():.0f} MB", "")]


def memory(papers: int, count: int = 64) -> list[Row]:
    gym.make(ENV, papers=papers, split="validation").reset(seed=0)
    tracemalloc.start()
    envs: list[Any] = [gym.make(ENV, papers=papers, split="validation") for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
        for _ in range(3):
            env.step(env.unwrapped.expert_action())
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return [(f"memory per env, {count} envs in mid-episode", f"{used / count / 1e3:.0f} kB", "below 200 kB")]


def search_only(env: Any) -> str:
    """Searches for the names of the query, with and without settings, and for the other names that it reads about."""
    _, named = parse_query(env.task.query) or ("", {"a": env.task.query})
    names = [named[slot] for slot in ("a", "b", "x") if slot in named]
    abstracts = " ".join(pooled.paper.abstract for pooled in env.state.pool.values())
    names += re.findall(r"(?:speak of|known as|called|others call|communities:) ([a-z ]+?)[.,)]", abstracts)
    ends = ["", *([named["s"]] if "s" in named else []), "survey", *WORDS["settings"][env.state.turns * TURNS :]]
    queries = [f"{name} {end}".strip() for end in ends for name in dict.fromkeys(names)]
    fresh = [query for query in queries if query.lower() not in env.state.searched][:CALLS]
    return text(env, [("search", query) for query in fresh])


def recalls(papers: int, episodes: int, hidden: float, selector: str) -> Row:
    env: Any = gym.make(ENV, papers=papers, split="test", hidden=hidden, selector=selector)
    base, found = env.unwrapped, {"expert": 0.0, "search": 0.0}
    success = 0
    for index, who in itertools.product(range(episodes), found):
        env.reset(options={"index": index})
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(base.expert_action() if who == "expert" else search_only(base))
            over = terminated or truncated
        found[who] += info["metrics"]["recall"] / episodes
        success += info["success"]
    return (
        f"recall, {papers:,} papers, hidden={hidden}, {selector}",
        f"{found['expert']:.3f}",
        f"expert; {found['search']:.3f} with searches alone; expert wins {success / episodes:.1%} of {episodes}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--papers", type=int, default=100_000)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--stream", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AGENT_ENVS_DATA"] = folder
        GeneratedQueries("test")
        rows = generator(arguments.stream) + speed(arguments.papers, arguments.episodes) + memory(arguments.papers)
        rows += [recalls(2000, 500, hidden, "gold") for hidden in (0.0, 0.2, 0.4, 0.6)]
        rows += [recalls(20_000, arguments.episodes, 0.4, "gold"), recalls(2000, arguments.episodes, 0.4, "lexical")]
    width = max(len(row[0]) for row in rows)
    for name, value, note in rows:
        print(f"{name:<{width}}  {value:>12}  {note}")


if __name__ == "__main__":
    main()
