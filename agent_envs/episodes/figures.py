"""Figures of runs and evaluations with matplotlib, which needs no display: curves and means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.episodes.curves import MEASURES, Configuration, Measure, spread
from agent_envs.episodes.statistics import Interval, share
from agent_envs.errors import ConfigError, needs_extra
from agent_envs.files import replacing
from agent_envs.rewards import total

FORMATS = (".png", ".svg", ".pdf")
"""Suffixes of the files that can be written."""
# Okabe and Ito's colours, which colour-blind readers can tell apart; from the ninth on they repeat with dashes.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7f6f00", "#444444")
_FACES = ("o", "s", "^", "D", "v", "P", "X", "*")


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches, without a window; a MissingExtraError without matplotlib."""
    with needs_extra("data"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path) -> None:
    """Write a figure in the format of the suffix, whole or not at all; a ConfigError if that is none of `FORMATS`."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: the suffix must be one of {', '.join(FORMATS)}")
    with replacing(path) as partial:
        figure.savefig(partial, format=path.suffix[1:].lower(), dpi=130)


def plain(text: str, longest: int = 60) -> str:
    """Return a text that a figure can show: without formulas and control characters, at most `longest` characters.

    >>> plain("costs $5\\n")
    'costs \\\\$5 '
    """
    text = "".join(c if c.isprintable() else " " for c in text)
    half = (longest - 3) // 2  # names of runs differ at their ends
    text = text if len(text) <= longest else f"{text[:half]}...{text[-half:]}"
    return text.replace("$", r"\$")


def from_zero(axes: Any) -> None:
    """Start the vertical axis at 0 unless values are on both sides of it, so that heights can be compared."""
    data_low, data_high = axes.dataLim.ymin, axes.dataLim.ymax
    if not (math.isfinite(data_low) and math.isfinite(data_high)):
        return
    if data_low >= 0:
        axes.set_ylim(0, 1.08 * data_high or 1)
    elif data_high <= 0:
        axes.set_ylim(1.08 * data_low, 0)
    else:
        axes.axhline(0, color="#444444", linewidth=0.8, zorder=1)


def draw_configurations(path: Path, configurations: Sequence[Configuration], *, title: str, smooth: int = 1) -> None:
    """Draw a panel for each measure.

    Args:
        path: The file to write, .png, .svg or .pdf.
        configurations: Either of runs, which have curves over steps, or of evaluations, which have none.
        title: Title of the figure.
        smooth: Number of steps over which training values are averaged; held-out values are drawn unchanged.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = new_figure(14, 8.4)
    from matplotlib.ticker import MaxNLocator

    *grid, rest = figure.subplots(2, 3).flat
    rest.set_axis_off()
    with_curves = any(run.curves for configuration in configurations for run in configuration.runs)
    in_tokens = with_curves or all(run.in_tokens for configuration in configurations for run in configuration.runs)
    for axes, measure in zip(grid, MEASURES, strict=True):
        in_characters = measure.name == "length" and not in_tokens
        axes.set(title=measure.name, ylabel="characters of an episode's actions" if in_characters else measure.unit)
        if with_curves:
            for number, configuration in enumerate(configurations):
                _draw_curve(axes, configuration, measure, number, smooth)
            axes.set_xlabel("training step")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
            axes.grid(alpha=0.3)
        else:
            for number, configuration in enumerate(configurations):
                _draw_mean(axes, configuration, measure, number)
            axes.set_xticks([])
            axes.margins(x=0.5 / max(1, len(configurations)) + 0.05)
            axes.grid(alpha=0.3, axis="y")
        if not axes.lines:
            axes.text(0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center", color="#777777")
        if measure.name == "success":
            axes.set_ylim(0, 1.08)  # with room for marks at 1
        else:
            from_zero(axes)
    _legend(figure, configurations, with_curves)
    figure.suptitle(plain(title, 120), fontsize=13)
    save(figure, path)


def errors_of(intervals: Sequence[Interval]) -> list[list[float]]:
    """Return how far intervals reach below and above their values, as matplotlib draws them; 0 where without end."""
    lengths = [(i.value - i.low, i.high - i.value) for i in intervals]
    return [
        [max(0.0, length) if math.isfinite(length) else 0.0 for length in side] for side in zip(*lengths, strict=True)
    ]


def _style(number: int) -> dict[str, Any]:
    return {"color": _COLORS[number % len(_COLORS)], "linestyle": "-" if number < len(_COLORS) else "--"}


def _draw_curve(axes: Any, configuration: Configuration, measure: Measure, number: int, smooth: int) -> None:
    style, mark = _style(number), _FACES[number % len(_FACES)]
    training, held_out = (configuration.curve(phase, measure.name) for phase in ("training", "held-out"))
    for values, width in ((training, smooth), (held_out, 1)):
        if not values:
            continue
        steps, spreads = list(values), [spread(values[step]) for step in values]
        means, deviations = (_smoothed(each, width) for each in zip(*spreads, strict=True))
        look = {"linewidth": 1.9, "marker": mark, "markersize": 4.5, "zorder": 3}
        if values is training:
            look = {"linewidth": 1.1, "marker": "." if len(steps) == 1 else None, "zorder": 2}
            look["alpha"] = 0.55 if held_out else 0.95
        axes.plot(steps, means, **style, **look)
        if len(configuration.runs) > 1:
            low, high = np.subtract(means, deviations), np.add(means, deviations)
            axes.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0, zorder=1)
        elif values is held_out and measure.name == "success":
            trials = configuration.runs[0].trials
            known = {s: share(v * trials[s], trials[s]) for s, v in zip(steps, means, strict=True) if s in trials}
            known = {step: interval for step, interval in known.items() if 0 <= interval.value <= 1}
            if known:
                look = {"fmt": "none", "ecolor": style["color"], "capsize": 2.5, "linewidth": 1, "zorder": 2}
                axes.errorbar([*known], [i.value for i in known.values()], yerr=errors_of([*known.values()]), **look)


