"""The forked sandbox: statuses, what one program sees of others and of the host, threads, recovery, and the end."""

import asyncio
import copy
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_envs.errors import BackendDownError, BackendError, ConfigError
from agent_envs.sandbox import STATUSES, open_sandbox
from tests.helpers import until

if sys.platform != "linux":
    pytest.skip("the sandbox 'forked' needs Linux", allow_module_level=True)

from agent_envs.sandbox.forked import child as hold
from agent_envs.sandbox.forked.host import ForkedSandbox, _Turns
from agent_envs.sandbox.forked.modules import MODULES

STANDARD = [name for name in MODULES if name.partition(".")[0] in sys.stdlib_module_names]
"""What most of these programs import: to prepare packages takes seconds."""


@pytest.fixture(scope="module")
def sandbox():
    sandbox = ForkedSandbox(modules=STANDARD)  # its own: the process's holds the pickled sessions of other tests
    yield sandbox
    sandbox.close()


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
    # what is the host's affair
    ("import os; print(os.getpid(), os.getppid(), os.getuid(), os.uname().nodename)", "ok", "0 0 0 sandbox"),
    ("import os; os.getloadavg()", "error", "OSError"),
    ("import os; print(os.cpu_count())", "ok", "2"),
    ("import socket; socket.gethostname()", "refused", "PermissionError"),
    ("import platform; print(platform.node(), platform.release())", "ok", "sandbox "),
    ("import time; time.clock_gettime(~1 << 3 | 2)", "refused", "PermissionError"),  # the time of process 1
    ("import time; print(time.process_time() < 60)", "ok", "True"),
    ("import os; os.sched_getaffinity(0)", "refused", "PermissionError"),
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


def test_a_package_reads_a_file_of_the_program():
    pytest.importorskip("pandas")
    code = "import pandas\nt = pandas.read_csv('t.csv')\nprint(t.groupby('a').b.sum().to_dict())"
    assert open_sandbox("forked").run(code, files={"t.csv": "a,b\nx,1\nx,2\ny,5\n"}).stdout == "{'x': 3, 'y': 5}\n"


def test_the_same_seed_draws_the_same_and_no_seed_another(sandbox):
    code = "import random; print(random.random(), hash('a'), {'x', 'y', 'z'})"
    assert len({sandbox.run(code, seed=3).stdout for _ in range(3)}) == 1
    drawn = {sandbox.run("import random; print(random.random())").stdout for _ in range(8)}
    assert len(drawn) == 8


def test_a_run_leaves_nothing_to_the_next(sandbox):
    sandbox.run("import math, builtins, sys\nmath.pi = 3\nbuiltins.print = None\nsys.modules.clear()")
    assert sandbox.run("import math; print(math.pi)").stdout == "3.141592653589793\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": 1e9}, "timeout must be"),  # longer than the system's clocks of waits
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


def test_unknown_walls():
    with pytest.raises(ConfigError, match="must be one of"):
        ForkedSandbox(require=("seccom",))
    with pytest.raises(ConfigError, match="every required wall"):
        ForkedSandbox(require=("landlock",), use=("seccomp",))


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


def test_sessions_that_are_garbage_give_their_interpreters_back(sandbox):
    """In a cycle the collector finalises a session together with what only it holds, in any order."""
    for _ in range(6):
        session = sandbox.session()
        session.run("x = 1")
        session.itself = session
        del session
    gc.collect()
    assert [sandbox.run("print(1)").stdout for _ in range(12)] == ["1\n"] * 12


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of the sandbox's processes")
def test_children_fork_from_a_process_that_has_held_nothing_of_any_program(sandbox):
    secret = "".join(["QZ", "X7"] * 9)
    with sandbox.session(files={"a": secret}) as session:
        for code in (f"x = {secret!r}", "print(open('a').read())", "x"):
            assert session.run(code, stdin=secret, echo=True).ok
        sandbox.run(f"print({secret!r})", files={"a": secret})
        zygote = sandbox.zygote_pid()
        own = session._live._child._pid
        assert _holds(own, secret.encode()) and not _holds(zygote, secret.encode())


