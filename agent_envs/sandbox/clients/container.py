"""Containers by the command of Docker or Podman: a new one for every program, and one for a session.

A program gets no network, a read-only root, no capabilities, 64 processes, and a folder in memory with its files.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import selectors
import shutil
import subprocess
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any

from agent_envs.checks import choice, string
from agent_envs.errors import BackendDownError, BackendSlowError
from agent_envs.sandbox.sandbox import MAX_OUTPUT, Interpreter, Program, Result, Sandbox, Status, bounded_text

_ENGINES = ("docker", "podman")
_START_SECONDS = 60.0
_KILL_SECONDS = 30.0
_ERROR_SECONDS = 1.0  # for what a program wrote last to stderr, which comes on a way of its own
_TICK = 0.05  # seconds between looks whether the container has ended: its pipes may stay open
_MARKS = 100  # bytes of output that are the marks
# Takes programs as lines of JSON. Each has a mark, which is printed when it begins and, with its status, when it ends.
# A program can find the mark: then it says itself how it ended, and is believed, as it may print anything.
_DRIVER = """
import ast, base64, io, json, os, random, sys, traceback
lines, scope = os.fdopen(os.dup(0), "rb"), {"__name__": "__main__"}
def run(given):
    for name, content in given["files"].items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file: file.write(base64.b64decode(content))
    sys.stdin = io.StringIO(given["stdin"])
    if given["seed"] is not None: random.seed(given["seed"])
    tree = ast.parse(given["code"], "<program>")
    last = tree.body.pop() if given["echo"] and tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<program>", "exec"), scope)
    value = None if last is None else eval(compile(ast.Expression(last.value), "<program>", "eval"), scope)
    if value is not None: print(repr(value))
for line in lines:
    given, status = json.loads(line), b"0"
    mark = given["mark"].encode()
    os.write(1, mark)
    try: run(given)
    except SystemExit as e:
        if e.code: status = b"1"
        if isinstance(e.code, str): print(e.code, file=sys.stderr)
    except BaseException as e:
        status = b"2" if isinstance(e, MemoryError) else b"3" if isinstance(e, PermissionError) else b"1"
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try: stream.flush()
        except Exception: pass
    os.write(2, mark)
    os.write(1, mark + status)
"""
_SAID: dict[bytes, Status] = {b"0": "ok", b"2": "memory", b"3": "refused"}


class ContainerSandbox(Sandbox):
    """Runs programs in containers.

    Args:
        engine: "docker" or "podman".
        image: An image with `python` in it.

    Raises:
        BackendDownError: The command is not installed.
    """

    def __init__(self, engine: str, image: str) -> None:
        self.engine = choice("engine", engine, _ENGINES)
        self.image = string("image", image)
        self.name = f"{engine}:{image}"
        if shutil.which(engine) is None:
            raise BackendDownError(f"the command {engine!r} is not installed")

    def open_interpreter(self) -> Interpreter:
        return _Container(self.engine, self.image)


_containers: weakref.WeakSet[_Container] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End the containers of sessions that nobody closed: the engine would go on with them."""
    for one in list(_containers):
        one.close()


