"""A policy-gradient loop in plain PyTorch, in one file: how the steps of episodes become a gradient.

    python -m agent_envs.adapters.torch.loop --env AgentR1/GSM8KTool-v0 --out runs/loop

trains any Hugging Face causal language model on one device. Each iteration, from the top of this file to the bottom:

1. ``play_iteration`` (in ``playing``): the model plays some tasks, each once per member of its group
2. ``assemble`` (in ``batch``): the steps become rows of tokens (steps whose prompts grow share a row; rows of a group
   share what they begin with) and an estimator's input
3. ``score``: policy, reference and critic evaluate the tokens, without gradients
4. ``credit``: the estimator turns the steps' rewards into an advantage for every token that the policy wrote
5. ``update``: per mini-batch of whole groups, add up weight x token loss over its tokens, backward, clip, step;
   a teacher's labels are further tokens of the same passes

Estimators and losses are those of every other adapter, by name. With no trainer in between, the verl adapter is checked
against this loop: the same episodes give the same loss and the same gradients. Options are in ``settings``; models,
optimisers and checkpoints of a run in ``run``.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from agent_envs.adapters import losses
from agent_envs.adapters.batches import fitting_tokens, micro_batches, with_last_state
from agent_envs.adapters.branches import segments
from agent_envs.adapters.estimators import EstimatorOptions, TokenRows, get_estimator, say_once
from agent_envs.adapters.estimators.token_baselines import score_norms
from agent_envs.adapters.losses.distribution import entropies, log_probs_of, square_sums
from agent_envs.adapters.losses.ratios import record_ratios
from agent_envs.adapters.run import FailureBudget, Record
from agent_envs.adapters.teacher import NO_LABEL, Labels
from agent_envs.adapters.torch.batch import Batch, assemble
from agent_envs.adapters.torch.information import information
from agent_envs.adapters.torch.playing import play, play_iteration
from agent_envs.adapters.torch.run import Run, about, named, solved, summary
from agent_envs.adapters.torch.settings import LoopConfig, read_command_line
from agent_envs.adapters.trees.attention import tree_passes
from agent_envs.episodes.record import Episode
from agent_envs.episodes.run_folder import locked_folder
from agent_envs.errors import BackendError, ConfigError, run_command
from agent_envs.policies.local.padded_engine import forward_arguments, without_tokens

# ---------------------------------------------------------------------------------- 3. what models say about tokens


class Outputs(NamedTuple):
    """A model's outputs one position before some tokens, on the model's device."""

    all: torch.Tensor
    """Logits, or the values of a critic, shape [outputs, vocabulary] or [outputs, 1]."""
    at: torch.Tensor | None = None
    """Which of them is each token's, int64, shape [tokens]; None if there is one for each. Rows share outputs."""

    def of_tokens(self, values: torch.Tensor) -> torch.Tensor:
        """Return on the CPU what values of the outputs, shape [outputs], are of the tokens."""
        return (values if self.at is None else values[self.at]).cpu()


