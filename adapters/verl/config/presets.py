"""Presets: how big a run is and on what it runs. Swapping the preset changes nothing else of a command.

`cpu-tiny` trains a model of 140 thousand parameters that is made on the spot, `gpu-8` a given one on eight GPUs with
vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_envs.errors import ConfigError, did_you_mean

__all__ = ["PRESETS", "Difference", "Preset", "get_preset"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that is not what was published."""

    key: str
    """Field of ``Preset``, ``env.ARGUMENT`` or verl's setting."""
    released: Any
    """The published value."""
    ours: Any
    """The preset's."""
    why: str
    """The reason."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Everything about a run that the command line does not say."""

    name: str
    """Name on the command line."""
    cpu: bool
    """Whether it runs without a GPU."""
    steps: int
    """Training steps, where --steps is not given."""
    tasks_per_step: int
    """Tasks a step plays."""
    episodes_per_task: int
    """Episodes per task: the group whose members are compared."""
    updates_per_step: int
    """Optimiser updates a step's episodes are divided into."""
    max_prompt_length: int
    """Tokens of the longest prompt; an episode whose prompt grows beyond it ends."""
    max_response_length: int
    """Tokens of the longest response."""
    learning_rate: float
    """Of the actor, reached after `learning_rate_warmup` updates and kept."""
    learning_rate_warmup: int
    """Training steps until the full rate; the first has a part of it."""
    critic_learning_rate: float
    """Of the critic, where the algorithm has one."""
    validation_tasks: int
    """Held-out tasks, each sampled once, before training, every `validate_every` steps and at the end."""
    validate_every: int
    """Steps between two validations."""
    save_every: int
    """Steps between two checkpoints; the last step has one too."""
    tokens_per_batch: int
    """Tokens of one forward and backward pass on one device."""
    devices: int
    """Processes that train, one per GPU."""
    wrappers: tuple[str, ...] = ()
    """Wrappers around every environment, before those of the command line."""
    env_kwargs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per id: arguments on any data, where --env-kwargs does not say otherwise."""
    generated_env_kwargs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per id: arguments of its generated tasks, where --env-kwargs does not say otherwise."""
    warm_start: int = 0
    """Supervised steps on demonstrations, for a model made on the spot."""
    demo_noise: float = 0.0
    """Share of demonstrated calls that are wrong on purpose."""
    makes_model: bool = False
    """Whether a tiny model is made where --model is not given."""
    overrides: tuple[str, ...] = ()
    """Further verl settings, in Hydra's form."""
    nodes: int = 1
    """Machines, each with `devices`."""
    env: str | None = None
    """Id it is for; None for any."""
    algo: str | None = None
    """Algorithm it is for; None for any."""
    model: str | None = None
    """Model where --model is not given."""
    data: str = "generated"
    """Tasks where --data is not given."""
    differences: tuple[Difference, ...] = ()
    """Where it differs from the published settings it follows."""


_OPTIMIZER = (
    "actor_rollout_ref.actor.optim.betas=[0.9,0.98]",
    "actor_rollout_ref.actor.optim.weight_decay=0.0",
    "actor_rollout_ref.actor.grad_clip=1.0",
    "actor_rollout_ref.actor.clip_ratio=0.2",
    "actor_rollout_ref.actor.entropy_coeff=0.0",
    "actor_rollout_ref.actor.use_kl_loss=False",
    "algorithm.use_kl_in_reward=False",
)

_QUESTION_ANSWERING = ("AgentR1/HotpotQA-v0", "AgentR1/TwoWikiMultihopQA-v0", "AgentR1/MuSiQue-v0")

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="cpu-tiny",
            cpu=True,
            steps=60,
            tasks_per_step=16,
            episodes_per_task=8,
            updates_per_step=2,
            max_prompt_length=3072,
            max_response_length=64,
            learning_rate=3e-4,
            learning_rate_warmup=10,
            critic_learning_rate=1e-3,
            validation_tasks=256,
            validate_every=10,
            save_every=10,
            tokens_per_batch=32_768,
            devices=1,
            wrappers=("FormatReward(weight=0.1)",),
            env_kwargs={
                **{env_id: {"top_k": 2, "passage_chars": 480} for env_id in _QUESTION_ANSWERING},
                "AgentR1/ALFWorld-v0": {"max_episode_steps": 20},
                "AgentR1/PaperSearch-v0": {"max_calls": 2, "shown": 4, "abstract_words": 0},
                "AgentR1/WebShop-v0": {"max_observation_length": 400},  # 15 pages fit
            },
            generated_env_kwargs={
                "AgentR1/ALFWorld-v0": {"size": 1},
                "AgentR1/GSM8K-v0": {"level": 1},
                "AgentR1/GSM8KTool-v0": {"level": 1},
                **{env_id: {"hops": 2} for env_id in _QUESTION_ANSWERING},
                "AgentR1/PaperSearch-v0": {"papers": 400},
                "AgentR1/WebShop-v0": {"max_observation_length": 700},  # as many as the shopper looks at
            },
            warm_start=800,
            demo_noise=0.6,
            makes_model=True,
            overrides=_OPTIMIZER,
        ),
        Preset(
            name="gpu-8",
            cpu=False,
            steps=200,
            tasks_per_step=128,
            episodes_per_task=8,
            updates_per_step=2,
            max_prompt_length=4096,
            max_response_length=1024,
            learning_rate=1e-6,
            learning_rate_warmup=10,
            critic_learning_rate=1e-5,
            validation_tasks=512,
            validate_every=10,
            save_every=20,
            tokens_per_batch=32_768,
            devices=8,
            wrappers=("FormatReward(weight=0.1)",),
            overrides=(
                *_OPTIMIZER,
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
                "actor_rollout_ref.rollout.gpu_memory_utilization=0.6",
                "actor_rollout_ref.rollout.agent.num_workers=8",
                "actor_rollout_ref.model.use_remove_padding=True",
                "actor_rollout_ref.model.enable_gradient_checkpointing=True",
                # vLLM samples in bfloat16 with other kernels than the actor's: old log-probabilities are the actor's,
                # and importance weights correct the difference
                "algorithm.rollout_correction.bypass_mode=False",
                "algorithm.rollout_correction.rollout_is=token",
                "algorithm.rollout_correction.rollout_is_threshold=2.0",
                "trainer.max_actor_ckpt_to_keep=2",
                "trainer.max_critic_ckpt_to_keep=2",
            ),
        ),
    )
}
"""Presets by name."""


def get_preset(name: str) -> Preset:
    """The preset called `name`, or made of the parts it names. Raises ConfigError for a name that is neither."""
    if "/" in name:
        from agent_envs.adapters.verl.config.compose import compose_preset

        return compose_preset(name)
    if name not in PRESETS:
        raise ConfigError(
            f"unknown preset {name!r}, which is no MODEL/TASK/ALGORITHM either.{did_you_mean(name, PRESETS)}"
        )
    return PRESETS[name]
