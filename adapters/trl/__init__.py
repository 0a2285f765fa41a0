"""Any environment in TRL's ``GRPOTrainer``: as an environment class with a method per tool, or as a rollout function.

    from trl import GRPOConfig, GRPOTrainer
    from agent_envs.adapters import trl as envs

    trainer = GRPOTrainer(                                    # environments with tools: TRL generates and calls them
        model, reward_funcs=envs.episode_reward, args=GRPOConfig(...),
        train_dataset=envs.environment_dataset("AgentR1/GSM8KTool-v0", range(1000)),
        environment_factory=envs.environment_class("AgentR1/GSM8KTool-v0"),
    )
    trainer = GRPOTrainer(                                    # any environment, commands too: episodes as everywhere
        model, reward_funcs=envs.episode_reward, args=GRPOConfig(...),
        train_dataset=envs.rollout_dataset("AgentR1/ALFWorld-v0", range(1000)),
        rollout_func=envs.EpisodeRollout(),
    )

With the environment class, TRL parses the calls; the environment gets each call as a step of its own and the text
without a call as the last step. With the rollout function, the environment reads the model's text itself, as in every
other adapter: malformed calls are answered, wrappers see the whole text, and parallel calls are one step. TRL takes
pictures from the environment class alone.

Both are experimental in TRL, so other versions than the supported one are rejected.
"""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError

if find_spec("trl") is None:
    raise MissingExtraError("trl", extra="trl")

from agent_envs.adapters.trl.environment import (
    EnvironmentRecord,
    environment_class,
    environment_dataset,
    episode_reward,
)
from agent_envs.adapters.trl.rollout import EpisodeRollout, rollout_dataset

__all__ = [
    "EnvironmentRecord", "EpisodeRollout", "environment_class", "environment_dataset",
    "episode_reward", "rollout_dataset",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
