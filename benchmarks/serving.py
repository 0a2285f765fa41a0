"""Steps per second of `agentr1 serve` and of openenv-core's own server, over loopback, with one environment.

Both servers run on one core (`agentr1 serve` with one worker process), the clients in this process on another. The
clients are the same for both: plain sockets that write and read WebSocket frames, so that they cost little, each
sending its next message as soon as the last one is answered. An episode is a reset and nine steps that call a
calculator. Time from message to answer is that of steps; the rate counts steps, with the time of the resets in it. The
two take turns, several times.

    python benchmarks/serving.py [--seconds 3] [--repeats 5] [--env AgentR1/GSM8KTool-v0]
    python benchmarks/serving.py --workers 1 2 4     # steps that compute for 2 ms, with so many workers on all cores
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import resource
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

import agent_envs  # noqa: F401  registers the ids
from agent_envs.text_env import Outcome, TextEnv

CONNECTIONS = (1, 64)
STEPS = 9
HELD = 200  # episodes for the memory of one
COMPUTING = 0.002  # seconds


class SameTask:
    """A data set in which all tasks are one."""

    name, split, task_id = "generated", "train", "one"

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> SameTask:
        return self


class ComputingEnv(TextEnv):
    """Steps that compute; the tenth is the last."""

    def __init__(self, *, seconds: float = COMPUTING, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seconds = seconds

    def open_tasks(self) -> Any:
        return SameTask()

    def begin(self, task: Any) -> tuple[str, Any]:
        return "Begin.", 0

    def act(self, action: str) -> Outcome:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        self.state += 1
        return Outcome("done", terminated=self.state > STEPS)

    def expert_action(self) -> str:
        return "go on"


gym.register("Bench/Computing-v0", entry_point=ComputingEnv)


class Client(asyncio.Protocol):
    """One WebSocket that plays episodes until it is told to stop."""

    def __init__(self, path: str, actions: list[bytes], now: Callable[[], float] = time.perf_counter) -> None:
        self._path, self._actions, self._now = path, actions, now
        self._reset = frame({"type": "reset", "data": {"seed": 1}})
        self._data = b""
        self._step = -1
        self._sent = 0.0
        self.times: list[float] = []
        self.open = asyncio.get_running_loop().create_future()
        self.first = asyncio.get_running_loop().create_future()
        self.playing = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def begin(self) -> None:
        """Reset, and go on when that is answered."""
        self._step = 0
        self.transport.write(self._reset)

    def go_on(self) -> None:
        """The next message."""
        if self._step >= len(self._actions):
            self.begin()
            return
        self._sent = self._now()
        self.transport.write(self._actions[self._step])
        self._step += 1

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self.open.done():
            head, end, rest = self._data.partition(b"\r\n\r\n")
            if end:
                assert b" 101 " in head, head
                self._data = rest
                self.open.set_result(None)
            return
        while len(self._data) >= 2:
            size, start = self._data[1], 2
            if size == 126:
                size, start = struct.unpack("!H", self._data[2:4])[0], 4
            elif size == 127:
                size, start = struct.unpack("!Q", self._data[2:10])[0], 10
            if len(self._data) < start + size:
                return
            kind, content = self._data[0] & 15, self._data[start : start + size]
            self._data = self._data[start + size :]
            if kind == 9:  # a ping
                self.transport.write(bytes((0x8A, 0x80 | len(content), 0, 0, 0, 0)) + content)
            elif kind == 1:
                assert content[:20].find(b'"error"') < 0, content
                self.take(content)

    def take(self, content: bytes) -> None:
        """An answer."""
        if self._step > 0:
            self.times.append(self._now() - self._sent)
        if not self.first.done():
            self.first.set_result(None)
        if self.playing:
            self.go_on()


def frame(message: dict[str, Any]) -> bytes:
    """A masked text frame; the mask is zero, which changes nothing."""
    content = json.dumps(message).encode()
    head = b"\x81" + (
        bytes((0x80 | len(content),)) if len(content) < 126 else b"\xfe" + struct.pack("!H", len(content))
    )
    return head + b"\0\0\0\0" + content


def actions_of(env_id: str) -> list[bytes]:
    """Frames of one episode's steps."""
    env = gym.make(env_id).unwrapped
    texts = [f"look {i}" for i in range(STEPS)]
    if env.tools and env.tools[0]["function"]["name"] == "calculator":
        texts = [env.format_call("calculator", {"expression": f"{i}*(12+{i})"}) for i in range(STEPS)]
    return [frame({"type": "step", "data": {"text": text}}) for text in texts]