def token_log_probs(outputs: Outputs, ids: torch.Tensor, config: LoopConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each token and the entropy of its distribution (nats), both of shape [tokens]."""
    ids = ids.to(outputs.all.device)
    # the gradient of the entropy costs another pass over the logits
    logits = outputs.all if config.entropy_coef else outputs.all.detach()
    entropy = outputs.of_tokens(entropies(logits, config.temperature))
    return log_probs_of(outputs.all, ids, outputs.at, config.temperature).cpu(), entropy


def forward(
    model: Any, batch: Batch, wanted: torch.Tensor, config: LoopConfig
) -> Iterator[tuple[torch.Tensor, Outputs]]:
    """Yield a model's outputs one position before each wanted token, one micro-batch of rows at a time.

    The model is a causal language model, or a critic of the same form with one output; ``wanted`` is bool, of shape
    [tokens]. Yields the indices of a micro-batch's wanted tokens, shape [wanted], and the outputs for them.
    """
    lengths, limit = torch.bincount(batch.row).tolist(), config.micro_tokens or fitting_tokens(model)
    if batch.trees is not None:
        shared = batch.ids.numpy(), np.cumsum([0, *lengths]), batch.trees, wanted.numpy()
        for tree in tree_passes(*shared, limit, model.device):
            with torch.autocast(model.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
                outputs = tree.logits(model).float()
            yield tree.tokens, Outputs(outputs, tree.output.to(outputs.device))
        return
    ids, asked = batch.ids.split(lengths), wanted.split(lengths)
    for rows in micro_batches(batch.row[wanted].unique().tolist(), lengths, limit):
        # padded on the right, where no token of a causal model sees it
        padded = pad_sequence([ids[r] for r in rows], batch_first=True).to(model.device)
        row, position = pad_sequence([asked[r] for r in rows], batch_first=True).nonzero(as_tuple=True)
        seen, images = dict[str, torch.Tensor](), batch.image_tokens
        if images is not None:
            seen = forward_arguments(images, padded, [batch.pictures[r] for r in rows])
        before, place = (position - 1).unique(return_inverse=True)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
            outputs = model(input_ids=padded, use_cache=False, logits_to_keep=before.to(model.device), **seen).logits
        outputs = outputs[row, place if outputs.shape[1] == len(before) else position - 1].float()  # all of a critic's
        if images is not None:
            outputs = without_tokens(outputs, images.reserved)
        yield torch.searchsorted(batch.row, torch.tensor(rows))[row] + position, Outputs(outputs)


class Scores(NamedTuple):
    """The models' outputs for a batch before it is trained on, each of shape [tokens]."""

    old: torch.Tensor
    """Log-probabilities under the policy that played."""
    ref: torch.Tensor | None = None
    """Log-probabilities under the reference, if there is one."""
    values: torch.Tensor | None = None
    """The critic's value of the state before each token, if there is a critic."""
    squares: torch.Tensor | None = None
    """Sum of the squared probabilities that each token was drawn from, if the estimator needs it."""


@torch.no_grad()
def score(model: Any, batch: Batch, config: LoopConfig, *, of: str = "log_probs") -> torch.Tensor:
    """Return each written token's ``log_probs``, ``values`` or ``squares``; 0 elsewhere, shape [tokens]."""
    out, wanted = torch.zeros(len(batch.ids)), batch.step >= 0
    wanted[batch.start] = True  # and the states after truncated episodes
    for indices, outputs in forward(model, batch, wanted, config):
        if of == "log_probs":
            out[indices] = token_log_probs(outputs, batch.ids[indices], config)[0]
        elif of == "values":
            out[indices] = outputs.of_tokens(outputs.all.squeeze(1))
        else:
            out[indices] = outputs.of_tokens(square_sums(outputs.all, config.temperature))
    return out


# ---------------------------------------------------------------------------------- 4. rewards become advantages


def credit(batch: Batch, config: LoopConfig, scores: Scores) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Return every token's advantage and target of the critic, both of shape [tokens], and counts worth logging."""
    steps, counts = batch.steps, dict[str, float]()
    norms = None if scores.squares is None else score_norms(scores.old, scores.squares)
    steps = replace(steps, tokens=TokenRows(batch.step, values=scores.values, score_norms=norms))
    if scores.values is not None:  # the state after a truncated episode follows its last step, and is not valid
        values = scores.values[batch.start]
        steps = replace(steps, values=values, final_values=values.roll(-1).where(~steps.valid.roll(-1), math.nan))
    if config.kl == "reward" and scores.ref is not None:
        penalty, counts["actor/reward_kl_penalty"] = losses.kl_in_reward(
            scores.old, scores.ref, batch.step, config.kl_kind, config.kl_coef
        )
        steps = steps.with_token_rewards(penalty)
    options = EstimatorOptions(gamma=config.gamma, lam=config.lam, group_size=None if config.branch else config.group)
    result = get_estimator(config.estimator)(steps, options)
    return *result.on_tokens(batch.step), counts | named("env", result.metrics)


# ---------------------------------------------------------------------------------- 5. advantages become a gradient

LossOf = Callable[..., tuple[torch.Tensor, dict[str, losses.Tally]]]
"""Maps a model's outputs for some tokens, the tokens' indices and their weights to a loss and its metrics."""


def actor_loss(
    batch: Batch, config: LoopConfig, scores: Scores, advantages: torch.Tensor,
    outputs: Outputs, indices: torch.Tensor, weights: torch.Tensor, mean_log_ratio: float | None = None,
    update: tuple[int, int] = (0, 0),
) -> tuple[torch.Tensor, dict[str, losses.Tally]]:  # fmt: skip
    """Return the policy's loss on some tokens, with KL and entropy bonus; log-ratios are recorded under ``update``."""
    log_probs, entropy = token_log_probs(outputs, batch.ids[indices], config)
    function = losses.policy_loss(config.loss)
    options = replace(losses.loss_preset(config.loss), mean_log_ratio=mean_log_ratio)
    steps, old = batch.step[indices].unique(return_inverse=True)[1], scores.old[indices]
    loss, metrics = function(log_probs, old, advantages[indices], weights, steps, options)
    if config.ratios_dir:
        own, log_ratio = weights != 0, log_probs.detach() - old  # those of labels have none
        own_steps = steps[own].unique(return_inverse=True)[1]
        record_ratios(config.ratios_dir, *update, log_ratio[own], advantages[indices][own], own_steps)
    bonus, more = losses.entropy_loss(entropy, weights)
    loss, metrics = loss - config.entropy_coef * bonus, metrics | more
    if config.kl == "loss" and scores.ref is not None:
        kl, more = losses.kl_loss(log_probs, scores.ref[indices], weights, config.kl_kind)
        loss, metrics = loss + config.kl_coef * kl, metrics | more
    return loss, metrics


@torch.no_grad()
def mean_log_ratio(model: Any, batch: Batch, config: LoopConfig, old: torch.Tensor, weights: torch.Tensor) -> float:
    """Return how far a mini-batch's tokens are from ``old`` in the mean, for a loss that is centred there."""
    passes = forward(model, batch, weights != 0, config)
    parts = [token_log_probs(outputs, batch.ids[at], config)[0] - old[at] for at, outputs in passes]
    return float(torch.cat(parts).double().mean())


def critic_loss(
    old: torch.Tensor, returns: torch.Tensor, outputs: Outputs, indices: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, dict[str, losses.Tally]]:
    """Return the critic's loss on some tokens: the distance of its values from the returns."""
    values = outputs.of_tokens(outputs.all.squeeze(1))
    return losses.value_loss(values, old[indices], returns[indices], weights, clip=0.5)


def accumulate(
    model: Any, batch: Batch, weights: torch.Tensor, loss_of: LossOf | None, config: LoopConfig,
    taught: torch.Tensor | None = None,
) -> tuple[float, dict[str, losses.Tally]]:  # fmt: skip
    """Add the gradient of a mini-batch to the model's, and return its loss and metrics.

    A loss is a sum over tokens of weight x token loss. The weights, shape [tokens], contain every normaliser and are 0
    outside the mini-batch, so its micro-batches are simply added up. ``taught`` are those of the labels.
    """
    total, parts = 0.0, []
    wanted = weights != 0 if taught is None else (weights != 0) | (taught != 0)
    for indices, outputs in forward(model, batch, wanted, config):
        loss, metrics = torch.zeros(()), dict[str, losses.Tally]()
        if loss_of is not None:
            loss, metrics = loss_of(outputs, indices, weights[indices])
        if taught is not None:
            log_probs, _ = token_log_probs(outputs, batch.ids[indices], config)
            imitation, more = losses.label_loss(log_probs, taught[indices])
            loss, metrics = loss + imitation, metrics | more
        loss.backward()
        total += float(loss.detach())
        parts.append(metrics)
    return total, losses.merge(parts)


def update(
    model: Any, optimizer: torch.optim.Optimizer, batch: Batch, config: LoopConfig, loss_of: LossOf | None, *,
    at_start: bool = False, seed: Sequence[int] = (0,), labels: Labels | None = None,
    args: Callable[[int, torch.Tensor], dict[str, Any]] | None = None,
) -> dict[str, float]:  # fmt: skip
    """Update on a batch: ``epochs`` passes of ``mini_batches`` optimiser steps, each on whole groups of episodes.

    With ``at_start`` only the first token of a step counts, as for a critic of the states before acting. ``seed`` draws
    a mini-batch's groups, or its episodes if there are too few. ``args`` maps its number and its weights to further
    arguments of the loss. The cross-entropy of ``labels`` is added, and is all without ``loss_of``.
    """
    rng, trajectory = np.random.default_rng(seed), batch.steps.trajectory
    units = (batch.steps.group if batch.tasks is None else batch.tasks).unique(return_inverse=True)[1]  # [steps]
    units = units if int(units.max()) + 1 >= config.mini_batches else trajectory
    trained = batch.step if not at_start else torch.where(losses.action_start(batch.step), batch.step, -1)
    lengths = torch.bincount(trained[trained >= 0], minlength=len(trajectory))  # [steps]
    totals, norms, parts = list[float](), list[float](), list[dict[str, losses.Tally]]()
    for _ in range(config.epochs):
        drawn = torch.from_numpy(rng.permutation(int(units.max()) + 1)) % config.mini_batches  # [units]
        mini_batch = drawn[units]  # [steps]
        weights = losses.token_weights(config.weighting, lengths, trajectory, trained, mini_batch, batch.counts)
        weights = torch.zeros_like(weights) if loss_of is None else weights  # [tokens]
        taught = None if labels is None else labels.weights(config.weighting, trajectory, mini_batch, batch.counts)
        for number in mini_batch[lengths > 0].unique():
            own = weights * (mini_batch[trained] == number)
            of = loss_of
            if loss_of is not None and args is not None:
                of = functools.partial(loss_of, **args(len(totals), own))
            part = None if labels is None or taught is None else taught * (mini_batch[labels.step] == number)
            loss, metrics = accumulate(model, batch, own, of, config, part)
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)))
            optimizer.step()
            optimizer.zero_grad()
            totals.append(loss)
            parts.append(metrics)
    return {"loss": float(np.mean(totals)), "grad_norm": float(np.mean(norms)), **losses.averages(losses.merge(parts))}


