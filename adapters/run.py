"""What a training run keeps and says: metrics.jsonl, an object per step, and its success on held-out tasks."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_envs.checks import integer, number
from agent_envs.episodes.record import StopReason
from agent_envs.episodes.statistics import difference, share
from agent_envs.errors import BackendError
from agent_envs.files import JSONLines

Record = dict[str, Any]
"""The metrics of one step, by name."""


def read_records(path: Path) -> list[Record]:
    """Return the records of a file, none if it does not exist. A last line cut off by a kill is left out.

    >>> read_records(Path("no-such-file.jsonl"))
    []
    """
    return [record for _, record in JSONLines(path).after()] if path.exists() else []


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write all records; the file appears whole or not at all."""
    JSONLines(path).replace(map(_row, records))


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record as a whole line."""
    JSONLines(path).append(_row(record))


def _row(record: Mapping[str, Any]) -> Record:
    # JSON has no NaN: a value that could not be computed is null.
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}


_FALLING = {
    "actor/entropy": "its episodes grow alike, and groups lose their signal. A smaller learning rate, an entropy bonus "
    "or a KL keeps it up",
    "actor/mutual_information": "it answers whatever it is asked alike. Groups that have a signal (refill), a smaller "
    "learning rate or a KL keep it up",
}


class CollapseWatch:
    """Notices, once each, that a policy has all but stopped to explore or to heed its prompt, or learns nothing more.

    The first two are an entropy or a mutual information below a tenth of the first iterations', the third that nine
    groups in ten have no signal, all over three iterations. A mutual information that begins below 0.1 is noise.

    >>> watch = CollapseWatch()
    >>> [bool(watch.update({"actor/entropy": x})) for x in (1.0, 1.0, 1.0, 0.01, 0.01, 0.01, 0.01)]
    [False, False, False, False, False, True, False]
    """

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {name: [] for name in _FALLING}
        self._silent: list[float] = []
        self._said: set[str] = set()

    def update(self, record: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Record an iteration's metrics; return what is new: a line for the progress, and the reason."""
        news = []
        success = record.get("env/success") or 0.0
        for name, why in _FALLING.items():
            if record.get(name) is None or name in self._said:
                continue
            what, values = name.removeprefix("actor/").replace("_", " "), self._values[name]
            values.append(record[name])
            first, last = (sum(part) / 3 for part in (values[:3], values[-3:]))
            if len(values) > 5 and last < 0.1 * first and (first > 0.1 or what == "entropy"):
                self._said.add(name)
                line, fell = f"collapse: {what} {last:.3g}, {first:.3g} at first", f"{first:.3g} to {last:.3g} nats"
                news.append((line, f"the policy's {what} fell from {fell}: {why}"))
        silent, groups = (  # of all roles
            sum(number for name, number in record.items() if f"groups_{what}" in name)
            for what in ("without_signal", "compared")
        )
        if groups:
            self._silent = [*self._silent[-2:], silent / groups]
            if len(self._silent) == 3 and min(self._silent) >= 0.9 and "silent" not in self._said:
                self._said.add("silent")
                remedy = (
                    "the tasks are too easy: harder levels would teach" if success > 0.5
                    else "the tasks are too hard: a teacher, easier levels or branches would teach"
                )  # fmt: skip
                reason = f"in nine groups of ten all episodes are paid alike (success {success:.2f}); {remedy}"
                news.append((f"collapse: {silent:.0f} of {groups:.0f} groups without a signal", reason))
        return news


def success_lines(records: Sequence[Mapping[str, Any]], start: str = "") -> list[str]:
    """Return the success on held-out tasks at the first and the last of some records, and how they differ, as text.

    Episodes that did not come back count as failures; ``start`` says what the model was at step 0.
    """
    played = [record for record in records if record.get("val/success") is not None]
    lines, trials = [], []
    for r in [*played[:1], *played[1:][-1:]]:
        count = int(r["val/episodes"] + r.get("val/lost_episodes", 0))
        s = share(r["val/success"] * count, count)
        what = f" ({start})" if start and r["step"] == 0 else ""
        lines.append(
            f"step {r['step']:<5} success {s.value:.3f} [{s.low:.3f}, {s.high:.3f}] on {count} held-out tasks{what}"
        )
        trials += [r["val/success"], count]
    if len(lines) > 1:
        d = difference(*trials)
        lines.append(f"difference {d.value:+.3f} [{d.low:+.3f}, {d.high:+.3f}] (95 % intervals)")
    return lines


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
