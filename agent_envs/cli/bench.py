"""`agentr1 bench`: how fast environments are, and how much memory they take, on this machine."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_envs.checks import integer, number
from agent_envs.cli.arguments import EnvChoice, add_env_arguments, chosen_env
from agent_envs.errors import BackendError
from agent_envs.messages import observation_text
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.policies.policy import Policy
from agent_envs.registration import ENV_IDS

__all__ = ["Measured", "add_arguments", "format_table", "measure", "run"]

_EPILOG = """\
Each environment is measured in a process of its own, in one thread. Episodes are played one after the other for
--seconds; time counts within `step` and `reset` alone, not within the policy. The first reset also loads what all
environments of a process share (an index, a catalogue), which is "shared MB"; "kB/env" is what each of --envs further
ones adds, with an episode under way. Steps per second are 1 / mean: a slow tail counts. Other programs
affect all figures.

examples:
  agentr1 bench --env all
  agentr1 bench --env AgentR1/ALFWorld-v0 --env-kwargs '{"size": 5}' --policy random --seconds 10
  agentr1 bench --env AgentR1/WebShop-v0 --data ~/webshop/data --json
"""

_MOST_STEPS = 1000  # of an episode in an environment without a step limit


@dataclass(frozen=True, slots=True)
class Measured:
    """What an environment took; the names of times and sizes end in their units."""

    env_id: str
    policy: str
    """Who played: "expert" or "random"."""
    steps: int
    steps_per_second: float
    """Steps per second spent in ``step``."""
    step_p50_us: float
    step_p99_us: float
    reset_ms: float
    """Median of a reset."""
    first_reset_s: float
    """Making the first environment and its first reset."""
    shared_mb: float
    """Memory that the first environment added to the process."""
    kb_per_env: float
    """Memory that each further one adds."""
    episodes: int
    steps_per_episode: float
    success: float
    """Share of episodes that were solved."""
    observation_chars: float
    """Mean length of an observation after a step."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_env_arguments(parser)
    add = parser.add_argument
    add(
        "--policy", choices=("expert", "random"), default="expert",
        help="who plays; random where there is no expert (default: %(default)s)",
    )  # fmt: skip
    add("--seconds", type=float, default=2.0, help="how long to play each (default: %(default)g)")
    add("--envs", type=int, default=32, help="further environments, to measure their memory (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the first task; later tasks count up from it (default: 0)")
    add("--json", action="store_true", help="one JSON array instead of a table")


def run(arguments: argparse.Namespace) -> str:
    """Measure each environment and return the table."""
    number("--seconds", arguments.seconds, minimum=0)
    integer("--envs", arguments.envs, minimum=1)
    integer("--seed", arguments.seed, minimum=0)
    choice = chosen_env(arguments)
    ids = ENV_IDS if choice.env_id == "all" else (choice.env_id,)
    options = (arguments.policy, arguments.seconds, arguments.envs, arguments.seed)
    rows = []
    for env_id in ids:
        one = replace(choice, env_id=env_id)
        one.make().close()  # report wrong arguments before a process is started
        rows.append(_apart(one, *options))
    if arguments.json:
        return json.dumps([asdict(row) for row in rows], indent=1)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores{load}"
    return f"{format_table(rows)}\n{machine}; {arguments.seconds:g} s each; see --help"


