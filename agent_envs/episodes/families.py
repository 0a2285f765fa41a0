"""Success by family of tasks: for environments whose info names the family under ``task_family``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from agent_envs.episodes.record import Episode

__all__ = ["FamilyScore", "family_table", "score_episodes", "score_families"]

ALL = "all"


@dataclass(frozen=True, slots=True)
class FamilyScore:
    """How often a family of tasks was solved."""

    env_id: str
    """The environment's id."""
    split: str
    """The split the tasks are from; "all" for every split."""
    family: str
    """The family's name; "all" for every family of the split."""
    episodes: int
    """Episodes played."""
    success: float
    """Share of them that were solved."""

    @property
    def stderr(self) -> float:
        """Standard error of the share (binomial)."""
        return math.sqrt(self.success * (1 - self.success) / max(self.episodes, 1))

    @property
    def metric(self) -> str:
        """Its name among metrics: `ENV/SPLIT/FAMILY`, without what is "all"."""
        parts = (self.env_id.rpartition("/")[2], self.split, self.family)
        return "/".join(part for part in parts if part != ALL)


def score_families(outcomes: Iterable[tuple[str, str, str, float]]) -> list[FamilyScore]:
    """Success by environment, split and family.

    Args:
        outcomes: Of each episode its environment's id, split, family and whether it was solved (1 or 0). Episodes
            without a family ("") are left out.

    Returns:
        For each environment: every family over all splits; where there are several splits, each split as a whole and
        every family in it. Sorted by name.

    >>> scores = score_families([("A/X-v0", "seen", "put", 1), ("A/X-v0", "unseen", "put", 0)])
    >>> [(score.metric, score.success) for score in scores]
    [('X-v0/put', 0.5), ('X-v0/seen', 1.0), ('X-v0/seen/put', 1.0), ('X-v0/unseen', 0.0), ('X-v0/unseen/put', 0.0)]
    """
    groups: dict[tuple[str, str, str], list[float]] = {}
    splits: dict[str, set[str]] = {}
    for env_id, split, family, success in outcomes:
        if not family:
            continue
        splits.setdefault(env_id, set()).add(split)
        for key in ((env_id, ALL, family), (env_id, split, ALL), (env_id, split, family)):
            groups.setdefault(key, []).append(float(success))
    return sorted(
        (
            FamilyScore(env_id, split, family, len(some), sum(some) / len(some))
            for (env_id, split, family), some in groups.items()
            if split == ALL or len(splits[env_id]) > 1
        ),
        key=lambda score: score.metric,
    )


def score_episodes(episodes: Iterable[Episode]) -> list[FamilyScore]:
    """`score_families` of recorded episodes, which may come from several splits: seen and unseen, say."""
    return score_families(
        (
            episode.env_id,
            str(episode.reset_info.get("split", "")),
            str(episode.reset_info.get("task_family", "")),
            float(episode.success),
        )
        for episode in episodes
    )


def family_table(scores: Iterable[FamilyScore]) -> str:
    """The scores as lines of text.

    >>> print(family_table([FamilyScore("A/X-v0", "all", "put", 4, 0.5)]))
    X-v0/put  0.500 +- 0.250  of 4
    """
    some = list(scores)
    width = max((len(score.metric) for score in some), default=0)
    return "\n".join(
        f"{score.metric:{width}}  {score.success:.3f} +- {score.stderr:.3f}  of {score.episodes}" for score in some
    )
