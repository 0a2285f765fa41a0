"""Download a task's released data to where data="official" looks for it.

The tasks are alfworld, gsm8k, hotpotqa, 2wiki, musique, papersearch and webshop. Play the data with data="official" in
Python, or --data official on the command line.

examples:
  agentr1 prepare gsm8k
  agentr1 prepare alfworld --from ~/downloads/json_2.1.1_json.zip    # without a network
  agentr1 prepare hotpotqa --source modelscope --from ~/Agent-R1-data    # checks the rows, and prints what --data takes
  agentr1 prepare webshop --from ~/webshop/data --out /data/agent_envs     # then set AGENT_ENVS_DATA=/data/agent_envs
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from agent_envs.cli.options import FileOrFolder, Folder, option
from agent_envs.datasets.prepare import FROM, SOURCES, prepare


@dataclass(kw_only=True)
class Options:
    task: str = option(..., "name of the task, such as gsm8k", "task")
    source: str | None = option(None, "modelscope: Agent-R1's processed release; huggingface: the hub", choices=FROM)
    from_path: FileOrFolder | None = option(None, "released files on this machine, instead of downloading", "--from")
    out: Folder | None = option(None, "where to put it (default: $AGENT_ENVS_DATA or ~/.cache/agent_envs)")


def run(options: Options) -> str:
    task, source = options.task, options.source
    if options.from_path is None and source != "modelscope" and task in SOURCES:  # said before anything that can fail
        sys.stderr.write(
            f"{task} comes from {SOURCES[task]}; if you have the files: agentr1 prepare {task} --from PATH\n"
        )
    return str(prepare(task, options.from_path, options.out, source=source))
