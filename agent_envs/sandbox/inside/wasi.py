"""A Python that is a WebAssembly program, and all that it can ask of this machine.

WASI preview 1 (https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md) as far as running programs needs
it: its descriptors 0, 1 and 2, clocks, sleep, randomness and its exit. Every call with a path is refused, and no other
call exists: there is no code here that could open a file or a socket for it.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from agent_envs.sandbox.inside import wire

__all__ = ["STACK_POINTER", "Machine", "engine"]

STACK_POINTER = "agent_envs_stack_pointer"
"""The export by which a program whose stack is too small is given a larger one."""

_MODULE = "wasi_snapshot_preview1"
_BAD_DESCRIPTOR, _NOT_SUPPORTED, _NOT_PERMITTED, _PIPE, _NO_SEEK = 8, 58, 63, 64, 70  # errno, in WASI's numbers
_ROOT = 3  # the descriptor of a folder "/", so that a path is refused instead of not found
_LOW_HALF = 0xFFFFFFFF
_MOST_PIECES, _MOST_BYTES = 1024, 1 << 16  # of one read or write; the caller goes on with the rest
_STACK = 2 << 20  # bytes of WebAssembly's own stack
_C_STACK = 16 << 20  # bytes of the stack that C code keeps in its memory
_PAGE = 1 << 16
_POLLED, _HAPPENED = struct.Struct("<QB7xI4xQQH6x"), struct.Struct("<QHB21x")  # subscription and event of poll_oneoff


def engine() -> Any:
    """Return a wasmtime engine; what one compiles, another with the same settings runs."""
    import wasmtime

    config = wasmtime.Config()
    config.max_wasm_stack = _STACK
    config.macos_use_mach_ports = False  # they do not survive a fork
    return wasmtime.Engine(config)


class Machine:
    """A WebAssembly program that waits, in its first read, to be forked.

    Args:
        module: The program as compiled by `engine`.
        arguments: Its arguments, its own name first.
        environment: Its environment, as "NAME=value".
        fork: Called in the first read, with what the program has written to descriptor 0 so far. It returns in forks,
            which have the descriptors that `agent_envs.sandbox.inside.wire` names.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Sequence[str], fork: Callable[[bytes], None]
    ) -> None:
        import wasmtime

        self._fork: Callable[[bytes], None] | None = fork
        self._said = b""  # what it wrote to descriptor 0 before it was forked
        self._base = 0  # bytes of memory that it had then
        self._waiting, self._unread = b"", 0  # of a message: what is read and not given out, and what is not read
        self._strings = {
            "args": [argument.encode() + b"\0" for argument in arguments],
            "environ": [variable.encode() + b"\0" for variable in environment],
        }
        made = engine()
        self._store = wasmtime.Store(made)
        linker = wasmtime.Linker(made)
        program = wasmtime.Module.deserialize_file(made, module)
        imports: list[Any] = program.imports
        for needed in imports:
            if needed.module != _MODULE:
                raise ValueError(f"the program needs {needed.module}.{needed.name}, and only {_MODULE} is given")
            linker.define_func(needed.module, needed.name, needed.type, self._call(needed.name), access_caller=True)
        instance = linker.instantiate(self._store, program)
        exported: Any = instance.exports(self._store)
        self._memory, self._start = exported["memory"], exported["_start"]
        stack = exported.get(STACK_POINTER)
        if stack is not None:
            self._memory.grow(self._store, _C_STACK // _PAGE)
            stack.set_value(self._store, self._memory.data_len(self._store))

    def run(self) -> None:
        """Run it to its end.

        Raises:
            wasmtime.Trap: It broke a rule of WebAssembly, such as the depth of its stack.
        """
        self._start(self._store)

    def _call(self, name: str) -> Callable[..., int | None]:
        """Return a system call by its name."""
        known: dict[str, Callable[..., int]] = {
            "args_sizes_get": lambda *a: self._sizes("args", *a),
            "args_get": lambda *a: self._texts("args", *a),
            "environ_sizes_get": lambda *a: self._sizes("environ", *a),
            "environ_get": lambda *a: self._texts("environ", *a),
            "clock_res_get": lambda clock, to: self._put(to, struct.pack("<Q", 1)),
            "clock_time_get": lambda clock, precision, to: self._put(to, struct.pack("<Q", _now(clock))),
            "random_get": self._random,
            "fd_prestat_get": lambda fd, to: (
                self._put(to, struct.pack("<II", 0, 1)) if fd == _ROOT else _BAD_DESCRIPTOR
            ),
            "fd_prestat_dir_name": lambda fd, to, length: self._put(to, b"/"),
            "fd_fdstat_get": self._descriptor,
            "fd_filestat_get": lambda fd, to: self._put(to, bytes(64)) if 0 <= fd < _ROOT else _BAD_DESCRIPTOR,
            "fd_seek": lambda *a: _NO_SEEK,
            "fd_tell": lambda *a: _NO_SEEK,
            "fd_read": self._read,
            "fd_write": self._write,
            "poll_oneoff": self._poll,
            "sched_yield": lambda: 0,
        }
        if name == "proc_exit":
            return lambda caller, code: os._exit(code & 255)
        call = known.get(name, lambda *a: _NOT_PERMITTED if name.startswith("path_") else _NOT_SUPPORTED)
        return lambda caller, *arguments: call(*arguments)

    # -- its memory ----------------------------------------------------------------------------------------------

    def _put(self, address: int, content: bytes) -> int:
        """Write into its memory; IndexError, which ends it, if that has no such place."""
        self._memory.write(self._store, bytearray(content), address & _LOW_HALF)
        return 0

    def _get(self, address: int, length: int) -> bytes:
        address &= _LOW_HALF
        content = bytes(self._memory.read(self._store, address, address + length))
        if len(content) != length:
            raise IndexError("the program names a place outside its memory")
        return content

    def _pieces(self, address: int, count: int) -> list[tuple[int, int]]:
        """Return addresses and lengths of the pieces of a read or write."""
        return list(struct.iter_unpack("<II", self._get(address, 8 * min(count & _LOW_HALF, _MOST_PIECES))))

    # -- its arguments and descriptors ---------------------------------------------------------------------------

    def _sizes(self, kind: str, count: int, size: int) -> int:
        strings = self._strings[kind]
        self._put(count, struct.pack("<I", len(strings)))
        return self._put(size, struct.pack("<I", sum(map(len, strings))))

    def _texts(self, kind: str, pointers: int, to: int) -> int:
        strings = self._strings[kind]
        starts = itertools.accumulate((len(string) for string in strings[:-1]), initial=to & _LOW_HALF)
        self._put(pointers, struct.pack(f"<{len(strings)}I", *starts))
        return self._put(to, b"".join(strings))

    def _random(self, to: int, length: int) -> int:
        return self._put(to, os.urandom(min(length & _LOW_HALF, 1 << 24))) if length else 0

    def _descriptor(self, fd: int, to: int) -> int:
        if not 0 <= fd <= _ROOT:
            return _BAD_DESCRIPTOR
        return self._put(to, struct.pack("<BxHxxxxQQ", 3 if fd == _ROOT else 0, 0, _LOW_HALF, _LOW_HALF))

    def _read(self, fd: int, pieces: int, count: int, to: int) -> int:
        if fd != 0:
            return _BAD_DESCRIPTOR
        if self._fork is not None:
            fork, self._fork = self._fork, None
            fork(self._said)
            self._base = self._memory.data_len(self._store)
        address, length = next((piece for piece in self._pieces(pieces, count) if piece[1]), (0, 0))
        part = self._message(length) if length else b""
        if part:
            self._put(address, part)
        return self._put(to, struct.pack("<I", len(part)))

    def _message(self, length: int) -> bytes:
        """Return the next bytes of what the lane sends, and allow the memory that a new message names."""
        if not self._waiting and not self._unread:
            try:
                self._waiting = wire.read_exactly(wire.PROGRAMS, wire.PROGRAM.size)
            except EOFError:
                os._exit(0)
            self._unread, memory = wire.PROGRAM.unpack(self._waiting)
            self._store.set_limits(memory_size=self._base + memory)
        if self._waiting:
            part, self._waiting = self._waiting[:length], self._waiting[length:]
            return part
        part = os.read(wire.PROGRAMS, min(length, self._unread, _MOST_BYTES))
        self._unread -= len(part)
        return part

    def _write(self, fd: int, pieces: int, count: int, to: int) -> int:
        if fd not in (0, 1, 2):
            return _BAD_DESCRIPTOR
        written = b""
        for address, length in self._pieces(pieces, count):
            written += self._get(address, min(length, _MOST_BYTES - len(written)))
        if self._fork is not None and fd == 0:
            self._said += written
            done = len(written)
        else:
            try:
                done = os.write(wire.STATUS if fd == 0 else fd, written)
            except OSError:
                return _PIPE
        return self._put(to, struct.pack("<I", done))

    def _poll(self, asked: int, happened: int, count: int, to: int) -> int:
        """Sleep until the first of the times that are asked for; nothing else can be waited for."""
        waits = []
        for number in range(min(count & _LOW_HALF, _MOST_PIECES)):
            user, kind, clock, until, _, absolute = _POLLED.unpack(
                self._get(asked + number * _POLLED.size, _POLLED.size)
            )
            if kind != 0:
                return _NOT_SUPPORTED
            waits.append((max(0, until - _now(clock)) if absolute & 1 else until, user))
        if not waits:
            return _NOT_SUPPORTED
        nanoseconds, user = min(waits)
        time.sleep(min(nanoseconds / 1e9, 1e6))
        self._put(happened, _HAPPENED.pack(user, 0, 0))
        return self._put(to, struct.pack("<I", 1))


def _now(clock: int) -> int:
    return time.time_ns() if clock == 0 else time.monotonic_ns()
