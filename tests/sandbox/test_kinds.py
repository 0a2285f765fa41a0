"""What every kind of sandbox promises, with the own promises of containers, SandboxFusion and monty.

1. Nothing that a program does is a failure of the sandbox: it ends with a status, in time, and the session goes on.
2. Variables stay where a sandbox keeps them; a copy of a session goes on by itself, or is refused by name.
3. A sandbox that is broken is a typed error, never a result.
4. What is complete prints what CPython prints; what monty prints otherwise is known program by program.
"""

import copy
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable

import pytest

from agent_envs import errors
from agent_envs.per_process import PerProcess
from agent_envs.sandbox import STATUSES, Sandbox, check_sandbox, kinds, open_sandbox
from agent_envs.sandbox.clients import container
from agent_envs.sandbox.clients.container import ContainerSandbox
from agent_envs.sandbox.clients.fusion import FusionSandbox
from tests.sandbox import fakes, programs

SECONDS = 0.6
KINDS = ["forked", "monty", "container", "fusion"]


@pytest.fixture(params=KINDS)
def sandbox(request, tmp_path, monkeypatch):
    name = request.param
    if name == "forked" and sys.platform != "linux":
        pytest.skip("the sandbox 'forked' needs Linux")
    if name == "monty":
        pytest.importorskip("pydantic_monty")
    if name == "container":
        fakes.engine(tmp_path)
        monkeypatch.setenv("PATH", str(tmp_path))
        name = "docker:python"
    if name == "fusion":
        name = f"{request.getfixturevalue('fake_service')(fakes.fusion).url}/prefix/"
    if name not in ("forked", "monty"):
        monkeypatch.setattr(kinds, "_open", PerProcess())
    return open_sandbox(name)


