"""Models as folders, which appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