def _holds(pid, words):
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end = (int(place, 16) for place in line.split()[0].split("-"))
            if line.split()[1].startswith("rw") and end < 1 << 63:
                memory.seek(start)
                if words in memory.read(end - start):
                    return True
    return False


@pytest.mark.parametrize("goes_on", ["pass", "os.write(3, bytes(1 << 16))"])  # and says for ever that it has ended
def test_a_program_that_goes_on_is_stopped_between_programs(sandbox, goes_on):
    with sandbox.session() as session:
        session.run("import os")
        child = session._live._child._pid
        assert session.run(f"os.write(3, b'\\0')\nwhile True: {goes_on}", timeout=5).ok
        time.sleep(0.05)
        before = _cpu(child)
        time.sleep(0.5)
        assert _cpu(child) <= before + 0.02
        assert session.run("print(1)", timeout=0.3).stdout == ""


def test_copies_share_no_memory_and_programs_no_flag_of_a_descriptor(sandbox):
    assert sandbox.run("import mmap; mmap.mmap(-1, 4096)").status == "refused"
    assert sandbox.run("import mmap; mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)").ok
    sandbox.run("import ctypes; ctypes.CDLL(None).ioctl(0, 0x5421, ctypes.byref(ctypes.c_int(1)))")
    assert sandbox.run("import os; print(os.get_blocking(0))").stdout == "True\n"


def _cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


HOSTILE_TO_COPIES = [
    "import os; os.write(3, b'\\0')\nwhile True: pass",
    "import os; os.write(3, b'\\0'); os._exit(3)",
    "import os; os.closerange(0, 60)\nwhile True: pass",
    # It copies itself when it is asked to, and the copy does not say so: it would stay with nobody to end it.
    "import ctypes, gc, os, sys\nL = ctypes.CDLL(None)\nos.write(3, b'\\0')\n"
    "if L.syscall(56, 0x8011, 0, 0, 0, 0) >= 0:\n    while True: pass\n",
    "import ctypes, os\nL = ctypes.CDLL(None)\nos.write(3, b'\\0')\n"
    "if L.syscall(56, 0x8011, 0, 0, 0, 0): os._exit(0)\nwhile True: pass",
    "import os\nwhile True: os.write(3, bytes(1 << 16))",
]


@pytest.mark.parametrize("place", range(len(HOSTILE_TO_COPIES)))
def test_a_session_that_prevents_its_copy_loses_its_variables_and_nothing_else(sandbox, monkeypatch, place):
    monkeypatch.setattr(hold, "_COPY_SECONDS", 0.5)
    with sandbox.session() as session, sandbox.session() as other:
        other.run("y = 1")
        session.run("x = 1")
        session.run(HOSTILE_TO_COPIES[place], timeout=0.5)
        copied = copy.deepcopy(session)
        for one in (copied, session):
            last = [one.run("print('x' in globals())", timeout=0.3).stdout for _ in range(3)][-1]
            assert last == "False\n"
            one.close()
        assert other.run("y", echo=True).stdout == "1\n"
        other.close()
        end = time.monotonic() + 10
        while (left := _children(sandbox.zygote_pid(), ended="X")) and time.monotonic() < end:
            sandbox.run("1")  # what is dead is buried when there is something to do
            time.sleep(0.2)
        assert left == []


def test_processes_are_given_back_when_sessions_end(sandbox):
    sessions = [sandbox.session() for _ in range(20)]
    for session in sessions:
        session.run("x = 1")
    copies = [copy.deepcopy(session) for session in sessions]
    assert len(_children(sandbox.zygote_pid())) == 40
    for session in (*sessions, *copies):
        session.close()
    assert _gone(_children(sandbox.zygote_pid()))


# -- threads, recovery, and the end
def test_threads_and_coroutines_get_their_own_answers(sandbox):
    def one(number):
        return sandbox.run(f"print({number} * 2)", timeout=30).stdout

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(100))) == [f"{2 * n}\n" for n in range(100)]

    async def together():
        return await asyncio.gather(*(asyncio.to_thread(one, number) for number in range(20)))

    assert asyncio.run(together()) == [f"{2 * n}\n" for n in range(20)]


