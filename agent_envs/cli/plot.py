"""Plot success, reward, turns and length over the steps of runs, and how they correlate with success.

A PATH is a training run's folder (metrics.jsonl, and its episodes), a metrics.jsonl, an evaluation's folder or its
episodes.jsonl. Runs that differ only in their seed (by run.json, else by their names without "seed3") are one
configuration: their mean, with one standard deviation over seeds. Lines with markers are held-out tasks, thin lines are
training episodes. The table shows how success correlates with reward, turns and length, over steps and over
episodes, where there is enough to tell.

examples:
  agentr1 plot runs/mine
  agentr1 plot runs/grpo-seed* runs/ppo-seed* --out compare.svg --smooth 5
  agentr1 plot runs/eval-base/episodes.jsonl runs/eval-trained/episodes.jsonl --out evals.png
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_envs.checks import integer, path_suffix
from agent_envs.cli.options import File, FileOrFolder, OutputOptions, option
from agent_envs.episodes.curves import MEASURES, Configuration, correlation, group_runs, read_run
from agent_envs.episodes.statistics import clustered_mean
from agent_envs.errors import ConfigError
from agent_envs.text import count_of


@dataclass(kw_only=True)
class Options(OutputOptions):
    runs: list[FileOrFolder] = option(..., "runs or evaluations", "runs", nargs="+")
    out: File | None = option("curves.png", "figure to write: .png, .svg or .pdf")
    title: str | None = option(None, "title of the figure (default: the environments' names)")
    smooth: int = option(1, "average training values over N steps")
    no_episodes: bool = option(False, "do not read the episodes of training runs")


def run(options: Options) -> str:
    from agent_envs.episodes.figures import FORMATS, draw_configurations

    out = path_suffix("--out", options.output_file(), FORMATS)
    integer("--smooth", options.smooth, minimum=1)
    runs = [read_run(Path(path), episodes=not options.no_episodes) for path in options.runs]
    if len({bool(each.curves) for each in runs}) > 1:
        over = ", ".join(each.name for each in runs if each.curves)
        raise ConfigError(f"plot training runs ({over}) and evaluations separately")
    configurations = group_runs(runs)
    names = sorted({str(each.settings.get("env", "")) for each in runs} - {""})
    title = options.title or ", ".join(names) or ", ".join(c.label for c in configurations)
    draw_configurations(out, configurations, title=title, smooth=options.smooth)
    return f"{tables(configurations)}\n\n{out}"


def tables(configurations: Sequence[Configuration]) -> str:
    """Return the first and last values of runs, or the means of evaluations, and the correlations with success."""
    width = max(len(configuration.label) for configuration in configurations)
    lines = []
    for configuration in configurations:
        for phase in ("held-out", "training"):
            curves = {m.name: configuration.curve(phase, m.name) for m in MEASURES}
            steps = sorted({step for values in curves.values() for step in values})
            for step in sorted({*steps[:1], *steps[-1:]}):
                cells = [f"{name} {_mean(name, values[step])}" for name, values in curves.items() if step in values]
                lines.append(f"{configuration.label:{width}}  {phase:8}  step {step:<6} {'  '.join(cells)}")
        if not any(each.curves for each in configuration.runs):
            cells = [f"{measure.name} {configuration.estimate(measure.name).shown()}" for measure in MEASURES]
            count = count_of(len(configuration.over_episodes("success")), "episode")
            lines.append(f"{configuration.label:{width}}  {count}  {'  '.join(cells)}")
    rows = []
    for configuration in configurations:
        for over, values_of in (("steps", configuration.over_steps), ("episodes", configuration.over_episodes)):
            success = values_of("success")
            pairs = {measure.name: correlation(success, values_of(measure.name)) for measure in MEASURES[1:]}
            if any(pairs.values()):
                rows.append((f"{configuration.label:{max(width, 24)}}  {over:8}  {len(success):>7}", pairs))
    if names := [measure.name for measure in MEASURES if any(pairs.get(measure.name) for _, pairs in rows)]:
        head = "".join(f"  {name:<25}" for name in names)
        lines += ["", f"{'correlation with success':{max(width, 24)}}  {'over':8}  {'n':>7}{head}".rstrip()]
        for begin, pairs in rows:
            told = "".join(f"  {each.shown('+') if (each := pairs[name]) else '-':<25}" for name in names)
            lines.append(f"{begin}{told}".rstrip())
    return "\n".join(lines)


def _mean(name: str, values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    low, high = (0.0, 1.0) if name == "success" else (-math.inf, math.inf)
    return f"{clustered_mean([[value] for value in values], low, high).shown()} of {len(values)} seeds"
