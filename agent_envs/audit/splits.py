"""Looks for tasks that are in two splits, whatever argument chooses the split."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from typing import Any

import gymnasium as gym

from agent_envs.audit.findings import Finding
from agent_envs.audit.play import Arena, scripted
from agent_envs.audit.study import expert_act
from agent_envs.checks import argument_defaults
from agent_envs.errors import AgentEnvsError
from agent_envs.rollout.panel import canonical
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import TextEnv

_NAMES = (("train", "training"), ("validation", "valid", "val", "dev", "eval"), ("test", "testing"))  # of one split
_WORDS = frozenset(name for names in _NAMES for name in names)
_WORD = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(_WORDS)})(?![A-Za-z])")  # the first in a path names its split
_TIMES = 4  # as many tasks of a split are compared as are played, times this
_SHOWN = 5  # tasks in common that are played
_WITH = ("answer", "answers", "files")  # what makes a question a task: another table is another task
_PLACES = frozenset({"task_id", "id", "index", "split", "seed", "source", "where", "name"})

Splits = dict[str, tuple[gym.Env[Any, Any], dict[str, int]]]
"""An environment for each split, and the sketches of its tasks with their indices."""


def sketch(value: Any) -> str:
    """Return what remains of a task without its place, case, punctuation, blanks and the order of its words.

    >>> sketch({"task_id": "train/1", "question": "Who won, and when?"}) == sketch({"question": "who won and WHEN"})
    True
    """
    if isinstance(value, dict):
        value = [(k, v) for k, v in sorted(value.items()) if k not in _PLACES]
    return " ".join(sorted(re.findall(r"\w+", str(value).casefold())))


def shared_tasks(arena: Arena) -> tuple[str, list[Finding]]:
    """Return what was compared, and a finding for two splits that share a task or a near copy of one."""
    chosen = [splits for choices in _choices(arena) if len(splits := _opened(arena, choices)) > 1]
    # An argument that changes no task chooses no split, if there is another that does.
    chosen = [s for s in chosen if len({frozenset(tasks) for _, tasks in s.values()}) > 1] or chosen[:1]
    if not chosen:
        return "one split", []
    compared = ", ".join(f"{len(tasks)} texts of {name}" for splits in chosen for name, (_, tasks) in splits.items())
    for (one, (env_of_one, tasks)), (other, (env_of_other, others)) in itertools.chain.from_iterable(
        itertools.combinations(splits.items(), 2) for splits in chosen
    ):
        common = sorted(tasks.keys() & others.keys(), key=tasks.__getitem__)
        for text in common[:_SHOWN]:
            known = arena.play(tasks[text], expert_act, env=env_of_one, patient=True)
            played = arena.play(others[text], scripted(known.actions or [""]), env=env_of_other, patient=True)
            if known.actions and played.reward < known.reward:
                continue  # the same question about something else
            why = (
                f"{len(common)} of {len(tasks)} texts of {one} are among the {len(others)} of {other}, such as that of "
                f"task {tasks[text]}, which is task {others[text]} there"
            )
            return compared, [Finding("splits", f"{one} and {other}", why, played)]
    return f"no task in common: {compared}", []


def _choices(arena: Arena) -> Iterator[list[tuple[tuple[str, Any], ...]]]:
    """Yield the ways to choose a split: for each split the arguments that may name it, of which the first is taken."""
    inner = arena.env.unwrapped
    values = argument_defaults(type(inner)) | (argument_defaults(arena.source) if callable(arena.source) else {})
    values |= ({} if inner.spec is None else inner.spec.kwargs) | dict(arena.env_kwargs)
    for name, value in values.items():
        if name == "split" or (isinstance(value, str) and value in _WORDS):
            open_names = bool(_opened(arena, [((name, "no such split"),)]))
            groups = [names for names in _NAMES if names[0] != "validation" or not open_names or value in names]
            yield [tuple((name, word) for word in names) for names in groups]
        elif isinstance(value, bool) and name.removeprefix("is_") in _WORDS:
            yield [((name, True),), ((name, False),)]
        elif isinstance(value, (str, os.PathLike)) and (paths := _paths(os.fspath(value))):
            yield [((name, path),) for path in paths]


def _paths(path: str) -> list[str]:
    """Return the files or folders whose names differ from that of a path by the split's name, itself among them."""
    others = (_WORD.sub(word, path, count=1) for word in sorted(_WORDS)) if _WORD.search(path) else ()
    return [other for other in others if os.path.exists(other)]


def _opened(arena: Arena, choices: list[tuple[tuple[str, Any], ...]]) -> Splits:
    """Return the splits that there are, of those that can be told apart by their tasks."""
    splits: Splits = {}
    for names in choices:
        for name, value in names:
            try:
                env = arena.fresh(**{name: value})
                tasks = _sketches(arena, env, _TIMES * len(arena.tasks))
            except (AgentEnvsError, LookupError, OSError, TypeError, ValueError):
                continue  # no such split
            if tasks:
                splits[value if name == "split" else f"{name}={value}"] = (env, tasks)
                break
    return splits


def _sketches(arena: Arena, env: gym.Env[Any, Any], most: int) -> dict[str, int]:
    """Return the sketches of tasks with their indices: the first ones, then some from all over the split.

    Where there are only seeds, a task is what its reset shows; nothing is returned if that is the same for many.
    """
    base = env.unwrapped
    sketches: dict[str, int] = {}
    if not isinstance(base, TextEnv):
        for seed in range(most):
            played = arena.play(seed, scripted([]), env=env)
            sketches.setdefault(sketch([played.start, played.instructions]), seed)
        return sketches if 2 * len(sketches) > most else {}
    count, half = base.num_tasks, max(1, most // 2)
    for index in dict.fromkeys([*range(min(count, half)), *range(0, count, max(1, count // half))]):
        task = base.tasks[index]
        value = canonical(base.tasks.content(index) if isinstance(base.tasks, IndexedTasks) else task)
        sketches.setdefault(sketch(value), index)
        question = value.get("question") if isinstance(value, dict) else None
        if isinstance(question, str) and len(question.split()) > 3:
            sketches.setdefault(sketch([question, *(value.get(key) for key in _WITH)]), index)
    return sketches
