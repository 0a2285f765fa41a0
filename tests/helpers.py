"""What tests of several folders do: write calls and rows, read a prompt's sections, wait, sample, fill a disk."""

import json
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import agent_envs


def own_package(*folders: Path) -> dict[str, str]:
    """The variables of a process that imports this package, and modules in some folders before it."""
    path = os.pathsep.join(map(str, (*folders, Path(agent_envs.__file__).parents[1])))
    return {**os.environ, "PYTHONPATH": path}


def tool_call(tool: str, /, **arguments: Any) -> str:
    """A call as models write it by default."""
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


def prompt_sections(prompt: str) -> dict[str, str]:
    """The headings of a released prompt, and the text under each."""
    parts = (part.partition("\n") for part in f"\n\n{prompt}".split("\n\n### ")[1:])
    return {heading: text for heading, _, text in parts}


def until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Wait until a condition holds, at most some seconds; return whether it does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def write_rows(path: Path, rows: list[Any]) -> Path:
    """Write rows as the file's name says: .jsonl, .json or .parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(json.dumps(rows) if path.suffix == ".json" else lines, encoding="utf-8")
    return path


def sampled(every: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """Parameters of a test, of which those that are not in the quick sample are slow."""
    return [pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=() if one in quick else pytest.mark.slow)
            for one in every]  # fmt: skip


@contextmanager
def full_disk(room: int = 1) -> Iterator[None]:
    """No file grows beyond some bytes, which fails in the same calls as a full disk does."""
    import resource  # on Linux and macOS alone

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def tells_the_last_prompt(env, model):
    """An agent that plays the environment in one conversation, and tells what it would ask next."""
    messages = [{"role": "system", "content": env.instructions}, *env.messages]
    while not env.over:
        reply = await model.chat(messages, env.tools)
        await env.step(reply)
        messages = [*messages, reply.message, *env.messages]
    model.last(messages, env.tools)


def agents_left() -> set[str]:
    """The processes of agents' programs that still run."""
    left = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended
            if b"/agent_envs-agent-" in path.read_bytes():
                left.add(str(path))
    return left
