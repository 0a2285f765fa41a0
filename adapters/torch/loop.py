"""A policy-gradient loop in plain PyTorch, in one file: how the steps of episodes become a gradient.

    python -m agent_envs.adapters.torch.loop --env AgentR1/GSM8KTool-v0 --out runs/loop

trains any Hugging Face causal language model on one device. Each iteration, from the top of this file to the bottom:

1. ``play``: the model plays some tasks, each once per member of its group
2. ``assemble``: the steps become rows of tokens (steps whose prompts grow share a row; rows of a group share what they
   begin with) and an estimator's input
3. ``score``: policy, reference and critic evaluate the tokens, without gradients
4. ``credit``: the estimator turns the steps' rewards into an advantage for every token that the policy wrote
5. ``update``: per mini-batch of whole groups, add up weight x token loss over its tokens, backward, clip, step

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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from agent_envs.adapters import losses
from agent_envs.adapters.batches import LAST_STATE, build_batch, micro_batches, with_last_state
from agent_envs.adapters.estimators import EstimatorOptions, StepRows, TokenRows, component_table, get_estimator
from agent_envs.adapters.estimators.token_baselines import score_norms
from agent_envs.adapters.failures import FailureBudget
from agent_envs.adapters.run import Record
from agent_envs.adapters.torch.outputs import Outputs, token_log_probs, token_squares, token_values
from agent_envs.adapters.torch.pictures import RowPictures
from agent_envs.adapters.torch.run import Run, about, named, summary
from agent_envs.adapters.torch.settings import LoopConfig, read_command_line
from agent_envs.adapters.trees import SortedRows, sort_rows
from agent_envs.adapters.trees.passes import tree_passes
from agent_envs.episodes.record import Episode
from agent_envs.errors import run_command
from agent_envs.policies import TransformersPolicy
from agent_envs.prompts.pictures import PictureTokens
from agent_envs.rollout.many import run_episodes

__all__ = [
    "Batch", "LossOf", "Outputs", "Scores", "accumulate", "actor_loss", "assemble", "credit", "critic_loss", "forward",
    "learn", "main", "mean_log_ratio", "play", "score", "token_log_probs", "token_values", "train", "update",
]  # fmt: skip


# ---------------------------------------------------------------------------------- 1. the model plays


def play(run: Run, number: int, split: str, tasks: Any, per_task: int, temperature: float) -> list[Episode]:
    """Play each task `per_task` times, in the order of the tasks; tokens and log-probabilities are kept as sampled."""
    config = run.config
    policy = TransformersPolicy(
        run.models["model"], tokenizer=run.tokenizer, temperature=temperature, max_tokens=config.max_response_tokens,
        context_length=config.max_tokens, concurrency=config.concurrency, seed=1_000_003 * config.seed + number,
        pictures=run.pictures,
    )  # fmt: skip
    episodes = run_episodes(
        config.env, policy, len(tasks) * per_task, env_kwargs=config.env_kwargs_of(split), wrappers=config.wrappers,
        seeds=config.seed, options=[{"index": int(index)} for index in tasks for _ in range(per_task)],
        concurrency=config.concurrency, step_timeout=config.step_timeout or None, on_error="record", progress=False,
    )  # fmt: skip
    policy.close()
    return episodes


# ---------------------------------------------------------------------------------- 2. steps become rows


@dataclass(frozen=True)
class Batch:
    """Episodes as tensors on the CPU: the tokens of all rows one after another, and a record of every step."""

    ids: torch.Tensor
    """Tokens, int64, shape [tokens]."""
    row: torch.Tensor
    """Row of each token, ascending, int64, shape [tokens]. A row holds as many steps as fit."""
    step: torch.Tensor
    """Step that wrote each token, -1 for what is not trained (prompts, tool results); int64, shape [tokens]."""
    sampled: torch.Tensor
    """Log-probability of each token when it was sampled, float32, shape [tokens]."""
    start: torch.Tensor
    """Index of each step's first token, int64, shape [steps]."""
    steps: StepRows
    """Reward, trajectory, group, ... of each step, sorted by trajectory and index. A step that is not valid was never
    taken: it stands for the state that a limit left an episode in."""
    trees: SortedRows | None = None
    """What the rows share, if the models take them as prefix trees."""
    pictures: RowPictures | None = None
    """The pictures of the rows, if the models take pictures."""


