"""The part of scale.py with a cluster of several Ray nodes: what they bring, and what dies with them."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scale_ray import ThinkingPolicy, show_rate
from serving import processes

from agent_envs.rollout.evaluate import evaluate
from agent_envs.rollout.ray_engine import RayEngine

ENV = "AgentR1/GSM8KTool-v0"
CAUSES = ("worker", "node", "client")
PATIENCE = 120.0  # seconds for the client to play a further episode
# A node that is gone is noticed in two seconds, not in half a minute.
NOTICED = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@contextlib.contextmanager
def local_cluster(nodes: int) -> Iterator[Any]:
    """A cluster of a head without processors and nodes with one each, all on this machine."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": NOTICED}
    )
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


def measure_nodes(options: argparse.Namespace) -> None:
    """Print steps per second on more and more nodes."""
    import ray

    for nodes in options.nodes:
        with local_cluster(nodes) as cluster:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            try:
                show_rate(options.env[0], nodes, RayEngine(workers=nodes))
            finally:
                ray.shutdown()


def played(folder: Path) -> dict[str, Any]:
    """The episodes of a folder by name, without what may differ; an error if one is there twice."""
    episodes = {}
    for line in (folder / "episodes.jsonl").read_text().splitlines():
        episode = json.loads(line)
        if episode["episode_id"] in episodes:
            raise SystemExit(f"{folder}: {episode['episode_id']} is there twice")
        del episode["seconds"]
        for step in episode["steps"]:
            del step["usage"]
        episodes[episode["episode_id"]] = episode
    return episodes


class Client:
    """A process that plays an evaluation on the cluster into a folder; started again, it goes on."""

    def __init__(self, folder: Path, address: str, options: argparse.Namespace) -> None:
        self.folder = folder
        self._command = [
            sys.executable, str(Path(__file__).with_name("scale.py")), "client", "--out", str(folder),
            "--address", address, "--episodes", str(options.episodes), "--think", str(options.think),
            "--workers", str(options.workers),
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        self._log = self.folder.with_suffix(".log").open("a")
        self.process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)

    @property
    def lines(self) -> int:
        """Episodes in the folder so far."""
        file = self.folder / "episodes.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def wait_for(self, lines: int) -> bool:
        """Wait until there are so many episodes; return whether the client still plays."""
        end, seen = time.monotonic() + PATIENCE, -1
        while self.process.poll() is None:
            if self.lines >= lines:
                return True
            if self.lines != seen:
                end, seen = time.monotonic() + PATIENCE, self.lines
            if time.monotonic() > end:
                self.process.kill()
                raise SystemExit(f"no episode in {PATIENCE:g} seconds; see {self._log.name}")
            time.sleep(0.05)
        if self.process.returncode:
            raise SystemExit(f"the client ended with {self.process.returncode}; see {self._log.name}")
        return False


def kill(cause: str, cluster: Any, client: Client, rng: random.Random) -> bool:
    """Kill -9 one of the kind; return whether there was one."""
    if cause == "client":
        client.process.kill()
        client.process.wait()
        client.start()
        return True
    node = rng.choice(sorted(cluster.worker_nodes, key=lambda node: node.node_id))
    (raylet,) = node.all_processes["raylet"]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # what has just ended
        below = processes(raylet.process.pid)
        if cause == "worker":
            workers = [pid for pid in below if b"RayWorker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            return bool(workers)
        for pid in below:  # all at once, as if the machine were off
            os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(num_cpus=1)
    return True


def measure_kills(options: argparse.Namespace) -> None:
    """Kill what plays evaluations, at random moments; each episode has to be there once, as one process plays it."""
    rng = random.Random(options.seed)
    causes = [CAUSES[number % len(CAUSES)] for number in range(options.kills)]
    rng.shuffle(causes)
    print(f"seed {options.seed}: {' '.join(causes)}", flush=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary,
        local_cluster(options.workers) as cluster,
    ):
        here, left, runs, begin = Path(temporary), list(causes), 0, time.perf_counter()
        evaluate(ENV, ThinkingPolicy(0.001), options.episodes, out=here / "alone")
        alone = played(here / "alone")
        while left:
            runs += 1
            client, done = Client(here / f"run{runs}", cluster.address, options), 0
            while left and client.wait_for(done + rng.randint(1, max(1, options.episodes // 8))):
                time.sleep(rng.uniform(0.0, 1.0))
                done = client.lines
                if client.process.poll() is None and kill(left[0], cluster, client, rng):
                    print(f"  {done} episodes: killed a {left.pop(0)}", flush=True)
            client.wait_for(options.episodes + 1)
            found = played(client.folder)
            if found != alone:
                names = sorted(name for name in {*found, *alone} if found.get(name) != alone.get(name))
                raise SystemExit(f"{client.folder}: lost, or not as played alone: {', '.join(names[:10])}")
        print(
            f"{options.kills} kills ({dict(collections.Counter(causes))}) in {runs} evaluations of {options.episodes} "
            f"episodes on {options.workers} nodes, {time.perf_counter() - begin:.0f} s: nothing lost, nothing twice, "
            "every episode as played alone",
            flush=True,
        )


def play_as_client(options: argparse.Namespace) -> None:
    """Play the evaluation whose client, workers and nodes are killed."""
    engine = RayEngine(options.address, workers=options.workers)
    evaluate(
        ENV, ThinkingPolicy(options.think), options.episodes, out=options.out, engine=engine,
        concurrency=8 * options.workers,
    )  # fmt: skip
