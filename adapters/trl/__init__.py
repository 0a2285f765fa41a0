"""Any environment in TRL: a trainer of whole episodes, or an environment class with a method per tool.

    from trl import GRPOConfig, GRPOTrainer
    from agent_envs.adapters import trl as envs

    trainer = envs.EpisodeTrainer(                            # any environment or agent: episodes as everywhere
        model, GRPOConfig(...), envs.episode_dataset("AgentR1/ALFWorld-v0", range(1000)), estimator="gigpo",
    )
    trainer = GRPOTrainer(                                    # environments with tools: TRL generates and calls them
        model, reward_funcs=envs.episode_reward, args=GRPOConfig(...),
        train_dataset=envs.environment_dataset("AgentR1/GSM8KTool-v0", range(1000)),
        environment_factory=envs.environment_class("AgentR1/GSM8KTool-v0"),
    )

With the trainer, the environment reads the model's text itself, as in every other adapter: malformed calls are
answered, wrappers see the whole text, parallel calls are one step, and every step has its own credit. With the
environment class, TRL parses the calls; the environment gets each call as a step of its own and the text without a call
as the last step. TRL takes pictures from the environment class alone.

Both build on what TRL calls experimental or private, so other versions than the supported one are rejected.
"""

from agent_envs.errors import needs_extra

with needs_extra("trl"):
    import trl  # noqa: F401

from agent_envs.adapters.trl.environment import (
    EnvironmentRecord,
    environment_class,
    environment_dataset,
    episode_reward,
)
from agent_envs.adapters.trl.trainer import EpisodeTrainer, episode_dataset

__all__ = [
    "EnvironmentRecord", "EpisodeTrainer", "environment_class", "environment_dataset", "episode_dataset",
    "episode_reward",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
