"""The loop that runs programs inside a child."""

from __future__ import annotations

import _sitebuiltins
import ast
import atexit
import builtins
import contextlib
import gc
import io
import linecache
import marshal
import os
import random
import socket
import sys
import traceback
import types
from typing import Any

from agent_envs.sandbox.inside import walls, wire
from agent_envs.sandbox.inside.files import install_files

_SHOWN_FRAMES = 20


class Programs:
    """What the programs of an interpreter share. Make it before the fork: what it touches is not copied for each."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        install_files(self._files)
        sys.stdin = io.TextIOWrapper(io.BytesIO(), "utf-8")
        _open_streams()
        for name in [name for name in sys.modules if name.partition(".")[0] == "agent_envs"]:
            del sys.modules[name]
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        sys.argv = ["<program>"]
        for name in ("exit", "quit"):  # which `site` would make
            setattr(builtins, name, _sitebuiltins.Quitter(name, "the end of input"))
        self._namespace = main.__dict__

    def serve(self, channel: socket.socket) -> None:
        """Run one program after the other in one namespace, until the channel, at `wire.CHANNEL`, ends (EOFError)."""
        # What every program writes to becomes this process's own now, while nobody waits.
        _execute("None", "<program>", {}, echo=True)
        gc.enable()
        count = 0
        while True:
            head, descriptors, _, _ = socket.recv_fds(channel, wire.PROGRAM.size, 2)
            if len(head) < wire.PROGRAM.size:
                raise EOFError
            (length,) = wire.PROGRAM.unpack(head)
            if not length:
                _fork(descriptors)
                continue
            for number, descriptor in enumerate(descriptors, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            code, stdin, given, echo, keep, seed = marshal.loads(wire.read_exactly(wire.CHANNEL, length))
            self._files.update(given)
            sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")  # type: ignore[misc]
            if any(stream is None or stream.closed for stream in (sys.__stdout__, sys.__stderr__)):  # a program did
                _open_streams()
            if count == 0:  # every run has its own randomness, or the one that was asked for
                random.seed(seed)
                if (numpy_random := sys.modules.get("numpy.random")) is not None:
                    numpy_random.seed(random.getrandbits(32) if seed is None else seed % 2**32)
            count += 1
            ended = _execute(code, f"<program {count}>" if keep else "<program>", self._namespace, echo)
            if not keep:
                with contextlib.suppress(BaseException):
                    atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(BaseException):
                    stream.flush()
            os.write(wire.CHANNEL, bytes([ended]))


def _fork(descriptors: list[int]) -> None:
    """Return twice: here, and in a copy of this process whose channel is the descriptor.

    The host lets one such call pass when it has asked for it, and knows the copy by a second one, which it refuses.
    """
    if walls.raw_clone(wire.AS_SIBLING) == 0:
        walls.raw_clone(wire.AS_SIBLING)
        walls.die_with_parent()
        os.dup2(descriptors[0], wire.CHANNEL)
    for descriptor in descriptors:
        os.close(descriptor)


def _open_streams() -> None:
    """Have `print` and tracebacks go to the descriptors 1 and 2."""
    streams = [io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)) for descriptor in (1, 2)]
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(streams[0], "utf-8", "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(streams[1], "utf-8", "backslashreplace")  # type: ignore[misc]


def _execute(code: str, name: str, namespace: dict[str, Any], echo: bool) -> int:
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        whole: str | ast.Module = code
        last = None
        if echo:
            whole = ast.parse(code, name)
            last = whole.body[-1] if whole.body else None
            if isinstance(last, ast.Expr):
                whole.body.pop()
        exec(compile(whole, name, "exec", dont_inherit=True), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), namespace)
            if value is not None:
                sys.stdout.write(f"{value!r}\n")
    except SystemExit as e:
        if e.code is None or e.code == 0:
            return wire.OK
        if not isinstance(e.code, int):
            sys.stderr.write(f"{e.code}\n")
        return wire.ERROR
    except MemoryError:
        os.write(2, b"MemoryError: the program needs more memory than it is given\n")
        return wire.MEMORY
    except BaseException as e:  # noqa: BLE001  whatever a program raises
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        try:
            _show(e)
        except BaseException:  # noqa: BLE001  the program may have overwritten what shows it
            os.write(2, b"an exception that cannot be shown\n")
        thread = isinstance(e, RuntimeError) and str(e) == "can't start new thread"
        return wire.REFUSED if thread or isinstance(e, PermissionError) else wire.ERROR
    return wire.OK


def _show(error: BaseException) -> None:
    """Print a traceback with the program's own lines alone: where the libraries are is the host's affair."""
    shown = traceback.TracebackException(type(error), error, error.__traceback__)
    seen: set[int] = set()
    waiting: list[traceback.TracebackException | None] = [shown]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        own = [frame for frame in one.stack if frame.filename.startswith("<program")]
        one.stack = traceback.StackSummary.from_list(own[-_SHOWN_FRAMES:])
        waiting += (one.__cause__, one.__context__)
    for line in shown.format():
        sys.stderr.write(line)
