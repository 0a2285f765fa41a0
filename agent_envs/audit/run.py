"""The audit: attacks the reward of an environment with everything that is in this folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from agent_envs.audit import conduct, leaks, policies
from agent_envs.audit.elsewhere import hash_seeds, maker_of
from agent_envs.audit.findings import Attempt, Certificate, Finding
from agent_envs.audit.guard import Guard, Stuck
from agent_envs.audit.play import Act, Arena, Hung, Played, scripted
from agent_envs.audit.splits import shared_tasks
from agent_envs.audit.study import Study, expert_act, study
from agent_envs.checks import number
from agent_envs.errors import ConfigError
from agent_envs.registration import versions
from agent_envs.rollout.panel import named
from agent_envs.spaces import UnicodeText

__all__ = ["audit"]

_TASKS = 100
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

    >>> found = audit("AgentR1/GSM8K-v0", tasks=10)
    >>> found.passed, found.expert
    (True, 1.0)
    """
    kwargs = dict(env_kwargs or {})
    number("chance", chance, minimum=0, maximum=1)
    began = time.monotonic()

    guard = Guard(number("step_timeout", step_timeout, above=0))
    arena = Arena(maker_of(env, kwargs), tasks, guard)
    known = Study(chance=chance)
    attempts: list[Attempt] = []
    checks: dict[str, str] = {}
    found: list[Finding] = []
    try:
        with guard:
            _check_actions(arena)
            watch = conduct.Watch(arena)
            arena.watch = watch
            known = study(arena, expert)
            known.chance = chance
            for what in _attacked(arena, known, env, kwargs, processes, progress, checks):
                (attempts if isinstance(what, Attempt) else found).append(what)  # type: ignore[arg-type]
            found += [f for f in watch.found.values() if f.kind not in {other.kind for other in found}]
            if not found:
                found += _nobody(arena, known, attempts)
    except (Hung, Stuck) as e:
        checks["stopped"] = "the environment did not return, so what was left is not tested"
        why, played = (str(e), e.played) if isinstance(e, Hung) else ("a step after the end of an episode", None)
        found.append(Finding("crash", "an action that does not return", why, played))
    finally:
        arena.close()
    found = _ordered(found)
    name = named(env)
    return Certificate(
        env=name,
        env_kwargs=kwargs,
        versions=versions(name),
        tasks=len(arena.tasks),
        episodes=arena.episodes,
        expert=_share(known),
        full=known.full,
        chance=chance,
        attempts=attempts,
        checks=checks,
        findings=found,
        seconds=time.monotonic() - began,
    )


def _check_actions(arena: Arena) -> None:
    if not isinstance(arena.env.action_space, (UnicodeText, gym.spaces.Text)):
        raise ConfigError(
            f"an audit plays text or up to a thousand discrete actions, got the action space {arena.env.action_space}"
        )


def _attacked(
    arena: Arena,
    known: Study,
    env: Any,
    kwargs: dict[str, Any],
    processes: bool,
    progress: bool,
    checks: dict[str, str],
) -> Iterator[Attempt | Finding]:
    """Yield what was tried and found; `checks` gets a line for each check that was made."""
    from tqdm import tqdm

    todo = list(policies.attacks(arena, known))
    with tqdm(total=len(todo) + len(_CHECKS) + 2, unit="attack", disable=not progress, leave=False) as bar:
        for attack in todo:
            bar.set_description(attack.kind)
            attempt, finding = policies.measured(arena, known, attack)
            yield attempt
            if finding is not None:
                yield finding
            bar.update()
        yield from policies.answers(arena, known)
        checks["expert"] = _expert(known)
        for name, check in _CHECKS.items():
            bar.set_description(name)
            here = list(check(arena, known))
            checks[name] = f"{len(here)} found" if here else "nothing found"
            yield from here
            bar.update()
        bar.set_description("processes")
        checks["processes"], differing = hash_seeds(arena, known, env, kwargs) if processes else ("not compared", [])
        yield from differing
        bar.update()
        bar.set_description("splits")
        checks["splits"], shared = shared_tasks(arena, env, kwargs)
        yield from shared
        bar.update()
    yield from _unsolved(known)


def _share(known: Study) -> float | None:
    played = list(known.experts.values())
    return sum(map(known.solved, played)) / len(played) if played else None


def _expert(known: Study) -> str:
    share = _share(known)
    return "none" if share is None else f"solves {100 * share:.4g} % of {len(known.experts)} tasks"


def _unsolved(known: Study) -> list[Finding]:
    lost: list[Played] = [played for played in known.experts.values() if not known.solved(played)]
    if not lost:
        return []
    shortest = min(lost, key=lambda played: len(played.actions))
    tasks = ", ".join(str(played.task) for played in lost[:5])
    why = f"{len(lost)} of {len(known.experts)} tasks, such as {tasks}"
    return [Finding("expert", "tasks that the expert does not solve", why, shortest)]


def _nobody(arena: Arena, known: Study, attempts: list[Attempt]) -> list[Finding]:
    """Return a finding if no task was seen to be solved, or if solving pays no more than silence."""
    task, idle = arena.tasks[0], scripted([""])
    solved = [played for played in known.experts.values() if known.solved(played)]
    if not solved and not any(attempt.solved for attempt in attempts):
        why = "no policy solves a task, and there is no expert: that it can be won is not shown"
        return [Finding("expert", "nobody solves a task", why, arena.play(task, idle))]
    if solved and all(played.reward <= arena.play(played.task, idle).reward for played in solved[:_EACH]):
        why = f"return {solved[0].reward:g}, and no less for an empty text"
        return [Finding("expert", "a solved task is not paid", why, solved[0])]
    return []


def _ordered(found: list[Finding]) -> list[Finding]:
    """Return the findings with one of each kind first: the shortest episode; and of what is left, a few."""
    kinds: dict[str, list[Finding]] = {}
    for finding in found:
        kinds.setdefault(finding.kind, []).append(finding)

    def length(finding: Finding) -> tuple[int, int]:
        actions = [] if finding.played is None else finding.played.actions
        return len(actions), sum(map(len, actions))

    return [finding for same in kinds.values() for finding in sorted(same, key=length)[:_EACH]]


_EACH = 3
