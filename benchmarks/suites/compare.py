"""This package beside other suites, each in an installation of its own; and the tables of benchmarks/suites/README.md.

    python benchmarks/suites/compare.py run                     # the cells that are missing, of all suites
    python benchmarks/suites/compare.py run --only gem trl      # of these suites
    python benchmarks/suites/compare.py run --again loop step   # these cells once more
    python benchmarks/suites/compare.py page                    # writes the tables into the page

Installations are in runs/suites, figures in benchmarks/suites/results, a file for each suite, written after each
cell: a run that was stopped goes on. All suites do a cell one after another, so that they see the same machine. Figures
are those of probe.py, which runs inside the suite's own installation. pip's own settings (PIP_EXTRA_INDEX_URL,
PIP_FIND_LINKS) name where a small CPU build of torch comes from.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
RESULTS, INSTALLED, PAGE = FOLDER / "results", ROOT / "runs" / "suites", FOLDER / "README.md"
sys.path.insert(0, str(FOLDER))

from probe import CELLS, processor_time  # noqa: E402
from tables import tables  # noqa: E402

BEGIN, END = "<!-- suites -->\n", "<!-- end of suites -->\n"
_VERSIONS = """
import importlib.metadata, json
print(json.dumps({one.name: one.version for one in importlib.metadata.distributions()}))
"""
TIMEOUT = 600  # seconds of a cell


class Peer(NamedTuple):
    """A suite."""

    requirements: tuple[str, ...]
    """What pip installs, the suite first; empty if it is no package."""
    also: tuple[str, ...] = ()
    """Requirements that are not its own, for its tools or to keep downloads small."""


PEERS = {
    "agent_envs": Peer(("agent-envs",)),
    "gymnasium": Peer(("gymnasium==1.4.0",)),
    "gem": Peer(("gem-llm==0.1.0",)),
    "skyrl_gym": Peer(("skyrl-gym==0.4.0",)),
    "verifiers": Peer(("verifiers==0.3.1",)),
    "openenv": Peer(("openenv-core==0.3.0",)),
    "textarena": Peer(("textarena==0.7.4",)),
    "reasoning_gym": Peer(("reasoning-gym==0.1.25",)),
    "trl": Peer(("trl==1.16.0",), ("torch==2.13.0",)),
    "agent_r1": Peer(()),
}


def python(name: str) -> Path:
    """The interpreter of a suite's installation; ours for one that is no package, whose probe needs no package."""
    return INSTALLED / name / "bin" / "python" if PEERS[name].requirements else Path(sys.executable)


def install(name: str) -> dict[str, Any]:
    """Install a suite into an environment of its own."""
    peer, folder = PEERS[name], INSTALLED / name
    if not peer.requirements:
        return {"missing": "is no package that pip installs"}
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    wanted = [*peer.requirements, *peer.also]
    source = [str(copied_source()), *wanted[1:]] if name == "agent_envs" else wanted
    command = [str(python(name)), "-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check", "install", *source]
    before, begin = disk(folder), processor_time()
    subprocess.run(command, check=True)
    seconds = processor_time() - begin
    listed = subprocess.run([str(python(name)), "-c", _VERSIONS], check=True, capture_output=True, text=True).stdout
    versions = {found.lower().replace("_", "-"): version for found, version in json.loads(listed).items()}
    return {
        "megabytes": (disk(folder) - before) / 1e6,
        "seconds": seconds,
        "packages": len(versions.keys() - {"pip", "setuptools", "wheel"}),
        "version": versions[peer.requirements[0].partition("==")[0]],
        "torch": versions.get("torch", ""),
    }


def copied_source() -> Path:
    """A copy of this project's files, so that building a wheel leaves nothing behind."""
    copy = INSTALLED / "source"
    shutil.rmtree(copy, ignore_errors=True)
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    return copy


def disk(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def measure(name: str, cell: str) -> dict[str, Any]:
    """Run one cell of a suite in its installation."""
    work = INSTALLED / "work"
    work.mkdir(parents=True, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    # programs that a suite runs are run by its own interpreter
    environment |= {"OMP_NUM_THREADS": "1", "PATH": f"{python(name).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [str(python(name)), str(FOLDER / "probe.py"), name, cell]
    try:
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"error": f"no end after {TIMEOUT} s"}
    if done.returncode != 0 or not done.stdout.strip():
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:500]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def read(name: str) -> dict[str, Any]:
    """The figures of a suite so far; none if they are of another version."""
    file = RESULTS / f"{name}.json"
    wanted = [*PEERS[name].requirements, *PEERS[name].also]
    if file.exists() and (kept := json.loads(file.read_text(encoding="utf-8")))["requirements"] == wanted:
        return dict(kept)
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
    return {"requirements": wanted, "machine": machine, "cells": {}}


def run(names: list[str], again: list[str]) -> None:
    """Measure the cells that are missing."""
    RESULTS.mkdir(exist_ok=True)
    for cell in ("install", *CELLS):
        for name in names:
            kept = read(name)
            there = cell in kept["cells"] and "error" not in kept["cells"][cell] and cell not in again
            if there and (cell != "install" or not PEERS[name].requirements or python(name).exists()):
                continue
            load, begin = os.getloadavg()[0], time.monotonic()
            try:
                found = install(name) if cell == "install" else measure(name, cell)
            except subprocess.CalledProcessError as e:
                found = {"error": f"{e}"[-300:]}
            kept = read(name)
            when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
            kept["cells"][cell] = {
                **found,
                "load": round(load, 2),
                "took": round(time.monotonic() - begin, 1),
                "at": when,
            }
            text = json.dumps(kept, indent=1, sort_keys=True)
            (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(f"{cell:<14} {name:<14} {json.dumps(found)[:180]}", flush=True)


def section() -> str:
    """The tables of the figures so far."""
    return tables({name: read(name) for name in PEERS if (RESULTS / f"{name}.json").exists()})


def page(text: str) -> str:
    """The page with today's tables between its marks."""
    head, _, rest = text.partition(BEGIN)
    return head + BEGIN + "\n" + section() + "\n" + END + rest.partition(END)[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("--only", nargs="+", default=list(PEERS), choices=list(PEERS), metavar="SUITE")
    parser.add_argument("--again", nargs="+", default=[], choices=["install", *CELLS], metavar="CELL")
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.only, arguments.again)
    else:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
