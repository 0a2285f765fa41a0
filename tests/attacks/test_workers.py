"""Environments that hang, crash, eat memory and write nonsense, in the worker processes of `serve`.

1. A worker that is stuck, over its budget or dead is replaced; its episodes end with an error that says why, and the
   clients of other workers, health and signals notice nothing.
2. However the server ends, no worker is left behind.
3. What a worker's process sends is never more than text to the server.
"""

import contextlib
import json
import signal
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import pytest

from agent_envs.errors import BackendDownError, BackendError, BackendSlowError, ConfigError
from agent_envs.text_env import TextEnv

pytest.importorskip("aiohttp")
pytest.importorskip("websockets")
if sys.platform != "linux":
    pytest.skip("memory and processes are looked up in /proc", allow_module_level=True)
from agent_envs.serving import EnvServer, RemoteEnv, ServedEnv
from tests.helpers import until
from tests.serving.odd_env import ODD, started

TOOL = "AgentR1/GSM8KTool-v0"


def serving(*ids, **limits):
    return EnvServer([ServedEnv(i) for i in ids or (ODD,)], port=0, **limits)


@contextlib.contextmanager
def playing(server, count=1):
    """Clients with an episode each; every second one is played by the same of two workers."""
    envs = [RemoteEnv(server.url, timeout=60, connect_timeout=60) for _ in range(count)]
    for env in envs:
        env.reset(seed=0)
    yield envs
    for env in envs:
        env.close()


def seconds_of_health(url):
    begin = time.monotonic()
    with urllib.request.urlopen(f"{url}/health", timeout=20) as reply:
        assert json.loads(reply.read()) == {"status": "healthy"}
    return time.monotonic() - begin


def plays_on(server, env, running):
    """Whether health and another client are answered at once, for as long as a call is running."""
    slowest = 0.0
    while not running.done():
        begin = time.monotonic()
        assert env.step("x")[0] == "done x"
        slowest = max(slowest, time.monotonic() - begin, seconds_of_health(server.url))
        time.sleep(0.02)
    return slowest < 2.0  # on a machine with other work; the stuck step takes 60


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("limits", "actions"),
    [
        (
            {"stall_timeout": 1.5},
            [
                ("hold 60", BackendDownError, r"held its interpreter for 1\.5 seconds"),
                ("loop", BackendDownError, r"held its interpreter for 1\.5 seconds"),  # a real step that does
            ],
        ),
        (
            {"worker_memory": 400},
            [
                ("eat 3000", BackendDownError, "more than 400 MB of memory"),
                ("crash", BackendDownError, "the process of this episode is gone: it ended by itself"),
                ("kill", BackendDownError, "the process of this episode is gone"),
                ("nonsense", BackendDownError, "gone: it sent what is no answer"),
            ],
        ),
        (
            {"step_timeout": 1.0},
            [
                ("sleep 60", BackendSlowError, "in 1 seconds; the episode is lost"),
                ("spin", BackendSlowError, "in 1 seconds; the episode is lost"),
            ],
        ),
    ],
)
def test_a_worker_that_misbehaves_is_replaced_and_nobody_else_notices(limits, actions):
    with serving(workers=2, **limits) as server, playing(server, 4) as envs, ThreadPoolExecutor(1) as pool:
        for action, error, words in actions:
            pids = [env.step("pid")[0] for env in envs]
            assert pids[0] == pids[2] != pids[1] == pids[3]
            running = pool.submit(envs[0].step, action)
            assert plays_on(server, envs[1], running)
            with pytest.raises(error, match=words):
                running.result()
            assert until(lambda worker=pids[0]: not Path(f"/proc/{worker}").exists()), "the worker is still there"
            with pytest.raises(BackendDownError, match="the process of this episode is gone"):
                envs[2].step("x")  # it had the same worker
            assert [env.step("pid")[0] for env in (envs[1], envs[3])] == pids[1::2]
            assert until(lambda: sum(worker.ready for worker in server.pool.workers) == 2)
            for env in envs:
                env.reset(seed=0)
                assert env.step("x")[0] == "done x"
            assert server.pool.episodes == 4
    assert server.pool.episodes == 0 and server.pool.waiting == 0


