"""`agentr1 generate TASK`: write generated tasks as files in a released format."""

from __future__ import annotations

import argparse

__all__ = ["add_arguments", "run"]

_EPILOG = """\
The tasks are alfworld, papersearch and webshop. The original programs load the files too.

examples:
  agentr1 generate alfworld --n 1000 --out games --size 2-4 --families pick_and_place_simple
  agentr1 eval --env AgentR1/ALFWorld-v0 --data games --split train --policy expert
  agentr1 generate webshop --n 1000 --out shop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("task", help="name of the task, such as alfworld")
    add("--out", metavar="DIR", required=True, help="folder to write; existing files are kept")
    add("--n", type=int, default=1000, help="number of tasks (default: %(default)s)")
    add("--split", help="split to generate (default: train)")
    add("--size", help="difficulty, as for the environment's keyword: 3, 2-4")
    add("--families", help="families of tasks, separated by commas (default: all)")
    add("--seed", type=int, help='0 for the tasks of data="generated", any other for other tasks')
    add("--quiet", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> str:
    from agent_envs.datasets.generate import generate

    options = {name: getattr(arguments, name) for name in ("split", "size", "families", "seed")}
    return str(generate(arguments.task, arguments.out, arguments.n, progress=not arguments.quiet, **options))
