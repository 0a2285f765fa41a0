"""What it costs to run a short function in a thread, by each way in `agent_envs.threads`.

    python benchmarks/threads.py [--microseconds 20] [--together 64] [--calls 40000]

Each row makes the same calls, many at a time as a server (64 clients) or a vector environment (8) does, and shows the
microseconds per call; the ways take turns, and the fastest of several rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from agent_envs.threads import run_in_thread, run_side_by_side


def spin(seconds: float) -> None:
    """Compute for a while, as an environment's step does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def ways(call: Callable[[], None], together: int) -> dict[str, Callable[[int], None]]:
    """Return functions that make rounds of `together` calls."""
    pool = ThreadPoolExecutor(together)

    def in_a_loop(rounds: int) -> None:
        for _ in range(rounds * together):
            call()

    def one_executor(rounds: int) -> None:
        for _ in range(rounds):
            for future in [pool.submit(call) for _ in range(together)]:
                future.result()

    def threads(rounds: int) -> None:
        for _ in range(rounds):
            for future in [run_in_thread(call) for _ in range(together)]:
                future.result()

    def side_by_side(rounds: int) -> None:
        for _ in range(rounds):
            run_side_by_side(dict.fromkeys(range(together), call))

    def threads_for_a_loop(rounds: int) -> None:
        async def client() -> None:
            for _ in range(rounds):
                await asyncio.wrap_future(run_in_thread(call))

        async def clients() -> None:
            await asyncio.gather(*(client() for _ in range(together)))

        asyncio.run(clients())

    return {
        "a plain loop": in_a_loop,
        "ThreadPoolExecutor": one_executor,
        "run_in_thread": threads,
        "run_side_by_side": side_by_side,
        "for an event loop: run_in_thread": threads_for_a_loop,
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--microseconds", type=float, default=20.0, help="how long one call computes")
    parser.add_argument("--together", type=int, default=64, help="calls at a time")
    parser.add_argument("--calls", type=int, default=40_000, help="calls of each way")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    rounds = max(1, options.calls // options.repeats // options.together)
    best: dict[str, float] = {}
    all_ways = ways(lambda: spin(options.microseconds / 1e6), options.together)
    for _ in range(options.repeats):
        for name, run in all_ways.items():
            begin = time.perf_counter()
            run(rounds)
            seconds = (time.perf_counter() - begin) / rounds / options.together
            best[name] = min(seconds, best.get(name, seconds))
    for name, seconds in best.items():
        print(f"{name:34}{1e6 * seconds:8.1f} us per call")


if __name__ == "__main__":
    main()
