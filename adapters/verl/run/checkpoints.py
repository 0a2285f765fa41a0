"""Finds the Hugging Face folder of a run or a checkpoint, which everything that runs a model can open.

The PyTorch loop writes one. A verl checkpoint is converted by verl's own ``python -m verl.model_merger``, which writes
the weights in bfloat16. Results are kept under ``$AGENT_ENVS_DATA/checkpoints`` or ``~/.cache/agent_envs/checkpoints``.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from agent_envs.errors import BackendError, ConfigError, check_release
from agent_envs.files import data_dir, write_text
from agent_envs.prompts.pictures import IMAGE_PROCESSOR

_log = logging.getLogger(__name__)

_TRUST = "if you trust the run as you trust a program, give --trust"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def hugging_face_folder(
    checkpoint: str | os.PathLike[str], cache: str | os.PathLike[str] | None = None, *, trust: bool = False
) -> Path:
    """Return the checkpoint's policy as a Hugging Face folder, converting it if that was not done before.

    Args:
        checkpoint: A run's ``--out`` folder or its ``checkpoints`` (for the last one), a ``global_step_N``, or the
            ``actor`` in it; of the PyTorch loop, the run or its ``checkpoint``. A Hugging Face folder is returned
            unchanged.
        cache: Where converted checkpoints are kept.
        trust: Whether its files may run code.

    Raises:
        ConfigError: There is no checkpoint in that folder, or its files would run code.
        BackendError: verl cannot convert it.
        MissingExtraError: verl is not installed.
    """
    path = Path(checkpoint).expanduser()
    for folder in (path, path / "checkpoint" / "model", *([path / "model"] if path.name == "checkpoint" else [])):
        if _has_weights(folder):
            return folder
    actor = find_actor(path)
    if _has_weights(actor / "huggingface"):
        return actor / "huggingface"
    target = (data_dir() / "checkpoints" if cache is None else Path(cache).expanduser()) / _name(actor)
    if not target.exists():
        check_release("verl", "verl")
        if not trust:
            check_pickles(actor)
        _convert(actor, target)
    return target


def find_actor(path: Path) -> Path:
    """Return the policy's folder of a checkpoint, given any folder above it."""
    if not path.is_dir():
        raise ConfigError(f"no checkpoint: {path} is not a folder")
    last = [_last_folder(path), _last_folder(path / "checkpoints")]
    for folder in (path, path / "actor", *(step / "actor" for step in last if step)):
        if _backend(folder) is not None:
            return folder
    raise ConfigError(
        f"no verl checkpoint in {path}: expected a run's folder, its checkpoints, a global_step_N or the actor in it"
    )


def check_pickles(folder: Path) -> None:
    """Check that the files which verl unpickles hold tensors and plain values, nothing that runs code."""
    import numpy as np
    import torch
    from torch.distributed.tensor import DTensor  # noqa: F401  registers what a shard is made of

    if any(folder.rglob("*.distcp")):
        raise ConfigError(f"{folder}: what Megatron writes cannot be checked for code; {_TRUST}")
    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)  # it warns of meshes without processes
    numbers = [type(np.dtype(kind)) for kind in (np.uint32, np.int64, np.float32, np.float64)]
    array = np.zeros(0).__reduce__()[0]  # makes the array of NumPy's random state
    for path in sorted(folder.rglob("*.pt")):
        try:
            with torch.serialization.safe_globals([array, np.ndarray, np.dtype, *numbers]):
                torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as e:
            raise ConfigError(f"{path} holds more than tensors and plain values, or is broken; {_TRUST}") from e


def last_step(checkpoints: Path) -> int:
    """Return the step that verl resumes from, 0 for none; where a kill left its tracker empty, write it again.

    verl rewrites ``latest_checkpointed_iteration.txt`` in place, after everything else (trainer_base.py:1013).
    """
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        return 0
    if not (latest := tracker.read_text(encoding="utf-8", errors="replace").strip()).isdigit():
        complete = [int(path.parent.name.rpartition("_")[2]) for path in checkpoints.glob("global_step_*/data.pt")]
        if not complete:
            tracker.unlink()
            return 0
        write_text(tracker, latest := str(max(complete)))
    return int(latest)


def _last_folder(checkpoints: Path) -> Path | None:
    """The checkpoint that verl marks as the latest, otherwise the one with the highest step."""
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    latest = tracker.read_text(encoding="utf-8", errors="replace").strip() if tracker.is_file() else ""
    steps = {m[1]: p for p in checkpoints.glob("global_step_*") if (m := re.fullmatch(r"global_step_(\d+)", p.name))}
    return steps.get(latest) or (steps[max(steps, key=int)] if steps else None)


def _backend(actor: Path) -> str | None:
    """The engine that trained it, by the merger's name; None if this is not a checkpoint."""
    if (actor / "fsdp_config.json").is_file():
        return "fsdp"
    return "megatron" if (actor / "model" / "huggingface").is_dir() else None


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(any(folder.glob(pattern)) for pattern in _WEIGHTS)


def _name(actor: Path) -> str:
    """A readable name, different for different weights in the same folder."""
    actor = actor.resolve()
    files = sorted(p for p in actor.rglob("*") if p.is_file())
    contents = [f"{p.relative_to(actor)} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files]
    digest = hashlib.sha256("\n".join([str(actor), *contents]).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    parts = [part for part in actor.parts[-4:] if part not in ("actor", "checkpoints", os.sep)]
    return re.sub(r"[^\w.-]", "_", "-".join([*parts, digest]))


def _convert(actor: Path, target: Path) -> None:
    """Run verl's merger; the target appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [
        sys.executable, "-m", "verl.model_merger", "merge", "--backend", str(_backend(actor)),
        "--local_dir", str(actor.resolve()), "--target_dir", str(partial.resolve()),
    ]  # fmt: skip
    _log.info("converting %s", actor)
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode or not _has_weights(partial):
            output = "\n".join((done.stderr or done.stdout).splitlines()[-5:])
            raise BackendError(f"verl's merger failed to convert {actor} (exit status {done.returncode}):\n{output}")
        read = actor / "huggingface" / IMAGE_PROCESSOR  # the merger writes it only beside one for videos
        if read.is_file() and not (partial / IMAGE_PROCESSOR).exists():
            shutil.copyfile(read, partial / IMAGE_PROCESSOR)
        try:
            partial.rename(target)
        except OSError:
            if not target.exists():  # otherwise another process has just converted it
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
