"""Heavy environments on servers of their node, and how many episodes an agent-loop worker plays at once.

1. Episodes on a node's server are those in this process; all workers and splits share the server, which has a token.
2. A server that dies costs the episodes that were being played on it; the next ones find it again.
3. The limit on episodes follows the time of environment steps up and down; nobody waits for ever, whoever is cancelled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
with warnings.catch_warnings():  # verl warns of every engine that is not installed
    warnings.simplefilter("ignore")
    pytest.importorskip("verl")

import agent_envs
from agent_envs.adapters.verl.config.compose import compose_run
from agent_envs.adapters.verl.rollout import env_pool
from agent_envs.adapters.verl.rollout.admission import Admission
from agent_envs.adapters.verl.rollout.env_pool import EnvPool, EnvServers
from agent_envs.errors import BackendDownError, ConfigError
from agent_envs.policies import ExpertPolicy
from agent_envs.serving import RemoteEnv

ENV = "AgentR1/GSM8KTool-v0"


def windows_of(admission: Admission, capacity: int, waiting: int) -> list[float]:
    """The limits while so many episodes want to play on a backend whose steps take longer beyond its capacity."""
    limits: list[float] = []

    async def episode() -> None:
        await admission.enter()
        for _ in range(10):
            admission.note(0.1 * max(1.0, admission._playing / capacity))
            limits.append(admission.limit)
            await asyncio.sleep(0)
        admission.leave()

    async def play_all() -> None:
        await asyncio.gather(*(episode() for _ in range(waiting)))

    asyncio.run(play_all())
    return limits


def test_the_limit_follows_the_time_of_steps() -> None:
    limits = windows_of(Admission(latency=0.2), capacity=20, waiting=500)
    assert limits[0] == 16 and max(limits) == 64
    assert all(25 <= limit <= 50 for limit in limits[1500:])  # steps take 0.2 s when 40 episodes are played
    assert max(windows_of(Admission(most=30, latency=0.2), capacity=20, waiting=100)) == 30
    assert set(windows_of(Admission(most=7), capacity=1, waiting=20)) == {7}
    assert min(windows_of(Admission(latency=0.2), capacity=1, waiting=100)) == 1
    assert set(windows_of(Admission(), capacity=1, waiting=20)) == {float("inf")}


def test_whoever_is_cancelled_keeps_nobody_waiting() -> None:
    async def play() -> None:
        admission = Admission(most=1)
        assert await admission.enter() < 1
        waiting = [asyncio.create_task(admission.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # while it waits
        await asyncio.sleep(0)
        admission.leave()
        waiting[1].cancel()  # when its turn has just come
        assert await asyncio.wait_for(waiting[2], 5) >= 0
        admission.leave()
        await asyncio.wait_for(admission.enter(), 5)

    asyncio.run(play())


@pytest.mark.parametrize("setting", ["env_workers", "max_episodes"])
def test_a_limit_of_nothing_is_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"agentr1.{setting} must be"):
        compose_run(
            env=ENV, algo=None, preset="cpu-tiny", steps=None, data=None, split="train", env_kwargs=None, wrappers=[],
            out=str(tmp_path), model=None, seed=0, warm_start=None, demo_noise=None, val_fraction=0.1,
            overrides=[f"+agentr1.{setting}=0"],
        )  # fmt: skip


def played(env: Any, index: int) -> dict[str, Any]:
    episode = agent_envs.run_episode(env, ExpertPolicy(), options={"index": index})
    return {k: v for k, v in episode.to_dict().items() if k not in ("episode_id", "env_id")}


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
def test_a_node_has_one_server_which_is_found_again_when_it_died() -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

    async def play() -> None:
        servers, pools = EnvServers(workers=1), [EnvPool() for _ in range(2)]
        _, here = await pools[0].acquire(ENV, {"split": "test", "level": 2}, ["FormatReward"])
        there = [
            (await pool.acquire(ENV, {"split": split, "level": 2}, ["FormatReward"], servers))[1]
            for pool in pools
            for split in ("test", "train")
        ]
        (actor,) = env_pool._actors.values()
        assert len({env.unwrapped._url.partition("?")[0] for env in there}) == 1
        assert played(there[0], 3) == played(there[2], 3) == played(here, 3)
        with pytest.raises(ConfigError, match="does not take 'levle'"):
            await pools[0].acquire(ENV, {"levle": 1}, [], servers)
        with pytest.raises(ConfigError, match="token"):
            RemoteEnv(there[0].unwrapped._url.partition("/ws")[0].replace("ws:", "http:"))

        there[0].reset(seed=0)
        os.kill(await actor.__ray_call__.remote(lambda self: os.getpid()), signal.SIGKILL)
        with pytest.raises(BackendDownError):
            there[0].step("x")
        _, again = await pools[0].acquire(ENV, {"split": "test", "level": 2}, ["FormatReward"], servers)
        assert played(again, 3) == played(here, 3)
        for env in [*there, again, here]:
            env.close()

    try:
        asyncio.run(play())
    finally:
        env_pool._actors.clear()
        ray.shutdown()
