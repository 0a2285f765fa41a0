"""Write the model of a run or a checkpoint as a Hugging Face folder.

It is the last checkpoint of a run of `agentr1 train` or of the PyTorch loop, or the one that is named; what verl writes
is converted by its own merger, to bfloat16.

examples:
  agentr1 export runs/mine --out models/mine
  agentr1 export runs/mine/checkpoints/global_step_40 --out models/step-40
  agentr1 serve-model models/mine
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agent_envs.cli.options import Folder, option
from agent_envs.errors import ConfigError


@dataclass(kw_only=True)
class Options:
    source: str = option(..., "the folder of a run, or a checkpoint in it", "source", metavar="RUN")
    out: Folder = option(..., "folder to write, which must not exist yet")
    trust: bool = option(False, "run code that a checkpoint's files hold (docs/security.md)")


def run(options: Options) -> str:
    """Write the folder, which appears whole or not at all."""
    from agent_envs.adapters.verl.run.checkpoints import hugging_face_folder
    from agent_envs.policies.named import check_model_folder

    out = Path(options.out).absolute()
    if out.exists():
        raise ConfigError(f"--out {options.out} already exists; choose another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=out.parent) as scratch:
        model = hugging_face_folder(options.source, scratch, trust=options.trust)
        if not model.is_relative_to(scratch):
            model = Path(shutil.copytree(model, Path(scratch) / "copy"))
        check_model_folder(model).rename(out)
    return f"{options.out}: the model of {options.source}; serve it with: agentr1 serve-model {options.out}"
