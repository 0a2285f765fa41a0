"""Which steps of an episode are trained, and as which trajectories: decided once for all trainers.

In an episode of one call per step it is all of them, as one trajectory. Agents have calls that are not trained, and
roles that are paid on their own, each of which is a trajectory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agent_envs.episodes.record import Episode, Step
from agent_envs.errors import ConfigError

PLACE = "agent_envs.place"
"""Key in the info of a trajectory's step: its index in the episode, where that has other steps too."""


class Trajectory(NamedTuple):
    """The trained steps of a role."""

    episode: Episode
    """The episode with these steps alone."""
    name: str = ""
    """Who acted, "" without roles; what stands before a slash is the role."""
    within: bool = False
    """Whether it is compared with the same role in this episode instead of those in the others of its group."""

    @property
    def role(self) -> str:
        """The role."""
        return self.name.partition("/")[0]


def trajectories(episode: Episode, gamma: float = 1.0, roles: Sequence[str] = ()) -> list[Trajectory]:
    """Return the trajectories of an episode, in the order in which their roles first acted.

    The reward of a step that is not trained counts at the trained one before it in its trajectory, discounted by
    `gamma` per environment step between them; with none before, nowhere, since no trained decision led to it. Without
    `roles` all are trained.
    """
    if all(step.trained and not step.role for step in episode.steps) and not roles:
        return [Trajectory(episode)]
    out = []
    for name in dict.fromkeys(step.role for step in episode.steps):
        steps: list[Step] = []
        anchors: list[str] = []
        before = episode.reset_info
        for place, step in enumerate(episode.steps):
            if step.role == name:
                if step.trained and step.prompt_ids and step.response_ids:
                    steps.append(replace(step, info={**step.info, PLACE: place}))
                    anchors.append(str(before.get("anchor", "")))
                elif steps:
                    between = (step.time or 0) - (steps[-1].time or 0)
                    steps[-1] = replace(steps[-1], reward=steps[-1].reward + gamma**between * step.reward)
            before = step.info
        if not steps or (roles and name.partition("/")[0] not in roles):
            continue
        following = [*anchors[1:], str(episode.steps[-1].info.get("anchor", ""))]
        steps = [replace(step, info={**step.info, "anchor": a}) for step, a in zip(steps, following, strict=True)]
        end = episode.steps[-1]
        steps[-1] = replace(steps[-1], terminated=end.terminated, truncated=end.truncated)
        info = {**episode.reset_info, "anchor": anchors[0]}
        within = episode.roles.get(name) == "episode"
        out.append(Trajectory(replace(episode, steps=tuple(steps), reset_info=info), name, within))
    return out


class Trained(NamedTuple):
    """The trajectories of a batch; lists have an element for each."""

    source: list[int]
    """Index of the episode."""
    episodes: list[Episode]
    """The episode with the trajectory's steps alone."""
    groups: list[int]
    """Number of the group that it is compared in."""
    roles: list[int] | None
    """Number of its role; None if there is one."""
    timed: bool
    """Whether steps say how many environment steps came before."""


def trained(
    episodes: Sequence[Episode], groups: Sequence[int], gamma: float = 1.0, roles: Sequence[str] = ()
) -> Trained:
    """Return the trajectories of a batch of episodes, without broken ones; `groups` has the group of each episode.

    That nobody plays one of `roles` is a ConfigError.
    """
    played = {step.role.partition("/")[0] for episode in episodes for step in episode.steps}
    if played and (unknown := sorted({*roles} - played)):
        raise ConfigError(
            f"role {unknown[0]!r} is not among those that play ({', '.join(sorted(filter(None, played))) or 'none'}); "
            "train_roles trains nothing"
        )
    parts = [
        (i, part)
        for i, episode in enumerate(episodes)
        if not episode.stop_reason.broken
        for part in trajectories(episode, gamma, roles)
    ]
    names = {role: number for number, role in enumerate(dict.fromkeys(part.role for _, part in parts))}
    keys = [(groups[i], part.role, i if part.within else -1) for i, part in parts]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    own = [part.episode for _, part in parts]
    return Trained(
        [i for i, _ in parts],
        own,
        [groups[i] for i, _ in parts] if [*names] == [""] else [numbers[key] for key in keys],
        [names[part.role] for _, part in parts] if len(names) > 1 else None,
        any(step.time is not None for episode in own for step in episode.steps),
    )


def calls_made(episode: Episode) -> dict[str, Any]:
    """Return what `call_metrics` needs of an episode that an agent played; small and flat."""
    failed = [str(call["error"]).partition(":")[0] for call in episode.reset_info.get("failed_calls", ())]
    answered = [step for step in episode.steps if "call" in step.info]  # an agent may act without asking
    return {
        "calls_answered": float(len(answered)),
        "calls_untrained": float(sum(not step.trained for step in answered)),
        "calls_fresh": float(sum(step.after is None for step in answered)),
        "calls_failed": " ".join(failed),
    }


def call_metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return means over the episodes of an agent, of which `records` have `calls_made`; none of other episodes.

    >>> made = {"calls_answered": 4.0, "calls_untrained": 1.0, "calls_fresh": 2.0, "calls_failed": "TimeoutError"}
    >>> call_metrics([made])
    {'calls': 4.0, 'untrained_share': 0.25, 'fresh_share': 0.5, 'calls_failed/TimeoutError': 1.0}
    """
    if not records or "calls_answered" not in records[0]:
        return {}
    calls, untrained, fresh = (sum(r[f"calls_{name}"] for r in records) for name in ("answered", "untrained", "fresh"))
    failed = Counter(kind for record in records for kind in record["calls_failed"].split())
    return {
        "calls": calls / len(records),
        "untrained_share": untrained / max(calls, 1.0),
        "fresh_share": fresh / max(calls, 1.0),
        **{f"calls_failed/{kind}": count / len(records) for kind, count in sorted(failed.items())},
    }