def test_programs_run_in_the_order_in_which_they_come():
    """However many threads there are: with a semaphore some waited for minutes."""
    turns, order = _Turns(1), []

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


def _children(pid, ended="ZX"):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in ended:
            found.append(int(stat.parent.name))
    return found


def _descendants(pid):
    below = _children(pid)
    return below + [deeper for child in below for deeper in _descendants(child)]


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _gone(pids):
    return until(lambda: not any(map(_alive, pids)))


def test_it_recovers_from_a_killed_zygote_and_killed_children():
    sandbox = ForkedSandbox(modules=())
    try:
        session = sandbox.session()
        session.run("x = 1")
        child = session._live._child._pid
        os.kill(child, signal.SIGKILL)  # as the kernel does when memory is short, which a program can bring about
        killed = session.run("print(x)")
        assert (killed.status, killed.ended) == ("memory", True)
        assert session.run("print(5)").stdout == "5\n"
        zygote = sandbox.zygote_pid()
        os.kill(zygote, signal.SIGKILL)
        assert _gone([zygote])
        with pytest.raises(BackendDownError):
            session.run("print(x)")
        assert session.run("print(6)").stdout == "6\n"
        threading.Timer(0.5, lambda: os.kill(sandbox.zygote_pid(), signal.SIGKILL)).start()
        with pytest.raises(BackendDownError):
            sandbox.run("while True: pass", timeout=30)
        assert sandbox.run("print(6)").stdout == "6\n"
    finally:
        sandbox.close()


_HOST = """
import copy, threading, time
from agent_envs.sandbox.forked.host import ForkedSandbox
sandbox = ForkedSandbox(modules=())
sessions = [sandbox.session() for _ in range(3)]
for session in sessions: session.run("x = 1")
copies = [copy.deepcopy(session) for session in sessions]
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
        assert len(below) >= 8  # the zygote and children
        host.kill()
    assert _gone(below)


def test_closing_ends_every_process_and_descriptors_do_not_grow():
    sandbox = ForkedSandbox(modules=())
    sandbox.run("1")
    zygote = sandbox.zygote_pid()
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
    """It writes to few pages of the interpreter: walking over `sys.modules` alone took 0.8 MB."""
    sandbox = open_sandbox("forked")  # with all modules

    def own():
        pids = _descendants(os.getpid())
        return sum(int(Path(f"/proc/{p}/smaps_rollup").read_text().split("Pss_Anon:")[1].split()[0]) for p in pids)

    sessions = [sandbox.session() for _ in range(16)]
    for session in sessions[:6]:
        session.run("x = 1")
    before = own()
    for session in sessions[6:]:
        session.run("x = 1")
    assert (own() - before) / 10 < 3500  # kilobytes
    for session in sessions:
        session.close()


def test_a_fork_of_the_host_has_processes_of_its_own(sandbox):
    session, idle = sandbox.session(), sandbox.session()
    session.run("x = 1")
    pid = os.fork()
    if not pid:
        good = sandbox.run("print(2)").stdout == "2\n" and idle.run("print(1)").stdout == "1\n"
        try:
            session.run("print(x)")
            good = False
        except ConfigError:  # its interpreter is the parent's
            session.close()
        sandbox.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert session.run("print(x + 1)").stdout == "2\n"
    session.close()


def test_a_missing_wall_is_named_and_refuses():
    sandbox = ForkedSandbox(use=("seccomp",), modules=())
    assert sandbox.describe()["landlock"] is False and sandbox.run("open('/etc/passwd')").status == "refused"
    sandbox.close()
    held = open_sandbox("forked").describe()
    for wall in ("landlock", "namespaces"):
        if not held[wall]:
            with pytest.raises(BackendError, match=f"{wall} is required"):
                ForkedSandbox(require=("seccomp", wall), modules=()).describe()


def test_a_broken_interpreter_is_a_typed_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(BackendDownError, match="cannot be started"):
        ForkedSandbox().run("1")
