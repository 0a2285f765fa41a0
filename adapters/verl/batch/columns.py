"""What the driver computes for every response token of a batch before training: pure functions of a step table.

Rewards less KL, rollout correction, the estimator's advantages and returns, and the weight of each token. Everything is
computed over steps, so it does not matter whether the rows that hold their tokens are merged or padded. Before it is
played, a batch gets the levels that a curriculum draws.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.tensordict_utils import assign_non_tensor_stack

from agent_envs.adapters.curriculum import Curriculum
from agent_envs.adapters.estimators import StepRows, TokenRows, check_log_probs, process_rewards, say_once, score_norms
from agent_envs.adapters.losses import kl_in_reward, step_weights
from agent_envs.adapters.teacher import NO_LABEL, Labels
from agent_envs.adapters.verl.batch import losses
from agent_envs.adapters.verl.batch.table import StepTable
from agent_envs.adapters.verl.config.objective import Objective
from agent_envs.errors import DataError


@dataclass(frozen=True)
class StepColumns:
    """What a batch is trained with."""

    columns: dict[str, torch.Tensor]
    """Columns for the workers, each over all response tokens of the batch."""
    rewards: torch.Tensor
    """Reward of each step less its KL, shape [steps]."""
    metrics: dict[str, float]


def step_columns(
    table: StepTable,
    given: Mapping[str, torch.Tensor],
    size: int,
    objective: Objective,
    actor_batch: torch.Tensor,
    critic_batch: torch.Tensor,
    baselines: Mapping[str, float] | None = None,
    label_weight: float = 0.0,
) -> StepColumns:
    """Return the columns that a batch is trained with.

    ``given`` has ``old_log_probs`` and whichever of ``rollout_log_probs``, ``ref_log_prob``, ``values`` and
    ``sum_pi_squared`` there are, over all ``size`` response tokens; ``actor_batch`` and ``critic_batch`` the mini-batch
    of each row; ``baselines`` the return of each group's greedy episode, if the estimator compares with one;
    ``label_weight`` what the weights of a teacher's labels add up to in a mini-batch.
    """
    own = {name: column[table.tokens] for name, column in given.items()}  # [tokens]
    for name in ("old_log_probs", "rollout_log_probs", "ref_log_prob"):
        if name in own:
            check_log_probs(name, own[name], table.step_of, table.steps.trajectory, table.names)
    rows = _step_rows(table, given.get("values"), baselines)
    rows, metrics = process_rewards(rows, objective.process)
    if baselines is not None and objective.process.weights:
        say_once("process rewards are not in the returns of the greedy episodes that others are compared with")
    if (scale := objective.scale) is not None and scale.kind != "released":
        rows, scales = scale.scale(rows)
        metrics |= scales
    metrics = {f"env/{name}": value for name, value in metrics.items()}
    if objective.kl is not None:
        probabilities = own["old_log_probs"], own["ref_log_prob"]
        penalty, kl = kl_in_reward(*probabilities, table.step_of, objective.kl_kind, objective.kl.value)
        metrics |= {"actor/reward_kl_penalty": kl, "actor/reward_kl_penalty_coeff": objective.kl.value}
        objective.kl.update(kl, len(table.names))
        rows = rows.with_token_rewards(penalty)
    if scale is not None and scale.kind == "released":  # scales the KL too
        rows, scales = scale.scale(rows)
        metrics |= {f"env/{name}": value for name, value in scales.items()}
    kept = torch.ones(len(table.tokens), dtype=torch.bool)
    norms = score_norms(own["old_log_probs"], own["sum_pi_squared"]) if "sum_pi_squared" in own else None
    columns: dict[str, torch.Tensor] = {}
    if objective.correction is not None and len(table) and "rollout_log_probs" in own:
        kept, factors, correction_metrics = _correct(own, table, objective.correction)
        metrics |= correction_metrics
        if factors is not None:
            columns["rollout_is_weights"] = table.spread(factors, size)
            norms = None if norms is None else norms * factors.square()
    if norms is not None and rows.tokens is not None:
        rows = replace(rows, tokens=replace(rows.tokens, score_norms=norms))

    result = objective.estimator(rows, objective.options)
    metrics |= {f"env/{name}": value for name, value in result.metrics.items()}
    advantages, returns = result.on_tokens(table.step_of)
    lengths = torch.bincount(table.step_of[kept], minlength=len(table))
    trajectory, mini_batch = table.steps.trajectory, actor_batch[table.row]
    weighting = "row" if objective.row_loss is not None else objective.weighting
    weights = step_weights(weighting, lengths, trajectory, mini_batch, table.counts)
    at_start = objective.estimator.critic_at_action_start
    learns = torch.ones_like(table.length) if at_start else table.length
    per_step = step_weights(objective.weighting, learns, trajectory, critic_batch[table.row])
    value_weights = per_step[table.step_of] * ((table.position == 0) if at_start else 1)
    if "values" in own and int((learned := value_weights != 0).sum()) > 1:  # its values mean nothing elsewhere
        v, r = own["values"][learned].double(), returns[learned].double()
        metrics |= {f"critic/values/{name}": float(getattr(v, name)()) for name in ("mean", "max", "min")}
        metrics["critic/vf_explained_var"] = float(1 - (r - v).var() / (r.var() + 1e-5))
    at_end = table.position == (table.length - 1)[table.step_of]
    columns |= {
        "advantages": table.spread(advantages.float(), size),
        "returns": table.spread(returns.float(), size),
        "rm_scores": table.spread(torch.where(at_end, table.steps.rewards[table.step_of], 0.0).float(), size),
        losses.POLICY_WEIGHTS: table.spread(weights[table.step_of] * kept, size),
        losses.VALUE_WEIGHTS: table.spread(value_weights, size),
        losses.STEP_NUMBERS: table.spread(table.step_of, size, -1),
    }
    if label_weight and table.label is None:
        say_once(NO_LABEL)
    elif label_weight and table.label is not None:
        wrote, mode = columns[losses.STEP_NUMBERS], objective.settings.teacher_mode
        labels = Labels(table.label, label_weight)
        if mode == "silent":
            labels = labels.without_signal(table.steps.group, wrote, columns["advantages"])
        columns[losses.LABEL_WEIGHTS] = labels.weights(objective.weighting, trajectory, mini_batch, table.counts)
        if mode == "alone":
            columns[losses.POLICY_WEIGHTS] = torch.zeros_like(columns[losses.POLICY_WEIGHTS])
        metrics |= {f"teacher/{name}": value for name, value in labels.metrics(wrote).items()}
    if objective.row_loss is not None:
        same = step_weights("token", lengths, trajectory, mini_batch)
        columns[losses.TOKEN_WEIGHTS] = table.spread(same[table.step_of] * kept, size)
    return StepColumns(columns, rows.rewards.double(), metrics)


def _correct(
    own: Mapping[str, torch.Tensor], table: StepTable, correction: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor | None, dict[str, float]]:
    """verl's rollout correction with a step as a sequence: which tokens are kept, factors of their losses, metrics."""
    from tensordict import TensorDict
    from verl.protocol import DataProto
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch

    mask = table.pad(torch.ones(len(table.tokens), dtype=torch.int64))
    padded = {name: table.pad(own[name]) for name in ("old_log_probs", "rollout_log_probs")}
    batch = DataProto(batch=TensorDict({**padded, "response_mask": mask}, batch_size=len(table)))
    batch, metrics = compute_rollout_correction_and_add_to_batch(batch, correction)
    at = table.step_of, table.position
    factors = batch.batch["rollout_is_weights"].float()[at] if "rollout_is_weights" in batch.batch else None
    return batch.batch["response_mask"][at] != 0, factors, metrics


