"""Agents that are programs: started for each episode, with the model and the environment's tools at addresses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_envs import checks
from agent_envs.errors import BackendError, ConfigError, PolicyError
from agent_envs.messages import content_text
from agent_envs.tools.mcp import guard

_KEPT = ("PATH", "LANG", "TERM")  # of this process's environment
_ANSWERS = ("last", "stdout", "none")
_SIGNALS = range(192, 255)  # statuses with which the guard says that a signal has ended the program
_MOST_OUTPUT = 1 << 20  # bytes of a program's output, of which the end is kept


def command(
    program: str | Sequence[str], *, env: Sequence[str] = (), answer: str = "last", timeout: float = 600.0
) -> Callable[[Any, Any], Coroutine[Any, Any, None]]:
    """Return an agent that runs a program in a fresh folder, and ends it with all that it started.

    Inside arguments, ``{prompt}`` is the task, ``{url}`` the model's address, ``{mcp}`` a file that names the server of
    the environment's tools, and ``{workdir}`` the folder. Without ``{prompt}``, the task is the standard input. The
    program's variables are OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, ANTHROPIC_MODEL,
    AGENTR1_MCP_URL, HOME and TMPDIR (the folder), PATH, LANG and TERM.

    Args:
        program: The command line, split as a shell would and started without one; or its words.
        env: Names of further variables of this process that the program gets.
        answer: What the environment gets if it is not over when the program ends: the model's ``last`` reply, the
            program's ``stdout``, or ``none``.
        timeout: Seconds that the program may take.

    Raises:
        ConfigError: The command line is empty or cannot be split, or an argument does not fit.
    """
    checks.choice("answer", answer, _ANSWERS)
    checks.number("timeout", timeout, above=0)
    try:
        words = shlex.split(program) if isinstance(program, str) else list(program)
    except ValueError as e:
        raise ConfigError(f"the command {program!r} cannot be split: {e}") from e
    if not words:
        raise ConfigError("the command is empty")
    if missing := [name for name in env if name not in os.environ]:
        raise ConfigError(f"env names {missing[0]}, which is not set")

    async def run(played: Any, model: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="agent_envs-agent-", ignore_cleanup_errors=True) as folder:
            tools = {"mcpServers": {"environment": {"type": "http", "url": f"{model.url}/mcp"}}}
            mcp = Path(folder, "mcp.json")
            mcp.write_text(json.dumps(tools), encoding="utf-8")
            task = "\n\n".join(content_text(message["content"]) for message in played.messages)
            prompt = f"{played.instructions}\n\n{task}".strip()
            names = {"{prompt}": prompt, "{url}": model.url, "{mcp}": str(mcp), "{workdir}": folder}
            started = [_filled(word, names) for word in words]
            stdin = b"" if any("{prompt}" in word for word in words) else prompt.encode("utf-8", "replace")
            variables = {name: os.environ[name] for name in (*_KEPT, *env) if name in os.environ} | {
                "HOME": folder,
                "TMPDIR": folder,
                "OPENAI_BASE_URL": f"{model.url}/v1",
                "OPENAI_API_KEY": model.key,
                "ANTHROPIC_BASE_URL": model.url,
                "ANTHROPIC_API_KEY": model.key,
                "ANTHROPIC_MODEL": "policy",
                "AGENTR1_MCP_URL": f"{model.url}/mcp",
            }
            status, out, err = await _run(started, folder, variables, stdin, timeout)
            if status:
                said = " ".join((out[-150:] + b"\n" + err[-300:]).decode("utf-8", "replace").split())
                killed = status in _SIGNALS
                ended = f"was ended by signal {256 - status}" if killed else f"ended with status {status}"
                raise (BackendError if killed else PolicyError)(f"{words[0]} {ended}: {said or 'it said nothing'}")
            if not played.over and answer == "stdout":
                await played.step(out.decode("utf-8", "replace").strip())
            elif not played.over and answer == "last" and model.replies:
                await played.step(model.replies[-1])
            await model.judge(folder)

    return run


def _filled(word: str, names: Mapping[str, str]) -> str:
    """Return a word with its places filled in, of which no value is read again.

    >>> _filled("--ask={prompt}", {"{prompt}": "{url}", "{url}": "http"})
    '--ask={url}'
    """
    return re.sub("|".join(map(re.escape, names)), lambda match: names[match[0]], word)


async def _run(
    words: Sequence[str], folder: str, environ: Mapping[str, str], given: bytes, timeout: float
) -> tuple[int, bytes, bytes]:
    """Run a program under a guard, and return its status and the ends of what it said."""
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *words]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *guarded, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=dict(environ)
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(timeout):
            with contextlib.suppress(ConnectionError):
                process.stdin.write(given)
                await process.stdin.drain()
            process.stdin.close()
            out, err = await asyncio.gather(_end_of(process.stdout), _end_of(process.stderr))
            return await process.wait(), out, err
    except TimeoutError as e:
        raise PolicyError(f"{words[0]} took longer than {timeout:g} seconds") from e
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)  # the guard kills the program and what it has left behind
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), 10)


async def _end_of(stream: asyncio.StreamReader) -> bytes:
    tail = b""
    while part := await stream.read(1 << 16):
        tail = (tail + part)[-_MOST_OUTPUT:]
    return tail
