"""The ids of all environments. Light: entry points are strings, resolved by ``gym.make``."""

from __future__ import annotations

import gymnasium as gym

__all__ = ["ENV_IDS", "register_envs"]

_Specs = dict[str, dict[str, object]]

_SPECS: _Specs = {
    "AgentR1/ALFWorld-v0": {"entry_point": "agent_envs.envs.alfworld.env:ALFWorldEnv", "max_episode_steps": 50},
    "AgentR1/GSM8K-v0": {"entry_point": "agent_envs.envs.gsm8k.env:GSM8KEnv", "max_episode_steps": 2},
    "AgentR1/GSM8KTool-v0": {"entry_point": "agent_envs.envs.gsm8k.env:GSM8KToolEnv", "max_episode_steps": 10},
    "AgentR1/HotpotQA-v0": {"entry_point": "agent_envs.envs.qa.env:HotpotQAEnv", "max_episode_steps": 10},
    "AgentR1/MuSiQue-v0": {"entry_point": "agent_envs.envs.qa.multihop:MuSiQueEnv", "max_episode_steps": 10},
    "AgentR1/PaperSearch-v0": {"entry_point": "agent_envs.envs.papersearch.env:PaperSearchEnv", "max_episode_steps": 5},
    "AgentR1/TwoWikiMultihopQA-v0": {
        "entry_point": "agent_envs.envs.qa.multihop:TwoWikiMultihopQAEnv",
        "max_episode_steps": 10,
    },
    "AgentR1/WebShop-v0": {"entry_point": "agent_envs.envs.webshop.env:WebShopEnv", "max_episode_steps": 15},
}

ENV_IDS: tuple[str, ...] = tuple(sorted(_SPECS))
"""Every task this package registers."""

# What is no task of its own needs arguments: nothing that goes through all ids can make it without them.
_REMOTE: _Specs = {"AgentR1/Remote-v0": {"entry_point": "agent_envs.serving.remote_env:RemoteEnv"}}


def register_envs() -> None:
    """Register every id with Gymnasium; done at ``import agent_envs``, and harmless when repeated."""
    for env_id, spec in (_SPECS | _REMOTE).items():
        if env_id not in gym.registry:
            gym.register(env_id, vector_entry_point=f"agent_envs.vector.make:{env_id}", **spec)  # type: ignore[arg-type]