# ---------------------------------------------------------------------------------- all of it


def learn(run: Run, batch: Batch, number: int) -> Record:
    """Do steps 3 to 5 on one batch: update the model, and the critic if there is one."""
    config, models, optimizers, seed = run.config, run.models, run.optimizers, (run.config.seed, number)
    weight = config.teaching.weight_at(number)
    labels = Labels(batch.label, weight) if batch.label is not None and weight else None
    if labels is not None and not bool((labels.step >= 0).any()):
        say_once(NO_LABEL)
    if labels is not None and config.teacher_mode == "alone":
        said = update(models["model"], optimizers["model"], batch, config, None, seed=seed, labels=labels)
        return named("actor", said) | named("teacher", labels.metrics(batch.step))
    old = score(models["model"], batch, config)
    ref = score(models["reference"], batch, config) if "reference" in models else None
    values = score(models["critic"], batch, config, of="values") if "critic" in models else None
    squares = score(models["model"], batch, config, of="squares") if run.estimator.needs_score_norms else None
    scores = Scores(old, ref, values, squares)
    advantages, returns, record = credit(batch, config, scores)
    if run.teacher is not None:
        advantages, more = run.teacher.credit(batch, old, advantages, number)
        record |= more
    record["rollout/logprob_diff"] = float((old - batch.sampled)[batch.step >= 0].abs().mean())
    of_actor = functools.partial(actor_loss, batch, config, scores, advantages)

    def args(mini_batch: int, weights: torch.Tensor) -> dict[str, Any]:
        mean = mean_log_ratio(models["model"], batch, config, old, weights) if config.loss == "capo" else None
        return {"mean_log_ratio": mean, "update": (number, mini_batch)}

    if labels is not None:
        if config.teacher_mode == "silent":
            labels = labels.without_signal(batch.steps.group, batch.step, advantages)
        record |= named("teacher", labels.metrics(batch.step))
    said = update(models["model"], optimizers["model"], batch, config, of_actor, seed=seed, args=args, labels=labels)
    record |= named("actor", said)
    if values is not None:
        of_critic, at_start = functools.partial(critic_loss, values, returns), run.estimator.critic_at_action_start
        metrics = update(models["critic"], optimizers["critic"], batch, config, of_critic, at_start=at_start, seed=seed)
        record |= named("critic", metrics)
    return record


