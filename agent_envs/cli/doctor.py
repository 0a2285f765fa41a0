"""Look at what is installed and in which versions, try what should work on this machine, and say what to do.

A line begins with ok, with differs (another version than the pinned one, which may work) or with broken; --all adds
what is absent, and needed only for what its line says. The exit status is 1 if something is broken, else 0.

examples:
  agentr1 doctor
  agentr1 doctor --all
  agentr1 doctor --quick                     # starts neither Ray nor torch
  agentr1 doctor --json | jq '.findings[] | select(.state == "broken")'
  agentr1 doctor --constraints constraints-gpu.txt
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.version import Version

from agent_envs._version import __version__
from agent_envs.cli.options import File, option
from agent_envs.errors import AgentEnvsError, BackendError, DataError, first_line
from agent_envs.files import data_dir
from agent_envs.policies import ExpertPolicy
from agent_envs.registration import make_env
from agent_envs.rollout.one import run_episode
from agent_envs.sandbox import open_sandbox

_PROJECT = "agent-envs"
_EPISODE = "AgentR1/GSM8KTool-v0"
_SECONDS = 120

_RAY = """
import ray
ray.init("local", num_cpus=1, include_dashboard=False, configure_logging=False, log_to_driver=False)
assert ray.get(ray.remote(lambda: 1).remote()) == 1
print(ray.__version__)
"""
_TORCH = """
import torch
print(torch.__version__, *[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())], sep=", ")
if torch.cuda.is_available():
    assert float(torch.ones(8, device="cuda").sum()) == 8
