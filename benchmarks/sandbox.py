"""The sandbox beside a bare fork of the same process and beside `python -I -S -c`, measured in turns in one run.

python benchmarks/sandbox.py                     latency, sessions, throughput, time-outs
python benchmarks/sandbox.py --rounds 100        more runs of each
python benchmarks/sandbox.py --steps             GSM8KCode beside gem's and skyrl-gym's python tools, where installed
python benchmarks/sandbox.py --soak 100000       very many runs from 64 threads, some of them hostile
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym

import agent_envs  # noqa: F401  registers the environments
from agent_envs.sandbox.forked.host import ForkedSandbox
from agent_envs.sandbox.forked.modules import MODULES
from agent_envs.sandbox.forked.zygote_process import import_path, zygote_environment
from agent_envs.sandbox.sandbox import Result

# A process that prepares itself as a zygote does, then forks and waits once for every line it reads.
_BARE = """
import sys, types
for name in ("agent_envs", "agent_envs.sandbox", "agent_envs.sandbox.inside"):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + name.removeprefix("agent_envs").replace(".", "/")]
import gc, json, os, time
os.register_at_fork = lambda **hooks: None
path, modules = json.loads(sys.argv[2])
sys.path[:] = path
from agent_envs.sandbox.inside.zygote import prepare
prepare(modules, [])
gc.collect(); gc.freeze(); gc.disable()
for line in sys.stdin:
    start = time.perf_counter()
    if not os.fork():
        os._exit(0)
    os.wait()
    print(time.perf_counter() - start, flush=True)
"""


def bare_fork() -> Callable[[], float]:
    """Return a function that times one bare fork and wait, in seconds, of a process prepared as the zygote is."""
    package = str(Path(sys.modules["agent_envs"].__file__ or "").parent)
    settings = json.dumps([import_path(), MODULES])
    process = subprocess.Popen(
        [sys.executable, "-P", "-s", "-S", "-B", "-c", _BARE, package, settings],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=zygote_environment(),
    )  # fmt: skip

    def once() -> float:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    once()
    return once


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def python_c() -> None:
    command = [sys.executable, "-I", "-S", "-c", "print(sum(range(100)))"]
    subprocess.run(command, capture_output=True, check=True)


def row(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    middle, high = statistics.median(ordered) * 1e3, ordered[int(len(ordered) * 0.99)] * 1e3
    print(f"  {name:<46}{middle:9.2f} ms{high:11.2f} ms")


def latency(sandbox: ForkedSandbox, rounds: int) -> None:
    program, fork = "print(sum(range(100)))", bare_fork()
    sandbox.run(program)
    with sandbox.session() as session:
        session.run("x = 0")
        calls: dict[str, Callable[[], float]] = {
            "bare fork and wait": fork,
            "forked: run": lambda: timed(lambda: sandbox.run(program)),
            "python -I -S -c": lambda: timed(python_c),
            "forked: a call in a session": lambda: timed(lambda: session.run(program)),
            "forked: a copy of a session": lambda: timed(lambda: copy.deepcopy(session).close()),
        }
        columns = {name: [call() for _ in range(1)] for name, call in calls.items()}
        for _ in range(rounds):
            for name, call in calls.items():
                columns[name].append(call())
    print(f"median and 99th percentile of {rounds}")
    for name, seconds in columns.items():
        row(name, seconds[1:])
    medians = {name: statistics.median(seconds[1:]) for name, seconds in columns.items()}
    print(f"  run / bare fork {medians['forked: run'] / medians['bare fork and wait']:.2f}, ", end="")
    print(f"python -I -S -c / run {medians['python -I -S -c'] / medians['forked: run']:.1f}")


def timeouts(sandbox: ForkedSandbox) -> None:
    """Show how long an endless loop runs that may take so many seconds."""
    for limit in (0.5, 1.0, 2.0):
        over = [timed(functools.partial(sandbox.run, "while True: pass", timeout=limit)) / limit for _ in range(6)]
        print(f"time-out of {limit:g} s: median {statistics.median(over) - 1:+.1%}, worst {max(over) - 1:+.1%}")


def throughput(sandbox: ForkedSandbox) -> None:
    """Show runs per second from several threads."""
    for threads in (1, 2, 4, 8):
        with ThreadPoolExecutor(threads) as pool:
            start = time.perf_counter()
            list(pool.map(lambda _: sandbox.run("print(sum(range(100)))"), range(150)))
            print(f"{threads} threads: {150 / (time.perf_counter() - start):.0f} runs/s")


def calls(sandbox: ForkedSandbox) -> None:
    """Show calls in sessions: one after the other in one of them, and in many in turns."""
    for many in (1, 64):
        with contextlib.ExitStack() as stack:
            sessions = [stack.enter_context(sandbox.session()) for _ in range(many)]
            for session in sessions:
                session.run("x = 0")
            code = "x += 1\nprint(sum(range(100)))"
            row(
                f"a call, {many} sessions in turns",
                [timed(functools.partial(s.run, code)) for s in sessions * 640][:640],
            )


def memory(sandbox: ForkedSandbox) -> None:
    """Show the memory of a session: what is its alone, and the kernel's tables of its pages."""
    for program in ("x = 1", "import sympy\nx = 1", "import pandas\nx = 1"):
        with contextlib.ExitStack() as stack:
            sessions = [stack.enter_context(sandbox.session()) for _ in range(41)]
            sessions[0].run(program)
            before = footprint(sandbox)
            for session in sessions[1:]:
                session.run(program)
            own, tables = (now - then for now, then in zip(footprint(sandbox), before, strict=True))
            print(f"a session with {program!r}: {own / 40e6:.2f} MB, page tables {tables / 40e6:.2f} MB")