def iterate(run: Run, number: int, failures: FailureBudget) -> Record:
    """Do an iteration: play, and update on what was played; return its metrics."""
    config, began = run.config, time.monotonic()
    groups, unused = play_iteration(run, number)
    played = [(group.of, episode) for group in groups + unused for episode in group.episodes]
    broken = failures.note((episode.stop_reason, episode.error) for _, episode in played)
    record: Record = named("env", about([episode for _, episode in played]) | broken)
    for of in run.tasks.trained:
        record |= named("env", solved(of, [episode for source, episode in played if source is of]))
    if config.refill:
        record["env/groups_refilled"] = sum(group.refill > 0 for group in groups)
        record["env/unused_episodes"] = sum(len(group.episodes) for group in unused)
    episodes, baselines = [episode for group in groups for episode in group.episodes], None
    if run.estimator.needs_baseline:
        baselines = [math.nan if e.stop_reason.broken else e.reward for g in groups for e in [*g.greedy] * config.group]
    record["seconds/play"], began = time.monotonic() - began, time.monotonic()
    if "critic" in run.models:
        of_run, words = (run.tokenizer, config.max_tokens), run.tasks.tool_instructions
        episodes = [with_last_state(episode, *of_run, words(episode)) for episode in episodes]
    of_group = [i for i, group in enumerate(groups) for _ in group.episodes]
    parts: tuple[Any, ...] = ()
    if config.branch:
        trees, of_tree = zip(*((tree, i) for i, group in enumerate(groups) for tree in group.trees), strict=True)
        episodes, of_group, *parts = segments(trees, of_tree, config.weighting)  # type: ignore[assignment]
    labels_of = run.labels if config.teaching.labels_at(number) else None
    laid = (run.layout, run.pictures, config.gamma, config.train_roles, labels_of)
    batch = assemble(episodes, of_group, baselines, *laid, *parts)
    record["env/rows"] = len(batch.row.unique())
    record["env/tokens/processed"] = len(batch.ids) if batch.trees is None else batch.trees.nodes
    record["env/tokens/trained"] = int((batch.step >= 0).sum())
    record |= information(run, number, groups, lambda pairs: score(run.models["model"], pairs, config))
    if record["env/tokens/trained"]:  # otherwise no episode has a token to learn from
        record |= learn(run, batch, number)
    record["seconds/update"] = time.monotonic() - began
    return record


