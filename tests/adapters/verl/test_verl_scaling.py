"""Heavy environments on servers of their node, and how many episodes an agent-loop worker plays at once.

1. Episodes on a node's server are those in this process; all workers and splits share the server, which has a token.
2. A server that dies costs the episodes that were being played on it; the next ones find it again.
3. No more episodes play at once than are allowed, and whoever is cancelled keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest
from composing import ENV

import agent_envs
from agent_envs.adapters.verl.rollout import env_pool
from agent_envs.adapters.verl.rollout.agent_loop import _places
from agent_envs.adapters.verl.rollout.env_pool import EnvPool, EnvServers
from agent_envs.errors import BackendDownError, ConfigError
from agent_envs.policies import ExpertPolicy
from agent_envs.serving import RemoteEnv


def test_no_more_episodes_play_at_once_than_are_allowed():
    playing: list[int] = [0]

    async def episode(most: int | None) -> None:
        async with _places(most):
            playing.append(playing[-1] + 1)
            await asyncio.sleep(0.001)
            playing.append(playing[-1] - 1)

    async def play(most: int | None) -> None:
        tasks = [asyncio.create_task(episode(most)) for _ in range(9)]
        await asyncio.sleep(0)
        tasks[-1].cancel()  # keeps nobody waiting
        await asyncio.gather(*tasks, return_exceptions=True)

    for most, highest in ((2, 2), (None, 9)):
        playing[:] = [0]
        asyncio.run(asyncio.wait_for(play(most), 10))
        assert max(playing) == highest


def played(env: Any, index: int) -> dict[str, Any]:
    episode = agent_envs.run_episode(env, ExpertPolicy(), options={"index": index})
    return {k: v for k, v in episode.to_dict().items() if k not in ("episode_id", "env_id")}


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
def test_a_node_has_one_server_which_is_found_again_when_it_died():
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

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
