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
    """What a Dockerfile's instructions make, in a folder that stands for the root of its file system."""

    def __init__(self, dockerfile: Path, context: Path, root: Path) -> None:
        self.bin, self.folder = root / "python" / "bin", root
        subprocess.run([sys.executable, "-m", "venv", self.bin.parent], check=True)
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin"}
        self.env |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.user: dict[str, Any] = {}
        arguments, told = dict[str, str](), dict[str, str]()
        for name, rest in instructions(dockerfile):
            if name == "ARG":
                arguments |= [rest.split("=")]
            elif name == "WORKDIR":
                self.folder = root / rest.lstrip("/")
                self.folder.mkdir(parents=True, exist_ok=True)
            elif name == "COPY":
                *sources, goal = rest.split()
                for source in (context / source for source in sources):
                    if source.is_dir():
                        ignored = shutil.ignore_patterns("__pycache__")
                        shutil.copytree(source, self.folder / goal, symlinks=True, ignore=ignored)
                    else:
                        assert goal.endswith("/")
                        shutil.copy(source, self.folder / goal)
            elif name == "RUN":
                subprocess.run(["sh", "-c", rest], cwd=self.folder, env={**self.env, **arguments}, check=True)
            elif name == "ENV":
                self.env |= [part.split("=") for part in shlex.split(rest)]
            elif name == "USER":
                user, group = map(int, rest.split(":"))
                chosen = {"user": user, "group": group, "extra_groups": []}
                with contextlib.suppress(PermissionError):  # not root, or Python lies where only root may read
                    subprocess.run([self.bin / "python", "-c", ""], check=True, **chosen)
                    self.user = chosen
            else:
                told[name] = rest
        self.command = json.loads(told.pop("ENTRYPOINT")) + json.loads(told.pop("CMD"))
        self.health = shlex.split(told.pop("HEALTHCHECK").partition(" CMD ")[2])
        assert re.fullmatch(r"python:3\.1[123]-slim-\w+", told.pop("FROM"))
        assert told == {"EXPOSE": "8000", "STOPSIGNAL": "SIGTERM"}

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a command as the image's user, if that is possible."""
        return subprocess.Popen(
            [str(self.bin / command[0]), *command[1:]],
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
        image = Image(dockerfile, root, Path(folder))
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
