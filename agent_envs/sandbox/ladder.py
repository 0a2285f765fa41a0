"""The ladder: every kind of sandbox by its name, and the choice of one that works here."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Unpack

from agent_envs.checks import load_function, shown
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, did_you_mean
from agent_envs.sandbox.result import Result
from agent_envs.sandbox.sandbox import ProgramArguments, Sandbox

__all__ = ["RUNGS", "check_sandbox", "open_sandbox", "run"]

_lock = threading.Lock()
_open: dict[str, Sandbox] = {}


def _forked() -> Sandbox:
    if sys.platform != "linux":
        raise BackendError("the sandbox 'forked' needs Linux")
    from agent_envs.sandbox.forked.host import ForkedSandbox

    sandbox = ForkedSandbox()
    sandbox.describe()  # its self-check: raises here instead of in the first run
    return sandbox


def _wasm(build: str | None = None) -> Sandbox:
    if sys.platform == "win32":
        raise BackendError("the sandbox 'wasm' needs Linux or macOS")
    from agent_envs.sandbox.wasm.host import WasmSandbox

    sandbox = WasmSandbox(build)
    sandbox.describe()
    return sandbox


def _monty() -> Sandbox:
    from agent_envs.sandbox.monty import MontySandbox

    return MontySandbox()


RUNGS: Mapping[str, Callable[[], Sandbox]] = {"forked": _forked, "wasm": _wasm, "monty": _monty}
"""The sandboxes that a plain name opens."""

_AUTO = ("forked", "wasm")  # complete Python that reaches no files, network and processes; the faster one first


def open_sandbox(name: str | Sandbox = "auto") -> Sandbox:
    """Return a sandbox; one of each name is shared by the whole process.

    Args:
        name: "auto" takes "forked", or "wasm" where that does not work, with a warning that says so; one of `RUNGS`;
            "wasm:PATH", a build of CPython for WASI; the address of a SandboxFusion server; "docker:IMAGE" or
            "podman:IMAGE"; or "module:function", a function that returns a `Sandbox`. A `Sandbox` is returned as it is.

    Raises:
        ConfigError: There is no such sandbox.
        BackendError: It does not work here; with "auto", none does, and the message says why of each.
    """
    if isinstance(name, Sandbox):
        return name
    check_sandbox(name)
    with _lock:
        if name not in _open:
            _open[name] = _auto() if name == "auto" else _made(name)
        return _open[name]


def check_sandbox(name: str | Sandbox) -> str | Sandbox:
    """Return the name of a sandbox if it can be one, without opening it; ConfigError if there is no such sandbox."""
    if isinstance(name, str) and (name == "auto" or name in RUNGS or ":" in name):
        return name
    if isinstance(name, Sandbox):
        return name
    if not isinstance(name, str):
        raise ConfigError(f"a sandbox must be a name such as 'auto', got {shown(name)}")
    raise ConfigError(f"unknown sandbox {name[:100]!r}.{did_you_mean(name[:100], ['auto', *RUNGS])}")


def _made(name: str) -> Sandbox:
    if name in RUNGS:
        return _open[name] if name in _open else RUNGS[name]()
    scheme, _, rest = name.partition(":")
    if scheme in ("http", "https"):
        from agent_envs.sandbox.clients.fusion import FusionSandbox

        return FusionSandbox(name)
    if scheme == "wasm":
        return _wasm(rest)
    if scheme in ("docker", "podman"):
        from agent_envs.sandbox.clients.container import ContainerSandbox

        return ContainerSandbox(scheme, rest)
    made = load_function(name, "the sandbox")()
    if not isinstance(made, Sandbox):
        raise ConfigError(f"{name} must return a Sandbox, got {shown(made)}")
    return made


def _auto() -> Sandbox:
    reasons = []
    for name in _AUTO:
        try:
            sandbox = _open[name] = _made(name)
        except AgentEnvsError as e:
            reasons.append(f"{name}: {e}")
        else:
            if reasons:
                warnings.warn(
                    f"the sandbox is {name!r}, which has fewer packages and is slower. {'; '.join(reasons)}",
                    stacklevel=3,
                )
            return sandbox
    raise BackendError(f"no sandbox works here. {'; '.join(reasons)}")


def run(code: str, *, sandbox: str | Sandbox = "auto", **given: Unpack[ProgramArguments]) -> Result:
    """Run a program once, in an interpreter of its own.

    >>> run("print(sum(map(int, input().split())))", stdin="2 3").stdout
    '5\\n'
    >>> run("print(open('table.csv').read())", files={"table.csv": "a,b"}).stdout
    'a,b\\n'

    Args:
        code: Python.
        sandbox: As for `open_sandbox`.
        stdin: What `input()` reads.
        files: The files that `open` reads: names and contents. There are no others.
        timeout: Seconds it may run.
        memory: Bytes of memory it may use beside the interpreter itself.
        echo: Whether the value of its last expression is printed, as a notebook does.
        seed: What `random` and `numpy.random` are seeded with; None for another every time.

    Raises:
        BackendError: The sandbox failed, not the program.
        ConfigError: An argument is wrong.
    """
    return open_sandbox(sandbox).run(code, **given)


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
