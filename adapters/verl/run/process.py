"""verl as a process: start it, watch it, end it, and find what went wrong in its log."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tqdm import tqdm

import agent_envs
from agent_envs.adapters.run import append_record
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.adapters.verl.run.folder import PhaseWatch, RunFolder, read_log
from agent_envs.errors import BackendError, needs_extra
from agent_envs.files import write_text

with needs_extra("verl"):
    import torch
    from omegaconf import OmegaConf

TREES = "agentr1_tree"
"""The vendor of the engines that train on prefix trees, in VERL_ENGINE_VENDOR."""

# What a worker needs on its path to import this package: the checkout, or site-packages.
_ROOT = Path(agent_envs.__file__).resolve().parents[1]
_SHOWN = {"env/success": "success", "env/return/mean": "reward", "val/success": "held-out"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(r"^\([^)]*pid=\d+[^)]*\) ?")
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt|Exceeded)")


def process_environment(*, cpu: bool, trees: bool = False) -> dict[str, str]:
    """Return the variables that must be set before verl is imported; Ray passes them on. ``trees`` chooses engines."""
    out = {"VERL_USE_EXTERNAL_MODULES": "agent_envs.adapters.verl.run.plugin", "TOKENIZERS_PARALLELISM": "false"}
    if trees:
        out["VERL_ENGINE_VENDOR"] = TREES
    if cpu:
        out |= {
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",  # which of verl's engines: the CUDA one runs on any torch device
            # for the updates, which run alone; the generation server takes half of it (cpu_rollout)
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(min(torch.get_num_threads(), 8)),
            "TQ_NUM_THREADS": "1",  # TransferQueue moves kilobytes, and warns at every move of more threads than cores
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else vLLM's threads keep to cores that the other processes use
        }
    return out


def run_verl(config: Any, folder: RunFolder, log: Path, resumed_from: int) -> None:
    """Run verl in a process of its own until it ends, showing the progress on standard error.

    verl's file logger writes this start's metrics to ``log``; the configuration that verl gets is written beside it.
    """
    ray_folder = _ray_folder(folder.out)
    shutil.rmtree(ray_folder, ignore_errors=True)
    os.mkdir(ray_folder, mode=0o700)
    logs = {
        "VERL_FILE_LOGGER_PATH": str(log),
        "TENSORBOARD_DIR": os.environ.get("TENSORBOARD_DIR", str(folder.out / "tensorboard")),
        "WANDB_DIR": os.environ.get("WANDB_DIR", str(folder.out)),
    }
    settings, cpu = read_settings(config), config.trainer.device == "cpu"
    trees = settings.layout == "tree"
    folder.phase.unlink(missing_ok=True)
    watch = PhaseWatch(folder.phase, settings.stall_timeout)
    variables = {**os.environ, **process_environment(cpu=cpu, trees=trees)}
    if cpu:
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        variables.pop("RAY_ADDRESS", None)
    variables |= {
        "RAY_TMPDIR": ray_folder,
        **logs,
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
    }
    if trees:
        logs["VERL_ENGINE_VENDOR"] = TREES
    # given to Ray as well: the processes of a cluster that is already running do not have this one's variables
    OmegaConf.update(config, "ray_kwargs.ray_init.runtime_env.env_vars", logs, force_add=True)
    path = log.with_suffix(".yaml")
    write_text(path, OmegaConf.to_yaml(config))
    command = [sys.executable, "-m", "agent_envs.adapters.verl.run.launch", str(os.getpid()), str(path)]
    with folder.log.open("ab") as output, _terminable():
        begin = output.tell()
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=variables,
            start_new_session=True,
        )  # fmt: skip
        try:
            stalled = _watch(process, config.trainer.total_training_steps, folder.metrics, log, resumed_from, watch)
        finally:
            if process.poll() is None:  # Ray's own processes notice that it is gone and end too
                process.terminate()
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            folder.phase.unlink(missing_ok=True)
            shutil.rmtree(ray_folder, ignore_errors=True)
    if stalled is not None or process.returncode:
        stopped = f"{stalled}, and was stopped (agentr1.stall_timeout)"
        raise BackendError(
            f"{stopped if stalled else f'verl stopped with exit status {process.returncode}'}; the last error: "
            f"{last_error(folder.log, begin)}\nIts whole output is in {folder.log}. Fix the cause and run the same "
            "command again to resume from the last checkpoint."
        )


def _ray_folder(out: Path) -> str:
    """Return the folder of Ray's files, which follows from the run: the next start clears what a killed one left.

    The paths of the sockets in it have at most 107 bytes. It is therefore not in the run's own folder, and not in the
    system's folder of temporary files where that has a long name.
    """
    name = f"agentr1-{os.getuid()}-{hashlib.sha256(bytes(out)).hexdigest()[:12]}"
    inside = "/ray/session_2000-01-01_00-00-00_000000_4194304/sockets/plasma_store"
    folder = os.path.join(tempfile.gettempdir(), name)
    return folder if len(os.fsencode(folder + inside)) <= 107 else f"/tmp/{name}"


def _watch(
    process: subprocess.Popen[bytes], steps: int, metrics: Path, log: Path, resumed_from: int, watch: PhaseWatch
) -> str | None:
    """Show the progress and copy each step's metrics as they come, until the process ends; return what stands still."""
    offset, shown = 0, dict[str, str]()
    live = sys.stderr.isatty()  # a clock that ticks is for a terminal, not for a file
    with tqdm(total=steps, initial=resumed_from, desc="starting verl", unit="step") as bar:
        while True:
            ended = process.poll() is not None
            records, offset = read_log(log, offset)
            for record in records:
                append_record(metrics, record)
                for key, name in _SHOWN.items():
                    if record.get(key) is not None:
                        shown[name] = f"{record[key]:.2f}"
                bar.set_postfix(shown, refresh=False)
                bar.update(record["step"] - bar.n)
            stalled = watch.look()
            bar.set_description("starting verl" if watch.phase == "starting" else watch.phase, refresh=False)
            if live:
                bar.refresh()
            if ended or stalled is not None:
                return None if ended else stalled
            time.sleep(0.25)


@contextmanager
def _terminable() -> Iterator[None]:
    """Within this block SIGTERM ends the program as Ctrl-C does, so that nothing is left running."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def last_error(log: Path, begin: int = 0) -> str:
    """Return the last Python error in a log from byte ``begin`` on, with the line that belongs to it."""
    with log.open("rb") as file:
        file.seek(begin)
        text = file.read().decode("utf-8", "replace")
    lines = [kept for line in _COLOUR.sub("", text).splitlines()[-400:] if (kept := _PREFIX.sub("", line).strip())]
    for number in range(len(lines) - 1, -1, -1):
        if _ERROR.fullmatch(lines[number].partition(":")[0]):
            end = number + 2 if lines[number].endswith(":") else number + 1  # what went wrong may be in the next line
            return " ".join(lines[number:end])[:500]
    return "no Python error was printed"