STOPPED = ("error", "timeout", "memory", "output-limit", "refused")
ENDS = [  # what a program does, and how it may end
    ("print(6 * 7)", ("ok",)),
    ("1 / 0", ("error",)),
    ("1 +", ("error",)),
    ("raise MemoryError", ("memory", "error")),
    ("import sys; sys.exit(125)", ("error",)),
    ("raise SystemExit('no')", ("error",)),
    ("while True: pass", ("timeout",)),
    ("import time; time.sleep(60)", ("timeout",)),
    ("while True: print('a' * 10000)", ("output-limit", "timeout")),
    *((f"import os; os._exit({code})", STOPPED) for code in (3, 86, 125, 137, 255)),
    ("import os; os._exit(0)", ("ok", *STOPPED)),
    ("import os; os.kill(os.getpid(), 9)", STOPPED),  # as the machine does that has no more memory
    ("import ctypes; ctypes.string_at(0)", STOPPED),
    ("x = 'a'\nfor _ in range(80): x += x", STOPPED),
    ("import os\nfor n in range(3, 64):\n    try: os.write(n, bytes(range(256)) * 999)\n    except OSError: pass\n"
     "while True: pass", ("ok", *STOPPED)),
    ("import os\nfor n in range(3, 64):\n    try: os.write(n, b'\\0' * 3)\n    except OSError: pass\n"
     "os._exit(125)", ("ok", *STOPPED)),
    ("import os; os.closerange(0, 256)", ("ok", *STOPPED)),
    ("import os; os.closerange(0, 256)\nwhile True: pass", STOPPED),
    ("import os; os.close(1); os.close(2)\nwhile True: pass", STOPPED),
    ("import sys; sys.stdout.close(); sys.stderr = None; 1 / 0", ("ok", *STOPPED)),
    ("import os\nif hasattr(os, 'fork') and not os.fork():\n    import time; time.sleep(8)\nos._exit(0)",
     ("ok", *STOPPED)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sandbox", "place"),  # of SandboxFusion only what it answers: the further ones would attack its stand-in
    [(kind, place) for kind in KINDS for place in range(len(ENDS)) if kind != "fusion" or place < 9],
    indirect=["sandbox"],
)
def test_nothing_that_a_program_does_is_a_failure_of_the_sandbox(sandbox, place):
    code, statuses = ENDS[place]
    with sandbox.session() as session:
        session.run("x = 1", timeout=30)
        start = time.monotonic()
        result = session.run(code, timeout=SECONDS, memory=200 << 20)
        assert time.monotonic() - start < SECONDS + 4
        assert result.status in statuses and result.status in STATUSES, result
        for _ in range(5):  # one that still runs, or has forged more than one answer, ends with one of them
            last = session.run("print(6 * 7)", timeout=SECONDS)
            if "42" in last.stdout:
                break
        assert last.ok and "42" in last.stdout, (result, last)
    if kinds.keeps_variables(sandbox):  # where a session's programs are sent like any others it was the same
        once = sandbox.run(code, timeout=SECONDS, memory=200 << 20)
        assert once.status in statuses, once


def test_input_files_output_and_variables(sandbox):
    code = "print(input(), open('a.csv').read())"
    assert sandbox.run(code, stdin="in\n", files={"a.csv": "x"}).stdout == "in x\n"
    assert "ZeroDivisionError" in sandbox.run("1 / 0").stderr
    assert sandbox.run("6 * 7", echo=True).stdout == "42\n" and sandbox.run("6 * 7").stdout == ""
    shown = sandbox.run("print('a' * 10**5)").stdout
    assert len(shown) < 70_000 and "[cut: more than 65536 bytes]" in shown
    assert len({sandbox.run("import random; print(random.random())", seed=3).stdout for _ in range(2)}) == 1
    with sandbox.session(files={"a.csv": "x"}) as session:
        assert session.run("x = open('a.csv').read()").ok
        kept = session.run("x", echo=True)
        assert kept.stdout == "'x'\n" if kinds.keeps_variables(sandbox) else "NameError" in kept.stderr
        assert session.run("print(open('a.csv').read())").stdout == "x\n"
    again = pickle.loads(pickle.dumps(sandbox))
    assert again.name == sandbox.name


def test_copies_of_a_session_go_their_own_ways_or_are_refused(sandbox):
    with sandbox.session(seed=1) as session:
        assert copy.deepcopy(session) == session == pickle.loads(pickle.dumps(session))
        session.run("import random, time\nx = [random.random(), time.time()]", timeout=30)
        if sandbox.name.startswith("docker"):
            with pytest.raises(errors.ConfigError, match="cannot be copied"):
                copy.deepcopy(session)
        if sandbox.name not in ("forked", "monty"):
            return
        copies = [copy.deepcopy(session), pickle.loads(pickle.dumps(session))]
        copies.append(copy.deepcopy(copies[0]))
        before = session.run("x", echo=True).stdout
        for number, one in enumerate(copies):
            assert one.run("x", echo=True).stdout == before  # the time of then: nothing runs again
            one.run(f"x = [random.random(), {number}]")
        drawn = [one.run("x", echo=True).stdout.split(",") for one in copies]
        assert len({first for first, _ in drawn}) == 1 and [n for _, n in drawn] == [" 0]\n", " 1]\n", " 2]\n"]
        copies[0].close()
        assert session.run("x", echo=True).stdout == before and copies[2].run("len(x)", echo=True).stdout == "2\n"
        for one in copies:
            one.close()


def test_a_pickle_with_variables_goes_on_in_its_own_process_alone():
    if sys.platform != "linux":
        pytest.skip("the sandbox 'forked' needs Linux")
    with open_sandbox().session() as session:
        session.run("x = 1")
        pickled = pickle.dumps(session)
        for _ in range(65):  # afterwards it is as unknown here as elsewhere
            pickle.dumps(session)
        with pytest.raises(errors.ConfigError, match="in its own process alone .*one of the last 64"):
            pickle.loads(pickled)


def test_names():
    for wrong in ("forkd", "auto", 5, None):
        with pytest.raises(errors.ConfigError):
            check_sandbox(wrong)
    with pytest.raises(errors.ConfigError, match="Did you mean 'forked'"):
        open_sandbox("forkd")
    with pytest.raises(errors.ConfigError, match="subclass of Sandbox"):
        open_sandbox("builtins:dict")
    if sys.platform == "linux":
        assert open_sandbox("agent_envs.sandbox.forked.host:ForkedSandbox").run("print(6 * 7)").stdout == "42\n"


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    from agent_envs.sandbox.clients.monty import MontySandbox

    with pytest.raises(errors.MissingExtraError, match=r"agent-envs\[math\]"):
        MontySandbox()


# -- what CPython prints
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
# What pydantic-monty 1.4 says of the programs that it does not run as CPython does; docs/sandbox.md sums them up.
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
    asked = json.dumps({name: programs.PROGRAMS[name] for name in names})
    command = [sys.executable, "-I", "-c", _CPYTHON]
    return json.loads(subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout)


def differences(sandbox: Sandbox, printed: dict[str, str]) -> dict[str, str]:
    """Return what a sandbox says where it does not print the same, by program."""
    results = {name: sandbox.run(programs.PROGRAMS[name], timeout=60) for name in printed}
    return {
        name: result.stdout + result.stderr
        for name, result in results.items()
        if (result.status, result.stdout) != ("ok", printed[name])
    }


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox 'forked' needs Linux")
def test_forked_prints_what_cpython_prints():
    printed = _printed(programs.PROGRAMS)
    assert len(printed) >= 60 and differences(open_sandbox("forked"), printed) == {}


def test_monty_prints_what_cpython_prints_where_it_is_not_known_to_differ():
    pytest.importorskip("pydantic_monty")
    said = differences(open_sandbox("monty"), _printed(set(programs.PROGRAMS) - set(programs.NEEDS_PACKAGES)))
    assert set(said) == set(_MONTY_DIFFERS)
    assert all(_MONTY_DIFFERS[name] in words for name, words in said.items())


# -- SandboxFusion
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, {"status": "SandboxError", "message": "no container"}), errors.BackendError),
        ((200, {"status": "Success", "run_result": {"status": "Odd"}}), errors.BackendReplyError),
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


