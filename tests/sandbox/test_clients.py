"""Clients of other sandboxes, against fakes that keep state, stall, refuse and die."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import pickle
import stat
import subprocess
import sys
import time
import traceback
from types import SimpleNamespace

import pytest

from agent_envs import errors
from agent_envs.sandbox import open_sandbox
from agent_envs.sandbox.clients.container import ContainerSandbox
from agent_envs.sandbox.clients.fusion import FusionSandbox
from agent_envs.sandbox.clients.remote import CloudSandbox


# -- SandboxFusion
def fusion(asked, number):
    """A server that runs what it is sent, as the real one does."""
    request = json.loads(asked.body)
    assert asked.path == "/prefix/run_code" and request["language"] == "python"
    files = {name: base64.b64decode(content).decode() for name, content in request["files"].items()}
    opened = f"import io\nopen = lambda name, *a, **k: io.StringIO({files!r}[name])\n" if files else ""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", opened + request["code"]],
            input=request["stdin"], capture_output=True, text=True, timeout=request["run_timeout"],
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 200, {
            "status": "Failed",
            "message": "",
            "run_result": {"status": "TimeLimitExceeded", "stdout": "so far"},
        }
    run = {"status": "Finished", "return_code": done.returncode, "execution_time": 0.1}
    run |= {"stdout": done.stdout, "stderr": done.stderr}
    return 200, {"status": "Failed" if done.returncode else "Success", "message": "", "run_result": run}


def test_fusion_runs_programs_and_sessions(fake_service):
    service = fake_service(fusion)
    sandbox = open_sandbox(f"{service.url}/prefix/")
    assert sandbox.run("print(input())", stdin="hello").stdout == "hello\n"
    assert sandbox.run("print(open('a.csv').read())", files={"a.csv": "x"}).stdout == "x\n"
    assert sandbox.run("1 / 0").status == "error" and "ZeroDivisionError" in sandbox.run("1 / 0").stderr
    assert sandbox.run("raise MemoryError").status == "memory"
    assert sandbox.run("raise PermissionError").status == "refused"
    late = sandbox.run("while True: pass", timeout=0.3)
    assert (late.status, late.stdout) == ("timeout", "so far")
    assert "[cut:" in sandbox.run("print('a' * 10**5)").stdout
    with sandbox.session() as session:
        session.run("x = 20\nprint('once')")
        assert session.run("x + 1", echo=True).stdout == "21\n"
        assert session.run("1 / 0").status == "error"
        assert session.run("print(x)").stdout == "20\n"
    assert pickle.loads(pickle.dumps(sandbox)).run("print(1)").stdout == "1\n"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, {"status": "SandboxError", "message": "no container"}), errors.BackendError),
        ((200, {"status": "Success", "run_result": {"status": "Error"}}), errors.BackendReplyError),
        ((200, {"status": "Success", "run_result": {"status": "Finished", "return_code": 0, "stdout": 5}}),
         errors.BackendReplyError),
        ((200, {"status": "UnknownError"}), errors.BackendError),
        ((200, []), errors.BackendReplyError),
        ((200, b"<html>"), errors.BackendReplyError),
        ((200, b"[" * 100_000), errors.BackendReplyError),
        ((429, {}), errors.BackendBusyError),
        ((503, {}), errors.BackendBusyError),
        ((500, {}), errors.BackendRefusedError),
        (None, errors.BackendDownError),
    ],
)  # fmt: skip
def test_a_broken_service_is_never_the_programs_failure(fake_service, answer, error):
    service = fake_service(lambda asked, number: answer)
    with pytest.raises(error):
        FusionSandbox(service.url).run("print(1)")


def test_a_service_that_stalls_or_is_gone(fake_service):
    service = fake_service(lambda asked, number: time.sleep(2))
    with pytest.raises(errors.BackendSlowError):
        FusionSandbox(service.url, grace=0.2).run("print(1)", timeout=0.1)
    service.stop()
    with pytest.raises(errors.BackendDownError):
        FusionSandbox(service.url).run("print(1)")
    with pytest.raises(errors.ConfigError, match="must look like"):
        FusionSandbox("localhost:80")


# -- containers
_ENGINE = """#!{python}
import os, subprocess, sys, time
if sys.argv[1] == "kill": sys.exit(0)
image = sys.argv[sys.argv.index("--") + 1]
assert "--network=none" in sys.argv and "--read-only" in sys.argv
if image == "missing": sys.stderr.write("no such image"); sys.exit(125)
if image == "silent": time.sleep(60)
if image == "dies": os.kill(os.getpid(), 9)
os.chdir({folder!r})
os.execv(sys.executable, [sys.executable, *sys.argv[sys.argv.index("--") + 3:]])
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    command = tmp_path / "docker"
    work = tmp_path / "work"
    work.mkdir()
    command.write_text(_ENGINE.format(python=sys.executable, folder=str(work)))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_containers_run_programs_and_sessions(engine):
    sandbox = ContainerSandbox("docker", "python")
    result = sandbox.run("print(input(), open('a/b.csv').read())", stdin="hello", files={"a/b.csv": "x"})
    assert result.stdout == "hello x\n", result
    assert sandbox.run("1 / 0").status == "error"
    assert sandbox.run("while True: pass", timeout=0.5).status == "timeout"
    assert sandbox.run("while True: print('a' * 1000)").status == "output-limit"
    with sandbox.session() as session:
        session.run("x = 20")
        assert session.run("x + 1", echo=True).stdout == "21\n"


def test_engines_that_fail(engine, monkeypatch):
    for image in ("missing", "dies"):
        with pytest.raises(errors.BackendDownError):
            ContainerSandbox("docker", image).run("print(1)")
    monkeypatch.setattr("agent_envs.sandbox.clients.container._START_SECONDS", 0.3)
    with pytest.raises(errors.BackendSlowError):
        ContainerSandbox("docker", "silent").run("print(1)")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(errors.BackendDownError, match="not installed"):
        ContainerSandbox("podman", "python")


# -- cloud interpreters
class FakeCloud:
    """An interpreter that keeps variables and files."""

    def __init__(self):
        self.variables, self.files, self.killed = {}, {}, False

    def write_file(self, name, content):
        self.files[name] = content

    def run_code(self, code, timeout):
        if "stall" in code:
            raise TimeoutError
        if "die" in code:
            raise ConnectionError("gone")
        out, error = io.StringIO(), None
        self.variables["open"] = lambda name: io.StringIO(self.files[name].decode())
        with contextlib.redirect_stdout(out):
            try:
                exec(code, self.variables)
            except Exception:  # noqa: BLE001  whatever a program raises
                error = traceback.format_exc()
        return SimpleNamespace(stdout=[out.getvalue()], stderr=[], error=error, value="21")

    def kill(self):
        self.killed = True


def test_cloud_interpreters():
    made = []

    def create():
        made.append(FakeCloud())
        return made[-1]

    sandbox = CloudSandbox(create)
    assert sandbox.run("print(open('a').read())", files={"a": "x"}).stdout == "x\n"
    assert sandbox.run("1 / 0").status == "error"
    with sandbox.session() as session:
        session.run("x = 20")
        assert session.run("x + 1", echo=True).stdout == "21\n"
        stopped = session.run("stall")
        assert stopped.status == "timeout" and stopped.ended
        with pytest.raises(errors.BackendDownError, match="gone"):
            session.run("die")
    with pytest.raises(errors.BackendDownError):
        CloudSandbox(lambda: 1 / 0).run("1")
