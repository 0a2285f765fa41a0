"""DIR/curve.png: success and reward over the steps of a run; step 0 is the model before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_envs.episodes.figures import errors_of, from_zero, new_figure, plain, save, whole_steps
from agent_envs.episodes.statistics import share

_TRAIN, _HELD_OUT = "#9aa5b1", "#1f5fa8"


def draw_curve(path: Path, records: Sequence[Mapping[str, Any]], *, title: str, caption: str, start: str = "") -> None:
    """Draw the curve from the records of `metrics.jsonl`; ``caption`` and ``start`` say what the model was before."""
    figure = new_figure(10, 4.6)
    left, right = figure.subplots(1, 2)
    held_out = [r for r in records if r.get("val/success") is not None]
    _line(left, records, "env/success", "training episodes")
    if held_out:
        steps = [r["step"] for r in held_out]
        intervals = [share(r["val/success"] * int(r["val/episodes"]), int(r["val/episodes"])) for r in held_out]
        values = [i.value for i in intervals]
        look = {"fmt": "o-", "capsize": 3, "color": _HELD_OUT, "zorder": 3}
        label = "held-out tasks, sampled once (95 % interval)"
        left.errorbar(steps, values, yerr=errors_of(intervals), label=label, **look)
        if steps[0] == 0:
            label = f"before training: {plain(start)}" if start else "before training"
            left.axhline(values[0], linestyle=":", color=_HELD_OUT, linewidth=1, label=label)
    left.set(title="success", xlabel="training step", ylabel="share of episodes", ylim=(0, 1))
    _line(right, records, "env/return/mean", "training episodes")
    _line(right, records, "val/return/mean", "held-out tasks", marker="o", color=_HELD_OUT, zorder=3)
    right.set(title="reward", xlabel="training step", ylabel="mean return of an episode")
    from_zero(right)
    for axes in (left, right):
        whole_steps(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="lower right", fontsize=8)
    figure.suptitle(title)
    figure.supxlabel(caption, fontsize=8, color="#444444")
    save(figure, path)


def _line(axes: Any, records: Sequence[Mapping[str, Any]], key: str, label: str, **style: Any) -> None:
    points = [(r["step"], r[key]) for r in records if r.get(key) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, **{"color": _TRAIN, **style})
