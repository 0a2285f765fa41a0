"""Hostile programs in the sandbox: none gets out, none is felt by another run, and the host keeps serving.

They run as the user of the tests, and with `-m slow` also without Landlock and namespaces, as an unprivileged user,
and inside a user namespace. `python tests/attacks/test_sandbox.py` plays all of them once and prints what got through;
`python tests/attacks/test_sandbox.py monty` does so in another sandbox.
"""

import ctypes
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_envs.sandbox import STATUSES, Sandbox, open_sandbox

if sys.platform != "linux":
    pytest.skip("the sandbox 'forked' needs Linux", allow_module_level=True)

from agent_envs.sandbox.forked.host import ForkedSandbox

_SPEC = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
assert _SPEC is not None and _SPEC.loader is not None
hostile = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(hostile)

SECONDS = 0.25  # what a program may take
_CHECK = "import math, json, random, re\nprint(41 + 1, math.pi, json.dumps([3]), len('abc'), 0 < random.random() < 1)"
_CHECKED = "42 3.141592653589793 [3] 3 True\n"


@contextmanager
def targets() -> Iterator[dict[str, str]]:
    """Put up what the programs attack, and check afterwards that it is untouched."""
    with (
        tempfile.TemporaryDirectory() as made,
        socket.socket() as tcp,
        socket.socket(1) as unix,
        socket.socket(1) as name,
    ):
        folder = Path(made)
        folder.chmod(0o777)
        secret = folder / "secret"
        secret.write_text("TOPSECRET")
        secret.chmod(0o666)
        (folder / "planted.py").write_text("print('BREACH')\n")
        abstract = f"agent_envs-{uuid.uuid4().hex}"
        reached: list[str] = []
        for listener, address in ((tcp, ("127.0.0.1", 0)), (unix, f"{folder}/unix"), (name, f"\0{abstract}")):
            listener.bind(address)
            listener.listen()

        def accept(listener: socket.socket) -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                reached.append(str(listener))
                connection.sendall(b"hello")
                connection.close()

        for listener in (tcp, unix, name):
            threading.Thread(target=accept, args=(listener,), daemon=True).start()
        os.environ["SECRET_TOKEN"] = "abc"
        before = sorted(os.listdir(folder))
        try:
            yield {
                "SECRET": str(secret), "FOLDER": str(folder), "PORT": str(tcp.getsockname()[1]),
                "HOST": str(os.getpid()), "ABSTRACT": abstract,
            }  # fmt: skip
        finally:
            del os.environ["SECRET_TOKEN"]
            for listener in (tcp, unix, name):
                listener.shutdown(socket.SHUT_RDWR)
        assert reached == []
        assert secret.read_text() == "TOPSECRET" and sorted(os.listdir(folder)) == before
        assert secret.stat().st_mode & 0o777 == 0o666


HARMLESS = {
    "monty": ("resources: regex",),  # which takes linear time there, so that the program comes to its end
}


def failures(sandbox: Sandbox, programs: dict[str, str], threads: int = 4) -> dict[str, str]:
    """Run programs and return what went wrong, by program: a breach, a wrong status, a fault, or a spoilt other run.

    In other sandboxes than "forked" a program may also fail early, for want of what it attacks with, or take too long.
    """
    found = {}
    harmless = HARMLESS.get(sandbox.name, ())
    others = () if sandbox.name == "forked" else ("error", "timeout")
    with targets() as words, sandbox.session() as neighbour:
        neighbour.run("x = list(range(100))")

        def play(item: tuple[str, str]) -> None:
            name, code = item
            for word, value in words.items():
                code = code.replace(word, value)
            result = sandbox.run(code, timeout=SECONDS, memory=200 << 20, files={"given.txt": "given"}, echo=True)
            said = result.stdout + "".join(line for line in result.stderr.splitlines() if not line.startswith("  "))
            if name in harmless:
                return
            if "BREACH" in said:
                found[name] = f"{result.status}: {said[-200:]}"
            elif result.status not in (*others, hostile.ENDS.get(name, result.status)) or result.status not in STATUSES:
                found[name] = f"status {result.status}: {said[-200:]}"
            elif result.seconds > 2 * SECONDS + 1:
                found[name] = f"took {result.seconds:.1f} s"
            if sandbox.run(_CHECK, timeout=30).stdout != _CHECKED:
                found[name] = "the next run is spoilt"

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(play, programs.items()))
        assert neighbour.run("print(sum(x))").stdout == "4950\n"
    return found


def _family(name: str) -> dict[str, str]:
    return {key: code for key, code in hostile.programs().items() if key.startswith(f"{name}:")}


