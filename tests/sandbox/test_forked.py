"""The forked sandbox: statuses, files, sessions, threads, recovery, and what is left when its parent is killed."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_envs.errors import BackendDownError, BackendError, BackendReplyError, ConfigError
from agent_envs.sandbox import STATUSES, open_sandbox, run

if sys.platform != "linux":
    pytest.skip("the sandbox 'forked' needs Linux", allow_module_level=True)

from agent_envs.sandbox.forked.host import ForkedSandbox
from agent_envs.sandbox.forked.lanes import Turns


@pytest.fixture(scope="module")
def sandbox():
    found = open_sandbox("forked")
    yield found
    found.close()


ENDS = [  # program, status, words of stdout or stderr
    ("print(6 * 7)", "ok", "42\n"),
    ("import sys; sys.exit(0)", "ok", ""),
    ("exit()", "ok", ""),
    ("raise ValueError('no')", "error", "ValueError: no"),
    ("1 +", "error", "SyntaxError"),
    ("x = '\0'", "error", "null bytes"),
    ("import sys; sys.exit('bye')", "error", "bye"),
    ("import os; os._exit(3)", "error", "exit code 3"),
    ("import ctypes; ctypes.string_at(0)", "error", "SIGSEGV"),
    ("import nothing_like_it", "error", "No module named 'nothing_like_it'"),
    ("(" * 5000, "error", "Error"),
    ("def f(): f()\nf()", "error", "RecursionError"),
    ("while True: pass", "timeout", ""),
    ("import time\nprint('begun', flush=True)\ntime.sleep(60)", "timeout", "begun"),
    ("x = bytearray(10**10)", "memory", "MemoryError"),
    ("x = []\nwhile True: x.append(bytearray(10**7))", "memory", "MemoryError"),
    ("while True: print('a' * 1000)", "output-limit", "[cut: more than 65536 bytes]"),
    ("import sys\nwhile True: sys.stderr.write('a' * 1000)", "output-limit", "[cut: more than 65536 bytes]"),
    ("open('/etc/passwd')", "refused", "PermissionError"),
    ("open('new.txt', 'w')", "refused", "PermissionError"),
    ("import os; os.fork()", "refused", "PermissionError"),
    ("import threading; threading.Thread(target=print).start()", "refused", "can't start new thread"),
    ("import socket; socket.socket()", "refused", "PermissionError"),
]


@pytest.mark.parametrize(("code", "status", "words"), ENDS)
def test_a_program_ends_with_its_status(sandbox, code, status, words):
    result = sandbox.run(code, timeout=0.5 if status == "timeout" else 20, memory=100 << 20)
    assert result.status == status and result.status in STATUSES
    assert words in result.stdout + result.stderr
    assert result.ok == (status == "ok")


def test_a_traceback_shows_the_programs_lines_and_no_path_of_the_host(sandbox):
    result = sandbox.run("import json\ndef f(x):\n    return json.loads(x)\nf('{')")
    assert "line 3, in f" in result.stderr and "return json.loads(x)" in result.stderr
    assert "JSONDecodeError" in result.stderr and "/" not in result.stderr


def test_input_files_and_the_last_expression(sandbox):
    files = {"table.csv": "a,b\n1,2\n", "sub/raw.bin": b"\0\xff"}
    code = """
import csv, os, pathlib
print(input(), list(csv.DictReader(open("table.csv", newline=""))), open("sub/raw.bin", "rb").read())
print(os.path.exists("table.csv"), os.path.exists("other.csv"), os.listdir(), pathlib.Path("table.csv").read_text())
open("table.csv").readline()
"""
    result = sandbox.run(code, stdin="héllo\n", files=files, echo=True)
    assert result.stdout == (
        "héllo [{'a': '1', 'b': '2'}] b'\\x00\\xff'\nTrue False ['sub/raw.bin', 'table.csv'] a,b\n1,2\n\n'a,b\\n'\n"
    )
    assert sandbox.run("open('table.csv')").status == "refused"  # the files were that program's alone
    assert sandbox.run("5", echo=True).stdout == "5\n" and sandbox.run("5").stdout == ""
    assert sandbox.run("open('table.csv', 'w')", files=files).status == "refused"


def test_packages_are_prepared(sandbox):
    pytest.importorskip("sympy")
    pytest.importorskip("pandas")
    assert sandbox.run("import sympy\nprint(sympy.solve('x**2 - 5*x + 6'))").stdout == "[2, 3]\n"
    code = "import pandas\nt = pandas.read_csv('t.csv')\nprint(t.groupby('a').b.sum().to_dict())"
    assert sandbox.run(code, files={"t.csv": "a,b\nx,1\nx,2\ny,5\n"}).stdout == "{'x': 3, 'y': 5}\n"


def test_the_same_seed_draws_the_same_and_no_seed_another(sandbox):
    code = "import random; print(random.random(), hash('a'), {'x', 'y', 'z'})"
    assert len({sandbox.run(code, seed=3).stdout for _ in range(3)}) == 1
    drawn = {sandbox.run("import random; print(random.random())").stdout for _ in range(8)}
    assert len(drawn) == 8


def test_a_program_is_compiled_as_if_it_were_alone(sandbox):
    """The sandbox's own modules postpone annotations."""
    assert sandbox.run("def f(x: int): pass\nprint(f.__annotations__)").stdout == "{'x': <class 'int'>}\n"