def assemble(
    episodes: Sequence[Episode], groups: Sequence[int], baselines: Sequence[float] | None = None,
    layout: str = "merged", image_tokens: PictureTokens | None = None,
) -> Batch:  # fmt: skip
    """Return the batch of some episodes, without broken ones and without steps that have no tokens.

    Args:
        episodes: Episodes with the tokens of every step; for a critic as ``with_last_state`` returns them.
        groups: Group of each episode: those of one task are compared.
        baselines: For ``remax``: for each episode, the return of a greedy episode of the same task.
        layout: ``steps`` (a row per step), ``merged``, or ``tree``: merged rows, of which the models compute what they
            begin with once.
        image_tokens: Those of a vision-language model; every row must have as many as its pictures give features.
    """
    kept = [i for i, episode in enumerate(episodes) if not episode.stop_reason.broken]
    played = [episodes[i] for i in kept]
    tokens = build_batch(played, "merged" if layout == "tree" else layout)
    taken = [  # in the batch's order, each with the info the policy had before it acted
        (t, step, episode.steps[t - 1].info if t else episode.reset_info)
        for episode in played
        for t, step in enumerate(episode.steps)
        if step.prompt_ids and step.response_ids
    ]
    trajectory = torch.from_numpy(tokens.episode)
    valid = torch.tensor([LAST_STATE not in step.info for _, step, _ in taken], dtype=torch.bool)
    wrote = torch.from_numpy(tokens.step_ids)
    wrote = torch.where(torch.cat([valid, valid.new_zeros(1)])[wrote], wrote, -1)  # -1 reads the last one
    anchors = [str(info.get("anchor", "")) for _, _, info in taken]
    numbers = {text: i for i, text in enumerate(dict.fromkeys(anchors))}
    components, names = component_table([step.info.get("reward_components") or {} for _, step, _ in taken])
    baseline = None
    if baselines is not None:
        baseline = torch.tensor([baselines[i] for i in kept], dtype=torch.float64)[trajectory]
    steps = StepRows(
        rewards=torch.from_numpy(tokens.rewards),
        trajectory=trajectory,
        step=torch.tensor([t for t, _, _ in taken], dtype=torch.int64),
        group=torch.tensor([groups[i] for i in kept], dtype=torch.int64)[trajectory],
        valid=valid,
        truncated=torch.tensor([step.truncated and not step.terminated for _, step, _ in taken], dtype=torch.bool),
        tokens=TokenRows(wrote),
        baseline=baseline,
        anchor=torch.tensor([numbers[anchor] for anchor in anchors], dtype=torch.int64),
        anchor_texts=list(numbers),
        components=components if names else None,
        component_names=names,
        names=[episode.episode_id for episode in played],
    )
    row = torch.arange(len(tokens.offsets) - 1).repeat_interleave(torch.from_numpy(np.diff(tokens.offsets)))
    ids, sampled, start = (torch.from_numpy(x) for x in (tokens.input_ids, tokens.logprobs, tokens.start))
    trees = sort_rows(tokens.input_ids, tokens.offsets) if layout == "tree" else None
    return Batch(ids, row, wrote, sampled, start, steps, trees, RowPictures.of(tokens, image_tokens, layout))


# ---------------------------------------------------------------------------------- 3. what models say about tokens