async def connected(port: int, count: int, actions: list[bytes]) -> list[Client]:
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(count):
        _, client = await loop.create_connection(lambda: Client("/ws", actions), "127.0.0.1", port)
        await client.open
        client.begin()
        clients.append(client)
    await asyncio.gather(*(client.first for client in clients))
    return clients


async def load(port: int, count: int, actions: list[bytes], seconds: float) -> tuple[float, list[float]]:
    """Steps per second and the time of each step."""
    clients = await connected(port, count, actions)
    for client in clients:
        client.playing = True
        client.go_on()
    await asyncio.sleep(0.5)
    for client in clients:
        client.times.clear()
    begun = time.perf_counter()
    await asyncio.sleep(seconds)
    passed = time.perf_counter() - begun
    times = [t for client in clients for t in client.times]
    for client in clients:
        client.playing = False
        client.transport.close()
    await asyncio.sleep(0.2)
    return len(times) / passed, times


async def hold(port: int, count: int, actions: list[bytes], pid: int) -> float:
    """Kilobytes of the server's memory per episode."""
    before = resident(pid)
    clients = await connected(port, count, actions)
    grown = resident(pid) - before
    for client in clients:
        client.transport.close()
    return grown / count


def processes(pid: int) -> list[int]:
    """A process and those that it started, as far as they have not ended meanwhile."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found


def of_all(pid: int, file: str) -> list[list[str]]:
    """The fields of a file in /proc, behind the name of the command if there is one, of a process and its children."""
    found = []
    for each in processes(pid):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{each}/{file}").read_text().rpartition(")")[2].split())
    return found


def resident(pid: int) -> float:
    """Kilobytes of memory of a process and its children."""
    return sum(int(fields[1]) for fields in of_all(pid, "statm")) * resource.getpagesize() / 1024


def cpu_seconds(pid: int) -> float:
    """Seconds of processor time of a process and its children."""
    return sum(int(fields[11]) + int(fields[12]) for fields in of_all(pid, "stat")) / os.sysconf("SC_CLK_TCK")


def spread(values: Sequence[float], unit: float, digits: int) -> str:
    """The median of all runs, the least and the most."""
    middle, least, most = (unit * value for value in (statistics.median(values), min(values), max(values)))
    return f"{middle:.{digits}f} ({least:.{digits}f}, {most:.{digits}f})"


def serve_openenv(env_id: str) -> None:
    """openenv-core's own server, as its documentation has it, with uvicorn's defaults."""
    import uvicorn
    from openenv.core.env_server import Action, Environment, Observation, State, create_app
    from pydantic import Field

    class TextAction(Action):
        text: str

    class TextObservation(Observation):
        text: str
        info: dict[str, Any] = Field(default_factory=dict)

    class TextEnvironment(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._env = gym.make(env_id)

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> TextObservation:
            text, info = self._env.reset(seed=seed)
            return TextObservation(text=text, info=info)

        def step(self, action: TextAction, timeout_s: float | None = None, **_: Any) -> TextObservation:
            text, reward, terminated, truncated, info = self._env.step(action.text)
            return TextObservation(text=text, info=info, reward=reward, done=terminated or truncated)

        @property
        def state(self) -> State:
            return State()

    app = create_app(TextEnvironment, TextAction, TextObservation, max_concurrent_envs=512)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)

    async def run() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(f"at http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)
        await task

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


def started(
    name: str, env_id: str, cores: Sequence[int], workers: int = 1, options: Sequence[str] = ()
) -> tuple[subprocess.Popen[str], int]:
    """A server on some cores, and its port."""
    if name == "agentr1 serve":
        command = ["-m", "agent_envs", "serve", "--env", env_id, "--port", "0", "--workers", str(workers)]
        command += options
    else:
        command = [__file__, "--serve-openenv", "--env", env_id]
    # openenv-core prints a traceback for every client that goes without a farewell
    process = subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, cores)), sys.executable, *command],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path[1:]])},
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, int(line.rpartition(":")[2])


def scale(workers: Sequence[int], seconds: float, repeats: int) -> None:
    """Print steps per second by the number of workers, the numbers taking turns."""
    env_id = f"{Path(__file__).stem}:Bench/Computing-v0"
    cores = sorted(os.sched_getaffinity(0))
    print(f"steps of {1e3 * COMPUTING:g} ms, 64 clients, {len(cores)} cores, load {os.getloadavg()[0]:.1f}\n")
    actions = [frame({"type": "step", "data": {"text": "x"}})] * STEPS
    servers = {number: started("agentr1 serve", env_id, cores, number) for number in workers}
    rates: dict[int, list[float]] = {number: [] for number in workers}
    try:
        for _ in range(repeats):
            for number, (_, port) in servers.items():
                rates[number].append(asyncio.run(load(port, 64, actions, seconds))[0])
    finally:
        for process, _ in servers.values():
            process.send_signal(signal.SIGINT)
            process.wait(20)
    print(f"{'workers':8}{'steps/s':>24}{'of the first':>24}")
    for number in workers:
        ratios = [ours / first for ours, first in zip(rates[number], rates[workers[0]], strict=True)]
        print(f"{number:<8}{spread(rates[number], 1.0, 0):>24}{spread(ratios, 1.0, 2):>24}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="AgentR1/GSM8KTool-v0")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", metavar="N", help="compare numbers of workers instead")
    parser.add_argument("--serve-openenv", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_openenv:
        serve_openenv(options.env)
        return
    if options.workers:
        scale(options.workers, options.seconds, options.repeats)
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[:-1]) or set(cores))
    actions = actions_of(options.env)
    names = ("agentr1 serve", "openenv-core")
    servers = {name: started(name, options.env, cores[-1:]) for name in names}
    try:
        print(
            f"{options.env}, server on one core, {options.repeats} runs of {options.seconds:g} s: median (least, most)"
        )
        print(f"load {os.getloadavg()[0]:.1f} on {len(cores)} cores before the benchmark\n")
        print(f"{'server':16}{'clients':>8}{'steps/s':>24}{'p50 ms':>9}{'p99 ms':>20}{'CPU us/step':>13}")
        for count in CONNECTIONS:
            runs: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in names}
            for _ in range(options.repeats):
                for name in names:
                    process, port = servers[name]
                    before = cpu_seconds(process.pid)
                    rate, times = asyncio.run(load(port, count, actions, options.seconds))
                    cpu = (cpu_seconds(process.pid) - before) / max(1, rate * (options.seconds + 0.5))
                    times.sort()
                    runs[name].append((rate, times[len(times) // 2], times[int(len(times) * 0.99)], cpu))
            for name in names:
                rates, p50, p99, cpu = zip(*runs[name], strict=True)
                rate, late = spread(rates, 1.0, 0), spread(p99, 1e3, 1)
                middle, spent = statistics.median(p50) * 1e3, statistics.median(cpu) * 1e6
                print(f"{name:16}{count:8d}{rate:>24}{middle:9.2f}{late:>20}{spent:13.0f}")
            ratios = [ours[0] / theirs[0] for ours, theirs in zip(*runs.values(), strict=True)]
            print(f"{'ratio':16}{'':8}{spread(ratios, 1.0, 2):>24}\n")
        for name in names:
            process, port = servers[name]
            print(f"{name:16}{asyncio.run(hold(port, HELD, actions, process.pid)):8.0f} kB per episode, {HELD} at once")
    finally:
        for process, _ in servers.values():
            process.send_signal(signal.SIGINT)
            process.wait(20)


if __name__ == "__main__":
    main()