def test_a_run_leaves_nothing_to_the_next(sandbox):
    sandbox.run("import math, builtins, sys\nmath.pi = 3\nbuiltins.print = None\nsys.modules.clear()")
    assert sandbox.run("import math; print(math.pi)").stdout == "3.141592653589793\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"memory": 10}, "memory must be"),
        ({"files": {"/etc/x": "a"}}, "relative path"),
        ({"files": {"../x": "a"}}, "relative path"),
        ({"files": {"x": 3}}, "text or bytes"),
        ({"stdin": None}, "must be strings"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_arguments_are_answered_with_a_sentence(sandbox, arguments, words):
    with pytest.raises(ConfigError, match=words):
        sandbox.run("1", **arguments)


def test_unknown_names_and_walls():
    with pytest.raises(ConfigError, match="Did you mean 'forked'"):
        run("1", sandbox="forkd")
    with pytest.raises(ConfigError, match="must be one of"):
        ForkedSandbox(require=("seccom",))
    with pytest.raises(ConfigError, match="every required wall"):
        ForkedSandbox(require=("landlock",), use=("seccomp",))
    assert open_sandbox("auto") is open_sandbox("forked")


# -- sessions
def test_a_session_keeps_variables_after_errors_and_not_after_a_stop(sandbox):
    with sandbox.session() as session:
        assert session.run("x = 5\ndef f(): return x").ok
        assert session.run("1 / 0").status == "error"
        assert session.run("y = bytearray(10**10)").status == "memory"
        assert session.run("f()", echo=True).stdout == "5\n"
        stopped = session.run("while True: pass", timeout=0.3)
        assert stopped.status == "timeout" and stopped.ended
        assert session.run("x").status == "error"


def test_a_session_moves_to_a_larger_interpreter_with_its_variables(sandbox):
    pytest.importorskip("numpy")
    with sandbox.session() as session:
        session.run("x = [1, 2, 3]")
        assert session.run("import numpy as np\nprint(np.mean(x))").stdout == "2.0\n"
        assert session.run("print(np.max(x), x)").stdout == "3 [1, 2, 3]\n"


def test_sessions_that_are_garbage_give_their_interpreters_back(sandbox):
    """In a cycle the collector finalises a session together with what only it holds, in any order."""
    for _ in range(6):
        session = sandbox.session()
        session.run("x = 1")
        session.itself = session
        del session
    gc.collect()
    assert [sandbox.run("print(1)").stdout for _ in range(12)] == ["1\n"] * 12


def test_copies_of_a_session_go_their_own_ways(sandbox):
    session = sandbox.session()
    session.run("import random\nx = [random.random()]\nprint(x)", seed=1)
    copies = [copy.deepcopy(session), pickle.loads(pickle.dumps(session))]
    session.run("x.append(1)")
    for number, other in enumerate(copies):
        other.run(f"x.append({number} + 5)")
        assert other.run("print(x[1:], x[0])").stdout.startswith(f"[{number + 5}]")
    assert session.run("print(len(x), x[1])").stdout == "2 1\n"
    for each in (session, *copies):
        each.close()


def test_a_session_that_cannot_be_copied_exactly_says_so(sandbox):
    session = sandbox.session()
    session.run("import time; print(time.perf_counter_ns())")
    other = copy.deepcopy(session)
    with pytest.raises(BackendReplyError, match="printed something else"):
        other.run("1")
    session.close()


# -- threads, recovery, and the end
def test_threads_and_coroutines_get_their_own_answers(sandbox):
    def one(number):
        return sandbox.run(f"print({number} * 2)", timeout=30).stdout

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(200))) == [f"{2 * n}\n" for n in range(200)]

    async def together():
        return await asyncio.gather(*(asyncio.to_thread(one, number) for number in range(20)))

    assert asyncio.run(together()) == [f"{2 * n}\n" for n in range(20)]


def test_programs_run_in_the_order_in_which_they_come():
    """However many threads there are: with a semaphore some waited for minutes."""
    turns, order = Turns(1), []

    def wait(number):
        with turns:
            order.append(number)

    with turns:
        waiting = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
        for number, thread in enumerate(waiting):
            thread.start()
            while len(turns._waiting) <= number:
                time.sleep(0.001)
    with turns:  # one that comes later has to wait for those five
        order.append("last")
    for thread in waiting:
        thread.join()
    assert order == [0, 1, 2, 3, 4, "last"] and turns._free == 1


def _children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found


