"""Write generated tasks as files in a released format. Run the same command again to resume.

The tasks are alfworld, papersearch and webshop. The original programs load the files too.

examples:
  agentr1 generate alfworld --n 1000 --out games --size 2-4 --families pick_and_place_simple
  agentr1 eval --env AgentR1/ALFWorld-v0 --data games --split train --policy expert
  agentr1 generate webshop --n 1000 --out shop
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_envs.cli.options import Folder, option


@dataclass(kw_only=True)
class Options:
    """What is generated, and where to."""

    task: str = option(..., "name of the task, such as alfworld", "task")
    out: Folder = option(..., "folder to write; existing files are kept")
    n: int = option(1000, "number of tasks")
    split: str | None = option(None, "split to generate (default: train)")
    size: str | None = option(None, "difficulty, as for the environment's keyword: 3, 2-4")
    families: str | None = option(None, "families of tasks, separated by commas (default: all)")
    seed: int | None = option(None, '0 for the tasks of data="generated", any other for other tasks')
    quiet: bool = option(False, "show no progress bar")


def run(options: Options) -> str:
    from agent_envs.datasets.generate import generate

    kwargs = {name: getattr(options, name) for name in ("split", "size", "families", "seed")}
    return str(generate(options.task, options.out, options.n, progress=not options.quiet, **kwargs))
