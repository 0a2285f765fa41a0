"""Ten thousand episodes at once on one machine, through `agentr1 serve` and through Ray; a cluster, and kills.

    python benchmarks/scale.py serve [--episodes 10000] [--think 20] [--workers 2] [--env AgentR1/ALFWorld-v0 ...]
    python benchmarks/scale.py ray   [the same]
    python benchmarks/scale.py costs [--costs 0.05 0.5 5]
    python benchmarks/scale.py nodes [--nodes 1 2 4] [--env AgentR1/GSM8KTool-v0]
    python benchmarks/scale.py kills [--kills 20] [--seed 0] [--workers 4] [--episodes 400] [--think 0.1]

serve: every client has a connection and an episode of its own, all at the same time: they begin, and when the last
has begun, the memory of the server is read. Then each plays the actions of an expert to their end. Between an answer
and the next message a client thinks, as a policy's model does, for a random time (exponential, with the mean
`--think`). The time of a step is from its message to its answer; every episode has to end with success. The rate has a
table of its own: `--clients` clients that do not think, and beside them as many processes as the server has workers,
each of which plays the same episodes by itself, in turn. The clients take processor time too: on a machine of few cores
that is a good part of it.

ray: the same with `RayEngine`. The time of a step is from the moment its action is due to the next observation; none
goes on before all of its worker's have begun; the memory is that of all of Ray's processes, more than with one episode
on each worker. Episodes that have ended are not kept, as if they went to a file. The rate is that of workers that play
32 episodes each at a time, without thinking.

costs: both rates for steps that compute for so many milliseconds: from which on the rest weighs little.

nodes: the rate on a cluster of nodes with one processor each, on this machine.

kills: evaluations on such a cluster. At random moments a worker, a node with all its processes, or the client is ended
by SIGKILL; a node is replaced by another, the client started again. At the end every episode has to be in the file
once, and the same as one process plays it.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from scale_cluster import measure_kills, measure_nodes, play_as_client
from scale_ray import SECONDS, TASKS, Rate, alone, measure_many, show_rate, show_rates
from serving import Client, cpu_seconds, frame, processes, resident, started

import agent_envs  # noqa: F401  registers the ids
from agent_envs.files import allow_open_files
from agent_envs.rollout.ray_engine import RayEngine

ENVS = ("AgentR1/ALFWorld-v0", "AgentR1/GSM8KTool-v0")
CONNECTING = 200  # connections that are opened at the same time


def recorded(env_id: str, kwargs: dict[str, Any]) -> list[list[str]]:
    """The expert's actions for some tasks."""
    env = gym.make(env_id, **kwargs)
    episodes = []
    for index in range(TASKS):
        env.reset(options={"index": index})
        actions: list[str] = []
        ended = False
        while not ended:
            actions.append(str(env.unwrapped.expert_action()))  # type: ignore[attr-defined]
            ended = bool(env.step(actions[-1])[2])
        episodes.append(actions)
    env.close()
    return episodes