def _descendants(pid):
    below = _children(pid)
    return below + [deeper for child in below for deeper in _descendants(child)]


def _gone(pids, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        left = []
        for pid in pids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in "ZX":
                left.append(pid)
        if not left:
            return True
        time.sleep(0.05)
    return False


def test_it_recovers_from_killed_workers():
    sandbox = ForkedSandbox()
    try:
        assert sandbox.run("print(1)").ok
        zygote = sandbox._pool(0).zygote.pid
        lanes = _children(zygote)
        for lane in lanes:  # while they are idle: nobody notices
            os.kill(lane, signal.SIGKILL)
        assert _gone(lanes) and sandbox.run("print(2)").stdout == "2\n"
        spares = [child for lane in _children(zygote) for child in _children(lane)]
        for child in spares:
            os.kill(child, signal.SIGKILL)
        assert _gone(spares) and sandbox.run("print(3)").stdout == "3\n"
        lanes = _children(zygote)
        os.kill(zygote, signal.SIGKILL)
        assert _gone([*lanes])
        assert sandbox.run("print(4)").stdout == "4\n"
        session = sandbox.session()
        session.run("x = 1")
        children = [child for lane in _children(sandbox._pool(0).zygote.pid) for child in _children(lane)]
        for child in children:  # the session's is under way: a typed error, and not a result
            os.kill(child, signal.SIGKILL)
        assert _gone(children)
        with pytest.raises(BackendDownError):
            session.run("print(x)")
        assert session.run("print(5)").stdout == "5\n"

        def kill_soon():
            time.sleep(0.5)
            os.kill(sandbox._pool(0).zygote.pid, signal.SIGKILL)

        threading.Thread(target=kill_soon).start()
        with pytest.raises(BackendDownError):
            sandbox.run("while True: pass", timeout=30)
        assert sandbox.run("print(6)").stdout == "6\n"
    finally:
        sandbox.close()


_HOST = """
import sys, threading, time
from agent_envs.sandbox.forked.host import ForkedSandbox
from agent_envs.sandbox.forked.lanes import Turns
sandbox = ForkedSandbox()
sessions = [sandbox.session() for _ in range(3)]
for session in sessions: session.run("x = 1")
threading.Thread(target=lambda: sandbox.run("while True: pass", timeout=60), daemon=True).start()
time.sleep(0.3)
print("ready", flush=True)
time.sleep(60)
"""


def test_nothing_is_left_when_the_parent_is_killed(root):
    with subprocess.Popen(
        [sys.executable, "-c", _HOST], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    ) as host:
        assert host.stdout.readline() == "ready\n"
        below = _descendants(host.pid)
        assert len(below) >= 7  # the zygote, lanes and children
        host.kill()
    assert _gone(below)


def test_closing_ends_every_process_and_descriptors_do_not_grow():
    sandbox = ForkedSandbox()
    sandbox.run("1")
    zygote = sandbox._pool(0).zygote.pid
    below = [zygote, *_descendants(zygote)]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with sandbox.session() as session:
            session.run("x = 1")
        sandbox.run("1 / 0")
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    sandbox.close()
    assert _gone(below)
    assert sandbox.run("print(7)").stdout == "7\n"  # it starts anew
    sandbox.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may see the memory of the sandbox's processes")
def test_a_session_has_little_memory_of_its_own():
    """Its processes write to few pages of the interpreter: walking over `sys.modules` alone took 0.8 MB of each."""
    sandbox = ForkedSandbox()

    def own():
        pids = _descendants(os.getpid())
        return sum(int(Path(f"/proc/{p}/smaps_rollup").read_text().split("Pss_Anon:")[1].split()[0]) for p in pids)

    sessions = [sandbox.session() for _ in range(16)]
    for session in sessions[:6]:
        session.run("x = 1")
    before = own()
    for session in sessions[6:]:
        session.run("x = 1")
    assert (own() - before) / 10 < 3000  # kilobytes; 2,270 with CPython 3.11
    sandbox.close()


def test_a_fork_of_the_host_has_processes_of_its_own(sandbox):
    session = sandbox.session()
    session.run("x = 1")
    pid = os.fork()
    if not pid:
        good = sandbox.run("print(2)").stdout == "2\n" and session.run("print(x)").stdout == "1\n"
        sandbox.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert session.run("print(x + 1)").stdout == "2\n"
    session.close()


def test_a_missing_wall_is_named_and_refuses():
    sandbox = ForkedSandbox(use=("seccomp",))
    assert sandbox.describe()["landlock"] is False and sandbox.run("open('/etc/passwd')").status == "refused"
    sandbox.close()
    held = open_sandbox("forked").describe()
    for wall in ("landlock", "namespaces"):
        if not held[wall]:
            with pytest.raises(BackendError, match=f"{wall} is required"):
                ForkedSandbox(require=("seccomp", wall)).describe()


def test_a_broken_interpreter_is_a_typed_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(BackendDownError, match="cannot be started"):
        ForkedSandbox().run("1")
