"""Write generated houses as game files of ALFWorld, which the original loads too.

examples:
  agentr1 generate alfworld --n 1000 --out games --size 2-4 --families pick_and_place_simple
  agentr1 eval --env AgentR1/ALFWorld-v0 --data games --split train --policy expert
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_envs.checks import choice
from agent_envs.cli.options import Folder, given_options, option


@dataclass(kw_only=True)
class Options:
    task: str = option(..., "name of the task: alfworld", "task")
    out: Folder = option(..., "folder to write; a split that was generated there before is replaced")
    n: int = option(1000, "number of tasks")
    split: str | None = option(None, "split to generate (default: train)")
    size: str | None = option(None, "difficulty, as for the environment's keyword: 3, 2-4")
    families: str | None = option(None, "families of tasks, separated by commas (default: all)")
    quiet: bool = option(False, "show no progress bar")


def run(options: Options) -> str:
    from agent_envs.datasets.alfworld.generate import generate_alfworld

    choice("task", options.task, ["alfworld"])
    arguments = given_options(options, ["split", "size", "families"])
    return str(generate_alfworld(options.out, options.n, progress=not options.quiet, **arguments))