class _Container(Interpreter):
    """A container, which starts with its first program: that one's memory is the limit of all."""

    def __init__(self, engine: str, image: str) -> None:
        self._engine, self._image = engine, image
        self._container = f"agent_envs-{uuid.uuid4().hex}"
        self._process: subprocess.Popen[bytes] | None = None
        _containers.add(self)

    def execute(self, program: Program) -> Result:
        mark = uuid.uuid4().hex.encode()
        files = {name: base64.b64encode(content).decode() for name, content in program.contents.items()}
        fields = {"code": program.code, "stdin": program.stdin, "files": files, "echo": program.echo}
        request = json.dumps({**fields, "seed": program.seed, "mark": mark.decode()}).encode() + b"\n"
        if self._process is not None:
            talk = _Talk(self._process, request)
        else:
            self._process = self._started(program.memory)
            talk = _Talk(self._process, request)
            if not talk.wait(lambda: mark in talk.out, _START_SECONDS):
                self._refuse(talk)
        start = time.monotonic()
        talk.wait(lambda: talk.over() or talk.out.count(mark) > 1, program.timeout)
        took = time.monotonic() - start
        shown, finished, said = talk.out.partition(mark)[2].partition(mark)
        if talk.over():
            status: Status = "output-limit"
        elif finished:
            status = _SAID.get(bytes(said[:1]), "error")
            talk.wait(lambda: talk.over() or mark in talk.err, _ERROR_SECONDS)
        else:
            code = self._process.poll()
            status = "timeout" if code is None else "ok" if code == 0 else "memory" if code == 137 else "error"
        ended = not finished or status == "output-limit"
        if ended:
            self.close()
        out, err = bytes(shown), bytes(talk.err).replace(mark, b"")
        return Result(status, bounded_text(out), bounded_text(err), took, ended)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill()
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                command = [self._engine, "kill", self._container]
                subprocess.run(command, capture_output=True, timeout=_KILL_SECONDS, check=False)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()

    def _started(self, memory: int) -> subprocess.Popen[bytes]:
        command = [
            self._engine, "run", "--rm", "-i", f"--name={self._container}", "--network=none", "--read-only",
            "--cap-drop=ALL", "--security-opt=no-new-privileges", "--pids-limit=64", "--user=65534:65534",
            "--workdir=/work", "--tmpfs=/work:size=256m,mode=1777", f"--memory={memory + (64 << 20)}", "--",
            self._image, "python", "-c", _DRIVER,
        ]  # fmt: skip
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)
        except OSError as e:
            raise BackendDownError(f"{self._engine} cannot be started: {e}") from e

    def _refuse(self, talk: _Talk) -> None:
        """Raise why no program began: that is the engine's failure."""
        assert self._process is not None
        code = self._process.poll()
        self.close()
        if code is None:
            raise BackendSlowError(f"{self._engine} did not start {self._image} within {_START_SECONDS:g} s")
        said = talk.err.decode("utf-8", "replace").strip()[-300:] or f"exit code {code}"
        raise BackendDownError(f"{self._engine} cannot run programs in {self._image}: {said}")


class _Talk:
    """One program's way to a container, and what comes back."""

    def __init__(self, process: subprocess.Popen[bytes], request: bytes) -> None:
        self._process, self._unsent = process, memoryview(request)
        self.out, self.err = bytearray(), bytearray()
        self._waiting = selectors.DefaultSelector()
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._waiting.register(process.stdin, selectors.EVENT_WRITE)
        for stream, taken in ((process.stdout, self.out), (process.stderr, self.err)):
            assert stream is not None
            self._waiting.register(stream, selectors.EVENT_READ, taken)

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Send and read until it is done, the time is over, or the container has ended and said all."""
        deadline = time.monotonic() + seconds
        while not done():
            gone = self._process.poll() is not None
            left = deadline - time.monotonic()
            ready = self._waiting.select(0 if gone else max(0.0, min(left, _TICK)))
            moved = [self._move(key.fileobj, key.data) for key, _ in ready]
            if left <= 0 or (gone and not any(moved)):
                return done()
        return True

    def over(self) -> bool:
        """Return whether the program has written too much."""
        return max(len(self.out), len(self.err)) > MAX_OUTPUT + _MARKS

    def _move(self, stream: Any, taken: bytearray | None) -> bool:
        """Send or read a part; return whether something was read."""
        part = b""
        if taken is not None:
            part = os.read(stream.fileno(), 1 << 16)
            taken += part
        else:
            with contextlib.suppress(OSError):  # the container has ended, which is seen next
                self._unsent = self._unsent[os.write(stream.fileno(), self._unsent[: 1 << 16]) :]
        if not (part if taken is not None else self._unsent):
            self._waiting.unregister(stream)  # closed, or all is sent
        return bool(part)