class Player(Client):
    """A client that plays one episode, thinking between its steps."""

    def __init__(self, index: int, actions: list[bytes], think: float) -> None:
        super().__init__("/ws", actions)
        self._reset = frame({"type": "reset", "data": {"index": index}})
        self._think, self._random = think, random.Random(index)
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def take(self, content: bytes) -> None:
        if not self.first.done():
            self.first.set_result(None)
            return
        self.times.append(self._now() - self._sent)
        if self._step < len(self._actions):
            self.go_on_later()
        else:
            self.done.set_result(json.loads(content)["data"]["reward"])

    def go_on_later(self) -> None:
        """Think, then take the next step."""
        asyncio.get_running_loop().call_later(self._random.expovariate(1 / self._think), self.go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        for waited in (self.open, self.first, self.done):
            if not waited.done():
                waited.set_exception(exc or ConnectionResetError("the server closed the connection"))


async def play_all(port: int, pid: int, episodes: int, scripts: list[list[bytes]], think: float) -> dict[str, Any]:
    """Play so many episodes at once."""
    loop = asyncio.get_running_loop()
    before, begin = resident(pid), time.perf_counter()
    players: list[Player] = []
    for first in range(0, episodes, CONNECTING):
        some = []
        for number in range(first, min(first + CONNECTING, episodes)):
            index = number % TASKS
            make = functools.partial(Player, index, scripts[index], think)
            some.append((await loop.create_connection(make, "127.0.0.1", port))[1])
        for player in some:
            await player.open
            player.begin()
        await asyncio.gather(*(player.first for player in some))
        players += some
    began = time.perf_counter()
    memory = (resident(pid) - before) / episodes
    server, client = cpu_seconds(pid), time.process_time()
    for player in players:
        player.go_on_later()
    rewards = await asyncio.gather(*(player.done for player in players))
    seconds = time.perf_counter() - began
    server, client = cpu_seconds(pid) - server, time.process_time() - client
    times = sorted(t for player in players for t in player.times)
    for player in players:
        player.transport.close()
    return {
        "begin_s": began - begin, "memory_kb": memory, "steps": len(times), "seconds": seconds,
        "solved": sum(reward > 0 for reward in rewards), "p50": times[len(times) // 2],
        "p99": times[int(0.99 * len(times))], "most": times[-1], "server_us": 1e6 * server / len(times),
        "client_us": 1e6 * client / len(times),
    }  # fmt: skip


class Busy(Client):
    """A client that plays episode after episode and never thinks."""

    def __init__(self, index: int, actions: list[bytes]) -> None:
        super().__init__("/ws", actions)
        self._reset = frame({"type": "reset", "data": {"index": index}})


async def rate(port: int, pid: int, count: int, scripts: list[list[bytes]]) -> Rate:
    """The rate of so many clients that do not think; their own processor time counts."""
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(count):
        index = number % TASKS
        make = functools.partial(Busy, index, scripts[index])
        client = (await loop.create_connection(make, "127.0.0.1", port))[1]
        await client.open
        client.begin()
        clients.append(client)
    await asyncio.gather(*(client.first for client in clients))
    for client in clients:
        client.playing = True
        client.go_on()
    await asyncio.sleep(1.0)
    before, begin = sum(len(client.times) for client in clients), time.perf_counter()
    used = cpu_seconds(pid) + time.process_time()
    await asyncio.sleep(SECONDS)
    made, seconds = sum(len(client.times) for client in clients) - before, time.perf_counter() - begin
    used = cpu_seconds(pid) + time.process_time() - used
    for client in clients:
        client.playing = False
        client.transport.close()
    return Rate(made / seconds, used / made)


def play_alone(env_id: str, kwargs: dict[str, Any], episodes: list[list[str]], ready: Any, results: Any) -> None:
    """Play the episodes in this process, with nothing around the environment, and put the rate."""
    env = gym.make(env_id, **kwargs).unwrapped
    env.reset(options={"index": 0})
    ready.wait()
    steps, begin, before = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < SECONDS:
        for index, actions in enumerate(episodes):
            env.reset(options={"index": index})
            for action in actions:
                env.step(action)
            steps += len(actions)
            if time.perf_counter() - begin >= SECONDS:
                break
    results.put(Rate(steps / (time.perf_counter() - begin), (time.process_time() - before) / steps))


def measure_rate(env_id: str, kwargs: dict[str, Any], port: int, pid: int, options: argparse.Namespace) -> None:
    """Print the rate of clients that do not think beside that of as many processes as the server has workers."""
    episodes = recorded(env_id, kwargs)
    scripts = [[frame({"type": "step", "data": {"text": text}}) for text in actions] for actions in episodes]
    show_rates(
        f"{options.clients} clients that do not think", options.workers,
        lambda: alone(options.workers, play_alone, env_id, kwargs, episodes),
        lambda own: asyncio.run(rate(port, pid, options.clients, scripts)),
    )  # fmt: skip


def measure_costs(options: argparse.Namespace) -> None:
    """Print the rates through `serve` and through Ray of steps that compute for longer and longer."""
    import ray

    env_id = "serving:Bench/Computing-v0"
    for milliseconds in options.costs:
        print(f"steps of {milliseconds:g} ms", flush=True)
        kwargs = {"seconds": milliseconds / 1e3}
        given = ["--env-kwargs", json.dumps(kwargs)]
        process, port = started("agentr1 serve", env_id, sorted(os.sched_getaffinity(0)), options.workers, given)
        try:
            measure_rate(env_id, kwargs, port, process.pid, options)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            show_rate(env_id, options.workers, RayEngine(workers=options.workers), kwargs)
        finally:
            ray.shutdown()


def measure(env_id: str, options: argparse.Namespace) -> None:
    """Print the two rows of an environment."""
    episodes = recorded(env_id, {})
    scripts = [[frame({"type": "step", "data": {"text": text}}) for text in actions] for actions in episodes]
    limits = ["--max-episodes", str(options.episodes), "--max-waiting", str(options.episodes), "--ping", "600"]
    cores = sorted(os.sched_getaffinity(0))
    process, port = started("agentr1 serve", env_id, cores, options.workers, limits)
    try:
        told = asyncio.run(play_all(port, process.pid, options.episodes, scripts, options.think))
        print(
            f"{env_id}: {told['solved']} of {options.episodes} episodes solved, all at once, {told['steps']} steps in "
            f"{told['seconds']:.0f} s ({told['steps'] / told['seconds']:.0f}/s; all begun in {told['begin_s']:.0f} s)\n"
            f"  a step: p50 {1e3 * told['p50']:.1f} ms, p99 {1e3 * told['p99']:.0f} ms, longest "
            f"{1e3 * told['most']:.0f} ms; {told['server_us']:.0f} us of the server's processor time, "
            f"{told['client_us']:.0f} of the clients'; {told['memory_kb']:.1f} kB per episode in "
            f"{len(processes(process.pid))} processes",
            flush=True,
        )
        measure_rate(env_id, {}, port, process.pid, options)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", choices=("serve", "ray", "costs", "nodes", "kills", "client"), help="client is of kills"
    )
    parser.add_argument("--env", nargs="+", default=ENVS)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--think", type=float, metavar="SECONDS")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--costs", nargs="+", type=float, default=[0.05, 0.5, 5.0], metavar="MILLISECONDS")
    parser.add_argument("--nodes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--address", help="of client")
    parser.add_argument("--out", help="of client")
    options = parser.parse_args(arguments)
    for name, many, few in (("episodes", 10_000, 400), ("think", 20.0, 0.1), ("workers", 2, 4)):
        if getattr(options, name) is None:
            setattr(options, name, few if options.what in ("kills", "client") else many)
    allow_open_files()
    here = str(Path(__file__).parent)
    # for Ray's workers
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} before\n", flush=True)
    if options.what == "nodes":
        measure_nodes(options)
    elif options.what == "costs":
        measure_costs(options)
    elif options.what == "kills":
        measure_kills(options)
    elif options.what == "client":
        play_as_client(options)
    else:
        for env_id in options.env:
            (measure if options.what == "serve" else measure_many)(env_id, options)
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
