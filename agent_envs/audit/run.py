"""The audit: attacks the reward of an environment with everything that is in this folder."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from agent_envs.audit import conduct, leaks, policies
from agent_envs.audit.elsewhere import hash_seeds
from agent_envs.audit.findings import Attempt, Certificate, Finding
from agent_envs.audit.guard import Guard, Stuck
from agent_envs.audit.play import Act, Arena
from agent_envs.audit.splits import shared_tasks
from agent_envs.audit.study import Study, expert_act, study
from agent_envs.checks import number
from agent_envs.errors import ConfigError
from agent_envs.registration import versions
from agent_envs.rollout.panel import named
from agent_envs.spaces import UnicodeText

_TASKS = 100
_EACH = 3  # findings of a kind
_Check = Callable[[Arena, Study], Iterator[Finding]]
_CHECKS: Mapping[str, _Check] = {
    "repeat": conduct.repeats,
    "length": conduct.lengths,
    "leak": leaks.leaks,
    "tool": leaks.tools,
    "option": leaks.options,
    "after_end": conduct.after_end,
    "snapshot": conduct.snapshots,
    "carried": conduct.resets,
    "order": conduct.orders,
}


def audit(
    env: str | EnvSpec | Callable[..., gym.Env[Any, Any]],
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    tasks: int = _TASKS,
    chance: float = 0.0,
    expert: Act = expert_act,
    step_timeout: float = 120.0,
    processes: bool = True,
    progress: bool = False,
) -> Certificate:
    """Attack the reward of an environment, and return a certificate of what was tried and found.

    Args:
        env: An id, or a function that makes the environment: any `gymnasium.Env` over text, or with few discrete
            actions. It need not keep this package's contract; what it lacks is not tested.
        env_kwargs: Its keyword arguments.
        tasks: Number of tasks to play, drawn from the split; seeds 0, 1, ... where tasks have no index.
        chance: Share of the tasks that a guess may solve, since that is their nature: 0.25 for a choice among four.
        expert: Returns the next action that wins, for environments without `expert_action()`.
        step_timeout: Seconds that a reset or a step may take. One that takes longer is a finding, with which the audit
            ends. It is interrupted in the main thread of a POSIX system; elsewhere the audit waits.
        processes: Whether episodes are compared with those of two processes with other seeds of hashes, which takes as
            long as it takes to start them and to make the environment there.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ConfigError: The environment cannot be made, or its actions are neither text nor discrete.

    >>> certificate = audit("AgentR1/GSM8K-v0", tasks=10)
    >>> certificate.passed, certificate.expert
    (True, 1.0)
    """
    kwargs = dict(env_kwargs or {})
    known = Study(chance=number("chance", chance, minimum=0, maximum=1))
    began = time.monotonic()
    guard = Guard(number("step_timeout", step_timeout, above=0))
    arena = Arena(env, kwargs, tasks, guard)
    attempts: list[Attempt] = []
    checks: dict[str, str] = {}
    findings: list[Finding] = []
    try:
        with guard:
            if not isinstance(space := arena.env.action_space, (UnicodeText, gym.spaces.Text)):
                raise ConfigError(
                    f"an audit plays text or up to a thousand discrete actions, not the action space {space}"
                )
            arena.watch = watch = conduct.Watch(arena)
            known = study(arena, expert, chance)
            for attempt, finding in policies.tried(arena, known, progress):
                attempts.append(attempt)
                findings += [] if finding is None else [finding]
            findings += policies.answers(arena, known)
            share = known.share
            solves = f"solves {100 * (share or 0):.4g} % of {len(known.experts)} tasks"
            checks["expert"] = "none" if share is None else solves
            for name, check in _CHECKS.items():
                here = list(itertools.islice(check(arena, known), _EACH))
                checks[name] = f"{len(here)} found" if here else "nothing found"
                findings += here
            if processes:
                checks["processes"], here = hash_seeds(arena, known)
                findings += here
            checks["splits"], here = shared_tasks(arena)
            findings += [*here, *conduct.experts(arena, known)]
            findings += [f for f in watch.findings.values() if f.kind not in {other.kind for other in findings}]
            if not findings:
                findings += conduct.nobody(arena, known, any(attempt.solved for attempt in attempts))
    except Stuck as e:
        checks["stopped"] = "the environment did not return, so what was left is not tested"
        why = "a step after the end of an episode" if e.played is None else e.played.error
        findings.append(Finding("crash", "an action that does not return", why, e.played))
    finally:
        arena.close()
    name = named(env)
    return Certificate(
        env=name,
        env_kwargs=kwargs,
        versions=versions(name),
        tasks=len(arena.tasks),
        episodes=arena.episodes,
        expert=known.share,
        full=known.full,
        chance=chance,
        attempts=attempts,
        checks=checks,
        findings=_ordered(findings),
        seconds=time.monotonic() - began,
    )


def _ordered(findings: list[Finding]) -> list[Finding]:
    """Return the findings by kind, the shortest episode of each name, and a few of a kind."""

    def length(finding: Finding) -> tuple[int, int]:
        actions = [] if finding.played is None else finding.played.actions
        return len(actions), sum(map(len, actions))

    kinds: dict[str, dict[str, Finding]] = {finding.kind: {} for finding in findings}
    for finding in sorted(findings, key=length):
        kinds[finding.kind].setdefault(finding.name, finding)
    return [finding for same in kinds.values() for finding in list(same.values())[:_EACH]]