def evaluate(run: Run, number: int) -> Record:
    """Play the held-out tasks of each environment once; return the metrics of all and of each."""
    episodes, by_env = list[Episode](), dict[str, Any]()
    for of in run.tasks.environments:
        played = play(run, of, number, run.config.eval_split, of.held_out, 1, run.config.temperature)
        by_env |= solved(of, played)
        episodes += played
    return named("val", about(episodes) | by_env)


def train(config: LoopConfig) -> list[Record]:
    """Train a model and save it in OUT/checkpoint/model, or resume a run that was stopped.

    Returns:
        The lines of OUT/metrics.jsonl: one per iteration, with ``val/success`` where held-out tasks were played.

    Raises:
        ConfigError: The environment or model does not exist, or OUT holds a run with other settings or is in use.
        BackendError: Too many episodes broke; what was learned before is in the checkpoint.
    """
    if not config.env or not config.out:
        raise ConfigError("a run needs an environment and a folder: env='AgentR1/GSM8KTool-v0', out='runs/loop'")
    with locked_folder(config.out):
        run, failures = Run(config), FailureBudget(config.max_broken)
        if not run.records:
            run.log({"step": 0, **evaluate(run, 0)})
        elif run.evaluates(run.step) and "val/episodes" not in run.records[-1]:  # it failed when it was due
            run.amend(evaluate(run, run.step))
        if not config.steps and run.resumed is None:  # a warm start alone
            run.save(0)
        for number in run.iterations():
            done = number - 1
            try:
                run.log({"step": number, **iterate(run, number, failures)})
                done = number
                if run.evaluates(number):
                    run.amend(evaluate(run, number))
            except BackendError:
                if done:
                    run.save(done, due=True)  # what was learned before is not lost
                raise
            run.save(number)
        return run.records


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m agent_envs.adapters.torch.loop``."""
    return run_command(lambda: summary(train(config := read_command_line(argv)), config.out))


if __name__ == "__main__":
    sys.exit(main())
