"""Estimators by name, with what each needs from a trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_envs.adapters.estimators.checks import check_rows, note_zero_advantages
from agent_envs.adapters.estimators.critic import bi_level_gae, gae, reinforce, reinforce_pp, token_gae
from agent_envs.adapters.estimators.groups import (
    gdpo,
    gigpo,
    gpg,
    grpo,
    grpo_passk,
    opo,
    reinforce_pp_baseline,
    remax,
    rloo,
)
from agent_envs.adapters.estimators.rows import Advantages, EstimatorOptions, StepRows
from agent_envs.adapters.estimators.token_baselines import optimal_token_baseline, tir_optimal_token_baseline
from agent_envs.checks import choice, load_function
from agent_envs.errors import ConfigError


@dataclass(frozen=True)
class Estimator:
    """A formula for advantages, and what a trainer must provide for it. Calling it checks the rows first."""

    name: str
    """Name in ``algorithm.adv_estimator`` and in messages."""
    function: Callable[[StepRows, EstimatorOptions], Advantages]
    """The formula."""
    needs_critic: bool = False
    """Whether rows must carry values."""
    critic_at_action_start: bool = False
    """Whether the critic learns only at the first response position (the value of the state before acting)."""
    needs_tokens: bool = False
    """Whether rows must carry their tokens; with a critic, those carry the values."""
    needs_baseline: bool = False
    """Whether each group also plays a greedy episode, whose return the rows carry."""
    needs_anchors: bool = False
    """Whether rows must carry the states before acting."""
    needs_score_norms: bool = False
    """Whether rows must carry what the whole distribution of each token says: ``TokenRows.score_norms``."""
    compares_groups: bool = False
    """Whether trajectories are compared within their group: groups of one teach nothing."""
    normalises: bool = False
    """Whether what normalises advantages is of the whole batch: of several environments, each has its own."""

    def __call__(self, rows: StepRows, options: EstimatorOptions) -> Advantages:
        """Check the rows, apply the formula and count what deserves a warning.

        Raises:
            ConfigError: The rows lack what the estimator needs.
            DataError: A number or an index that is not valid; names the trajectory.
        """
        if rows.role is not None:
            if self.needs_baseline:
                raise ConfigError(
                    f"{self.name!r} compares with one greedy episode, and these episodes have roles: use grpo, rloo or "
                    "gae"
                )
            roles = {  # each by itself, as if the others were other batches
                role: self(replace(rows, valid=rows.valid & (rows.role == role), role=None), options)
                for role in rows.role.unique().tolist()
            }
            of_role = {f"{name}/role_{role}": x for role, part in roles.items() for name, x in part.metrics.items()}
            return _together([*roles.values()], of_role)
        counts = check_rows(rows, options.group_size if self.compares_groups else None)
        envs = rows.env[rows.valid].unique() if self.normalises and rows.env is not None else ()
        if len(envs) > 1:
            assert rows.env is not None
            parts = [self.function(replace(rows, valid=rows.valid & (rows.env == env)), options) for env in envs]
            result = _together(parts, {name: sum(p.metrics[name] for p in parts) for name in parts[0].metrics})
        else:
            result = self.function(rows, options)
        counts |= result.metrics | note_zero_advantages(result.advantages, rows.valid, self.name)
        return replace(result, metrics=counts)

    def check_group(self, size: int, setting: str) -> None:
        """Check that there is something to compare in groups of ``size`` episodes, which ``setting`` asks for.

        Raises:
            ConfigError: The estimator compares the episodes of a group, and there is one.
        """
        if self.compares_groups and size < 2:
            raise ConfigError(
                f"the estimator {self.name!r} compares the episodes of a group, and the only one of a group teaches "
                f"nothing: {setting} must be at least 2, got {size}"
            )


def _together(parts: Sequence[Advantages], metrics: dict[str, float]) -> Advantages:
    """Return the advantages of parts of the rows that do not overlap, each 0 on the others, as one."""
    columns = ("advantages", "returns", "token_advantages", "token_returns")
    values: dict[str, Any] = {name: [getattr(part, name) for part in parts] for name in columns}
    summed = {name: None if each[0] is None else sum(each) for name, each in values.items()}
    return Advantages(**summed, metrics=metrics)


ESTIMATORS: dict[str, Estimator] = {
    e.name: e
    for e in (
        Estimator("bi_level_gae", bi_level_gae, needs_critic=True, needs_tokens=True, normalises=True),
        Estimator("gae", gae, needs_critic=True, critic_at_action_start=True, normalises=True),
        Estimator("gdpo", gdpo, needs_tokens=True, compares_groups=True, normalises=True),
        Estimator("gigpo", gigpo, needs_anchors=True, compares_groups=True),
        Estimator("gpg", gpg, compares_groups=True, normalises=True),
        Estimator("grpo", grpo, compares_groups=True),
        Estimator("grpo_passk", grpo_passk, compares_groups=True),
        Estimator(
            "optimal_token_baseline", optimal_token_baseline, needs_tokens=True, needs_score_norms=True,
            compares_groups=True,
        ),
        Estimator("opo", opo, needs_tokens=True, compares_groups=True),
        Estimator("reinforce", reinforce, normalises=True),
        Estimator("reinforce_pp", reinforce_pp, needs_tokens=True, normalises=True),
        Estimator(
            "reinforce_pp_baseline", reinforce_pp_baseline, needs_tokens=True, compares_groups=True, normalises=True
        ),
        Estimator("remax", remax, needs_baseline=True),
        Estimator("rloo", rloo, compares_groups=True),
        Estimator(
            "tir_optimal_token_baseline", tir_optimal_token_baseline, needs_tokens=True, needs_score_norms=True,
            compares_groups=True,
        ),
        Estimator("token_gae", token_gae, needs_critic=True, needs_tokens=True, normalises=True),
    )
}  # fmt: skip
"""Estimators by name."""

VERL_NAMES = {
    "grpo_vectorized": "grpo", "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline", "rloo_vectorized": "rloo",
}  # fmt: skip
"""verl's names of estimators that have another one here; each is understood too. verl's ``gae`` is ``token_gae``."""


def get_estimator(name: str) -> Estimator:
    """Return an estimator by name.

    Args:
        name: One of ``ESTIMATORS`` or ``VERL_NAMES``, or ``module:name`` of your own: an ``Estimator``, or a function
            of ``StepRows`` and ``EstimatorOptions`` that needs no critic. The module is imported.

    Raises:
        ConfigError: There is no such estimator; lists the names.
    """
    if ":" not in name:
        return ESTIMATORS[choice("the advantage estimator", VERL_NAMES.get(name, name), ESTIMATORS)]
    loaded = load_function(name, "the advantage estimator")
    return replace(loaded, name=name) if isinstance(loaded, Estimator) else Estimator(name, loaded)
