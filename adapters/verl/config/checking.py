"""Checks of verl's configuration for what would otherwise fail only after a minute, in another process."""

from __future__ import annotations

import importlib.util
from typing import Any

from agent_envs import checks
from agent_envs.adapters.losses import policy_loss
from agent_envs.adapters.verl.config.objective import read_objective
from agent_envs.errors import ConfigError

__all__ = ["check_config"]

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


def check_config(config: Any) -> None:
    """Check a configuration whose references are all resolved.

    Raises:
        ConfigError: A value that does not fit.
    """
    actor, critic = config.actor_rollout_ref.actor, config.critic
    checks.choice("model_engine", config.model_engine, ["dp"])
    for name, value in (
        ("data.train_batch_size", config.data.train_batch_size),
        ("data.max_prompt_length", config.data.max_prompt_length),
        ("data.max_response_length", config.data.max_response_length),
        ("actor_rollout_ref.rollout.n", config.actor_rollout_ref.rollout.n),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", actor.ppo_mini_batch_size),
    ):
        checks.integer(name, value, minimum=1)
    _check_divides("actor_rollout_ref.actor.ppo_mini_batch_size", actor.ppo_mini_batch_size, config)
    _check_loggers(config.trainer.logger)
    estimator = read_objective(config).estimator
    if estimator.needs_critic:
        if critic.enable is not True:
            raise ConfigError(
                f"the estimator {estimator.name!r} needs a critic: critic.enable must be True, got {critic.enable}"
            )
        checks.integer("critic.ppo_mini_batch_size", critic.ppo_mini_batch_size, minimum=1)
        _check_divides("critic.ppo_mini_batch_size", critic.ppo_mini_batch_size, config)
    policy_loss(str(actor.policy_loss.loss_mode))


def _check_divides(name: str, size: int, config: Any) -> None:
    total = config.data.train_batch_size
    if total % size:
        raise ConfigError(f"{name}={size} does not divide data.train_batch_size={total}")


def _check_loggers(loggers: Any) -> None:
    names = [loggers] if isinstance(loggers, str) else list(loggers)
    if "file" not in names:
        raise ConfigError(f"trainer.logger must contain 'file', from which metrics.jsonl is made, got {names}")
    for name in names:
        package = _LOGGERS[checks.choice("trainer.logger", name, _LOGGERS)]
        if package is not None and importlib.util.find_spec(package) is None:
            raise ConfigError(f"trainer.logger {name!r} needs the package {package}: pip install {package}")
