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

from agent_envs.cli.env_arguments import EnvChoice, add_env_arguments, chosen_env
from agent_envs.errors import BackendError, ConfigError
from agent_envs.messages import observation_text
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.policies.policy import Policy
from agent_envs.registration import ENV_IDS

__all__ = ["Measured", "add_arguments", "format_table", "measure", "run"]

_EPILOG = """\
Each environment is measured in a process of its own, in one thread. Episodes are played one after the other for
--seconds; time counts within `step` and `reset` alone, not within the policy. The first reset also loads what all
environments of a process share (an index, a catalogue), which is "shared MB"; "kB/env" is what each of --envs more
adds, with an episode under way. Steps per second are 1 / mean: a slow tail counts. Other programs show in all figures.

examples:
  agentr1 bench --env all
  agentr1 bench --env AgentR1/ALFWorld-v0 --env-kwargs '{"size": 5}' --policy random --seconds 10
  agentr1 bench --env AgentR1/WebShop-v0 --data ~/webshop/data --json
"""

_MOST_STEPS = 1000  # of an episode: a limit where the environment has none


@dataclass(frozen=True, slots=True)
class Measured:
    """What an environment took."""

    env_id: str
    """The environment."""
    policy: str
    """Who played: "expert" or "random"."""
    steps: int
    """Steps that were timed."""
    steps_per_second: float
    """Steps by the seconds spent in ``step``."""
    step_p50_us: float
    """Median of a step (microseconds)."""
    step_p99_us: float
    """99th percentile of a step (microseconds)."""
    reset_ms: float
    """Median of a reset (milliseconds)."""
    first_reset_s: float
    """Making the first environment and its first reset (seconds)."""
    shared_mb: float
    """Memory that the first environment added to the process (MB)."""
    kb_per_env: float
    """Memory that each further one adds (kB)."""
    episodes: int
    """Episodes that were played to their end."""
    steps_per_episode: float
    """Mean of these."""
    success: float
    """Share of them that were solved."""
    observation_chars: float
    """Mean length of an observation after a step (characters)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 bench`."""
    parser.epilog = _EPILOG
    add_env_arguments(parser)
    add = parser.add_argument
    add(
        "--policy", choices=("expert", "random"), default="expert",
        help="who plays; random where there is no expert (default: %(default)s)",
    )  # fmt: skip
    add("--seconds", type=float, default=2.0, help="how long each is played (default: %(default)g)")
    add("--envs", type=int, default=32, help="environments more, to weigh one (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the first task; the next have the seeds after it (default: 0)")
    add("--json", action="store_true", help="one JSON array instead of a table")


def run(arguments: argparse.Namespace) -> str:
    """Measure; the table."""
    for name, value, least in (("--seconds", arguments.seconds, 0.0), ("--envs", arguments.envs, 1)):
        if not value >= least:
            raise ConfigError(f"{name} must be at least {least:g}, got {value:g}")
    if arguments.seed < 0:
        raise ConfigError(f"--seed must be at least 0, got {arguments.seed}")
    choice = chosen_env(arguments)
    ids = ENV_IDS if choice.env_id == "all" else (choice.env_id,)
    options = (arguments.policy, arguments.seconds, arguments.envs, arguments.seed)
    rows = []
    for env_id in ids:
        one = replace(choice, env_id=env_id)
        one.make().close()  # what cannot be made is said before a process is started
        rows.append(_apart(one, *options))
    if arguments.json:
        return json.dumps([asdict(row) for row in rows], indent=1)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    said = f"Python {platform.python_version()}, {os.cpu_count()} cores{load}; {arguments.seconds:g} s each; see --help"
    return f"{format_table(rows)}\n{said}"


def _apart(choice: EnvChoice, policy: str, seconds: float, envs: int, seed: int) -> Measured:
    """Measure in a process of its own: what others loaded does not count."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(measure, choice, policy, seconds=seconds, envs=envs, seed=seed).result()
        except BrokenProcessPool as e:
            raise BackendError(f"{choice.env_id}: the process that measured it died (out of memory?)") from e


def measure(choice: EnvChoice, policy: str, *, seconds: float, envs: int, seed: int = 0) -> Measured:
    """What an environment takes, in this process.

    Args:
        choice: The environment.
        policy: "expert" or "random"; random where there is no expert.
        seconds: How long it is played, at least one episode.
        envs: How many more are made to weigh one.
        seed: Seed of the first task.
    """
    empty = _memory()
    started = time.perf_counter()
    env = choice.make()
    env.reset(seed=seed)
    first_reset = time.perf_counter() - started
    player, name = _player(env, policy, seed)
    _play(env, player, seed)  # warms what is made when it is first needed
    loaded = _memory()
    played: list[_Episode] = []
    until = time.perf_counter() + seconds
    while not played or time.perf_counter() < until:
        played.append(_play(env, player, seed + 1 + len(played)))
    before = _memory()
    more = [choice.make() for _ in range(envs)]
    for number, other in enumerate(more):
        observation, info = other.reset(seed=seed + number)
        other.step(_text(player.start(other).act(observation, info)))
    weight = (_memory() - before) / envs
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
        kb_per_env=weight / 1e3,
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
    """The text of what these two policies answer at once."""
    return action if isinstance(action, str) else action.text


def _player(env: gym.Env[Any, str], policy: str, seed: int) -> tuple[Policy, str]:
    """The policy and its name; an expert that has nothing to say makes room for chance."""
    has_expert = policy == "expert" and env.has_wrapper_attr("expert_action")
    if has_expert and env.get_wrapper_attr("expert_action")() is not None:
        return ExpertPolicy(), "expert"
    return RandomPolicy(seed), "random"


def _memory() -> int:
    """Bytes of memory that this process holds; the most it has held where the system tells no more."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if platform.system() == "Darwin" else most * 1024


def format_table(rows: list[Measured]) -> str:
    """The table as text, a line for each environment."""
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
