"""SandboxFusion's HTTP API, the service that the released systems use: POST /run_code.

    {"code": "print(1)", "language": "python", "run_timeout": 10, "stdin": "", "files": {"a.csv": "<base64>"}}
    {"status": "Success", "message": "", "run_result": {"status": "Finished", "return_code": 0, "stdout": "1\\n", ...}}

API: https://github.com/bytedance/SandboxFusion. A status of "SandboxError", any HTTP error and any silence is a
BackendError here: released runs took them for the program's own failures. The server forgets every program, so
variables do not stay in a session.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import replace

from agent_envs.errors import BackendError, BackendRefusedError, BackendReplyError
from agent_envs.http.pool import HTTPPool, TooLongReplyError, short
from agent_envs.per_process import PerProcess
from agent_envs.sandbox.sandbox import MAX_OUTPUT, Interpreter, Program, Result, Sandbox, Status, bounded_text

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
        self.name = self.url = url
        headers = {"Content-Type": "application/json", "Connection": "close"}  # a reused one may send a program twice
        self._pool = HTTPPool(url, retries=0, headers=headers)
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
        body = json.dumps(request).encode()
        with self._running.get(None, lambda: threading.BoundedSemaphore(_RUNNING)):
            start = time.monotonic()
            try:
                reply = self._pool.request("POST", "/run_code", body, timeout=program.timeout + _GRACE)
            except TooLongReplyError:  # which a program's output makes it
                return Result("output-limit", "", "", time.monotonic() - start, ended=True)
            took = time.monotonic() - start
        if reply.status != 200:
            raise BackendRefusedError(f"{self.url} answered HTTP {reply.status}: {short(reply.content)}")
        return replace(_result(reply.json(self.url), took), ended=True)


def _result(answer: object, took: float) -> Result:
    """Return the result in an answer; BackendError if the server failed or said something else."""
    if not isinstance(answer, dict):
        raise BackendReplyError(f"SandboxFusion did not answer with an object: {short(answer)}")
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
