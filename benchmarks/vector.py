"""Our vector environment beside Gymnasium's Sync and Async, in one run.

The same environments and actions behind three interfaces: steps per second of environments that only compute, of ones
that wait (5 ms in every step, as for a server), and until the first step can be made. The last table has one slow
environment among others: lock-step waits for it in every step, `send` and `recv` do not.

    python benchmarks/vector.py [--envs 8] [--seconds 1.5] [--repeats 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

import agent_envs  # noqa: F401  registers the environments
from agent_envs.text_vector_env import TextVectorEnv
from agent_envs.vector import make_vec

WAIT_SECONDS = 0.005
SLOW_SECONDS = 0.1

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


def rate(kind: str, env_id: str, n: int, seconds: float, wrappers: tuple[Callable[..., Any], ...] = ()) -> list[float]:
    """Environment steps per second, and the seconds until the first reset is done."""
    started = time.perf_counter()
    envs = _made(kind, env_id, n, wrappers)
    envs.reset(seed=0)
    ready = time.perf_counter() - started
    actions = (CASES[env_id],) * n
    for _ in range(3):
        envs.step(actions)
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        envs.step(actions)
        steps += n
    took = time.perf_counter() - started
    envs.close()
    return [steps / took, ready]


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


def _row(name: str, measured: dict[str, list[list[float]]]) -> str:
    """The best of the repeats, and the ratio to the better of the two others."""
    best = {kind: max(rates[0] for rates in runs) for kind, runs in measured.items()}
    ready = {kind: min(rates[1] for rates in runs) for kind, runs in measured.items()}
    ratio = best["ours"] / max(best["sync"], best["async"])
    cells = "".join(f"{best[kind]:>12.0f}" for kind in ("ours", "sync", "async"))
    return f"{name:<32}{cells}{ratio:>8.2f}{ready['ours']:>12.2f}{ready['sync']:>8.2f}{ready['async']:>8.2f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    n, seconds = arguments.envs, arguments.seconds
    print(f"{n} environments; steps/s of all together, best of {arguments.repeats}; ratio: to the better of the others")
    print(f"{'':<32}{'ours':>12}{'Sync':>12}{'Async':>12}{'ratio':>8}{'ready, s':>12}{'Sync':>8}{'Async':>8}")
    for env_id in CASES:
        for wrappers in ((), (Wait,)):
            measured: dict[str, list[list[float]]] = {"ours": [], "sync": [], "async": []}
            for _ in range(arguments.repeats):
                for kind, runs in measured.items():
                    runs.append(rate(kind, env_id, n, seconds, wrappers))
            print(_row(env_id + (", waiting" if wrappers else ""), measured), flush=True)
    together, apart = straggler(n, seconds)
    print(f"\none environment waits {SLOW_SECONDS:g} s in each step, {n - 1} wait {WAIT_SECONDS:g} s: steps/s")
    print(f"step (lock-step) {together:.0f}, send and recv {apart:.0f}")


if __name__ == "__main__":
    main()
