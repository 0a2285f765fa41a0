"""`agentr1 plot`: curves of runs, means of evaluations, and what goes with success."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from agent_envs.episodes.curves import MEASURES, Configuration, correlation, group_runs, read_run
from agent_envs.episodes.statistics import Interval, mean
from agent_envs.errors import ConfigError

__all__ = ["add_arguments", "run", "tables"]

_EPILOG = """\
A PATH is a training run's folder (metrics.jsonl, and its episodes), a metrics.jsonl, an evaluation's folder or its
episodes.jsonl. Runs that differ in their seed alone (by run.json, else by their names without "seed3") are one
configuration: their mean, with one standard deviation over seeds. Lines with marks are held-out tasks, thin ones the
training episodes. The last panel and the table say how success goes together with reward, turns and length, over steps
and over episodes.

examples:
  agentr1 plot runs/mine
  agentr1 plot runs/grpo-seed* runs/ppo-seed* --out compare.svg --smooth 5
  agentr1 plot runs/eval-base/episodes.jsonl runs/eval-trained/episodes.jsonl --out evals.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 plot`."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("runs", nargs="+", metavar="PATH", help="runs, or evaluations")
    add("--out", metavar="FILE", default="curves.png", help="a .png, .svg or .pdf (default: %(default)s)")
    add("--title", help="over the figure (default: the environments' names)")
    add("--smooth", type=int, default=1, metavar="N", help="draw training values as means over N steps (default: 1)")
    add("--no-episodes", action="store_true", help="do not read the episodes of training runs, which may be many")


def run(arguments: argparse.Namespace) -> str:
    """Draw the figure; the tables behind it."""
    from agent_envs.episodes.figures import FORMATS, draw_configurations

    out = Path(arguments.out)
    if out.suffix.lower() not in FORMATS:
        raise ConfigError(f"--out {out}: the suffix says the format, one of {', '.join(FORMATS)}")
    if arguments.smooth < 1:
        raise ConfigError(f"--smooth must be at least 1, got {arguments.smooth}")
    runs = [read_run(Path(path), episodes=not arguments.no_episodes) for path in arguments.runs]
    if len({bool(each.curves) for each in runs}) > 1:
        over = ", ".join(each.name for each in runs if each.curves)
        raise ConfigError(f"{over} have steps and the others have none: draw runs and evaluations apart")
    configurations = group_runs(runs)
    names = sorted({str(each.settings.get("env", "")) for each in runs} - {""})
    title = arguments.title or ", ".join(names) or ", ".join(c.label for c in configurations)
    draw_configurations(out, configurations, title=title, smooth=arguments.smooth)
    return f"{tables(configurations)}\n\n{out}"


def tables(configurations: Sequence[Configuration]) -> str:
    """First and last values of runs, or means of evaluations; then the correlations with success."""
    width = max(len(configuration.label) for configuration in configurations)
    lines = []
    for configuration in configurations:
        for phase in ("held-out", "training"):
            found = {m.name: configuration.curve(phase, m.name) for m in MEASURES}
            steps = sorted({step for values in found.values() for step in values})
            for step in sorted({*steps[:1], *steps[-1:]}):
                said = [f"{name} {_mean(values[step])}" for name, values in found.items() if step in values]
                lines.append(f"{configuration.label:{width}}  {phase:8}  step {step:<6} {'  '.join(said)}")
        if not any(each.curves for each in configuration.runs):
            said = []
            for measure in MEASURES:
                said.append(f"{measure.name} {_shown(configuration.estimate(measure.name))}")
            count = len(configuration.over_episodes("success"))
            lines.append(f"{configuration.label:{width}}  {count} episodes  {'  '.join(said)}")
    lines += ["", f"{'correlation with success':{max(width, 24)}}  {'over':8}  {'n':>7}"]
    lines[-1] += "".join(f"  {measure.name:<22}" for measure in MEASURES[1:]).rstrip()
    for configuration in configurations:
        for over, values_of in (("steps", configuration.over_steps), ("episodes", configuration.over_episodes)):
            success = values_of("success")
            if success:
                cells = [_shown(correlation(success, values_of(measure.name)), "+") for measure in MEASURES[1:]]
                row = f"{configuration.label:{max(width, 24)}}  {over:8}  {len(success):>7}"
                lines.append(row + "".join(f"  {cell:<22}" for cell in cells).rstrip())
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> str:
    return f"{values[0]:.3f}" if len(values) == 1 else f"{_shown(mean(values))} of {len(values)} seeds"


def _shown(interval: Interval | None, sign: str = "") -> str:
    if interval is None:
        return "-"
    return f"{interval.value:{sign}.3f} [{interval.low:{sign}.2f}, {interval.high:{sign}.2f}]"