def _step_rows(table: StepTable, values: torch.Tensor | None, baselines: Mapping[str, float] | None) -> StepRows:
    at_start = final = None
    if values is not None:
        at_start = values[table.start].float()
        final = torch.full_like(at_start, math.nan)
        known = table.final >= 0
        final[known] = values[table.final[known]].float()
        wrong = (known & ~final.isfinite()).nonzero()  # to an estimator NaN means unknown
        if len(wrong):
            step = int(wrong[0])
            name = table.names[int(table.steps.trajectory[step])]
            raise DataError(
                f"the value of the state after the last step of trajectory {name!r} is {float(final[step])}"
            )
    baseline = None
    if baselines is not None:
        of_group = torch.tensor([baselines.get(name, math.nan) for name in table.groups], dtype=torch.float64)
        baseline = of_group[table.steps.group]
    tokens = TokenRows(table.step_of, values=None if values is None else values[table.tokens].float())
    return replace(table.steps, values=at_start, final_values=final, tokens=tokens, baseline=baseline)


class Levels:
    """What the prompts of a step are played at, and the success on each level in all steps before; none for None."""

    def __init__(self, curriculum: Curriculum | None, seed: int) -> None:
        self._curriculum, self._seed = curriculum, seed
        self.records: list[dict[str, Any]] = []
        """The metrics of each step, which a resumed run needs."""

    def choose(self, batch: TensorDict, step: int, steps: int) -> None:
        """Draw the level of each prompt of a step of so many, and add it to its environment's arguments."""
        if self._curriculum is None:
            return
        how: dict[str, Any] = {"seed": self._seed, "number": step, "steps": steps}
        drawn = self._curriculum.draw(len(batch), records=self.records, **how)
        rows = zip(batch["env_kwargs"], (self._curriculum.env_kwargs[i] for i in drawn), strict=True)
        assign_non_tensor_stack(batch, "env_kwargs", [json.dumps(json.loads(row) | own) for row, own in rows])
        assign_non_tensor_stack(batch, "level", [self._curriculum.names[i] for i in drawn])

    def note(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep what the metrics of a step say of each level."""
        if self._curriculum is not None:
            own = tuple(f"env/{name}/" for name in self._curriculum.names)
            self.records.append({"step": step, **{k: value for k, value in metrics.items() if k.startswith(own)}})
