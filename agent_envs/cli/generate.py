"""`agentr1 generate TASK`: generated tasks as files in a released format."""

from __future__ import annotations

import argparse

__all__ = ["add_arguments", "run"]

_EPILOG = """\
The tasks are alfworld, papersearch and webshop; the files are those that the original programs load.

examples:
  agentr1 generate alfworld --n 1000 --out games --size 2-4 --families pick_and_place_simple
  agentr1 eval --env AgentR1/ALFWorld-v0 --data games --split train --policy expert
  agentr1 generate webshop --n 1000 --out shop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 generate`."""
    parser.epilog = _EPILOG
    parser.add_argument("task", help="name of the task, such as alfworld")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write; nothing in it is overwritten")
    parser.add_argument("--n", type=int, default=1000, help="number of tasks (default: %(default)s)")
    parser.add_argument("--split", help="which of the generated splits (default: train)")
    parser.add_argument("--size", help="difficulty, as the environment's keyword takes it: 3, 2-4")
    parser.add_argument("--families", help="families of tasks, separated by commas (default: all)")
    parser.add_argument("--seed", type=int, help='0 for the tasks that data="generated" has, else others')
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> str:
    """Generate the tasks; the folder they are in."""
    from agent_envs.datasets.generate import generate

    options = {name: getattr(arguments, name) for name in ("split", "size", "families", "seed")}
    return str(generate(arguments.task, arguments.out, arguments.n, progress=not arguments.quiet, **options))
