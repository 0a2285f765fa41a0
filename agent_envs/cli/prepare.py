"""`agentr1 prepare TASK`: download released data to where data="official" looks for it."""

from __future__ import annotations

import argparse
import sys

from agent_envs.checks import choice

__all__ = ["add_arguments", "run"]

_EPILOG = """\
The tasks are alfworld, gsm8k, hotpotqa, 2wiki, musique, papersearch and webshop. Play the data with data="official" in
Python, or --data official on the command line.

examples:
  agentr1 prepare gsm8k
  agentr1 prepare alfworld --from ~/downloads/json_2.1.1_json.zip    # without a network
  agentr1 prepare webshop --from ~/webshop/data --out /data/agent_envs     # then set AGENT_ENVS_DATA=/data/agent_envs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("task", help="name of the task, such as gsm8k")
    add("--from", dest="source", metavar="PATH", help="released files on this machine, instead of downloading")
    add("--out", metavar="DIR", help="where to put it (default: $AGENT_ENVS_DATA or ~/.cache/agent_envs)")


def run(arguments: argparse.Namespace) -> str:
    from agent_envs.datasets.prepare import SOURCES, prepare

    task = choice("task", arguments.task, SOURCES)
    if arguments.source is None:  # said before anything that can fail
        sys.stderr.write(
            f"{task} comes from {SOURCES[task]}; if you have the files: agentr1 prepare {task} --from PATH\n"
        )
    return str(prepare(task, arguments.source, arguments.out))