"""


class Finding(NamedTuple):
    """A line of the report."""

    part: str  # `installed` or `works`
    name: str  # an extra, or what was tried
    state: str  # `ok`, `absent`, `differs` or `broken`
    detail: str
    remedy: str = ""  # empty where nothing has to be done


_Outcome = tuple[str, str] | tuple[str, str, str]
"""State, detail and perhaps remedy of what was tried."""


@dataclass(kw_only=True)
class Options:
    quick: bool = option(False, "leave out what takes seconds: Ray, torch and GPUs")
    all: bool = option(False, "show what is absent too, and how to get it")
    constraints: File | None = option(None, "pins to compare with (default: the constraints.txt of a checkout)")
    json: bool = option(False, "print a JSON object instead")


def run(options: Options) -> tuple[str, int]:
    root = Path(__file__).resolve().parents[2]
    pins = None if options.constraints is None else Path(options.constraints)
    if pins is None and (root / "setup.cfg").is_file() and (root / "Makefile").is_file():
        pins = root / "constraints.txt"
    findings = [*_extras()]
    if pins is not None:
        findings.append(_pins(pins))
    tried: dict[str, Callable[[], _Outcome]] = {"episode": _episode, "sandbox": _sandbox, "data folder": _data_folder}
    if not options.quick:
        tried |= {"ray": _ray, "gpu": _gpu}
    findings += [Finding("works", name, *act()) for name, act in tried.items()]
    machine = {
        "agent_envs": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
    }
    report = _as_text(machine, findings, options.all)
    if options.json:
        report = json.dumps({**machine, "findings": [each._asdict() for each in findings]}, indent=1)
    return report, int(any(each.state == "broken" for each in findings))


def _needs(extra: str) -> Iterator[Requirement]:
    """Yield what an extra of this package needs on this system, "" for what is always needed."""
    for need in map(Requirement, metadata.requires(_PROJECT) or ()):
        marker = need.marker or Marker("python_version > '3'")
        if marker.evaluate({"extra": extra}) and (not extra or not marker.evaluate({"extra": ""})):
            if need.name == _PROJECT:
                for other in sorted(need.extras):
                    yield from _needs(other)
            else:
                yield need


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _extras() -> Iterator[Finding]:
    try:
        extras = set(re.findall(r"extra == ['\"]([\w-]+)", "\n".join(metadata.requires(_PROJECT) or ())))
    except metadata.PackageNotFoundError:
        said = "the package is imported from a folder and is not installed"
        yield Finding("installed", "base", "differs", said, "run in its folder: pip install -c constraints.txt -e .")
        return
    for extra in ["", *sorted(extras)]:
        versions = {need: _installed(need.name) for need in _needs(extra)}
        missing = [need.name for need, version in versions.items() if version is None]
        wrong = [
            f"{need.name} {version} (wanted {need.specifier})"
            for need, version in versions.items()
            if version is not None and not need.specifier.contains(version, prereleases=True)
        ]
        state, detail = "ok", ", ".join(f"{need.name} {version}" for need, version in versions.items())
        if wrong:
            state, detail = "broken", ", ".join(wrong)
        elif missing:
            state, detail = "absent" if extra else "broken", f"without {', '.join(missing)}"
        install = f"pip install '{_PROJECT}[{extra}]'" if extra else f"pip install {_PROJECT}"
        yield Finding("installed", extra or "base", state, detail, "" if state == "ok" else install)


# An environment has these from its maker, and nothing here depends on their versions.
_TOOLS = {"pip", "setuptools", "wheel"}


def _pins(file: Path) -> Finding:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"{file}: cannot be read as a file of pins: {first_line(e)}") from e
    pins = {pin[1]: pin[2] for line in lines if (pin := re.match(r"([\w.-]+)==([\w.+!]+)", line))}
    if not pins:
        raise DataError(f"{file}: expected lines such as gymnasium==1.4.0, found none")
    here = {name: version for name in pins if name not in _TOOLS and (version := _installed(name)) is not None}
    others = [f"{n} {v} (pinned {pins[n]})" for n, v in here.items() if Version(v).public != Version(pins[n]).public]
    if not others:
        return Finding("installed", "pins", "ok", f"{len(here)} packages are those of {file.name}")
    more = f" and {len(others) - 5} more" if len(others) > 5 else ""
    said = f"{', '.join(others[:5])}{more}, of {len(here)} installed packages that {file.name} pins"
    return Finding("installed", "pins", "differs", said, f"pip install -c {file.name} -e . with your extras")


def _episode() -> _Outcome:
    try:
        with contextlib.closing(make_env(_EPISODE, split="test")) as env:
            episode = run_episode(env, ExpertPolicy(), options={"index": 0})
        if episode.success:
            return "ok", f"the expert solves a task of {_EPISODE}"
        said = episode.error or f"the expert of {_EPISODE} did not solve its task"
    except AgentEnvsError as e:
        said = first_line(e)
    return "broken", said, "see the lines above for what is installed in another version"


def _sandbox() -> _Outcome:
    try:
        sandbox = open_sandbox()
        result = sandbox.run("print(6 * 7)", timeout=20)
        walls = sandbox.describe()
    except BackendError as e:
        state = "broken" if sys.platform == "linux" else "absent"
        said = f"GSM8KCode, MathCode and TableQA need it: {first_line(e)}"
        return state, said, 'docs/sandbox.md; or sandbox="http://HOST:PORT", "docker:IMAGE"'
    if result.stdout.strip() != "42":
        return "broken", f"a program ended as {result.status}", "docs/sandbox.md"
    held, down = ([name for name, holds in walls.items() if holds is wanted] for wanted in (True, False))
    return "ok", f"{sandbox.name}: {', '.join(held)} hold" + (f", without {', '.join(down)}" if down else "")


def _data_folder() -> _Outcome:
    folder = data_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"x")
        free = shutil.disk_usage(folder).free / 1e9
    except OSError as e:
        said = f"{folder} cannot be written: {e.strerror}"
        return "broken", said, "set AGENT_ENVS_DATA to a folder that you may write"
    return "ok", f"{folder} can be written, {free:.0f} GB are free"


def _ray() -> _Outcome:
    if _installed("ray") is None:
        return "absent", "agentr1 train needs it", f"pip install '{_PROJECT}[verl]'"
    worked, said = _tried(_RAY)
    if worked:
        return "ok", f"Ray {said} starts and runs a task"
    remedy = "free memory and disk in /tmp and /dev/shm, a short TMPDIR, and no RAY_ADDRESS of a cluster that is gone"
    return "broken", said, remedy


def _gpu() -> _Outcome:
    if _installed("torch") is None:
        return "absent", "models need torch", f"pip install '{_PROJECT}[hf]'"
    worked, said = _tried(_TORCH)
    if not worked:
        return "broken", said, "install a torch for this machine: docs/gpu.md"
    if ", " in said:
        return "ok", f"torch {said}"
    if "cpu" in said and shutil.which("nvidia-smi") is not None:
        return "differs", f"torch {said} is a build for CPUs", "docs/gpu.md"
    return "absent", f"torch {said} sees none; the preset cpu-tiny needs none"


def _tried(code: str) -> tuple[bool, str]:
    """Run code in another interpreter; return whether it worked, and the last line that it printed."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL,
            env={"RAY_raylet_start_wait_time_s": str(_SECONDS), **os.environ},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"did not answer within {_SECONDS} seconds"
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return done.returncode == 0, said[-1] if said else f"ended with status {done.returncode}"


def _as_text(machine: Mapping[str, object], findings: Sequence[Finding], everything: bool) -> str:
    width = max(len(each.name) for each in findings)
    lines = ["agent_envs {agent_envs}, Python {python}, {system}, {cores} cores".format_map(machine)]
    for part, title in (("installed", "installed"), ("works", "works here")):
        lines += ["", title]
        for each in findings:
            if each.part == part and (everything or each.state != "absent"):
                lines.append(f"  {each.state:8} {each.name:{width}}  {each.detail}")
                lines += [f"{'':{width + 13}}{each.remedy}"] if each.remedy else []
    absent = [each.name for each in findings if each.state == "absent"]
    lines += ["", f"absent: {', '.join(absent)} (--all says how to get them)"] if absent and not everything else []
    return "\n".join(lines)
