"""Groups that branch from inner states, as what any estimator compares: the episodes from one state are a group.

A trunk is an episode from the start. At a step that is drawn before it is played, and so independently of how it goes
on, more episodes continue from its state. What all of them share is one trajectory, compared with the other trunks of
the task; its last reward has the mean return of the n continuations. These are n trajectories of another group, that of
the state, each counting 1/n. So with ``rloo`` every step is compared with the other episodes from the last state in
which it was still open what it would do: a leave-one-out baseline per state, which does not depend on the action, and
the gradient stays that of the expected return (tests/adapters/test_branches.py enumerates it). A baseline per turn
would compare a step with continuations of its own action.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from agent_envs.episodes.record import Episode
from agent_envs.errors import ConfigError


class Branches(NamedTuple):
    """Where groups branch, and how often."""

    first: int
    """The step that is drawn lies from here, at least 1,"""
    last: int
    """to here."""
    more: int
    """Episodes that are played from its state, besides the trunk."""

    @classmethod
    def read(cls, text: str) -> Branches:
        """Read ``FIRST-LAST:COUNT`` or ``STEP:COUNT``.

        Raises:
            ConfigError: It has another form, or a number that is too small.

        >>> Branches.read("1-3:3")
        Branches(first=1, last=3, more=3)
        """
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?:(\d{1,6})", text)
        first, last, more = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
        last = last or first
        if not 1 <= first <= last or not more:
            raise ConfigError(
                f"branch is FIRST-LAST:COUNT, such as 1-3:3 for three more episodes from step 1, 2 or 3, got {text!r}"
            )
        return cls(first, last, more)


class Tree(NamedTuple):
    """A trunk with what grew from it."""

    task: int
    """Number of its task: trunks of one are compared."""
    step: int
    """The step before which the others continue; the trunk may be shorter."""
    episodes: Sequence[Episode]
    """The trunk, and the others as they are recorded: each with the trunk's steps before its own."""


class Segments(NamedTuple):
    """The trajectories of some trees; lists have an element for each."""

    episodes: list[Episode]
    """The episode with the trajectory's steps alone."""
    groups: list[int]
    """Number of the state that it began in."""
    counts: list[float]
    """How much each of its steps counts."""
    tasks: list[int]
    """Number of the task."""


def segments(trees: Sequence[Tree], weighting: str = "row", gamma: float = 1.0) -> Segments:
    """Cut trees at the states that they branch from; broken episodes are left out, and with a trunk its tree.

    Args:
        trees: The trees.
        weighting: What the loss is a mean over. With ``trajectory`` a step counts for its part of the whole episode.
        gamma: The discount per step.
    """
    out = Segments([], [], [], [])
    states = {task: number for number, task in enumerate(dict.fromkeys(tree.task for tree in trees))}
    free = len(states)

    def add(episode: Episode, group: int, share: float, lengths: Sequence[int], task: int) -> None:
        if weighting == "trajectory":
            share *= len(episode.steps) * sum(1 / n for n in lengths) / len(lengths)
        out.episodes.append(episode)
        out.groups.append(group)
        out.counts.append(share)
        out.tasks.append(task)

    for tree in trees:
        trunk, at = tree.episodes[0], tree.step
        if trunk.stop_reason.broken or not trunk.steps:
            continue
        whole = [e for e in tree.episodes if not e.stop_reason.broken and len(e.steps) > at]
        root, lengths = states[tree.task], [len(e.steps) for e in whole]
        if len(whole) < 2 or whole[0] is not trunk:
            add(trunk, root, 1.0, [len(trunk.steps)], tree.task)
            continue
        tails = [e.steps[at:] for e in whole]
        later = sum(sum(gamma**t * s.reward for t, s in enumerate(tail)) for tail in tails) / len(tails)
        *before, last = trunk.steps[:at]
        last = replace(last, reward=last.reward + gamma * later)
        add(replace(trunk, steps=(*before, last)), root, 1.0, lengths, tree.task)
        for episode, tail, n in zip(whole, tails, lengths, strict=True):
            add(replace(episode, steps=tail, reset_info=last.info), free, 1 / len(whole), [n], tree.task)
        free += 1
    return out
