"""The container of `agentr1 serve`, and how Kubernetes runs it.

1. The Dockerfile makes a server that answers its own health check, plays an episode and ends with status 0. Docker
   builds it where it can; elsewhere its instructions are executed, one by one, in a fresh folder and environment.
2. What the Kubernetes file passes to the command is understood, and what it asks the server is answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from agent_envs.cli.main import command_parser
from agent_envs.serving import EnvServer, RemoteEnv, ServedEnv

pytest.importorskip("aiohttp")
pytest.importorskip("websockets")

TOKEN = "a-token-of-some-length"


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """The name and the rest of each instruction."""
    text = re.sub(r"\\\n", "", "".join(re.findall(r"^(?!#).*\n", dockerfile.read_text(), re.MULTILINE)))
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


class Image:
    """What a Dockerfile's instructions do to a folder that stands for the root of its file system."""

    def __init__(self, context: Path, root: Path) -> None:
        self.context, self.root, self.folder = context, root, root
        python = root / "python"
        subprocess.run([sys.executable, "-m", "venv", python], check=True)
        self.env = {"PATH": f"{python / 'bin'}:/usr/bin:/bin"}
        self.env |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.arguments: dict[str, str] = {}
        self.user: dict[str, Any] = {}
        self.command: list[str] = []
        self.health: list[str] = []

    def take(self, name: str, rest: str) -> None:
        """Do what an instruction says."""
        getattr(self, f"_{name.lower()}")(rest)

    def _from(self, rest: str) -> None:
        assert re.fullmatch(r"python:3\.1[123]-slim-\w+", rest)

    def _arg(self, rest: str) -> None:
        self.arguments |= [rest.split("=")]

    def _workdir(self, rest: str) -> None:
        self.folder = self.root / rest.lstrip("/")
        self.folder.mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        *sources, goal = rest.split()
        for source in sources:
            there = self.context / source
            if there.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(there, self.folder / goal, symlinks=True, ignore=ignored)
            else:
                assert goal.endswith("/")
                shutil.copy(there, self.folder / goal)

    def _run(self, rest: str) -> None:
        subprocess.run(["sh", "-c", rest], cwd=self.folder, env={**self.env, **self.arguments}, check=True)

    def _env(self, rest: str) -> None:
        self.env |= [part.split("=") for part in shlex.split(rest)]

    def _user(self, rest: str) -> None:
        user, group = map(int, rest.split(":"))
        chosen = {"user": user, "group": group, "extra_groups": []}
        with contextlib.suppress(PermissionError):  # not root, or Python lies where only root may read
            subprocess.run([self.root / "python" / "bin" / "python", "-c", ""], check=True, **chosen)
            self.user = chosen

    def _expose(self, rest: str) -> None:
        assert rest == "8000"

    def _stopsignal(self, rest: str) -> None:
        assert rest == "SIGTERM"

    def _healthcheck(self, rest: str) -> None:
        self.health = shlex.split(rest.partition(" CMD ")[2])

    def _entrypoint(self, rest: str) -> None:
        self.command = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self.command = self.command + json.loads(rest)

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a command as the image's user, if that is possible."""
        return subprocess.Popen(
            [str(self.root / "python" / "bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env={**self.env, "AGENT_ENVS_TOKEN": TOKEN},
            **self.user,
        )


def answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def docker_works() -> bool:
    return (
        shutil.which("docker") is not None
        and subprocess.run(["docker", "info"], capture_output=True, timeout=60).returncode == 0
    )


def plays(port: int) -> None:
    """Wait for the server and play an episode."""
    end = time.monotonic() + 120
    while not answers(port, "/ready"):
        assert time.monotonic() < end
        time.sleep(0.2)
    env = RemoteEnv(f"http://127.0.0.1:{port}", token=TOKEN)
    env.reset(seed=0)
    while not (result := env.step(env.expert_action() or ""))[2]:
        pass
    assert result[1] == 1.0
    env.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the container is one of Linux")
def test_the_dockerfile_makes_a_server(root):
    dockerfile = root / "docs" / "deploy" / "Dockerfile"
    port = free_port()
    if docker_works():
        subprocess.run(["docker", "build", "-q", "-f", dockerfile, "-t", "agent-envs-test", root], check=True)
        options = ["-d", "-e", f"AGENT_ENVS_TOKEN={TOKEN}", "-p", f"127.0.0.1:{port}:8000"]
        name = subprocess.check_output(["docker", "run", *options, "agent-envs-test"], text=True).strip()
        try:
            plays(port)
            subprocess.run(["docker", "stop", "-t", "60", name], check=True)
            state = subprocess.check_output(["docker", "inspect", "-f", "{{.State.ExitCode}}", name], text=True)
            assert state.strip() == "0"
        finally:
            subprocess.run(["docker", "rm", "-f", name], check=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # for the image's user
        image = Image(root, Path(folder))
        for instruction in instructions(dockerfile):
            image.take(*instruction)
        command, health = ([part.replace("8000", str(port)) for part in c] for c in (image.command, image.health))
        process = image.start(command)
        try:
            plays(port)
            assert image.start(health).wait(30) == 0
            assert image.start([part.replace("/health", "/nothing") for part in health]).wait(30) != 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def test_the_kubernetes_file_fits_the_command(root):
    yaml = pytest.importorskip("yaml")
    deployment, service = yaml.safe_load_all((root / "docs" / "deploy" / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = command_parser("serve").parse_args(container["args"])
    assert arguments.drain + arguments.grace < pod["terminationGracePeriodSeconds"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    with EnvServer([ServedEnv("AgentR1/GSM8K-v0")], port=0, workers=0, token=TOKEN) as server:
        for probe in ("startup", "liveness", "readiness"):
            assert answers(server.port, container[f"{probe}Probe"]["httpGet"]["path"])
