"""Groups that branch from inner states, as what any estimator compares: the episodes from one state are a group.

A trunk is an episode from the start. At a step that is drawn before it is played, and so independently of how it goes
on, more episodes continue from its state. What all of them share is one trajectory, compared with the other trunks of
the task; its last reward has the mean return of the n continuations, undiscounted, as groups compare returns. These are
n trajectories of another group, that of the state, each counting 1/n. So with ``rloo`` every step is compared with the
other episodes from the last state in which it was still open what it would do: a leave-one-out baseline per state,
which does not depend on the action, and with the weighting ``row`` the gradient stays that of the expected return
(tests/adapters/test_branches.py enumerates it). A baseline per turn would compare a step with continuations of its own
action.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from agent_envs.adapters.estimators import get_estimator, say_once
from agent_envs.adapters.trained import PLACE
from agent_envs.episodes.record import Episode
from agent_envs.errors import ConfigError
from agent_envs.policies.model import ModelPolicy
from agent_envs.rollout.branch import branch


class Tree(NamedTuple):
    """A trunk with what grew from it."""

    step: int
    """The step before which the others continue; the trunk may be shorter."""
    episodes: Sequence[Episode]
    """The trunk, and the others as recorded: each with the trunk's steps before its own."""


class Branches(NamedTuple):
    """Where groups branch, and how often."""

    first: int
    """The first step that may be drawn, at least 1."""
    last: int
    """The last one."""
    more: int
    """Episodes that are played from its state, besides the trunk."""

    @classmethod
    def read(cls, text: str) -> Branches:
        """Read ``FIRST-LAST:COUNT`` or ``STEP:COUNT``.

        >>> Branches.read("1-3:3")
        Branches(first=1, last=3, more=3)
        """
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?:(\d{1,6})", str(text))  # verl may have read a number
        first, last, more = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
        last = last or first
        if not 1 <= first <= last or not more:
            raise ConfigError(
                f"branch is FIRST-LAST:COUNT, such as 1-3:3 for three more episodes from step 1, 2 or 3, got {text!r}"
            )
        return cls(first, last, more)

    @property
    def size(self) -> int:
        """Episodes of a tree."""
        return 1 + self.more

    def grow(
        self, env: gym.Env[Any, str], policy: ModelPolicy, *, seed: int, options: Mapping[str, Any] | None,
        drawn_by: Sequence[int],
    ) -> Tree:  # fmt: skip
        """Play a tree in an environment, whose step is drawn by some numbers; see `agent_envs.rollout.branch`."""
        # drawn before the trunk is played: a step that depended on its length would bias what follows
        step = int(np.random.default_rng(drawn_by).integers(self.first, self.last + 1))
        return Tree(step, branch(env, policy, self.size, at=[step], seed=seed, options=options))


def check_branches(text: str, group: int, estimator: str, without: Mapping[str, Any], setting: str = "group") -> None:
    """Check that groups of ``group`` episodes, as ``setting`` says, can branch, with nothing in ``without`` set."""
    parts = Branches.read(text).size
    if group % parts or group < 2 * parts:
        raise ConfigError(
            f"with branch={text} a group is at least two times {parts} episodes, got {setting}={group}: take a multiple"
        )
    if names := [name for name, value in without.items() if value]:
        raise ConfigError(
            "branch is for a loop of one call per step without time limits, whose returns are the environment's: "
            f"leave out {', '.join(names)}"
        )
    if not get_estimator(estimator).compares_groups or estimator == "gdpo":
        raise ConfigError(
            f"branch is for estimators that compare the returns of a group, such as rloo; got {estimator!r}"
        )


class Segment(NamedTuple):
    """A trajectory of a tree."""

    episode: Episode
    """The episode with the trajectory's steps alone."""
    member: int
    """Index of the episode in the tree."""
    inner: bool
    """Whether it begins in the state that the tree branches from, and is compared with the others from there."""
    share: float
    """How much each of its steps counts."""


def cut(tree: Tree, weighting: str = "row") -> list[Segment]:
    """Cut a tree at the state that it branches from; broken episodes are left out, and with the trunk the tree.

    The loss is a mean over ``weighting``: with ``trajectory`` a step counts for its part of the whole episode.
    """

    def segment(episode: Episode, member: int, inner: bool, share: float, lengths: Sequence[int]) -> Segment:
        if weighting == "trajectory":
            share *= len(episode.steps) * sum(1 / n for n in lengths) / len(lengths)
        return Segment(episode, member, inner, share)

    trunk, at = tree.episodes[0], tree.step
    if trunk.stop_reason.broken or not trunk.steps:
        return []
    whole = [(i, e) for i, e in enumerate(tree.episodes) if not e.stop_reason.broken and len(e.steps) > at]
    if len(whole) < 2 or whole[0][0]:
        return [segment(trunk, 0, False, 1.0, [len(trunk.steps)])]
    later = sum(sum(step.reward for step in e.steps[at:]) for _, e in whole) / len(whole)
    *before, last = trunk.steps[:at]
    last = replace(last, reward=last.reward + later)
    lengths = [len(e.steps) for _, e in whole]
    out = [segment(replace(trunk, steps=(*before, last)), 0, False, 1.0, lengths)]
    for member, episode in whole:
        tail = tuple(replace(step, info={**step.info, PLACE: at + t}) for t, step in enumerate(episode.steps[at:]))
        own = replace(episode, steps=tail, reset_info=last.info)
        out.append(segment(own, member, True, 1 / len(whole), [len(episode.steps)]))
    return out


def segments(
    trees: Sequence[Tree], tasks: Sequence[int], weighting: str = "row"
) -> tuple[list[Episode], list[int], list[float], list[int]]:
    """Cut trees, given the number of the task of each, as `cut` does.

    Returns:
        Of each trajectory: the episode with its steps alone, the number of the state that it began in, how much each of
        its steps counts, and the number of the task.
    """
    pieces: list[tuple[Episode, int, float, int]] = []
    states = {task: number for number, task in enumerate(dict.fromkeys(tasks))}
    free = len(states)
    for tree, task in zip(trees, tasks, strict=True):
        parts = cut(tree, weighting)
        pieces += [(part.episode, free if part.inner else states[task], part.share, task) for part in parts]
        free += len(parts) > 1
    if trees and free == len(states):
        say_once("no trunk was long enough to branch, so groups are the trunks alone: name earlier steps in branch")
    return tuple([each[i] for each in pieces] for i in range(4))  # type: ignore[return-value]
