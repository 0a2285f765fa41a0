"""tiny-base: the pretrained model of 0.8 million parameters that training on a CPU starts from.

It lies beside this module, in `base/`: a Qwen2 model in float16, its tokenizer, and `README.md`, its card. `pretrain`
made it, and makes it again.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, Qwen2ForCausalLM

from agent_envs.adapters.tiny.model import save_model
from agent_envs.errors import BackendError
from agent_envs.prompts.pictures import PictureTokens

__all__ = ["base_folder", "check_files", "load_base", "vision_folder", "write_base"]

_DIGEST = "digest.json"


def base_folder() -> Path:
    """Return where tiny-base lies."""
    return Path(str(resources.files(__package__) / "base"))


def vision_folder() -> Path:
    """Return where tiny-vision lies, which reads pages (`seeing.pretrain`)."""
    return Path(str(resources.files(__package__) / "seeing" / "base"))


def load_base() -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Return tiny-base in float32, and its tokenizer.

    Raises:
        BackendError: A file is missing or is not the one that was made.
    """
    folder = base_folder()
    check_files(folder, "tiny-base")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


def check_files(folder: Path, name: str) -> None:
    """Check that a model's files are those that `write_base` wrote.

    Raises:
        BackendError: A file is missing or has changed.
    """
    try:
        try:
            digests = json.loads((folder / _DIGEST).read_bytes())
        except ValueError:
            digests = None
        if not isinstance(digests, dict) or "model.safetensors" not in digests:
            digests = {_DIGEST: None}
        for file, digest in digests.items():
            if _sha256(folder / file) != digest:
                raise BackendError(f"{folder / file}: the file of {name} has changed; install agent_envs anew")
    except OSError as e:
        raise BackendError(f"{e.filename}: a file of {name} is missing; install agent_envs anew") from e


def write_base(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pictures: PictureTokens | None, folder: Path
) -> None:
    """Write a model as tiny-base is kept: in float16, with the SHA-256 of each file."""
    save_model(model.half(), tokenizer, folder, pictures)
    whole = folder / "tokenizer.json"  # written with a line for every token and merge
    whole.write_text(json.dumps(json.loads(whole.read_text(encoding="utf-8")), ensure_ascii=False), encoding="utf-8")
    digests = {path.name: _sha256(path) for path in sorted(folder.iterdir())}
    (folder / _DIGEST).write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
