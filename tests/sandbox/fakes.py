"""Stand-ins with state: a SandboxFusion server and a container engine that really run what they are given."""

import base64
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

_ENGINE = """#!{python}
import os, signal, sys, time
if sys.argv[1] == "kill": sys.exit(0)
image = sys.argv[sys.argv.index("--") + 1]
assert "--network=none" in sys.argv and "--read-only" in sys.argv
if image == "missing": sys.stderr.write("no such image"); sys.exit(125)
if image == "silent": time.sleep(60)
if image == "dies": os.kill(os.getpid(), 9)
os.chdir({folder!r})
os.execv(sys.executable, [sys.executable, *sys.argv[sys.argv.index("--") + 3:]])
"""


def engine(folder: Path) -> None:
    """Write a command "docker" into a folder."""
    (folder / "work").mkdir()
    command = folder / "docker"
    command.write_text(_ENGINE.format(python=sys.executable, folder=str(folder / "work")))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)


def fusion(asked: Any, number: int) -> tuple[int, dict[str, Any]]:
    """Answer as the server does."""
    request = json.loads(asked.body)
    assert asked.path == "/prefix/run_code" and request["language"] == "python"
    files = {name: base64.b64decode(content).decode() for name, content in request["files"].items()}
    opened = f"import io\nopen = lambda name, *a, **k: io.StringIO({files!r}[name])\n" if files else ""
    command = [sys.executable, "-I", "-S", "-c", opened + request["code"]]
    try:
        done = subprocess.run(
            command, input=request["stdin"].encode(), capture_output=True, timeout=request["run_timeout"]
        )
    except subprocess.TimeoutExpired as e:
        said = {"status": "TimeLimitExceeded", "stdout": (e.stdout or b"")[: 1 << 20].decode()}
        return 200, {"status": "Failed", "message": "", "run_result": said}
    run = {"status": "Finished", "return_code": done.returncode, "execution_time": 0.1}
    run |= {"stdout": done.stdout.decode("utf-8", "replace"), "stderr": done.stderr.decode("utf-8", "replace")}
    return 200, {"status": "Failed" if done.returncode else "Success", "message": "", "run_result": run}
