"""verl's settings for a run: the overrides in Hydra's form, composed and checked before anything is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.adapters.verl.config.overrides import base_overrides, cpu_overrides
from agent_envs.adapters.verl.config.presets import Preset
from agent_envs.adapters.verl.config.run import Paths, RunConfig
from agent_envs.errors import ConfigError, MissingExtraError, did_you_mean, first_line

__all__ = ["Settled", "quoted", "settle", "verl_overrides"]

_LOGGERS = {
    "clearml": "clearml",
    "console": None,
    "file": None,
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}  # the package each needs


def verl_overrides(config: RunConfig, preset: Preset, *, model: str, validate_first: bool = True) -> list[str]:
    """The run in Hydra's form, the command line's own settings last.

    Args:
        model: Folder or name of the model that training starts from.
        validate_first: Whether to validate before the first step of this start.
    """
    from agent_envs.adapters.verl.config.algorithms import get_algorithm

    paths = Paths(config.out.resolve())
    lists = [*base_overrides(), *(cpu_overrides() if preset.cpu else [])]
    lists += [
        *get_algorithm(config.algo).settings,
        f"data.train_files=[{quoted(paths.train_rows)}]",
        f"data.val_files=[{quoted(paths.validation_rows)}]",
        # The rows are drawn and ordered when they are written, as many as the steps take: one pass, in order.
        "data.shuffle=False",
        f"data.train_batch_size={preset.tasks_per_step}",
        f"data.val_batch_size={preset.validation_tasks}",
        f"data.max_prompt_length={preset.max_prompt_length}",
        f"data.max_response_length={preset.max_response_length}",
        f"actor_rollout_ref.model.path={quoted(model)}",
        f"actor_rollout_ref.rollout.n={preset.episodes_per_task}",
        f"actor_rollout_ref.rollout.seed={config.seed}",
        "actor_rollout_ref.rollout.temperature=1.0",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={preset.tasks_per_step // preset.updates_per_step}",
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={preset.tokens_per_batch}",
        f"actor_rollout_ref.actor.data_loader_seed={config.seed}",
        f"actor_rollout_ref.actor.optim.lr={preset.learning_rate}",
        f"actor_rollout_ref.actor.optim.lr_warmup_steps={preset.learning_rate_warmup}",
        # A cosine of no cycles is constant after the warmup. verl's own constant schedule begins at a rate of 0, so
        # that the first step would train nothing.
        "actor_rollout_ref.actor.optim.lr_scheduler_type=cosine",
        "actor_rollout_ref.actor.optim.num_cycles=0.0",
        "actor_rollout_ref.actor.optim.zero_indexed_step=False",
        f"critic.model.path={quoted(model)}",
        f"critic.optim.lr={preset.critic_learning_rate}",
        f"critic.ppo_mini_batch_size={preset.tasks_per_step // preset.updates_per_step}",
        f"critic.ppo_max_token_len_per_gpu={preset.tokens_per_batch}",
        f"trainer.n_gpus_per_node={preset.devices}",
        f"trainer.nnodes={preset.nodes}",
        "trainer.project_name=agent_envs",
        f"trainer.experiment_name={quoted(config.out.name)}",
        "trainer.logger=[console,file]",
        "trainer.total_epochs=1",
        f"trainer.total_training_steps={config.steps}",
        f"trainer.val_before_train={validate_first}",
        f"trainer.test_freq={preset.validate_every}",
        f"trainer.save_freq={preset.save_every}",
        "trainer.resume_mode=auto",
        f"trainer.default_local_dir={quoted(paths.checkpoints)}",
        f"+agentr1.episodes_dir={quoted(paths.episodes)}",
        f"+agentr1.seed={config.seed}",
        *(_without_flash_attention() if not preset.cpu else ()),
        *preset.overrides,
        *config.overrides,
    ]
    return lists


def _without_flash_attention() -> list[str]:
    """verl asks for FlashAttention 2 by default; PyTorch's own attention where that is not installed."""
    if importlib.util.find_spec("flash_attn") is not None:
        return []
    return [
        f"+{model}.override_config.attn_implementation=sdpa" for model in ("actor_rollout_ref.model", "critic.model")
    ]