def _smoothed(values: Sequence[float], width: int) -> list[float]:
    """Return the means over the last `width` values.

    >>> _smoothed([0.0, 1.0, 2.0], 2)
    [0.0, 0.5, 1.5]
    """
    return [total(part) / len(part) for part in (values[max(0, i + 1 - width) : i + 1] for i in range(len(values)))]


def _draw_mean(axes: Any, configuration: Configuration, measure: Measure, number: int) -> None:
    """Draw the mean of an evaluation with its interval, and the mean of each seed if there are several."""
    runs = [run.episodes[measure.name] for run in configuration.runs if run.episodes[measure.name]]
    if not runs:
        return
    color, interval = _style(number)["color"], configuration.estimate(measure.name)
    if len(runs) > 1:
        axes.plot([number + 0.12] * len(runs), [total(v) / len(v) for v in runs], ".", color=color, alpha=0.6)
    look = {"fmt": _FACES[number % len(_FACES)], "color": color, "capsize": 4}
    axes.errorbar([number], [interval.value], yerr=errors_of([interval]), **look)
    place = {"xy": (number, interval.value), "textcoords": "offset points", "xytext": (7, 5)}
    axes.annotate(f"{interval.value:.3g}", **place, fontsize=8, color=color)


def _legend(figure: Any, configurations: Sequence[Configuration], with_curves: bool) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for number, configuration in enumerate(configurations):
        count = len(configuration.runs)
        label = plain(configuration.label)
        if count > 1:
            label += f" ({count} seeds: mean, one standard deviation)" if with_curves else f" ({count} seeds)"
        handles.append(Line2D([], [], marker=_FACES[number % len(_FACES)], label=label, **_style(number)))
    if len({phase for c in configurations for run in c.runs for phase in run.curves}) > 1:
        marked: dict[str, Any] = {"color": "#444444", "linewidth": 1.9, "marker": "o", "markersize": 4.5}
        handles.append(Line2D([], [], color="#444444", linewidth=1.1, alpha=0.55, label="training episodes"))
        handles.append(Line2D([], [], **marked, label="held-out tasks"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)), fontsize=9, frameon=False)
