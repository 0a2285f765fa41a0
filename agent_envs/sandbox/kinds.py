"""Every kind of sandbox by its name."""

from __future__ import annotations

from typing import Any

from agent_envs.checks import load_function, shown
from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.per_process import PerProcess
from agent_envs.sandbox.sandbox import Result, Sandbox

_NAMES = ("forked", "monty")
_ADDRESSES = ("http://", "https://")

_open: PerProcess[Sandbox] = PerProcess()


def open_sandbox(name: str | Sandbox = "forked") -> Sandbox:
    """Return a sandbox; one of each name is shared by the whole process.

    Args:
        name: "forked"; "monty"; "docker:IMAGE" or "podman:IMAGE"; the address of a SandboxFusion server; or
            "module:Class", a subclass of `Sandbox` (or a function that returns one). A `Sandbox` is returned unchanged.

    Raises:
        ConfigError: There is no such sandbox.
        BackendError: It does not work here.
    """
    if isinstance(name, Sandbox):
        return name
    check_sandbox(name)
    return _open.get(name, lambda: _made(name))


def check_sandbox(name: str | Sandbox) -> str | Sandbox:
    """Return the name of a sandbox if it can be one, without opening it; ConfigError if there is no such sandbox."""
    if isinstance(name, Sandbox) or (isinstance(name, str) and (name in _NAMES or ":" in name)):
        return name
    if not isinstance(name, str):
        raise ConfigError(f"a sandbox must be a name such as 'forked', got {shown(name)}")
    raise ConfigError(f"unknown sandbox {name[:100]!r}.{did_you_mean(name[:100], _NAMES)}")


def keeps_variables(name: str | Sandbox) -> bool:
    """Return whether the programs of a session share their variables; a SandboxFusion server forgets each program."""
    return not str(name.name if isinstance(name, Sandbox) else name).startswith(_ADDRESSES)


def _made(name: str) -> Sandbox:
    if name == "forked":
        from agent_envs.sandbox.forked.host import ForkedSandbox

        sandbox = ForkedSandbox()
        sandbox.describe()  # its self-check: raises here instead of in the first run
        return sandbox
    if name == "monty":
        from agent_envs.sandbox.clients.monty import MontySandbox

        return MontySandbox()
    if name.startswith(_ADDRESSES):
        from agent_envs.sandbox.clients.fusion import FusionSandbox

        return FusionSandbox(name)
    engine, _, image = name.partition(":")
    if engine in ("docker", "podman"):
        from agent_envs.sandbox.clients.container import ContainerSandbox

        return ContainerSandbox(engine, image)
    made = load_function(name, "the sandbox")()
    if not isinstance(made, Sandbox):
        raise ConfigError(f"{name} must be a subclass of Sandbox or return one, got {shown(made)}")
    return made


def run(code: str, *, sandbox: str | Sandbox = "forked", **given: Any) -> Result:
    """Run a program once, in an interpreter of its own.

    >>> run("print(sum(map(int, input().split())))", stdin="2 3").stdout
    '5\\n'
    >>> run("print(open('table.csv').read())", files={"table.csv": "a,b"}).stdout
    'a,b\\n'

    Args:
        code: Python.
        sandbox: As for `open_sandbox`.
        **given: The other fields of `Program`: stdin, files, timeout, memory, echo and seed.

    Raises:
        BackendError: The sandbox failed, not the program.
        ConfigError: An argument is wrong.
    """
    return open_sandbox(sandbox).run(code, **given)
