"""A new container for every program, by the command of Docker or Podman.

The program gets no network, a read-only root, no capabilities, 64 processes, and a folder in memory with its files.
"""

from __future__ import annotations

import base64
import json
import selectors
import shutil
import subprocess
import time
import uuid
from typing import IO

from agent_envs.checks import choice, string
from agent_envs.errors import BackendDownError, BackendSlowError
from agent_envs.sandbox.clients.one_shot import MAX_OUTPUT, OneShotSandbox, outcome
from agent_envs.sandbox.result import Result
from agent_envs.sandbox.sandbox import Program

__all__ = ["ContainerSandbox"]

_ENGINES = ("docker", "podman")
_ENGINE_FAILED = 125  # the engine's own exit code: no such image, no daemon
_START_SECONDS = 60.0
_READY = b"\0agent_envs\0"
# Reads the program and its files from the input, says that the container runs, and becomes the program.
_DRIVER = (
    "import base64,io,json,os,sys;d=json.loads(sys.stdin.buffer.readline())\n"
    "for n,c in d['files'].items():\n"
    "    os.makedirs(os.path.dirname(n) or '.',exist_ok=True);open(n,'wb').write(base64.b64decode(c))\n"
    "sys.stdin=io.StringIO(d['stdin']);os.write(1,bytes.fromhex(d['ready']))\n"
    "exec(compile(d['code'],'<program>','exec'),{'__name__':'__main__'})"
)


class ContainerSandbox(OneShotSandbox):
    """Runs every program in a new container.

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

    def run_script(self, code: str, program: Program) -> Result:
        container = f"agent_envs-{uuid.uuid4().hex}"
        command = [
            self.engine, "run", "--rm", "-i", f"--name={container}", "--network=none", "--read-only", "--cap-drop=ALL",
            "--security-opt=no-new-privileges", "--pids-limit=64", "--user=65534:65534", "--workdir=/work",
            "--tmpfs=/work:size=256m,mode=1777", f"--memory={program.memory + (64 << 20)}", "--", self.image,
            "python", "-c", _DRIVER,
        ]  # fmt: skip
        files = {name: base64.b64encode(content).decode() for name, content in program.files}
        said = json.dumps({"code": code, "stdin": program.stdin, "files": files, "ready": _READY.hex()}).encode()
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as e:
            raise BackendDownError(f"{self.engine} cannot be started: {e}") from e
        try:
            return self._watched(process, said + b"\n", program.timeout)
        finally:
            if process.poll() is None:
                process.kill()
                subprocess.run([self.engine, "kill", container], capture_output=True, timeout=30, check=False)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _watched(self, process: subprocess.Popen[bytes], said: bytes, seconds: float) -> Result:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        output: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
        try:
            process.stdin.write(said)
            process.stdin.close()
        except OSError:
            pass  # it has ended already: its exit code says why
        started: float | None = None
        deadline = time.monotonic() + _START_SECONDS
        status = "ok"
        with selectors.DefaultSelector() as waiting:
            for stream in output:
                waiting.register(stream, selectors.EVENT_READ)
            while waiting.get_map() and status == "ok":
                left = deadline - time.monotonic()
                if left <= 0:
                    if started is None:
                        raise BackendSlowError(f"{self.name} did not start within {_START_SECONDS:g} s")
                    status = "timeout"
                for key, _ in waiting.select(max(0.0, left)):
                    part = key.fileobj.read1(1 << 16)  # type: ignore[union-attr]
                    if not part:
                        waiting.unregister(key.fileobj)
                    taken = output[key.fileobj]  # type: ignore[index]
                    taken += part
                    if started is None and taken.startswith(_READY):
                        started = time.monotonic()
                        deadline = started + seconds
                        del taken[: len(_READY)]
                    elif len(taken) > MAX_OUTPUT + len(_READY):
                        status = "output-limit"
        out, err = (bytes(taken).decode("utf-8", "replace") for taken in output.values())
        if status == "ok":
            code = process.wait(timeout=30)
            if started is None or code == _ENGINE_FAILED:
                raise BackendDownError(f"{self.name} cannot run programs: {err.strip()[-300:] or f'exit code {code}'}")
            status = "ok" if code == 0 else "memory" if code == 137 else "error"
        return outcome(status, out, err, 0.0 if started is None else time.monotonic() - started)
