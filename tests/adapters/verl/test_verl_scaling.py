"""How many episodes an agent-loop worker plays at once.

The limit follows the time of environment steps up and down; nobody waits for ever, whoever is cancelled.
"""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch")
with warnings.catch_warnings():  # verl warns of every engine that is not installed
    warnings.simplefilter("ignore")
    pytest.importorskip("verl")

from agent_envs.adapters.verl.config.compose import compose_run
from agent_envs.adapters.verl.rollout.admission import Admission
from agent_envs.errors import ConfigError


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


def test_a_limit_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="agentr1.max_episodes must be"):
        compose_run(
            env="AgentR1/GSM8KTool-v0",
            algo=None, preset="cpu-tiny", steps=None, data=None, split="train", env_kwargs=None, wrappers=[],
            out=str(tmp_path), model=None, seed=0, warm_start=None, demo_noise=None, val_fraction=0.1,
            overrides=["+agentr1.max_episodes=0"],
        )  # fmt: skip
