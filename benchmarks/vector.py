"""Our vector environment beside Gymnasium's Sync and Async, in one run.

The same environments and actions behind three interfaces: steps per second of environments that only compute, of ones
that wait (5 ms in every step, as for a server), and until the first step can be made. The last table has one slow
environment among others: lock-step waits for it in every step, `send` and `recv` do not.

    python benchmarks/vector.py [--envs 8] [--seconds 2]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

import agent_envs  # noqa: F401  registers the environments
from agent_envs.vector.env import TextVectorEnv
from agent_envs.vector.make import make_vec

WAIT_SECONDS = 0.005
SLOW_SECONDS = 0.1
CHUNK_SECONDS = 0.1
KINDS = ("ours", "sync", "async")

CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "12*7"}}</tool_call>'
SEARCH = '<tool_call>{"name": "search", "arguments": {"query": "the capital of the region"}}</tool_call>'
CASES = {
    "AgentR1/GSM8KTool-v0": CALL,
    "AgentR1/ALFWorld-v0": "inventory",
    "AgentR1/WebShop-v0": "search[red lamp]",
    "AgentR1/HotpotQA-v0": SEARCH,
}
"""Environments, and an action that ends no episode."""


class Wait(gym.Wrapper[Any, Any, Any, Any]):
    """Waits in every step, as for a server; the environment whose index is 0 may wait longer.

    Args:
        env: The environment.
        seconds: How long.
        first: How long the one waits that was reset to index 0.
    """

    def __init__(self, env: gym.Env[Any, Any], seconds: float = WAIT_SECONDS, first: float | None = None) -> None:
        super().__init__(env)
        self.seconds, self.first = seconds, first
        self._wait = seconds

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and see how long to wait."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._wait = self.first if self.first is not None and info["index"] == 0 else self.seconds
        return observation, info

    def step(self, action: str) -> Any:
        """Wait, and step."""
        time.sleep(self._wait)
        return self.env.step(action)


def _made(kind: str, env_id: str, n: int, wrappers: tuple[Callable[..., Any], ...]) -> Any:
    if kind == "ours":
        return make_vec(env_id, n, wrappers=wrappers, max_episode_steps=10**9)
    return gym.make_vec(env_id, n, vectorization_mode=kind, wrappers=wrappers, max_episode_steps=10**9)


def rates(
    env_id: str, n: int, seconds: float, wrappers: tuple[Callable[..., Any], ...]
) -> dict[str, tuple[float, ...]]:
    """For each kind: environment steps per second, best and median of tenths of a second, and the seconds until the
    first reset is done. The kinds take turns, so that other programs slow all of them down alike, and each turn begins
    new episodes: some steps take the longer the more there were before."""
    made: dict[str, Any] = {}
    ready: dict[str, float] = {}
    chunks: dict[str, list[float]] = {}
    gym.make(env_id).reset(seed=0)  # what all environments of a process share is loaded here
    for kind in KINDS:
        started = time.perf_counter()
        made[kind] = _made(kind, env_id, n, wrappers)
        made[kind].reset(seed=0)
        ready[kind] = time.perf_counter() - started
        chunks[kind] = []
    actions = (CASES[env_id],) * n
    until = time.perf_counter() + seconds * len(KINDS)
    while time.perf_counter() < until:
        for kind, envs in made.items():
            envs.reset(seed=0)
            steps, started = 0, time.perf_counter()
            while time.perf_counter() - started < CHUNK_SECONDS:
                envs.step(actions)
                steps += n
            chunks[kind].append(steps / (time.perf_counter() - started))
    for envs in made.values():
        envs.close()
    return {kind: (max(chunks[kind]), statistics.median(chunks[kind]), ready[kind]) for kind in KINDS}


def straggler(n: int, seconds: float) -> tuple[float, float]:
    """Steps per second of all environments together, in lock-step and each at its own pace."""
    options = {"env_options": [{"index": i} for i in range(n)]}
    rates = []
    for lock_step in (True, False):
        envs = make_vec("AgentR1/GSM8KTool-v0", n, wrappers=[_one_slow], max_episode_steps=10**9)
        envs.reset(options=options)
        started = time.perf_counter()
        steps = _lock_step(envs, n, seconds) if lock_step else _own_pace(envs, n, seconds)
        rates.append(steps / (time.perf_counter() - started))
        envs.close()
    return rates[0], rates[1]


def _one_slow(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return Wait(env, first=SLOW_SECONDS)


def _lock_step(envs: TextVectorEnv, n: int, seconds: float) -> int:
    steps, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        envs.step([CALL] * n)
        steps += n
    return steps


def _own_pace(envs: TextVectorEnv, n: int, seconds: float) -> int:
    steps, until = 0, time.perf_counter() + seconds
    envs.send([CALL] * n)
    while time.perf_counter() < until:
        ready = envs.recv().env_ids
        steps += len(ready)
        envs.send(dict.fromkeys(ready.tolist(), CALL))
    return steps


def _row(name: str, measured: dict[str, tuple[float, ...]]) -> str:
    """Best and median of each kind, and the ratios to the better of the two others."""
    cells = "".join(f"{measured[kind][0]:>10.0f} ({measured[kind][1]:>6.0f})" for kind in KINDS)
    best, median = (measured["ours"][k] / max(measured["sync"][k], measured["async"][k]) for k in (0, 1))
    ready = "".join(f"{measured[kind][2]:>7.2f}" for kind in KINDS)
    return f"{name:<30}{cells}{best:>7.2f} ({median:.2f}){ready}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each kind")
    arguments = parser.parse_args()
    n, seconds = arguments.envs, arguments.seconds
    print(f"{n} environments; steps/s of all together, best (median); ratio to the better of the others; s until ready")
    print(f"{'':<30}{'ours':>19}{'Sync':>19}{'Async':>19}{'ratio':>14}{'ours':>7}{'Sync':>7}{'Async':>7}")
    for env_id in CASES:
        for wrappers in ((), (Wait,)):
            measured = rates(env_id, n, seconds, wrappers)
            print(_row(env_id.removeprefix("AgentR1/") + (", waiting" if wrappers else ""), measured), flush=True)
    together, apart = straggler(n, seconds)
    print(f"\none environment waits {SLOW_SECONDS:g} s in each step, {n - 1} wait {WAIT_SECONDS:g} s: steps/s")
    print(f"step (lock-step) {together:.0f}, send and recv {apart:.0f}")


if __name__ == "__main__":
    main()
