"""verl as a process: started, watched, ended, and what its log says went wrong."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tqdm import tqdm

import agent_envs
from agent_envs.adapters.metrics_log import append_record
from agent_envs.adapters.verl.config.overrides import environment
from agent_envs.adapters.verl.config.presets import Preset
from agent_envs.adapters.verl.config.run import Paths, RunConfig
from agent_envs.adapters.verl.config.settings import quoted
from agent_envs.adapters.verl.run.verl_log import read_log
from agent_envs.errors import BackendError

__all__ = ["last_error", "run_verl"]

# What a worker's path needs to import this package: the checkout, or site-packages.
_ROOT = Path(agent_envs.__file__).resolve().parents[1]
_SHOWN = {"env/success": "success", "env/return/mean": "reward", "val/success": "held-out"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(r"^\([^)]*pid=\d+[^)]*\) ?")
_ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt|Exceeded)")


def run_verl(
    config: RunConfig, preset: Preset, paths: Paths, overrides: Sequence[str], log: Path, resumed_from: int
) -> None:
    """Run verl in a process of its own until it ends, showing the progress on standard error.

    Args:
        config: The run.
        preset: Its preset.
        paths: Where its files lie.
        overrides: verl's settings, in Hydra's form.
        log: Where verl's file logger writes this start's metrics.
        resumed_from: The step of the checkpoint it goes on from.

    Raises:
        BackendError: verl failed; the message holds its last error.
    """
    # Unix sockets lie in here, and their paths are limited to 107 bytes: a short folder, not one in the run's own. Its
    # name follows from the run, so that what a killed start left is cleared by the next one.
    ray_folder = f"/tmp/agentr1-{os.getuid()}-{hashlib.sha256(bytes(paths.out)).hexdigest()[:12]}"
    shutil.rmtree(ray_folder, ignore_errors=True)
    os.mkdir(ray_folder, mode=0o700)
    logs = {
        "VERL_FILE_LOGGER_PATH": str(log),
        "TENSORBOARD_DIR": os.environ.get("TENSORBOARD_DIR", str(paths.out / "tensorboard")),
        "WANDB_DIR": os.environ.get("WANDB_DIR", str(paths.out)),
    }
    variables = {**os.environ, **environment(cpu=preset.cpu)}
    if preset.cpu:
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        variables.pop("RAY_ADDRESS", None)
    variables |= {
        "RAY_TMPDIR": ray_folder,
        **logs,
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
    }
    hydra = [f"hydra.run.dir={quoted(paths.starts)}", "hydra.output_subdir=null", "hydra/job_logging=disabled"]
    # said to Ray as well: the processes of a cluster that runs already do not have this one's variables
    hydra += [f"++ray_kwargs.ray_init.runtime_env.env_vars.{name}={quoted(value)}" for name, value in logs.items()]
    command = [sys.executable, "-m", "agent_envs.adapters.verl.run.launch", str(os.getpid()), *overrides, *hydra]
    with paths.log.open("ab") as output, _terminable():
        begin = output.tell()
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=variables,
            start_new_session=True,
        )  # fmt: skip
        try:
            _watch(process, config, paths, log, resumed_from)
        finally:
            _end(process)
            shutil.rmtree(ray_folder, ignore_errors=True)
    if process.returncode != 0:
        raise BackendError(
            f"verl stopped with exit status {process.returncode}: {last_error(paths.log, begin)}\n"
            f"Everything it printed is in {paths.log}. Once the cause is mended, the same command continues from the "
            "last checkpoint."
        )


def _watch(process: subprocess.Popen[bytes], config: RunConfig, paths: Paths, log: Path, resumed_from: int) -> None:
    """Show the progress until the process ends, and copy each step's metrics as they come."""
    offset = 0
    shown: dict[str, str] = {}
    live = sys.stderr.isatty()  # a clock that ticks is for a terminal, not for a file
    with tqdm(total=config.steps, initial=resumed_from, desc="starting verl", unit="step") as bar:
        while True:
            ended = process.poll() is not None
            records, offset = read_log(log, offset)
            for record in records:
                append_record(paths.metrics, record)
                bar.set_description("training")
                for key, name in _SHOWN.items():
                    if record.get(key) is not None:
                        shown[name] = f"{record[key]:.2f}"
                bar.set_postfix(shown, refresh=False)
                bar.update(record["step"] - bar.n)
            if live:
                bar.refresh()
            if ended:
                return
            time.sleep(0.25)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started. Ray's own processes notice that it is gone and follow."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
    """The last Python error in a log, the lines that belong to it included; from byte ``begin`` on."""
    with log.open("rb") as file:
        file.seek(begin)
        text = file.read().decode("utf-8", "replace")
    lines = [_PREFIX.sub("", line) for line in _COLOUR.sub("", text).splitlines()[-400:]]
    for number in range(len(lines) - 1, -1, -1):
        kind = lines[number].strip().partition(":")[0]
        if _ERROR.fullmatch(kind):
            said = [lines[number].strip()]
            if said[0].endswith(":"):  # what went wrong is in the next line
                said += [line.strip() for line in lines[number + 1 :] if line.strip()][:1]
            return " ".join(said)[:500]
    return "no Python error was printed"