@pytest.mark.timeout(120)
def test_while_the_only_worker_is_stuck_another_one_takes_new_clients():
    with serving(workers=1, stall_timeout=60.0) as server, playing(server) as (stuck,), ThreadPoolExecutor(1) as pool:
        running = pool.submit(stuck.step, "hold 10")
        time.sleep(0.5)
        while True:
            try:
                late = RemoteEnv(server.url, timeout=2, connect_timeout=2)
                late.reset(seed=0)
                break
            except BackendError:  # it came to the stuck one, before that was known
                assert not running.done()
        assert late.step("x")[0] == "done x" and not running.done()
        late.close()
        assert running.result()[0] == "done hold 10"
        assert until(lambda: len(server.pool.workers) == 1), "one of the two is too many when both are free"


def test_an_episode_has_a_budget_of_bytes():
    with serving(workers=1, episode_bytes=10_000) as server, playing(server, 2) as (env, other):
        for _ in range(3):
            env.step("x" * 1000)
        with pytest.raises(BackendError, match="messages of this episode have more than 10000 bytes"):
            env.step("x" * 9000)
        assert other.step("x")[0] == "done x"
        env.reset(seed=0)
        assert env.step("say 9500")[0] == "x" * 9500
        with pytest.raises(BackendError, match="more than 10000 bytes"):
            env.step("x" * 100)
        for _ in range(5):  # the budget is an episode's
            env.reset(seed=0)
            env.step("x" * 3000)


def test_snapshots_are_valid_for_all_workers_of_a_server_and_no_other():
    with serving(TOOL, workers=2) as server, playing(server, 2) as (one, two), serving(TOOL, workers=1) as stranger:
        one.reset(seed=3)
        point = one.snapshot()
        expected = one.step("x")
        two.restore(point)  # played by the other worker
        assert two.step("x") == expected
        with playing(stranger) as (other,), pytest.raises(ConfigError, match="not a snapshot of this environment"):
            other.restore(point)


class Local(TextEnv):
    """Known to this process alone."""


def test_what_workers_cannot_know_is_said_at_the_start():
    gym.register("Test/Local-v0", entry_point=Local)
    try:
        with pytest.raises(ConfigError, match="module:Test/Local-v0, or workers=0"):
            serving("Test/Local-v0", workers=1).start()
    finally:
        del gym.registry["Test/Local-v0"]
    with pytest.raises(ConfigError, match="cannot be sent to worker processes.*workers=0"):
        EnvServer([ServedEnv(TOOL, {"tools": lambda: 0})], port=0, workers=1).start()
    with pytest.raises(ConfigError, match="workers"):
        serving(workers=-1)


def children(pid):
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


@pytest.mark.timeout(120)
def test_a_killed_server_leaves_no_worker(tmp_path):
    process, url = started(tmp_path, "--workers", "3")
    workers = children(process.pid)
    assert len(workers) == 3
    with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as stack:
        envs = [stack.enter_context(contextlib.closing(RemoteEnv(url, timeout=60))) for _ in workers]
        for env in envs:
            env.reset(seed=0)
        assert len({env.step("pid")[0] for env in envs}) == 3
        running = [pool.submit(env.step, action) for env, action in zip(envs, ("hold 60", "spin"), strict=False)]
        time.sleep(0.5)
        process.kill()
        process.communicate()
        assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 5), "workers are left"
        for step in running:
            with pytest.raises(BackendDownError):
                step.result()


@pytest.mark.timeout(120)
def test_signals_are_answered_while_a_step_holds_its_interpreter(tmp_path):
    """Two servers at once, each with the seconds that it gives its worker."""
    with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as stack:
        servers = []
        for signum in (signal.SIGTERM, signal.SIGINT):
            process, url = started(tmp_path, "--workers", "1", "--grace", "0.5")
            env = stack.enter_context(contextlib.closing(RemoteEnv(url, timeout=60)))
            env.reset(seed=0)
            servers.append((process, children(process.pid), signum, pool.submit(env.step, "hold 60")))
        time.sleep(0.5)
        begin = time.monotonic()
        for process, _, signum, _ in servers:
            process.send_signal(signum)
        for process, workers, _, running in servers:
            with pytest.raises(BackendDownError, match="shutting down|ended"):
                running.result()
            out, _ = process.communicate(timeout=30)
            assert process.returncode == 0 and out.strip() == "stopped" and time.monotonic() - begin < 20
            assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