def test_there_are_enough_and_they_do_something_outside(tmp_path):
    assert len(hostile.programs()) >= 200
    secret = tmp_path / "secret"
    secret.write_text("TOPSECRET")
    for name in ("reads: open secret", "reads: os.open secret", "reads: mmap secret", "reads: ctypes fopen secret"):
        code = hostile.programs()[name].replace("SECRET", str(secret))
        done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
        assert "BREACH" in done.stdout, name


@pytest.fixture(scope="module")
def sandbox():
    found = ForkedSandbox()
    yield found
    found.close()


@pytest.mark.parametrize(
    "family", ["reads", "files", "network", "processes", "signals", "calls", "resources", "inside", "forgery"]
)
def test_hostile_programs_stay_inside(sandbox, family):
    assert failures(sandbox, _family(family)) == {}


@pytest.mark.slow
def test_the_filter_alone_holds_them():
    sandbox = ForkedSandbox(use=("seccomp",))
    try:
        assert failures(sandbox, hostile.programs()) == {}
    finally:
        sandbox.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["nobody", "user namespace"])
def test_they_stay_inside_for_other_users(way, root):
    """The same for a host that is not root, or that is root in a user namespace only."""
    command: dict[str, Any] = {}
    interpreters = [sys.executable, "/usr/bin/python3"]
    if way == "nobody" and os.geteuid() == 0:
        command = {"user": 65534, "group": 65534, "extra_groups": []}
    elif way == "user namespace":
        command = {"preexec_fn": lambda: os._exit(77) if ctypes.CDLL(None).unshare(0x10000000) else None}
    path = os.pathsep.join([str(root), *(entry for entry in sys.path if entry.endswith("site-packages"))])
    for interpreter in interpreters:
        try:
            done = subprocess.run(
                [interpreter, "-B", __file__],
                capture_output=True, text=True, cwd="/", env={**os.environ, "PYTHONPATH": path}, **command,
            )  # fmt: skip
        except PermissionError:  # it lies in a private home
            continue
        if done.returncode == 77:
            pytest.skip("user namespaces are forbidden here")
        assert done.stdout.endswith(f"{len(hostile.programs())} programs\n{{}}\n"), done.stdout + done.stderr
        return
    pytest.skip("no interpreter that this user may start")


_FOR_MONTY = {
    "path": "from pathlib import Path\nprint('BREACH', Path('/etc/passwd').read_text())",
    "path bytes": "from pathlib import Path\nprint('BREACH', Path('SECRET').read_bytes())",
    "path up": "from pathlib import Path\nprint('BREACH', Path('given.txt/../../../../../../etc/passwd').read_text())",
    "path resolved": "from pathlib import Path\nprint('BREACH', Path('../etc/passwd').resolve().read_text())",
    "path list": "from pathlib import Path\nx = [str(p) for p in Path('/').iterdir()]\n"
    "print('BREACH' if x != ['/given.txt'] else x)",
    "path exists": "from pathlib import Path\nprint('BREACH' if Path('SECRET').exists() else 'none')",
    "path write": "from pathlib import Path\nPath('FOLDER/new').write_text('x'); print('BREACH')",
    "path write given": "from pathlib import Path\nPath('given.txt').write_text('x' * 10**6); print('BREACH')",
    "path mkdir": "from pathlib import Path\nPath('FOLDER/new').mkdir(); print('BREACH')",
    "path unlink": "from pathlib import Path\nPath('SECRET').unlink(); print('BREACH')",
    "path rename": "from pathlib import Path\nPath('given.txt').rename('SECRET'); print('BREACH')",
    "environment": "import os\nprint('BREACH', os.getenv('SECRET_TOKEN'))",
    "many reads": "while True: open('given.txt').read()",
    "many lines": "while True:\n    try: input()\n    except Exception: pass",
    "sleep after sleep": "import time\nwhile True:\n    try: time.sleep(5)\n    except Exception: pass",
    "value": "x = []\nfor _ in range(10**5): x = [x]\nx",
    "cyclic value": "x = []\nx.append(x)\nx",
    "large value": "['a' * 10**6] * 20",
    "deep source": "(" * 10**5,
    "long source": "x = 1\n" * 10**5,
    "names": "\n".join(f"x{n} = {n}" for n in range(3000)),
    "host function": "print('BREACH', input.__globals__)",
    "host function's code": "print('BREACH', input.__class__.__mro__)",
}


def test_hostile_programs_stay_inside_monty():
    pytest.importorskip("pydantic_monty")
    sandbox = open_sandbox("monty")
    try:
        assert failures(sandbox, hostile.programs() | _FOR_MONTY) == {}
    finally:
        sandbox.close()


if __name__ == "__main__":
    tried = open_sandbox(sys.argv[1]) if len(sys.argv) > 1 else ForkedSandbox()
    sys.stdout.write(f"{tried.describe()}\n{len(hostile.programs())} programs\n")
    sys.stdout.write(f"{failures(tried, hostile.programs())}\n")
    tried.close()
