"""The zygote of the rung "wasm": CPython as a WebAssembly program, forked while it waits for programs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from agent_envs.sandbox.inside.child import enter
from agent_envs.sandbox.inside.wasi import Machine
from agent_envs.sandbox.inside.zygote import put_up_walls, receive_settings, send_report, serve_lanes

__all__ = ["main"]

_SHARED = ("wire", "files", "prepare", "programs")  # modules that run as WebAssembly
_NO_WALLS: dict[str, Any] = {"namespaces": [], "landlock": 0, "probe": {"others": {}, "all": {}}}
# It has no files, so its modules come as text. It says over descriptor 0 what it has, then serves programs there.
_GUEST = """
import sys, types
for name in ("agent_envs", "agent_envs.sandbox", "agent_envs.sandbox.inside"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, text in {modules!r}.items():
    name = "agent_envs.sandbox.inside." + name
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), sys.modules[name].__dict__)
import gc, json, os
from agent_envs.sandbox.inside.prepare import prepare
from agent_envs.sandbox.inside.programs import Programs
os.write(0, json.dumps(prepare({imports!r}, {warm_up!r})).encode())
programs = Programs()
gc.collect(); gc.freeze(); gc.disable()
programs.serve(0, 0)
"""


def main(control: int, host: int) -> None:
    """Start the interpreter that the host asks for, then serve it until it goes away.

    Args:
        control: A connected stream socket's descriptor; what is said there is as for the zygote of "forked".
        host: A descriptor that becomes readable when the host dies.
    """
    connection, settings = receive_settings(control)
    sys.path[:] = settings["path"]
    here = Path(__file__).parent
    modules = {name: (here / f"{name}.py").read_text(encoding="utf-8") for name in _SHARED}
    guest = _GUEST.format(modules=modules, imports=settings["modules"], warm_up=settings["warm_up"])
    program = bytes.fromhex(settings["filter"])

    def fork(said: bytes) -> None:
        report: dict[str, Any] = {"modules": json.loads(said), "user": os.geteuid(), **_NO_WALLS}
        if sys.platform == "linux":
            report |= put_up_walls(settings, program)
        send_report(connection, report)
        serve_lanes(connection, host, lambda descriptors: enter(descriptors, program), None)

    arguments = ["python", "-P", "-s", "-S", "-B", "-c", guest]
    machine = Machine(settings["module"], arguments, ["PYTHONHASHSEED=0", "PYTHONUTF8=1", "TZ=UTC"], fork)
    try:
        machine.run()
    except BaseException as e:  # noqa: BLE001  a trap; the lane sees the end
        os.write(2, f"{type(e).__name__}: {e}\n".encode()[:2000])
    finally:
        os._exit(1)
