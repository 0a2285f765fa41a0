"""`agentr1 prepare TASK`: released data where data="official" looks for it."""

from __future__ import annotations

import argparse

__all__ = ["add_arguments", "run"]

_EPILOG = """\
The tasks are alfworld, gsm8k, hotpotqa, 2wiki, musique, papersearch and webshop. Environments play what is in place
with data="official", or --data official.

examples:
  agentr1 prepare gsm8k
  agentr1 prepare alfworld --from ~/downloads/json_2.1.1_json.zip    # without a network
  agentr1 prepare webshop --from ~/webshop/data --out /data/agent_envs     # and AGENT_ENVS_DATA=/data/agent_envs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 prepare`."""
    parser.epilog = _EPILOG
    parser.add_argument("task", help="name of the task, such as gsm8k")
    parser.add_argument("--from", dest="source", metavar="PATH", help="released files on this machine, when offline")
    parser.add_argument(
        "--out", metavar="DIR", help="where to put it (default: $AGENT_ENVS_DATA or ~/.cache/agent_envs)"
    )


def run(arguments: argparse.Namespace) -> str:
    """Prepare the data; the folder it is in."""
    from agent_envs.datasets.prepare import prepare

    return str(prepare(arguments.task, arguments.source, arguments.out))
