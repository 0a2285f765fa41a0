"""Looks for tasks that are in two splits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from agent_envs.audit.findings import Finding
from agent_envs.audit.play import Arena, scripted
from agent_envs.audit.study import expert_act
from agent_envs.errors import AgentEnvsError
from agent_envs.rollout.panel import canonical
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import TextEnv

__all__ = ["shared_tasks", "sketch"]

_NAMES = (("train",), ("validation", "valid", "dev", "eval"), ("test",))  # names of one split in a row
_TIMES = 4  # as many tasks of a split are compared as are played, times this
_SHOWN = 5  # tasks in common that are played
_WITH = ("answer", "answers", "files")  # what makes a question a task: another table is another task
_PLACES = frozenset({"task_id", "id", "index", "split", "seed", "source", "where", "name"})


def sketch(value: Any) -> str:
    """Return what remains of a task without its place, case, punctuation, blanks and the order of its words.

    >>> sketch({"task_id": "train/1", "question": "Who won, and when?"}) == sketch({"question": "who won and WHEN"})
    True
    """
    if isinstance(value, dict):
        value = [(k, v) for k, v in sorted(value.items()) if k not in _PLACES]
    return " ".join(sorted(re.findall(r"\w+", str(value).casefold())))


def shared_tasks(arena: Arena, taken: dict[str, Any]) -> tuple[str, list[Finding]]:
    """Return what was compared, and a finding for two splits that share a task or a near copy of one.

    Args:
        arena: The environment.
        taken: The arguments that it is made with; a file's tasks are one split.
    """
    splits = dict(_splits(arena, taken))
    if len(splits) < 2:
        return "one split", []
    compared = ", ".join(f"{len(tasks)} texts of {name}" for name, (_, tasks) in splits.items())
    for one, other in combinations(splits, 2):
        tasks, others = splits[one][1], splits[other][1]
        for text in sorted(tasks.keys() & others.keys(), key=tasks.__getitem__)[:_SHOWN]:
            known = arena.play(tasks[text], expert_act, env=splits[one][0], patient=True)
            played = arena.play(others[text], scripted(known.actions or [""]), env=splits[other][0], patient=True)
            if known.actions and played.reward < known.reward:
                continue  # the same question about something else
            common = len(tasks.keys() & others.keys())
            why = (
                f"{common} texts of tasks are in both, among them that of task {tasks[text]} and {others[text]}; the "
                f"actions that solve the first earn {played.reward:g} for the second"
            )
            return compared, [Finding("splits", f"{one} and {other}", why, played)]
    return f"no task in common: {compared}", []


def _splits(arena: Arena, taken: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if not isinstance(arena.env.unwrapped, TextEnv) or taken.get("data", "generated") != "generated":
        return
    for names in _NAMES:
        for name in names:
            try:
                env = arena.fresh(split=name)
                base = env.unwrapped
                assert isinstance(base, TextEnv)
                count = base.num_tasks
            except (AgentEnvsError, LookupError, OSError, TypeError, ValueError):
                continue  # no such split
            yield name, (env, _sketches(base, count, _TIMES * len(arena.tasks)))
            break


def _sketches(base: TextEnv, count: int, most: int) -> dict[str, int]:
    """Return the sketches of tasks with their indices: the first ones, then some from all over the split."""
    half = max(1, most // 2)
    wanted = dict.fromkeys([*range(min(count, half)), *range(0, count, max(1, count // half))])
    found: dict[str, int] = {}
    for index in wanted:
        task = base.tasks[index]
        content = base.tasks.content(index) if isinstance(base.tasks, IndexedTasks) else task
        value = canonical(content)
        found.setdefault(sketch(value), index)
        question = value.get("question") if isinstance(value, dict) else None
        if isinstance(question, str) and len(question.split()) > 3:
            found.setdefault(sketch([question, *(value.get(key) for key in _WITH)]), index)
    return found