def _apart(choice: EnvChoice, policy: str, seconds: float, envs: int, seed: int) -> Measured:
    """Measure in a process of its own, so that what others loaded does not count."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(measure, choice, policy, seconds=seconds, envs=envs, seed=seed).result()
        except BrokenProcessPool as e:
            raise BackendError(f"{choice.env_id}: the process that measured it died (out of memory?)") from e


def measure(choice: EnvChoice, policy: str, *, seconds: float, envs: int, seed: int = 0) -> Measured:
    """Measure an environment in this process.

    Args:
        choice: The environment.
        policy: "expert" or "random"; random where there is no expert.
        seconds: How long to play; at least one episode is played.
        envs: Number of further environments made to measure the memory of one.
        seed: Seed of the first task.
    """
    empty = _memory()
    started = time.perf_counter()
    env = choice.make()
    env.reset(seed=seed)
    first_reset = time.perf_counter() - started
    player, name = _player(env, policy, seed)
    _play(env, player, seed)  # warms up what is made on first use
    loaded = _memory()
    played: list[_Episode] = []
    until = time.perf_counter() + seconds
    while not played or time.perf_counter() < until:
        played.append(_play(env, player, seed + 1 + len(played)))
    before = _memory()
    more = [choice.make() for _ in range(envs)]
    for offset, other in enumerate(more):
        observation, info = other.reset(seed=seed + offset)
        other.step(_text(player.start(other).act(observation, info)))
    per_env = (_memory() - before) / envs
    for other in (env, *more):
        other.close()
    steps = sorted(s for episode in played for s in episode.steps)
    chars = [c for episode in played for c in episode.chars]
    return Measured(
        env_id=choice.env_id,
        policy=name,
        steps=len(steps),
        steps_per_second=len(steps) / sum(steps),
        step_p50_us=1e6 * statistics.median(steps),
        step_p99_us=1e6 * steps[min(len(steps) - 1, int(0.99 * len(steps)))],
        reset_ms=1e3 * statistics.median(episode.reset for episode in played),
        first_reset_s=first_reset,
        shared_mb=(loaded - empty) / 1e6,
        kb_per_env=per_env / 1e3,
        episodes=len(played),
        steps_per_episode=len(steps) / len(played),
        success=sum(episode.success for episode in played) / len(played),
        observation_chars=sum(chars) / len(chars),
    )


@dataclass(frozen=True, slots=True)
class _Episode:
    reset: float
    steps: list[float]
    chars: list[int]
    success: bool


def _play(env: gym.Env[Any, str], player: Policy, seed: int) -> _Episode:
    started = time.perf_counter()
    observation, info = env.reset(seed=seed)
    reset = time.perf_counter() - started
    actor = player.start(env)
    steps: list[float] = []
    chars: list[int] = []
    while len(steps) < _MOST_STEPS:
        action = _text(actor.act(observation, info))
        started = time.perf_counter()
        observation, _, terminated, truncated, info = env.step(action)
        steps.append(time.perf_counter() - started)
        chars.append(len(observation_text(observation)))
        if terminated or truncated:
            break
    return _Episode(reset, steps, chars, bool(info.get("success", False)))


def _text(action: Any) -> str:
    return action if isinstance(action, str) else action.text


def _player(env: gym.Env[Any, str], policy: str, seed: int) -> tuple[Policy, str]:
    """Return the policy and its name; random actions replace an expert that has no action."""
    has_expert = policy == "expert" and env.has_wrapper_attr("expert_action")
    if has_expert and env.get_wrapper_attr("expert_action")() is not None:
        return ExpertPolicy(), "expert"
    return RandomPolicy(seed), "random"


def _memory() -> int:
    """Return the bytes of memory that this process holds, or its peak if the system reports only that."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if platform.system() == "Darwin" else most * 1024


def format_table(rows: list[Measured]) -> str:
    width = max(len(row.env_id) for row in rows)
    head = (
        f"{'environment':<{width}}  policy   steps/s  p50 us   p99 us  reset ms  first s  shared MB  kB/env"
        "  steps/ep  success  chars"
    )
    lines = [
        f"{row.env_id:<{width}}  {row.policy:<6}  {row.steps_per_second:>8.0f}  {row.step_p50_us:>6.0f}"
        f"  {row.step_p99_us:>7.0f}  {row.reset_ms:>8.3f}  {row.first_reset_s:>7.2f}  {row.shared_mb:>9.1f}"
        f"  {row.kb_per_env:>6.0f}  {row.steps_per_episode:>8.1f}  {row.success:>7.0%}  {row.observation_chars:>5.0f}"
        for row in rows
    ]
    return "\n".join([head, *lines])