def forward(
    model: Any, batch: Batch, wanted: torch.Tensor, config: LoopConfig
) -> Iterator[tuple[torch.Tensor, Outputs]]:
    """Yield a model's outputs one position before each wanted token, one micro-batch of rows at a time.

    The model is a causal language model, or a critic of the same form with one output; ``wanted`` is bool, of shape
    [tokens]. Yields the indices of a micro-batch's wanted tokens, shape [wanted], and the outputs for them.
    """
    lengths = torch.bincount(batch.row).tolist()
    if batch.trees is not None:
        offsets = np.cumsum([0, *lengths])
        shared = batch.ids.numpy(), offsets, batch.trees, wanted.numpy()
        for tree in tree_passes(*shared, config.micro_tokens, model.device):
            with torch.autocast(model.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
                outputs = tree.logits(model).float()
            yield tree.tokens, Outputs(outputs, tree.output.to(outputs.device))
        return
    ids, asked = batch.ids.split(lengths), wanted.split(lengths)
    for rows in micro_batches(batch.row[wanted].unique().tolist(), lengths, config.micro_tokens):
        # padded on the right, where no token of a causal model sees it
        padded = pad_sequence([ids[r] for r in rows], batch_first=True).to(model.device)
        row, position = pad_sequence([asked[r] for r in rows], batch_first=True).nonzero(as_tuple=True)
        seen = {} if batch.pictures is None else batch.pictures.arguments(padded, rows)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
            outputs = model(input_ids=padded, use_cache=False, **seen).logits[row, position - 1].float()
        if batch.pictures is not None:
            outputs = batch.pictures.without_reserved(outputs)
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
        else:
            out[indices] = token_values(outputs) if of == "values" else token_squares(outputs, config)
    return out


# ---------------------------------------------------------------------------------- 4. rewards become advantages


def credit(batch: Batch, config: LoopConfig, scores: Scores) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Return every token's advantage and target of the critic, both of shape [tokens], and counts worth logging."""
    steps, counts = batch.steps, dict[str, float]()
    norms = None if scores.squares is None else score_norms(scores.old, scores.squares)
    steps = replace(steps, tokens=TokenRows(batch.step, values=scores.values, score_norms=norms))
    if scores.values is not None:  # the state after a truncated episode follows its last step, and is not valid
        values = scores.values[batch.start]
        final = values.roll(-1).where(~steps.valid.roll(-1), math.nan)
        steps = replace(steps, values=values, final_values=final)
    if config.kl == "reward" and scores.ref is not None:
        penalty, counts["reward_kl"] = losses.kl_in_reward(
            scores.old, scores.ref, batch.step, config.kl_kind, config.kl_coef
        )
        steps = steps.with_token_rewards(penalty)
    options = EstimatorOptions(gamma=config.gamma, lam=config.lam, group_size=config.group)
    result = get_estimator(config.estimator)(steps, options)
    return *result.on_tokens(batch.step), counts | result.metrics


# ---------------------------------------------------------------------------------- 5. advantages become a gradient

LossOf = Callable[..., tuple[torch.Tensor, dict[str, losses.Tally]]]
"""Maps a model's outputs for some tokens, the tokens' indices and their weights to a loss and its metrics."""


def actor_loss(
    batch: Batch, config: LoopConfig, scores: Scores, advantages: torch.Tensor,
    outputs: Outputs, indices: torch.Tensor, weights: torch.Tensor, mean_log_ratio: float | None = None,
) -> tuple[torch.Tensor, dict[str, losses.Tally]]:  # fmt: skip
    """Return the policy's loss on some tokens, with the KL and the entropy bonus if they are on."""
    log_probs, entropy = token_log_probs(outputs, batch.ids[indices], config)
    function = losses.policy_loss(config.loss)
    options = replace(losses.loss_preset(config.loss), mean_log_ratio=mean_log_ratio)
    steps = batch.step[indices].unique(return_inverse=True)[1]
    loss, metrics = function(log_probs, scores.old[indices], advantages[indices], weights, steps, options)
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
    parts = [token_log_probs(outputs, batch.ids[at], config)[0].cpu() - old[at] for at, outputs in passes]
    return float(torch.cat(parts).double().mean())


def critic_loss(
    old: torch.Tensor, returns: torch.Tensor, outputs: Outputs, indices: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, dict[str, losses.Tally]]:
    """Return the critic's loss on some tokens: the distance of its values from the returns."""
    return losses.value_loss(token_values(outputs), old[indices], returns[indices], weights, clip=0.5)


def accumulate(
    model: Any, batch: Batch, weights: torch.Tensor, loss_of: LossOf, config: LoopConfig
) -> tuple[float, dict[str, losses.Tally]]:
    """Add the gradient of a mini-batch to the model's, and return its loss and metrics.

    A loss is a sum over tokens of weight x token loss. The weights, shape [tokens], contain every normaliser and are 0
    outside the mini-batch, so its micro-batches are simply added up.
    """
    total, parts = 0.0, []
    for indices, outputs in forward(model, batch, weights != 0, config):
        loss, metrics = loss_of(outputs, indices, weights[indices])
        loss.backward()
        total += float(loss.detach())
        parts.append(metrics)
    return total, losses.merge(parts)


def update(
    model: Any, optimizer: torch.optim.Optimizer, batch: Batch, config: LoopConfig, loss_of: LossOf, *,
    at_start: bool = False, seed: Sequence[int] = (0,), mean_of: Callable[[torch.Tensor], float] | None = None,
) -> dict[str, float]:  # fmt: skip
    """Update on a batch: ``epochs`` passes of ``mini_batches`` optimiser steps, each on whole groups of episodes.

    With ``at_start`` only the first token of a step counts, as for a critic of the states before acting. ``seed`` draws
    the groups of each mini-batch, or its episodes if there are fewer groups than mini-batches. ``mean_of`` maps the
    weights of a mini-batch to the loss's ``mean_log_ratio``.
    """
    rng, trajectory = np.random.default_rng(seed), batch.steps.trajectory
    units = batch.steps.group.unique(return_inverse=True)[1]  # [steps]
    units = units if int(units.max()) + 1 >= config.mini_batches else trajectory
    trained = batch.step if not at_start else torch.where(losses.action_start(batch.step), batch.step, -1)
    lengths = torch.bincount(trained[trained >= 0], minlength=len(trajectory))  # [steps]
    totals, norms, parts = [], [], []
    for _ in range(config.epochs):
        drawn = torch.from_numpy(rng.permutation(int(units.max()) + 1)) % config.mini_batches  # [units]
        mini_batch = drawn[units]  # [steps]
        weights = losses.token_weights(config.weighting, lengths, trajectory, trained, mini_batch)  # [tokens]
        for number in mini_batch[lengths > 0].unique():
            own = weights * (mini_batch[trained] == number)
            of = loss_of if mean_of is None else functools.partial(loss_of, mean_log_ratio=mean_of(own))
            loss, metrics = accumulate(model, batch, own, of, config)
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
    old = score(models["model"], batch, config)
    ref = score(models["reference"], batch, config) if "reference" in models else None
    values = score(models["critic"], batch, config, of="values") if "critic" in models else None
    squares = score(models["model"], batch, config, of="squares") if run.estimator.needs_score_norms else None
    scores = Scores(old, ref, values, squares)
    advantages, returns, record = credit(batch, config, scores)
    record["rollout/logprob_diff"] = float((old - batch.sampled)[batch.step >= 0].abs().mean())
    of_actor = functools.partial(actor_loss, batch, config, scores, advantages)
    mean_of = functools.partial(mean_log_ratio, models["model"], batch, config, old) if config.loss == "capo" else None
    said = update(models["model"], optimizers["model"], batch, config, of_actor, seed=seed, mean_of=mean_of)
    record |= named("actor", said)
    if values is not None:
        of_critic, at_start = functools.partial(critic_loss, values, returns), run.estimator.critic_at_action_start
        metrics = update(models["critic"], optimizers["critic"], batch, config, of_critic, at_start=at_start, seed=seed)
        record |= named("critic", metrics)
    return record


def train(config: LoopConfig) -> list[Record]:
    """Train a model and save it in OUT/checkpoint/model, or resume a run that was stopped.

    Returns:
        The lines of OUT/metrics.jsonl: one per iteration, with ``val/success`` where held-out tasks were played.

    Raises:
        ConfigError: The environment or model does not exist, or OUT holds a run with other settings.
        BackendError: Too many episodes broke.
    """
    run, group, failures = Run(config), config.group, FailureBudget(config.max_broken)
    if not run.records:
        episodes = play(run, 0, config.eval_split, run.held_out, 1, config.temperature)
        run.log({"step": 0, **named("val", about(episodes))})
    for number in run.iterations():
        began = time.monotonic()
        tasks = run.draw(number)
        episodes = play(run, number, config.split, tasks, group, config.temperature)
        broken = failures.note((episode.stop_reason, episode.error) for episode in episodes)
        record: Record = {"step": number, **named("train", about(episodes) | broken)}
        baselines = None
        if run.estimator.needs_baseline:
            greedy = play(run, number, config.split, tasks, 1, 0.0)
            baselines = [math.nan if e.stop_reason.broken else e.reward for e in greedy for _ in range(group)]
        record["seconds/play"] = time.monotonic() - began
        began = time.monotonic()
        if "critic" in run.models:
            of_run = (run.tokenizer, config.max_tokens, run.tool_instructions)
            episodes = [with_last_state(episode, *of_run) for episode in episodes]
        batch = assemble(episodes, [i // group for i in range(len(episodes))], baselines, run.layout, run.pictures)
        record["train/rows"] = len(batch.row.unique())
        record["train/tokens"] = len(batch.ids) if batch.trees is None else batch.trees.nodes
        if bool((batch.step >= 0).any()):  # otherwise no episode has a token to learn from
            record |= learn(run, batch, number)
        record["seconds/update"] = time.monotonic() - began
        if run.evaluates(number):
            episodes = play(run, number, config.eval_split, run.held_out, 1, config.temperature)
            record |= named("val", about(episodes))
        run.log(record)
        run.save(number)
    return run.records


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m agent_envs.adapters.torch.loop``."""
    return run_command(lambda: summary(train(config := read_command_line(argv)), config.out))


if __name__ == "__main__":
    sys.exit(main())
