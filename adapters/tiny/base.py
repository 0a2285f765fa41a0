"""tiny-base: the pretrained model of 0.8 million parameters that training on a CPU starts from.

It is beside this module, in `base/`: a Qwen2 model in float16, its tokenizer, and `README.md`, its card.
benchmarks/pretraining makes it.
"""

from __future__ import annotations

import json
from hashlib import sha256
from importlib import resources
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, Qwen2ForCausalLM

from agent_envs.errors import BackendError

_DIGEST = "digest.json"


def base_folder() -> Path:
    """Return the folder of tiny-base."""
    return Path(str(resources.files(__package__) / "base"))


def vision_folder() -> Path:
    """Return the folder of tiny-vision, which reads pages."""
    return Path(str(resources.files(__package__) / "vision_base"))


def load_base() -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Return tiny-base in float32, and its tokenizer."""
    folder = base_folder()
    check_files(folder, "tiny-base")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def check_files(folder: Path, name: str) -> None:
    """Check that a model's files are those that were made."""
    try:
        digests = json.loads((folder / _DIGEST).read_bytes())
        changed = [file for file, made in digests.items() if sha256((folder / file).read_bytes()).hexdigest() != made]
        if "model.safetensors" not in digests:
            changed = [_DIGEST]
    except OSError as e:
        raise BackendError(f"{e.filename}: a file of {name} is missing; install agent_envs again") from e
    except (AttributeError, ValueError):
        changed = [_DIGEST]
    if changed:
        raise BackendError(f"{folder / changed[0]}: the file of {name} has changed; install agent_envs again")
