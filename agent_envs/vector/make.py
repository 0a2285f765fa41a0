"""Many environments of one id, side by side.

envs = agent_envs.make_vec("AgentR1/HotpotQA-v0", 8, wrappers=["FormatReward"])
observations, infos = envs.reset(options={"env_options": [{"index": i} for i in range(8)]})
observations, rewards, terminations, truncations, infos = envs.step(actions)     # None: leave this one alone
envs.send({3: action}); done = envs.recv()                                       # whoever is ready first
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from agent_envs.errors import ConfigError
from agent_envs.vector.env import TextVectorEnv
from agent_envs.wrapping.specs import WrapperSpec, env_maker

__all__ = ["make_vec"]


def make_vec(
    env_id: str | EnvSpec | Callable[..., gym.Env[Any, str]],
    num_envs: int = 1,
    *,
    wrappers: Sequence[WrapperSpec] = (),
    **env_kwargs: Any,
) -> TextVectorEnv:
    """Many environments of one id, stepped side by side; see ``TextVectorEnv``.

    ``gymnasium.make_vec(id, num_envs, env_wrappers=wrappers, **env_kwargs)`` makes the same for this package's ids.

    Args:
        env_id: What ``gymnasium.make`` takes, or a function that makes an environment.
        num_envs: How many.
        wrappers: Put around each, the last one outermost: "Name(key=value)", or functions from env to env.
        **env_kwargs: Arguments of each environment.

    Raises:
        ConfigError: An argument does not fit, or the environments are none over text.
        gymnasium.error.Error: There is no such id.

    >>> envs = make_vec("AgentR1/GSM8K-v0", 3)
    >>> questions, infos = envs.reset(options={"env_options": [{"index": 5}, {"index": 6}, {"index": 7}]})
    >>> infos["index"].tolist()
    [5, 6, 7]
    >>> envs.step(("#### 1", None, "#### 2"))[2].tolist()
    [True, False, True]
    >>> envs.close()
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
        raise ConfigError(f"num_envs must be an integer of at least 1, got {num_envs!r}")
    envs = TextVectorEnv([env_maker(env_id, env_kwargs, wrappers)] * int(num_envs))
    made = envs.envs[0].unwrapped.spec
    if made is not None and isinstance(env_id, (str, EnvSpec)):
        spec = copy.copy(env_id if isinstance(env_id, EnvSpec) else gym.spec(made.id))
        spec.vector_entry_point = f"agent_envs.vector.make:{spec.id}"
        more = {"num_envs": int(num_envs), "vectorization_mode": "vector_entry_point"}
        spec.kwargs = {**spec.kwargs, **env_kwargs, **more}
        if wrappers:
            spec.kwargs["env_wrappers"] = tuple(wrappers)
        envs.spec = spec
    return envs


def __getattr__(name: str) -> Callable[..., TextVectorEnv]:
    """``vector_entry_point="agent_envs.vector.make:ID"``: an entry point is not told which id it stands for."""
    if name not in gym.registry:
        raise AttributeError(f"module 'agent_envs.vector.make' has no attribute {name!r}")
    return functools.partial(_entry_point, name)


def _entry_point(
    env_id: str, num_envs: int = 1, *, env_wrappers: Sequence[WrapperSpec] = (), **env_kwargs: Any
) -> TextVectorEnv:
    return make_vec(env_id, num_envs, wrappers=env_wrappers, **env_kwargs)
