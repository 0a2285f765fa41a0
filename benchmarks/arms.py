"""The arms of a comparison: each in processes of its own, which write down what they do; what each iteration took."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OUT = "AGENT_ENVS_ARM"
"""The variable that names the folder of an arm to all its processes."""


def note(file: str, **values: Any) -> None:
    """Append a line to one of the arm's files, from any of its processes."""
    with open(Path(os.environ[OUT]) / file, "a") as lines:
        lines.write(json.dumps(values) + "\n")


@contextmanager
def span(what: str, number: int) -> Iterator[None]:
    """What is timed: ``play`` or ``iteration``, of the iteration with this number."""
    begin = time.time()
    yield
    note("spans.jsonl", what=what, number=number, begin=begin, end=time.time())


def rows(number: int, sequences: Sequence[Sequence[int]], sampled: int) -> None:
    note("rows.jsonl", number=number, ids=[list(map(int, ids)) for ids in sequences], sampled=sampled)


def run(command: Sequence[str], out: Path, variables: Mapping[str, str], minutes: float) -> dict[str, Any]:
    """Run an arm from here, and return the figures of its iterations, or why there are none."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    load, samples, used = os.getloadavg()[0], list[tuple[float, ...]](), dict[int, float]()
    end = time.monotonic() + 60 * minutes
    with (out / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **variables, OUT: str(out)})
        while process.poll() is None and time.monotonic() < end:
            samples.append((time.time(), *taken(process.pid, used)))
            time.sleep(1.0)
    if process.poll() is None:
        process.terminate()
        process.wait()
        return {"failed": f"not done after {minutes:g} minutes"}
    if process.returncode:
        return {"failed": (out / "log").read_text().strip().splitlines()[-1][-500:]}
    return {**figures(out, samples), "load": [round(load, 1), round(os.getloadavg()[0], 1)]}


def taken(pid: int, used: dict[int, float]) -> tuple[float, float]:
    """The processor seconds of a process and those it started, and their memory in GB; ``used`` keeps ended ones'."""
    found = dict[int, tuple[int, float]]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        seconds = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        found[int(path.parent.name)] = int(words[1]), seconds
    mine = {pid} | (used.keys() & found.keys())
    while more := {child for child, (parent, _) in found.items() if parent in mine} - mine:
        mine |= more
    used |= {one: found[one][1] for one in mine if one in found}
    kilobytes = 0
    for one in mine:
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return sum(used.values()), kilobytes / 1e6


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def figures(out: Path, samples: list[tuple[float, ...]]) -> dict[str, Any]:
    """The means of an arm's iterations but the first, from what it wrote down."""
    import numpy as np

    from agent_envs.adapters.trees import sort_rows

    times, used, memory = np.array(samples).T
    spans = {(span["what"], span["number"]): (span["begin"], span["end"]) for span in read(out / "spans.jsonl")}
    played, passes, found = read(out / "rows.jsonl"), read(out / "passes.jsonl"), list[dict[str, float]]()
    for number in sorted(number for what, number in spans if what == "iteration" and number > 1):
        (begin, end), (start, stop) = spans["iteration", number], spans["play", number]
        own = [line for line in played if line["number"] == number]
        ids = [np.array(row) for line in own for row in line["ids"]]
        unique = sort_rows(np.concatenate(ids), np.cumsum([0, *map(len, ids)])).nodes
        processed = sum(line["tokens"] for line in passes if begin <= line["time"] <= end)
        (cpu, playing) = (np.diff(np.interp(pair, times, used))[0] for pair in ((begin, end), (start, stop)))
        found.append({
            "seconds": end - begin, "play": stop - start, "update": end - begin - (stop - start), "cpu_seconds": cpu,
            "cpu_play": playing, "cpu_update": cpu - playing, "sampled_tokens": sum(line["sampled"] for line in own),
            "unique_tokens": unique, "processed_tokens": processed, "processed_per_unique": processed / unique,
        })  # fmt: skip
    means = {name: round(sum(each[name] for each in found) / len(found), 3) for name in found[0]}
    return {**means, "memory_gb": round(float(memory.max()), 2), "iterations": len(found)}


def table(arms: Mapping[str, Mapping[str, Any]], first: str) -> str:
    """The arms as a Markdown table, with the ratio of their processor seconds to those of one of them."""
    base = arms.get(first, {})
    heads = ("trainer", "seconds, play + update", "processor seconds", "ratio", "sampled tokens",
             "processed / unique", "memory, GB")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for name, arm in arms.items():
        cells = [arm.get("failed", "")]
        if not cells[0]:
            cells = [f"{arm[f'{cpu}play']:.1f} + {arm[f'{cpu}update']:.1f}" for cpu in ("", "cpu_")]
            cells += [f"{arm['cpu_seconds'] / base['cpu_seconds']:.2f}" if "cpu_seconds" in base else ""]
            cells += [f"{arm['sampled_tokens']:,.0f}", f"{arm['processed_per_unique']:.2f}", f"{arm['memory_gb']:.1f}"]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)