def quoted(value: object) -> str:
    """A value that Hydra reads as one string, whatever characters it has."""
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


@dataclass(frozen=True, slots=True)
class Settled:
    """verl's settings, composed and checked."""

    overrides: tuple[str, ...]
    """In Hydra's form."""
    yaml: str
    """The full configuration, every reference resolved."""
    tasks_per_step: int
    """Tasks a training step plays."""


def settle(overrides: Sequence[str]) -> Settled:
    """The full verl configuration that `overrides` lead to, checked for what would fail only after a minute.

    The context of the generation engine is bounded by the longest prompt and response, not by the model's.

    Raises:
        ConfigError: verl has no such setting, or a value does not fit.
        MissingExtraError: verl is not installed.
    """
    composed = _compose(overrides)
    rollout, actor = composed.actor_rollout_ref.rollout, composed.actor_rollout_ref.actor
    numbers = {
        "data.train_batch_size": composed.data.train_batch_size,
        "data.max_prompt_length": composed.data.max_prompt_length,
        "data.max_response_length": composed.data.max_response_length,
        "actor_rollout_ref.rollout.n": rollout.n,
        "actor_rollout_ref.actor.ppo_mini_batch_size": actor.ppo_mini_batch_size,
    }
    for name, number in numbers.items():
        if not isinstance(number, int) or number < 1:
            raise ConfigError(f"{name} must be an integer of at least 1, got {number!r}")
    if composed.data.train_batch_size % actor.ppo_mini_batch_size:
        raise ConfigError(
            f"actor_rollout_ref.actor.ppo_mini_batch_size={actor.ppo_mini_batch_size} does not divide "
            f"data.train_batch_size={composed.data.train_batch_size}"
        )
    if "file" not in composed.trainer.logger:
        raise ConfigError(
            f"trainer.logger must hold 'file', which metrics.jsonl is made of; got {composed.trainer.logger}"
        )
    loggers = composed.trainer.logger
    _check_loggers([loggers] if isinstance(loggers, str) else list(loggers))
    # here and not above: they bring torch, which must not be loaded before the command has set its variables
    from agent_envs.adapters.losses import policy_loss
    from agent_envs.adapters.verl.config.objective import read_objective

    estimator = read_objective(composed).estimator
    if estimator.needs_critic and composed.critic.enable is not True:
        raise ConfigError(
            f"the estimator {estimator.name!r} needs a critic: critic.enable must be True, got {composed.critic.enable}"
        )
    size = composed.critic.ppo_mini_batch_size
    if estimator.needs_critic and (not isinstance(size, int) or size < 1 or composed.data.train_batch_size % size):
        raise ConfigError(
            f"critic.ppo_mini_batch_size={size} does not divide data.train_batch_size={composed.data.train_batch_size}"
        )
    policy_loss(str(actor.policy_loss.loss_mode))
    if rollout.max_model_len is None:
        longest = composed.data.max_prompt_length + composed.data.max_response_length
        overrides = [*overrides, f"actor_rollout_ref.rollout.max_model_len={longest}"]
        composed = _compose(overrides)
    from omegaconf import OmegaConf

    return Settled(tuple(overrides), OmegaConf.to_yaml(composed, resolve=True), composed.data.train_batch_size)


def _check_loggers(names: Sequence[str]) -> None:
    for name in names:
        if name not in _LOGGERS:
            raise ConfigError(f"unknown trainer.logger {name!r}.{did_you_mean(str(name), _LOGGERS)}")
        package = _LOGGERS[name]
        if package is not None and importlib.util.find_spec(package) is None:
            raise ConfigError(f"trainer.logger {name!r} needs the package {package}: pip install {package}")


def _compose(overrides: Sequence[str]) -> Any:
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("verl", extra="verl")
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    folder = Path(spec.submodule_search_locations[0]).resolve() / "trainer" / "config"
    try:
        with initialize_config_dir(str(folder), version_base=None):
            composed = hydra_compose("ppo_trainer", overrides=list(overrides))
        OmegaConf.resolve(composed)
    except (HydraException, OmegaConfBaseException, ValueError) as e:
        raise ConfigError(f"verl does not take these settings: {first_line(e)}") from e
    return composed
