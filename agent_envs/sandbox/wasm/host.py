"""WasmSandbox: CPython as a WebAssembly program, forked while it waits."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.errors import BackendError
from agent_envs.sandbox.forked.host import LaneSandbox, reopened
from agent_envs.sandbox.forked.interpreters import INTERPRETERS, import_path
from agent_envs.sandbox.forked.lanes import Pool
from agent_envs.sandbox.forked.zygote_process import WALLS
from agent_envs.sandbox.sandbox import Program
from agent_envs.sandbox.wasm.build import compiled, python_build

__all__ = ["WasmSandbox"]

# What must be impossible: every line that is printed names something that was done.
_CHECK = """
import os
for name, act in {
    "read": lambda: open("/etc/passwd"), "list": lambda: os.listdir("/"), "write": lambda: open("/tmp/x", "w"),
    "status": lambda: os.stat("."), "connect": lambda: __import__("socket").socket().connect(("127.0.0.1", 9)),
    "run": lambda: os.system("true"), "fork": lambda: os.fork(), "descriptor": lambda: os.read(3, 1),
}.items():
    try:
        act()
        print(name)
    except (OSError, AttributeError, ImportError):
        pass
print("checked")
"""


@dataclass(frozen=True, slots=True)
class _WasmInterpreter:
    """A build of CPython for WASI."""

    build: str
    main: str = "wasm_zygote"

    def settings(self) -> dict[str, Any]:
        plain = INTERPRETERS[0]
        module = str(compiled(python_build(self.build)))
        told = {"module": module, "modules": plain.modules, "warm_up": plain.warm_up, "filter": _filter().hex()}
        return {"path": import_path(), **told}


class WasmSandbox(LaneSandbox):
    """CPython as a WebAssembly program on wasmtime: its standard library, without packages; Linux and macOS.

    A program reaches nothing but its output, the clock and random numbers, because no other call is given to it. On
    Linux its process also stands behind the kernel's walls, where these are there.

    Args:
        build: The file of a CPython for WASI (preview 1) that has its standard library in it; None for
            `$AGENT_ENVS_PYTHON_WASM`, or else what the extra `wasm` installed.
        require: Walls of the kernel without which nothing runs: any of "seccomp", "landlock", "namespaces", "user".
        use: Walls of the kernel to put up where the system has them.
        max_output: Bytes of stdout and of stderr that a program may write.
        max_running: Programs that run at once, others wait; by default four for each processor.

    Raises:
        ConfigError: There is no such file.
        MissingExtraError: No build is named, and the extra `wasm` is not installed.
    """

    def __init__(
        self,
        build: str | os.PathLike[str] | None = None,
        *,
        require: Sequence[str] = (),
        use: Sequence[str] = WALLS,
        max_output: int = 65536,
        max_running: int | None = None,
    ) -> None:
        self.name = "wasm" if build is None else f"wasm:{os.fspath(build)}"
        self.build = str(python_build(build))
        interpreter = _WasmInterpreter(self.build)
        super().__init__([interpreter], require=require, use=use, max_output=max_output, max_running=max_running)

    def describe(self) -> dict[str, object]:
        """Return the build that runs, and which walls of the kernel hold here."""
        return super().describe() | {"build": self.build}

    def __reduce__(self) -> tuple[object, ...]:
        return reopened, (WasmSandbox, self._require, self._use, self.max_output, self._most, self.build)

    def _started(self, number: int) -> Pool:
        pool = super()._started(number)
        lane = pool.take()
        checked = lane.ask(Program(_CHECK), self.max_output, keep=False)
        pool.give_back(lane)
        if checked.stdout != "checked\n":
            pool.close()
            pool.zygote.close()
            raise BackendError(
                f"the sandbox refuses to run: {self.build} does not run Python, or does what must be impossible "
                f"({checked.status}: {checked.stdout[-200:]!r} {checked.stderr[-200:]!r})"
            )
        return pool


def _filter() -> bytes:
    """Return the kernel's filter where it can be built: without it WebAssembly is the wall."""
    if sys.platform != "linux":
        return b""
    from agent_envs.sandbox.forked.filters import filter_program

    try:
        return filter_program()
    except BackendError:
        return b""
