"""Say how the log-ratios of a run's steps grow with their lengths: near 1 speaks for the loss capo, 2 for gspo.

DIR is the folder that the run recorded them in: `agentr1.ratios_dir` of verl, `--ratios-dir` of the PyTorch loop. A
batch must have two updates at least: in the first, nothing moves.

examples:
  agentr1 train --env AgentR1/GSM8KTool-v0 --algo capo --out runs/mine +agentr1.ratios_dir=runs/mine/ratios
  agentr1 ratios runs/mine/ratios
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_envs.cli.options import Folder, option


@dataclass(kw_only=True)
class Options:
    folder: Folder = option(..., "what ratios_dir was in the run", "folder", metavar="DIR")


def run(options: Options) -> str:
    from agent_envs.adapters.losses.ratios import ratios_report

    return ratios_report(options.folder)