def test_a_reply_beyond_all_measure_is_the_programs_output(fake_service, monkeypatch):
    monkeypatch.setattr("agent_envs.http.pool._MAX_RESPONSE", 100)
    service = fake_service(lambda asked, number: (200, b"x" * 101))
    assert FusionSandbox(service.url).run("print('x' * 101)").status == "output-limit"


def test_no_program_is_sent_twice(fake_service):
    service = fake_service(lambda asked, number: fakes.fusion(asked, number) if number == 1 else None)
    sandbox = FusionSandbox(f"{service.url}/prefix")
    assert sandbox.run("print(1)").status == "ok"
    with pytest.raises(errors.BackendDownError):
        sandbox.run("print(2)")  # it stops the server's worker
    assert len(service.asked) == 2


def test_a_service_that_stalls_or_is_gone(fake_service, monkeypatch):
    monkeypatch.setattr("agent_envs.sandbox.clients.fusion._GRACE", 0.2)
    service = fake_service(lambda asked, number: time.sleep(2))
    with pytest.raises(errors.BackendSlowError):
        FusionSandbox(service.url).run("print(1)", timeout=0.1)
    service.stop()
    with pytest.raises(errors.BackendDownError):
        FusionSandbox(service.url).run("print(1)")

    def slowly(asked, number):
        time.sleep(0.2)
        return 200, (time.sleep(0.2) or b"{}" for _ in range(1))  # each wait is short, both together are not

    with pytest.raises(errors.BackendSlowError, match=r"not complete after 0\.3 seconds"):
        FusionSandbox(fake_service(slowly).url).run("print(1)", timeout=0.1)
    with pytest.raises(errors.ConfigError, match="must be a server's address"):
        FusionSandbox("localhost:80")


# -- containers
def test_engines_that_fail(tmp_path, monkeypatch):
    fakes.engine(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for image in ("missing", "dies"):
        with pytest.raises(errors.BackendDownError):
            ContainerSandbox("docker", image).run("print(1)")
    monkeypatch.setattr(container, "_START_SECONDS", 0.3)
    for size in (1, 10**6):  # more than a pipe takes
        with pytest.raises(errors.BackendSlowError):
            ContainerSandbox("docker", "silent").run("#" * size)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(errors.BackendDownError, match="not installed"):
        ContainerSandbox("podman", "python")
