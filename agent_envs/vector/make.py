"""Make a vector of environments from one id.

envs = agent_envs.make_vec("AgentR1/HotpotQA-v0", 8, wrappers=["FormatReward"])
observations, infos = envs.reset(options={"env_options": [{"index": i} for i in range(8)]})
observations, rewards, terminations, truncations, infos = envs.step(actions)     # None: leave this one alone
envs.send({3: action}); done = envs.recv()                                       # the first that is ready
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from agent_envs import checks
from agent_envs.vector.env import TextVectorEnv
from agent_envs.wrapping.specs import WrapperSpec, env_maker


def make_vec(
    env_id: str | EnvSpec | Callable[..., gym.Env[Any, str]],
    num_envs: int = 1,
    *,
    wrappers: Sequence[WrapperSpec] = (),
    **env_kwargs: Any,
) -> TextVectorEnv:
    """Make several environments of one id that are stepped side by side; see `TextVectorEnv`.

    For this package's ids, `gymnasium.make_vec(id, num_envs, env_wrappers=wrappers, **env_kwargs)` makes the same.

    Args:
        env_id: What `gymnasium.make` takes, or a function that makes an environment.
        num_envs: How many to make.
        wrappers: Applied to each, the last one outermost: "Name(key=value)", or functions from env to env.
        **env_kwargs: Arguments of each environment.

    Raises:
        ConfigError: An argument is wrong, there is no such id, or the environments are not text environments.
        gymnasium.error.Error: There is no such id.

    >>> envs = make_vec("AgentR1/GSM8K-v0", 3)
    >>> questions, infos = envs.reset(options={"env_options": [{"index": 5}, {"index": 6}, {"index": 7}]})
    >>> infos["index"].tolist()
    [5, 6, 7]
    >>> envs.step(("#### 1", None, "#### 2"))[2].tolist()
    [True, False, True]
    >>> envs.close()
    """
    num_envs = checks.integer("num_envs", num_envs, minimum=1)
    envs = TextVectorEnv([env_maker(env_id, env_kwargs, wrappers)] * num_envs)
    made = envs.envs[0].unwrapped.spec
    if made is not None and isinstance(env_id, (str, EnvSpec)):
        spec = copy.copy(env_id if isinstance(env_id, EnvSpec) else gym.spec(made.id))
        spec.vector_entry_point = f"agent_envs.vector.make:{spec.id}"
        more = {"num_envs": num_envs, "vectorization_mode": "vector_entry_point"}
        spec.kwargs = {**spec.kwargs, **env_kwargs, **more}
        if wrappers:
            spec.kwargs["env_wrappers"] = tuple(wrappers)
        envs.spec = spec
    return envs


def __getattr__(name: str) -> Callable[..., TextVectorEnv]:
    """Resolve `vector_entry_point="agent_envs.vector.make:ID"`: Gymnasium does not pass the id to an entry point."""
    if name not in gym.registry:
        raise AttributeError(f"module 'agent_envs.vector.make' has no attribute {name!r}")

    def entry_point(num_envs: int = 1, *, env_wrappers: Sequence[WrapperSpec] = (), **env_kwargs: Any) -> TextVectorEnv:
        return make_vec(name, num_envs, wrappers=env_wrappers, **env_kwargs)

    return entry_point
