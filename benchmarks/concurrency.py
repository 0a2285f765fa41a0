"""How much of the wall time of many concurrent episodes is ours.

Every episode calls a tool that blocks for 20 ms in each of its steps. The peer is a bare loop, one thread per episode,
over the same environment in the same run: ``make``, ``reset``, ``step`` until the end, nothing recorded. Two ways to
block: within the environment, and in a tool declared ``blocking``, which the environment runs in a thread with a time
limit. The last table gives one episode a step of 2 s: it may delay only itself.

    python benchmarks/concurrency.py [--episodes 256] [--steps 50] [--repeats 3]
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.policies import ScriptedPolicy
from agent_envs.rollout.many import run_episodes
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolRegistry, tool

BLOCK_SECONDS = 0.020
STRAGGLE_SECONDS = 2.0


@dataclass(frozen=True)
class WaitTask:
    task_id: str


class WaitTasks:
    """As many tasks as anybody needs."""

    name = "generated"
    split = "train"

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> WaitTask:
        return WaitTask(f"wait/{index}")


def _wait(seconds: float) -> str:
    """Block for a while.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "done"


class WaitEnv(ToolEnv):
    """Calls wait; any answer ends the episode.

    Args:
        blocking: Whether the tool is declared as blocking, and so runs in a thread of its own.
    """

    def __init__(self, blocking: bool = False, **kwargs: Any) -> None:
        super().__init__(tools=ToolRegistry([tool(_wait, name="wait", blocking=blocking)]), **kwargs)

    def open_tasks(self) -> WaitTasks:
        return WaitTasks()

    def begin(self, task: WaitTask) -> tuple[str, Any]:
        return "Wait.", None

    def answer(self, text: str) -> Outcome:
        return Outcome("", 1.0, True, success=True)


gym.register("Benchmark/Wait-v0", WaitEnv, max_episode_steps=1000)


def bare_loop(episodes: int, actions: Sequence[str], blocking: bool) -> None:
    """One thread per episode, and nothing else."""

    def play(seed: int) -> None:
        env = gym.make("Benchmark/Wait-v0", blocking=blocking)
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
        env.close()

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(episodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rollout(episodes: int, actions: Sequence[str], blocking: bool) -> None:
    """The same episodes, recorded."""
    played = run_episodes(
        "Benchmark/Wait-v0",
        ScriptedPolicy(actions),
        episodes,
        env_kwargs={"blocking": blocking},
        concurrency=episodes,
        step_timeout=30.0,
        episode_timeout=300.0,
        progress=False,
    )
    if not all(len(episode.steps) == len(actions) and episode.success for episode in played):
        raise SystemExit(f"an episode failed: {next(e for e in played if not e.success).error}")


def timed(function: Callable[..., None], *arguments: Any) -> tuple[float, float]:
    """Wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function(*arguments)
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(episodes: int, steps: int, repeats: int) -> None:
    """Print the wall times of both, alternating, with the ratio of the best."""
    actions = script(steps)
    ideal = (steps - 1) * BLOCK_SECONDS
    print(f"{episodes} episodes of {steps} steps, {1000 * BLOCK_SECONDS:.0f} ms a call, {repeats} repeats (best)")
    print(f"{'tool runs':<22}{'no overhead':>13}{'bare loop':>12}{'run_episodes':>14}{'ratio':>8}{'CPU bare/ours':>17}")
    for name, blocking in (("in the episode", False), ("in a thread (limited)", True)):
        pairs = []
        for repeat in range(repeats):
            functions = (bare_loop, rollout) if repeat % 2 == 0 else (rollout, bare_loop)
            times = {function: timed(function, episodes, actions, blocking) for function in functions}
            pairs.append((times[bare_loop], times[rollout]))
        bare, ours = (min(pair[i][0] for pair in pairs) for i in (0, 1))
        bare_cpu, our_cpu = (min(pair[i][1] for pair in pairs) for i in (0, 1))
        cpu = f"{bare_cpu:.2f} / {our_cpu:.2f} s"
        print(f"{name:<22}{ideal:>11.2f} s{bare:>10.2f} s{ours:>12.2f} s{ours / bare:>8.3f}{cpu:>17}")


def straggler(episodes: int, steps: int) -> None:
    """Print when the other episodes are done, and when the one that takes 2 s longer is."""
    ends: dict[int, float] = {}
    call = WaitEnv().format_call

    class Watch(gym.Wrapper[str, str, str, str]):
        def step(self, action: str) -> Any:
            result = self.env.step(action)
            if result[2]:
                ends[result[4]["index"]] = time.perf_counter() - start
            return result

    counts: dict[int, int] = {}

    def act(observation: str, info: dict[str, Any]) -> str:
        index = info["index"]
        counts[index] = counts.get(index, 0) + 1
        if counts[index] == steps:
            return "done"
        return call("wait", {"seconds": STRAGGLE_SECONDS if counts[index] == 1 and index == 0 else BLOCK_SECONDS})

    start = time.perf_counter()
    run_episodes(
        "Benchmark/Wait-v0",
        ScriptedPolicy(act),
        episodes,
        options=[{"index": i} for i in range(episodes)],
        wrappers=[Watch],
        concurrency=episodes // 4,
        progress=False,
    )
    others = sorted(end for index, end in ends.items() if index)
    print(f"\none step of {STRAGGLE_SECONDS:.0f} s in one of {episodes} episodes, {episodes // 4} at once")
    print(f"{'the others done':<22}{'no overhead':>13}{'straggler done':>17}{'no overhead':>13}")
    length = (steps - 1) * BLOCK_SECONDS
    fair = f"{others[-1]:>20.2f} s{4 * length:>11.2f} s"
    print(f"{fair}{ends[0]:>15.2f} s{STRAGGLE_SECONDS + length - BLOCK_SECONDS:>11.2f} s")


def script(steps: int) -> list[str]:
    """Calls in every step but the last, which answers."""
    call = WaitEnv().format_call("wait", {"seconds": BLOCK_SECONDS})
    return [call] * (steps - 1) + ["done"]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--steps", type=int, default=51, help="calls and one answer")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    compare(arguments.episodes, arguments.steps, arguments.repeats)
    straggler(arguments.episodes, arguments.steps)


if __name__ == "__main__":
    main()
