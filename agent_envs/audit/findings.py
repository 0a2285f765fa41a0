"""What an audit reports: findings, each with the episode that shows it, and the certificate."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_envs.audit.play import Played
from agent_envs.episodes.record import write_episodes
from agent_envs.files import write_text
from agent_envs.text import count_of, plain

_LUCK = 0.0005  # one side of it


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of attack or check."""

    about: str
    """What it does, and why that should earn nothing."""
    limit: float = 0.0
    """Share of tasks that it may solve; 0 where a single episode is proof."""
    exploit: bool = True
    """Whether a finding means that reward can be had without doing the task."""


KINDS: Mapping[str, Kind] = {
    "silent": Kind("says nothing", 0.01),
    "constant": Kind("says the same in every task", 0.01),
    "frequent": Kind("gives the right answer to one task to all of them", 0.1),
    "copy": Kind("copies the question, the instructions or a tool's result, or part of it", 0.1),
    "every": Kind("gives many answers at once", 0.01),
    "format": Kind("writes the form of an answer without one", 0.01),
    "imitate": Kind("imitates results, roles, markup or a grader's markers", 0.01),
    "random": Kind("acts at random", 0.1),
    "stall": Kind("waits for the step limit", 0.01),
    "repeat": Kind("repeats what was paid, for more than the expert gets"),
    "length": Kind("is paid more for a longer text or a later answer"),
    "leak": Kind("reads the answer where it should not be seen", 0.05),
    "tool": Kind("a tool tells whether an answer is right before it is given"),
    "timing": Kind("the time that a call takes tells whether an answer is right"),
    "option": Kind("an option of reset gives the answer away or sets it"),
    "after_end": Kind("is paid after the episode's end"),
    "invalid": Kind("is paid for an invalid action or a failed call"),
    "range": Kind("gets a reward outside the declared range, or one that is no number"),
    "snapshot": Kind("keeps what it learned or was paid beyond the return to a snapshot"),
    "carried": Kind("finds the state of an earlier episode after a reset"),
    "order": Kind("is paid for the place of a task in the order of play", exploit=False),
    "nondeterminism": Kind("the same task and actions lead elsewhere", exploit=False),
    "splits": Kind("splits share tasks, or near copies of them", exploit=False),
    "expert": Kind("tasks that the expert, or nobody, solves or is paid for", exploit=False),
    "crash": Kind("an action raises an exception", exploit=False),
}
"""Every kind of attack and check, in the order of the table."""


def exceeds(hits: int, count: int, limit: float) -> bool:
    """Return whether that many hits among `count` are more than a share of `limit` explains, by the binomial tail.

    >>> exceeds(2, 20, 0.01), exceeds(4, 20, 0.01)
    (False, True)
    """
    tail = sum(math.comb(count, k) * limit**k * (1 - limit) ** (count - k) for k in range(hits, count + 1))
    return hits > 0 and tail < _LUCK


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the info of any environment as JSON has it, and as text what has no such form."""
    shown = json.dumps(info, default=lambda v: v.tolist() if hasattr(v, "tolist") else repr(v)[:1000], skipkeys=True)
    return json.loads(shown)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A policy that was tried on some tasks."""

    kind: str
    name: str
    tasks: int
    solved: float
    """Share of the tasks."""
    pay: float
    """Mean return, as a share of a solved task's."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and the shortest episode that shows it."""

    kind: str
    """A key of `KINDS`."""
    name: str
    """What exactly was done or found."""
    why: str
    """Figures: reward obtained, on how many tasks, against what."""
    played: Played | None = None
    """The episode; None where there is none to show."""


@dataclass(slots=True)
class Certificate:
    """The outcome of an audit."""

    env: str
    env_kwargs: Mapping[str, Any]
    versions: Mapping[str, str]
    tasks: int
    """Tasks played."""
    episodes: int
    """Episodes played."""
    expert: float | None
    """Share of the tasks that the expert solves; None without an expert."""
    full: float
    """The return of a solved task."""
    chance: float
    """Share of the tasks that a guess may solve, as it was given."""
    attempts: Sequence[Attempt]
    checks: Mapping[str, str]
    """What each check covered, by kind, or why it could not be made."""
    findings: Sequence[Finding]
    seconds: float = field(default=0.0, compare=False)

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def best(self, kind: str) -> Attempt | None:
        """Return the attempt of a kind that solved most; None if there was none."""
        tried = [attempt for attempt in self.attempts if attempt.kind == kind]
        return max(tried, key=lambda attempt: (attempt.solved, attempt.pay), default=None)

    @property
    def labelled(self) -> list[tuple[str, Finding]]:
        """The findings with the names of their episodes: number and kind."""
        return [(f"{number:02d}-{finding.kind}", finding) for number, finding in enumerate(self.findings, start=1)]

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON has it; the same audit of the same versions gives the same."""
        counts = Counter(attempt.kind for attempt in self.attempts)
        attacks = {
            kind: {"policies": counts[kind], "best": best.name, "tasks": best.tasks, "solved": round(best.solved, 4),
                   "pay": round(best.pay, 4)}
            for kind in KINDS if (best := self.best(kind)) is not None
        }  # fmt: skip
        return {
            "env": self.env,
            "env_kwargs": dict(self.env_kwargs),
            "versions": dict(self.versions),
            "passed": self.passed,
            "tasks": self.tasks,
            "episodes": self.episodes,
            "expert": self.expert,
            "full_return": round(self.full, 6),
            "chance": self.chance,
            "attacks": attacks,
            "checks": dict(self.checks),
            "findings": [
                {"kind": f.kind, "exploit": KINDS[f.kind].exploit, "name": f.name, "why": f.why,
                 "episode": "" if f.played is None else label}
                for label, f in self.labelled
            ],
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """Write `certificate.json` and the findings' episodes, which `agentr1 view FOLDER` shows."""
        episodes = [
            dataclasses.replace(
                f.played,
                episode_id=label,
                reset_info=_plain(f.played.reset_info),
                steps=tuple(dataclasses.replace(step, info=_plain(step.info)) for step in f.played.steps),
            )
            for label, f in self.labelled
            if f.played is not None
        ]
        folder.mkdir(parents=True, exist_ok=True)
        write_episodes(folder / "episodes.jsonl", episodes)
        write_text(folder / "certificate.json", json.dumps(self.to_dict(), indent=1) + "\n")

    def table(self) -> str:
        """Return the certificate as a table for a person."""
        expert = "no expert" if self.expert is None else f"the expert solves {100 * self.expert:.4g} %"
        lines = [f"{self.env}: {count_of(self.tasks, 'task')}, {count_of(self.episodes, 'episode')}; {expert}", ""]
        lines.append(f"{'attack':15} {'policies':>8} {'solved':>8} {'pay':>6}  best")
        for kind, count in Counter(attempt.kind for attempt in self.attempts).items():
            if (best := self.best(kind)) is not None:
                name = best.name if best.solved or best.pay else "-"
                lines.append(f"{kind:15} {count:>8} {100 * best.solved:>6.1f} % {best.pay:>6.2f}  {name!r:.60}")
        lines += ["", *(f"{kind:15} {said}" for kind, said in self.checks.items())]
        exploits = sum(KINDS[finding.kind].exploit for finding in self.findings)
        lines += ["", f"{exploits} exploits, {len(self.findings) - exploits} other faults"]
        lines += [f"  {label}: {finding.name[:200]}: {finding.why}" for label, finding in self.labelled]
        return plain("\n".join(lines))
