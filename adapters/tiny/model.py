"""Models as folders, which appear whole or not at all, and tiny-base, which training on a CPU starts from.

tiny-base, a Qwen2 model of 0.8 million parameters in float16, is beside this module in `base/`, with its tokenizer and
its card, `README.md`. benchmarks/pretraining makes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from hashlib import sha256
from importlib import resources
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, Qwen2ForCausalLM

from agent_envs.errors import BackendError, first_line
from agent_envs.files import move_folder
from agent_envs.prompts.pictures import PictureTokens


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    pictures: PictureTokens | None = None,
) -> None:
    """Write model and tokenizer to a Hugging Face folder, completely or not at all: `folder` appears by a rename.

    A vision-language model has its image processor beside it, from `pictures`. A BackendError says that it cannot be
    written.
    """
    folder = Path(folder)
    parts = folder.with_name(f".{folder.name}.{os.getpid()}.parts")
    with writing_weights(parts):
        model.save_pretrained(parts)
        tokenizer.save_pretrained(parts)
        if pictures is not None:
            pictures.image_processor.save_pretrained(parts)
    move_folder(parts, folder)


@contextlib.contextmanager
def writing_weights(folder: Path) -> Iterator[None]:
    """Fill a new folder with weights; after an error it is removed.

    Raises:
        BackendError: A file cannot be written, as on a full disk, of which the libraries for weights make other errors.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        yield
    except Exception as e:
        shutil.rmtree(folder, ignore_errors=True)
        cause = e.__context__ if isinstance(e.__context__, OSError) else e
        raise BackendError(f"{folder.parent}: the weights cannot be written: {first_line(cause)}") from e


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
