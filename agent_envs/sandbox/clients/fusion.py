"""SandboxFusion's HTTP API, the service that the released systems use: POST /run_code.

    {"code": "print(1)", "language": "python", "run_timeout": 10, "stdin": "", "files": {"a.csv": "<base64>"}}
    {"status": "Success", "message": "", "run_result": {"status": "Finished", "return_code": 0, "stdout": "1\\n", ...}}

API: https://github.com/bytedance/SandboxFusion. A status of "SandboxError", any HTTP error and any silence is a
BackendError here: released runs took them for the program's own failures. The server forgets every program, so
variables do not stay in a session.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import threading
import time
import urllib.parse
from dataclasses import replace
from typing import Any

from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendRefusedError,
    BackendReplyError,
    BackendSlowError,
    ConfigError,
)
from agent_envs.per_process import PerProcess
from agent_envs.sandbox.result import MAX_OUTPUT, Result, Status, bounded_text
from agent_envs.sandbox.sandbox import Interpreter, Program, Sandbox
from agent_envs.threads import run_in_thread

_MOST_REPLY = 1 << 25
_RUNNING = 32  # requests at once; others wait here instead of there
_GRACE = 10.0  # seconds beyond a program's time for which the whole answer is awaited
# The last expression of the program is shown.
_SCRIPT = """
import ast, random
if {seed} is not None: random.seed({seed})
_tree = ast.parse({code}, "<program>")
_last = _tree.body.pop() if {echo} and _tree.body and isinstance(_tree.body[-1], ast.Expr) else None
exec(compile(_tree, "<program>", "exec"))
_value = None if _last is None else eval(compile(ast.Expression(_last.value), "<program>", "eval"))
if _value is not None: print(repr(_value))
"""


class FusionSandbox(Sandbox, Interpreter):
    """Runs programs on a SandboxFusion server: the interpreter of each ends with it, so there is nothing to copy.

    Args:
        url: The server, such as "http://127.0.0.1:8080"; its path is a prefix.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the address of a sandbox must look like 'http://127.0.0.1:8080', got {url[:100]!r}")
        self.name = self.url = url
        self._parts = parts
        self._running: PerProcess[threading.BoundedSemaphore] = PerProcess()

    def open_interpreter(self) -> Interpreter:
        return self

    def execute(self, program: Program) -> Result:
        code = program.code
        if program.echo or program.seed is not None:
            code = _SCRIPT.format(code=json.dumps(code), echo=program.echo, seed=program.seed)
        request = {
            "code": code,
            "language": "python",
            "run_timeout": program.timeout,
            "memory_limit_MB": program.memory >> 20,
            "stdin": program.stdin,
            "files": {name: base64.b64encode(content).decode() for name, content in program.contents.items()},
        }
        with self._running.get(None, lambda: threading.BoundedSemaphore(_RUNNING)):
            start = time.monotonic()
            answer = self._post(json.dumps(request).encode(), program.timeout + _GRACE)
            took = time.monotonic() - start
        if answer is None:
            return Result("output-limit", "", "", took, ended=True)
        return replace(_result(answer, took), ended=True)

    def _post(self, body: bytes, seconds: float) -> dict[str, Any] | None:
        """Return the server's answer; None for one that is too long, which a program's output makes it."""
        connect = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = connect(self._parts.hostname or "", self._parts.port, timeout=seconds)
        asked = run_in_thread(_exchange, connection, self._parts.path.rstrip("/") + "/run_code", body)
        try:
            status, said = asked.result(seconds)
        except TimeoutError as e:
            raise BackendSlowError(f"{self.url} did not answer within {seconds:g} s") from e
        except (OSError, http.client.HTTPException) as e:
            raise BackendDownError(f"{self.url} does not answer: {e or type(e).__name__}") from e
        finally:
            with contextlib.suppress(OSError, AttributeError):  # it has no socket any more
                connection.sock.shutdown(socket.SHUT_RDWR)  # a thread that still reads ends
        if status in (429, 503):
            raise BackendBusyError(f"{self.url} is overloaded (HTTP {status})")
        if status != 200:
            raise BackendRefusedError(f"{self.url} answered HTTP {status}: {said[:200]!r}")
        if len(said) > _MOST_REPLY:
            return None
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError) as e:
            raise BackendReplyError(f"{self.url} did not answer with JSON: {said[:80]!r}") from e
        if not isinstance(answer, dict):
            raise BackendReplyError(f"{self.url} did not answer with an object: {said[:80]!r}")
        return answer


def _exchange(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, bytes]:
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read(_MOST_REPLY + 1)
    finally:
        connection.close()


def _result(answer: dict[str, Any], took: float) -> Result:
    """Return the result in an answer; BackendError if the server failed or said something else."""
    run = answer.get("run_result")
    if answer.get("status") == "SandboxError" or not isinstance(run, dict):
        raise BackendError(f"SandboxFusion failed: {answer.get('message') or answer!r:.200}")
    ended, out, err, seconds = (run.get(name) for name in ("status", "stdout", "stderr", "execution_time"))
    out, err, seconds = out or "", err or "", took if seconds is None else seconds
    if not isinstance(out, str) or not isinstance(err, str) or not isinstance(seconds, (int, float)):
        raise BackendReplyError(f"SandboxFusion answered with {out!r:.80}, {err!r:.80} and {seconds!r:.80}")
    last = err.rstrip().rpartition("\n")[2]
    status: Status = "error"
    if ended == "TimeLimitExceeded":
        status = "timeout"
    elif ended not in ("Finished", "Error"):
        raise BackendReplyError(f"SandboxFusion answered with the unknown status {ended!r:.80}")
    elif ended == "Finished" and run.get("return_code") == 0:
        status = "ok"
    elif last.startswith("MemoryError"):
        status = "memory"
    elif last.startswith("PermissionError"):
        status = "refused"
    texts = [text.encode("utf-8", "replace") for text in (out, err)]
    if status != "timeout" and max(map(len, texts)) > MAX_OUTPUT:
        status = "output-limit"
    out, err = (bounded_text(text) for text in texts)
    return Result(status, out, err, float(seconds))
