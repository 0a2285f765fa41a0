"""What a server of environments counts while it runs, in Prometheus' text format; docs/serving.md lists the names."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from agent_envs._version import __version__
from agent_envs.serving.protocol import BEGAN, FAILED, Frame

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text's media type."""

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # seconds
_LONGEST = 1e9  # seconds


class Metrics:
    """The counters of a server of these environments."""

    def __init__(self, envs: Iterable[str]) -> None:
        names = list(envs)
        self.began = Counter(dict.fromkeys(names, 0))
        """By environment: episodes that began."""
        self.failed = Counter(dict.fromkeys(names, 0))
        """By environment: answers that were errors."""
        self.ended: Counter[str] = Counter()
        """By code: sessions that the server ended."""
        self.refused: Counter[str] = Counter()
        """By code: clients and messages that were turned away."""
        self.replaced = 0
        """Workers that were lost."""
        self._times = {
            name: {env: [0.0] * (len(_BOUNDS) + 2) for env in names}  # how many of each class, and the sum
            for name in ("answer_seconds", "environment_seconds")
        }

    def answered(self, env: str, seconds: float, answer: Frame) -> None:
        """Count an answer that came `seconds` after its message."""
        for name, value in (("answer_seconds", seconds), ("environment_seconds", answer.seconds)):
            if 0.0 <= value < _LONGEST:  # a worker may say anything
                times = self._times[name][env]
                times[bisect_left(_BOUNDS, value)] += 1
                times[-1] += value
        self.began[env] += bool(answer.flags & BEGAN)
        self.failed[env] += bool(answer.flags & FAILED)

    def text(self, gauges: Mapping[str, float], memory: Iterable[float]) -> str:
        """Return all of it, with what is at the moment: values by name, and the bytes of each worker."""
        lines: list[str] = []

        def add(name: str, values: Mapping[str, float], kind: str = "gauge") -> None:
            lines.append(f"# TYPE agent_envs_{name} {kind}")
            lines.extend(f"agent_envs_{name}{labels} {value}" for labels, value in values.items())

        add("info", _labelled("version", {__version__: 1}))
        for name, value in gauges.items():
            add(name, {"": value})
        add("worker_memory_bytes", _labelled("worker", {str(number): size for number, size in enumerate(memory)}))
        add("workers_lost_total", {"": self.replaced}, "counter")
        add("episodes_total", _labelled("env", self.began), "counter")
        add("errors_total", _labelled("env", self.failed), "counter")
        add("refused_total", _labelled("code", self.refused), "counter")
        add("sessions_ended_total", _labelled("code", self.ended), "counter")
        for name, by_env in self._times.items():
            add(name, {}, "histogram")
            for env, (*numbers, total) in by_env.items():
                (label,) = _labelled("env", {env: 0})
                for bound, number in zip((*_BOUNDS, "+Inf"), accumulate(numbers), strict=True):
                    lines.append(f'agent_envs_{name}_bucket{label[:-1]},le="{bound}"}} {number:g}')
                lines.append(f"agent_envs_{name}_sum{label} {total}\nagent_envs_{name}_count{label} {sum(numbers):g}")
        seconds = "process_cpu_seconds_total"
        lines.append(f"# TYPE {seconds} counter")
        return "\n".join([*lines, f"{seconds} {time.process_time()}", ""])


def _labelled(label: str, values: Mapping[str, float]) -> dict[str, float]:
    r"""Return values by label, quoted.

    >>> print(*_labelled("env", {'a"b': 1}))
    {env="a\"b"}
    """
    quoted = {key: key.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key in values}
    return {f'{{{label}="{quoted[key]}"}}': value for key, value in values.items()}
