"""Compare evaluations that played the same panel of tasks: paired differences with confidence intervals.

A RUN is the --out of an agentr1 eval, a folder of several, or several joined by commas: runs that differ in their seed
alone (of the policy's training, say) and together are one side. Each side is compared with the first one. All must have
played the same panel, which is the list of tasks of an evaluation, with the environment's arguments and the contents of
the tasks; --panel RUN of the command eval plays that of another run.

examples:
  agentr1 compare runs/base runs/trained
  agentr1 compare runs/base runs/grpo runs/ppo                    # each holds an evaluation per training seed
  agentr1 compare runs/base runs/seed0,runs/seed1,runs/seed2 --json

Intervals are 95 %, by a bootstrap over tasks and runs; docs/evaluation.md says how.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agent_envs.cli.options import option
from agent_envs.errors import ConfigError
from agent_envs.rollout.comparison import EvaluatedRun, PairedComparison, compare_runs, read_evaluated
from agent_envs.rollout.panel import PANEL_FILE
from agent_envs.text import count_of

_NAME = 30  # longest name of a column


@dataclass(kw_only=True)
class Options:
    runs: list[str] = option(..., "the first evaluation, and others to compare", "runs", nargs="+", metavar="RUN")
    common: bool = option(False, "compare panels with other tasks too, on the tasks that both have")
    json: bool = option(False, "print one JSON object instead of tables")


def run(options: Options) -> str:
    if len(options.runs) < 2:
        raise ConfigError("give at least two runs: the first, and one or more to compare with it")
    first, *others = (_side(text) for text in options.runs)
    comparisons = [compare_runs(first, other, common=options.common) for other in others]
    panel = first[0].panel
    if options.json:
        return json.dumps({"panel": panel.digest, "comparisons": [each.to_dict() for each in comparisons]})
    split = panel.content["arguments"].get("split")
    where = ", ".join([panel.env, *([f"split {split}"] if split else []), f"panel {panel.name}"])
    where += " (the tasks that both have)" if options.common else " (the same tasks in every run)"
    tables = [_table(options.runs[0], name, each) for name, each in zip(options.runs[1:], comparisons, strict=True)]
    return "\n\n".join([where, *tables])


def _side(text: str) -> list[EvaluatedRun]:
    """Return the evaluations that an argument names."""
    folders: list[Path] = []
    for path in map(Path, filter(None, text.split(","))):
        inside = [] if (path / PANEL_FILE).exists() else sorted(path.glob(f"*/{PANEL_FILE}"))
        folders += [file.parent for file in inside] or [path]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError(f"{text} names a run twice")
    return [read_evaluated(folder) for folder in folders]


def _table(first: str, second: str, comparison: PairedComparison) -> str:
    lines = [f"{second} against {first}: {count_of(comparison.tasks, 'task')}"]
    sizes = [len(side) for side in (comparison.first, comparison.second)]
    if max(sizes) > 1:
        lines[0] += f", {sizes[1]} runs against {sizes[0]}"
    if comparison.left_out:
        lines[0] += f"; {comparison.left_out} more not played by all runs, or broken"
    heads = [f"{name if len(name) <= _NAME else '...' + name[3 - _NAME :]:>8}" for name in (first, second)]
    lines += ["", f"{'':7}  {heads[0]}  {heads[1]}  {'difference':>10}   95 % interval"]
    for name, row in comparison.measures.items():
        change = row.difference
        value, low, high = (_digits(number, "+") for number in (change.value, change.low, change.high))
        cells = [f"{_digits(mean):>{len(head)}}" for mean, head in zip((row.first, row.second), heads, strict=True)]
        lines.append(f"{name:7}  {'  '.join(cells)}  {value:>10}   [{low}, {high}]")
    return "\n".join(lines)


def _digits(value: float, sign: str = "") -> str:
    return f"{value:{sign}.3f}" if abs(value) < 1e6 else f"{value:{sign}.3g}"
