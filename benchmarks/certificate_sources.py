"""What the audits of other packages' environments need beside the packages: servers, tasks, modules, experts.

`mcp_time`       mcp-server-time, a program of tools, with tasks that are made here: pip install mcp-server-time
`openenv_init`   the server that `openenv init` writes, as it stands
`load_environment`, found as the module certificate_sources   a class of verifiers, for AgentR1/Verifiers-v0
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.audit.play import View

FOLDER = Path("runs/certificates")
TIMES = FOLDER / "times"
PORT = 18_230
_ZONES = {  # without daylight saving time: minutes from UTC
    "Africa/Lagos": 60, "America/Bogota": -300, "America/Phoenix": -420, "Asia/Dhaka": 360, "Asia/Dubai": 240,
    "Asia/Kathmandu": 345, "Asia/Kolkata": 330, "Asia/Tokyo": 540, "Australia/Darwin": 570, "Pacific/Honolulu": -600,
}  # fmt: skip
_LARGEST = 60  # seconds until a server answers


@contextmanager
def mcp_time() -> Iterator[None]:
    """Write tasks for the tools of mcp-server-time, with the call that solves each."""
    TIMES.mkdir(parents=True, exist_ok=True)
    for seed, split in enumerate(("train", "validation", "test")):
        rng, rows = np.random.default_rng(seed), []
        for _ in range(200):
            one, other = (str(zone) for zone in rng.choice(sorted(_ZONES), 2, replace=False))
            minute = int(rng.integers(24 * 60))
            there = (minute - _ZONES[one] + _ZONES[other]) % (24 * 60)
            now = _clock(minute)
            arguments = {"source_timezone": one, "time": now, "target_timezone": other}
            rows.append({
                "question": f"What time is it in {other} when it is {now} in {one}? Write it as HH:MM.",
                "answer": _clock(there),
                "solution": [{"name": "convert_time", "arguments": arguments}],
            })  # fmt: skip
        (TIMES / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    yield


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


@contextmanager
def openenv_init() -> Iterator[None]:
    """Run the server that `openenv init` writes, for as many connections as an audit opens."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "echo").exists():
        subprocess.run(["openenv", "init", "echo"], cwd=FOLDER, check=True, stdout=subprocess.DEVNULL)
    serve = (
        "import uvicorn\nfrom echo.models import EchoAction, EchoObservation\n"
        "from echo.server.echo_environment import EchoEnvironment\n"
        "from openenv.core.env_server.http_server import create_app\n"
        "app = create_app(EchoEnvironment, EchoAction, EchoObservation, env_name='echo', max_concurrent_envs=100)\n"
        f"uvicorn.run(app, host='127.0.0.1', port={PORT}, log_level='critical')\n"
    )
    server = subprocess.Popen([sys.executable, "-c", serve], cwd=FOLDER)
    try:
        began = time.monotonic()
        while time.monotonic() - began < _LARGEST and server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                    break
            time.sleep(0.1)
        else:
            raise SystemExit("the server of openenv init does not start")
        yield
    finally:
        server.terminate()
        server.wait()


def load_environment() -> Any:
    """Return verifiers' own environment over a data set of reasoning-gym."""
    from verifiers.legacy.envs.integrations.reasoninggym_env import ReasoningGymEnv

    return ReasoningGymEnv("chain_sum", num_train_examples=1000, num_eval_examples=100)


def sum_in_tags(view: View) -> str | None:
    """Answer a sum, as the prompt of verifiers' environment asks for it."""
    question = view.start.rpartition(":")[2]
    numbers = re.findall(r"[-+]?\s*\d+", question.replace("- -", "+"))
    return f"<answer>{sum(int(number.replace(' ', '')) for number in numbers)}</answer>"
