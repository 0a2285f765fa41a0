"""What a training run keeps and says: metrics.jsonl, an object per step, and its success on held-out tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_envs.episodes.statistics import difference, share
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
