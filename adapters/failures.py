"""The failure budget of a run: episodes that broke through no fault of the policy are counted, and too many stop it."""

from __future__ import annotations

import re
import textwrap
from collections import Counter, deque
from collections.abc import Iterable

from agent_envs.checks import integer, number
from agent_envs.episodes.record import StopReason
from agent_envs.errors import BackendError

MAX_BROKEN = 0.2
"""The share of broken episodes above which a run stops, if nothing else is said."""
_SHOWN = 3  # tracebacks, each of another failure
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*")


def failure_kind(reason: StopReason, error: str | None) -> str:
    """Return what broke an episode: the name of the exception, or the time limit.

    >>> failure_kind(StopReason.STEP_TIMEOUT, None)
    'step_timeout'
    >>> failure_kind(StopReason.ERROR, "Traceback ...\\nagent_envs.errors.BackendDownError: nothing answers")
    'BackendDownError'
    """
    lines = (error or "").strip().splitlines()
    name = lines[-1].partition(":")[0] if reason is StopReason.ERROR and lines else ""
    return name.rpartition(".")[2] if _EXCEPTION.fullmatch(name) else reason.value


class FailureBudget:
    """Stops a run when too many of its last episodes broke: what they depend on is down, and nothing is learned.

    Args:
        limit: The share of broken episodes that is allowed over the last steps; 1 allows all but a step that has none
            left.
        steps: How many steps these are.
        episodes: How many episodes count as a step where they are taken one at a time (``add``).
    """

    def __init__(self, limit: float = MAX_BROKEN, steps: int = 3, episodes: int = 32) -> None:
        self.limit = number("max_broken", limit, minimum=0, maximum=1)
        self._episodes = integer("episodes", episodes, minimum=1)
        self._single: list[tuple[StopReason, str | None]] = []
        self._last: deque[tuple[int, list[tuple[str, str]]]] = deque(maxlen=integer("steps", steps, minimum=1))

    def note(self, ended: Iterable[tuple[StopReason, str | None]]) -> dict[str, float]:
        """Take why the episodes of a step ended, with their errors, and return how many broke, by kind.

        Raises:
            BackendError: All of them broke, or too many of the last steps; with the first traceback of each kind.
        """
        reasons = list(ended)
        broken = [(failure_kind(reason, error), error or reason.value) for reason, error in reasons if reason.broken]
        self._last.append((len(reasons), broken))
        played, failures = sum(count for count, _ in self._last), [each for _, some in self._last for each in some]
        if broken and len(broken) == len(reasons):
            self._stop(f"all {len(reasons)} episodes of a step broke", broken)
        if len(self._last) == self._last.maxlen and len(failures) > self.limit * played:
            where = f"{len(failures)} of the {played} episodes of the last {len(self._last)} steps broke"
            self._stop(f"{where}, and {self.limit:.0%} are allowed (max_broken)", failures)
        counts = Counter(kind for kind, _ in broken)
        return {"broken": float(len(broken)), **{f"broken/{kind}": float(n) for kind, n in sorted(counts.items())}}

    def add(self, reason: StopReason, error: str | None = None) -> None:
        """Take one ended episode, for trainers that know of no steps."""
        self._single.append((reason, error))
        if len(self._single) == self._episodes:
            ended, self._single = self._single, []
            self.note(ended)

    def _stop(self, what: str, failures: list[tuple[str, str]]) -> None:
        counts = Counter(kind for kind, _ in failures)
        first = dict(reversed(failures))
        # With a bar before it, a traceback of the environment's is not taken for that of what stops the run.
        shown = [
            f"The first of {n} {kind}:\n{textwrap.indent(first[kind].strip(), '| ')}"
            for kind, n in counts.most_common(_SHOWN)
        ]
        raise BackendError("\n\n".join([f"{what}; nothing was learned from them.", *shown]))
