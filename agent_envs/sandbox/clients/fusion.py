"""SandboxFusion's HTTP API, the service that the released systems use: POST /run_code.

    {"code": "print(1)", "language": "python", "run_timeout": 10, "stdin": "", "files": {"a.csv": "<base64>"}}
    {"status": "Success", "message": "", "run_result": {"status": "Finished", "return_code": 0, "stdout": "1\\n", ...}}

API: https://github.com/bytedance/SandboxFusion. A status of "SandboxError", any HTTP error and any silence is a
BackendError here: released runs took them for the program's own failures.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import urllib.parse
from typing import Any

from agent_envs.checks import integer, number
from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendRefusedError,
    BackendReplyError,
    BackendSlowError,
    ConfigError,
)
from agent_envs.sandbox.clients.one_shot import OneShotSandbox, outcome
from agent_envs.sandbox.result import Result
from agent_envs.sandbox.sandbox import Program

__all__ = ["FusionSandbox"]

_MOST_REPLY = 1 << 25


class FusionSandbox(OneShotSandbox):
    """Runs programs on a SandboxFusion server.

    Args:
        url: The server, such as "http://127.0.0.1:8080"; its path is a prefix.
        max_running: Requests at once; others wait here instead of there.
        grace: Seconds beyond a program's time for which an answer is awaited.
    """

    def __init__(self, url: str, *, max_running: int = 32, grace: float = 10.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the address of a sandbox must look like 'http://127.0.0.1:8080', got {url[:100]!r}")
        self.name = self.url = url
        self._parts = parts
        self._most = integer("max_running", max_running, minimum=1)
        self._grace = number("grace", grace, above=0)
        self._running = threading.BoundedSemaphore(self._most)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.url, self._most, self._grace)

    def run_script(self, code: str, program: Program) -> Result:
        request = {
            "code": code,
            "language": "python",
            "run_timeout": program.timeout,
            "memory_limit_MB": program.memory >> 20,
            "stdin": program.stdin,
            "files": {name: base64.b64encode(content).decode() for name, content in program.files},
        }
        with self._running:
            start = time.monotonic()
            answer = self._post(json.dumps(request).encode(), program.timeout + self._grace)
            took = time.monotonic() - start
        run = answer.get("run_result")
        if answer.get("status") == "SandboxError" or not isinstance(run, dict):
            raise BackendError(f"SandboxFusion failed: {answer.get('message') or answer!r:.200}")
        status = run.get("status")
        if status == "TimeLimitExceeded":
            ended = "timeout"
        elif status == "Finished":
            ended = "ok" if run.get("return_code") == 0 else "error"
        else:
            raise BackendReplyError(f"SandboxFusion answered with the unknown status {status!r:.80}")
        seconds = run.get("execution_time")
        return outcome(ended, run.get("stdout") or "", run.get("stderr") or "", took if seconds is None else seconds)

    def _post(self, body: bytes, timeout: float) -> dict[str, Any]:
        connect = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = connect(self._parts.hostname or "", self._parts.port, timeout=timeout)
        try:
            path = self._parts.path.rstrip("/") + "/run_code"
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            said = response.read(_MOST_REPLY + 1)
        except TimeoutError as e:
            raise BackendSlowError(f"{self.url} did not answer within {timeout:g} s") from e
        except (OSError, http.client.HTTPException) as e:
            raise BackendDownError(f"{self.url} does not answer: {e or type(e).__name__}") from e
        finally:
            connection.close()
        if response.status in (429, 503):
            raise BackendBusyError(f"{self.url} is overloaded (HTTP {response.status})")
        if response.status != 200:
            raise BackendRefusedError(f"{self.url} answered HTTP {response.status}: {said[:200]!r}")
        if len(said) > _MOST_REPLY:
            raise BackendReplyError(f"{self.url} answered with more than {_MOST_REPLY} bytes")
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError) as e:
            raise BackendReplyError(f"{self.url} did not answer with JSON: {said[:80]!r}") from e
        if not isinstance(answer, dict):
            raise BackendReplyError(f"{self.url} did not answer with an object: {said[:80]!r}")
        return answer


def _reopened(url: str, max_running: int, grace: float) -> FusionSandbox:
    return FusionSandbox(url, max_running=max_running, grace=grace)