def footprint(sandbox: ForkedSandbox) -> tuple[int, int]:
    """Return the bytes of an interpreter and of all below it that are no file's, and those of their page tables."""
    waiting, own, tables = [sandbox.zygote_pid()], 0, 0
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):
            waiting += map(int, (process / f"task/{process.name}/children").read_text().split())
            own += _kilobytes(process / "smaps_rollup", "Pss_Anon:") << 10
            tables += _kilobytes(process / "status", "VmPTE:") << 10
    return own, tables


def _kilobytes(path: Path, label: str) -> int:
    """Return the number behind a label; 0 without one, as where a process has just ended."""
    found = path.read_text().partition(label)[2].split()
    return int(found[0]) if found else 0


_CALLS = 5  # steps of an episode
_HOSTILE = (
    ("while True: pass", "timeout"), ("import os; os.fork()", "refused"), ("open('/etc/passwd')", "refused"),
    ("x = bytearray(10**10)", "memory"), ("while True: print('a' * 1000)", "output-limit"),
    ("import os; os._exit(3)", "error"), ("import ctypes; ctypes.string_at(0)", "error"),
)  # fmt: skip


def soak(sandbox: ForkedSandbox, runs: int, threads: int) -> None:
    """Run very many programs, one in a hundred of them hostile, and check every status and answer."""

    def one(number: int) -> tuple[int, str, Result] | None:
        """Return nothing if a run ended as it must."""
        hostile = number % 100 == 7
        code, status = _HOSTILE[number // 100 % len(_HOSTILE)] if hostile else (f"print({number} * 3)", "ok")
        result = sandbox.run(code, timeout=0.5 if status == "timeout" else 60)
        right = result.status == status and (hostile or result.stdout == f"{number * 3}\n")
        return None if right else (number, status, result)

    wrong = []
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done, fault in enumerate(pool.map(one, range(runs)), start=1):
            if fault is not None:
                wrong.append(fault)
            if done % (runs // 10) == 0:
                descriptors = len(list(Path("/proc/self/fd").iterdir()))
                rss = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
                below = footprint(sandbox)[0] / 1e6
                print(f"{done} runs, {done / (time.perf_counter() - start):.0f} a second, {len(wrong)} wrong, ", end="")
                print(
                    f"{descriptors} descriptors, host {rss:.0f} MB, its processes {below:.0f} MB",
                    flush=True,
                )
    print(f"{done} of {runs} runs answered, {len(wrong)} wrong: {wrong[:5]}")


def beside_others(rounds: int) -> None:
    """Show steps of GSM8KCode per second beside bare calls of gem's and skyrl-gym's python tools, in turns."""
    env = gym.make("AgentR1/GSM8KCode-v0")
    call = env.unwrapped.write_program("print(12 * 7)")  # type: ignore[attr-defined]

    def steps() -> None:
        env.reset(seed=0)
        for _ in range(_CALLS):
            assert env.step(call)[0] == "84"

    plays: dict[str, Callable[[], object]] = {"GSM8KCode, 5 steps of an episode": steps}
    try:
        from gem.tools.python_code_tool import PythonCodeTool
    except ImportError as e:
        print(f"gem is not compared: {e}")
    else:
        gem = PythonCodeTool()
        gem_call = "<python>print(12 * 7)</python>"
        assert "84" in gem.execute_action(gem_call)[2]
        plays["gem's python tool, no environment"] = lambda: [gem.execute_action(gem_call) for _ in range(_CALLS)]
    try:
        from skyrl_gym.tools.python import PythonCodeExecutorToolGroup
    except ImportError as e:
        print(f"skyrl-gym is not compared: {e}")
    else:
        skyrl = PythonCodeExecutorToolGroup()
        assert skyrl.python("print(12 * 7)") == "84"
        plays["skyrl-gym's python tool, no environment"] = lambda: [
            skyrl.python("print(12 * 7)") for _ in range(_CALLS)
        ]
    seconds: dict[str, list[float]] = {name: [] for name in plays}
    for _ in range(rounds):
        for name, play in plays.items():
            seconds[name].append(timed(play) / _CALLS)
    ours = statistics.median(next(iter(seconds.values())))
    for name, taken in seconds.items():
        median = statistics.median(taken)
        print(f"  {name:<46}{1 / median:9.1f} steps/s{median / ours:9.2f} times as long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="runs of each kind")
    parser.add_argument("--steps", action="store_true", help="only compare steps with other packages' python tools")
    parser.add_argument("--soak", type=int, metavar="RUNS", help="only run so many programs from 64 threads")
    arguments = parser.parse_args()
    if arguments.steps:
        beside_others(arguments.rounds)
        return
    sandbox = ForkedSandbox()
    print(sandbox.describe())
    if arguments.soak:
        soak(sandbox, arguments.soak, threads=64)
        return
    latency(sandbox, arguments.rounds)
    timeouts(sandbox)
    throughput(sandbox)
    calls(sandbox)
    memory(sandbox)


if __name__ == "__main__":
    main()
