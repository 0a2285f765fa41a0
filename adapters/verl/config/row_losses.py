"""Losses that were written for verl's rows: found by name, so that they can be called unchanged.

verl gives a loss padded rows and lets it average over them (``register_policy_loss``); a loss of this package adds up
weighted tokens. Both are named by ``actor_rollout_ref.actor.policy_loss.loss_mode``:

====================  =================================================================================================
a name                of this package's losses; otherwise what a module of ``actor_rollout_ref.model.external_lib``
                      registers with verl under it
``module:name``       a loss of either kind: one for verl's rows has a parameter ``response_mask``
====================  =================================================================================================
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from agent_envs.adapters.losses import POLICY_LOSSES, policy_loss
from agent_envs.checks import load_function
from agent_envs.errors import ConfigError


def find_row_loss(actor_rollout_ref: Any) -> Callable[..., Any] | None:
    """Return the run's policy loss if it was written for verl's rows, None if it is one of this package's kind.

    Modules that ``external_lib`` or ``module:name`` name are imported.
    """
    name = str(actor_rollout_ref.actor.policy_loss.loss_mode)
    if ":" in name:
        function = load_function(name, "the policy loss")
        return function if "response_mask" in inspect.signature(function).parameters else None
    libraries = actor_rollout_ref.model.get("external_lib")
    if name in POLICY_LOSSES or not libraries:
        policy_loss(name)
        return None
    for module in [libraries] if isinstance(libraries, str) else libraries:
        try:
            importlib.import_module(module)
        except ImportError as e:
            raise ConfigError(f"actor_rollout_ref.model.external_lib {module} cannot be imported: {e}") from e
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    if name not in POLICY_LOSS_REGISTRY:
        policy_loss(name)
    return POLICY_LOSS_REGISTRY[name]


def row_loss_notice(name: str) -> str:
    """Return what a user of such a loss should know."""
    return (
        f"the policy loss {name} was written for verl's rows: it is called unchanged, on a padded row for each step; "
        "actor_rollout_ref.actor.loss_agg_mode says what it is a mean over, and agentr1.weighting is the critic's alone"
    )
