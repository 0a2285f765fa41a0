"""A policy-gradient loop in plain PyTorch, in one file: how the steps of episodes become a gradient.

    python -m agent_envs.adapters.torch_loop --env AgentR1/GSM8KTool-v0 --out runs/loop

trains any Hugging Face causal language model on one device. Every iteration, from top to bottom of this file:

1. ``play``: the model plays some tasks, each as often as a group has members
2. ``assemble``: the steps as rows of tokens (steps whose prompts grow share a row), and what an estimator sees of them
3. ``score``: what policy, reference and critic say about the tokens, without gradients
4. ``credit``: the estimator turns the steps' rewards into an advantage for every token that the policy wrote
5. ``update``: per mini-batch of whole episodes, add up weight x token loss over its tokens, backward, clip, step

Estimators and losses are those of every other adapter, by name. With no trainer in between, this is what the verl
adapter is checked against: the same episodes give the same loss and the same gradients. Options are in
``torch_settings``, checkpoints in ``torch_run``.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from agent_envs.adapters import losses
from agent_envs.adapters.batches import LAST_STATE, TokenBatch, build_batch, with_last_state
from agent_envs.adapters.estimators import EstimatorOptions, StepRows, TokenRows, get_estimator
from agent_envs.adapters.torch_run import Run, about, load_critic, named, summary, task_pools
from agent_envs.adapters.torch_settings import LoopConfig, read_command_line
from agent_envs.adapters.verl.metrics import Record
from agent_envs.episode import Episode
from agent_envs.exit_status import run_command
from agent_envs.generation.loading import load_model
from agent_envs.policies import TransformersPolicy
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.rollout import run_episodes

__all__ = [
    "Batch", "LossOf", "Scores", "accumulate", "actor_loss", "assemble", "credit", "critic_loss", "forward",
    "learn", "main", "score", "token_log_probs", "train", "update",
]  # fmt: skip

# ---------------------------------------------------------------------------------- 2. steps become rows


@dataclass(frozen=True)
class Batch:
    """Episodes as tensors: their tokens flat, and a row per step for the estimator."""

    tokens: TokenBatch
    """Rows of tokens, one after another; a row holds as many steps as its tokens allow."""
    rows: StepRows
    """Reward, trajectory, group, ... of each step. Those that are not valid hold the state after a cut episode."""
    place: torch.Tensor
    """Where each trained token stands among all tokens, ascending, int64, shape [trained]."""
    step: torch.Tensor
    """The step that wrote it, int64, shape [trained]."""


def assemble(episodes: Sequence[Episode], groups: Sequence[int], baselines: Sequence[float] | None = None) -> Batch:
    """The batch of some episodes. Broken ones are left out, as are steps without tokens.

    Args:
        episodes: With the tokens of every step; for a critic as ``with_last_state`` gives them.
        groups: Number of the group of each: those of one task are compared.
        baselines: For ``remax``: return of a greedy episode of the same task, for each.
    """
    kept = [i for i, episode in enumerate(episodes) if not episode.stop_reason.broken]
    played = [episodes[i] for i in kept]
    tokens = build_batch(played)
    steps = [  # in the batch's order: the step, its index, and the info it acted on
        (step, t, episode.steps[t - 1].info if t else episode.reset_info)
        for episode in played
        for t, step in enumerate(episode.steps)
        if step.prompt_ids and step.response_ids
    ]
    trajectory, step_ids = torch.from_numpy(tokens.episode), torch.from_numpy(tokens.step_ids)
    valid = torch.tensor([not step.info.get(LAST_STATE, False) for step, _, _ in steps], dtype=torch.bool)
    place = ((step_ids >= 0) & valid[step_ids]).nonzero().squeeze(1)
    anchors = [str(info.get("anchor", "")) for _, _, info in steps]
    texts = {text: i for i, text in enumerate(dict.fromkeys(anchors))}
    rows = StepRows(
        rewards=torch.from_numpy(tokens.rewards),
        trajectory=trajectory,
        step=torch.tensor([t for _, t, _ in steps], dtype=torch.int64),
        group=torch.tensor([int(groups[i]) for i in kept], dtype=torch.int64)[trajectory],
        valid=valid,
        truncated=torch.tensor([step.truncated and not step.terminated for step, _, _ in steps], dtype=torch.bool),
        tokens=TokenRows(step_ids[place]),
        baseline=None if baselines is None else torch.tensor([float(baselines[i]) for i in kept])[trajectory].double(),
        anchor=torch.tensor([texts[anchor] for anchor in anchors], dtype=torch.int64),
        anchor_texts=list(texts),
        names=[episode.episode_id for episode in played],
    )
    return Batch(tokens, rows, place, step_ids[place])


# ---------------------------------------------------------------------------------- 3. what models say about tokens


def forward(
    model: Any, batch: Batch, rows: Sequence[int], wanted: torch.Tensor, dtype: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """A model's outputs about some tokens: what it says one position before each.

    Args:
        model: A causal language model, or a critic of the same form with one output.
        batch: The batch.
        rows: Rows to compute, padded on the right, where no token of a causal model sees it.
        wanted: Which tokens of the batch are asked for, bool, shape [tokens].
        dtype: What is computed in.

    Returns:
        Places of those of them that are in the rows, shape [found], and the outputs, shape [found, outputs].
    """
    offsets, ids = torch.from_numpy(batch.tokens.offsets), torch.from_numpy(batch.tokens.input_ids)
    padded = torch.nn.utils.rnn.pad_sequence([ids[offsets[r] : offsets[r + 1]] for r in rows], batch_first=True)
    positions = [wanted[offsets[r] : offsets[r + 1]].nonzero().squeeze(1) for r in rows]
    row = torch.arange(len(rows)).repeat_interleave(torch.tensor([*map(len, positions)]))  # [found]
    position = torch.cat(positions)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
        outputs = model(input_ids=padded.to(model.device), use_cache=False).logits  # [rows, positions, outputs]
    return offsets[list(rows)][row] + position, outputs[row, position - 1].float()


def token_log_probs(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token, and the entropy of what it was drawn from (nats), both of shape [tokens]."""
    log_p = torch.log_softmax(logits / temperature, dim=-1)
    return log_p.gather(1, ids.to(log_p.device)[:, None]).squeeze(1), -(log_p.exp() * log_p).sum(1)


class Scores(NamedTuple):
    """What the models say about a batch before it is trained on, each of shape [tokens]."""

    old: torch.Tensor
    """Log-probabilities under the policy that played."""
    ref: torch.Tensor | None = None
    """The same under the reference, where there is one."""
    values: torch.Tensor | None = None
    """What the critic says, where there is one: the value of the state before each token."""


def score(model: Any, batch: Batch, config: LoopConfig, *, critic: bool = False) -> torch.Tensor:
    """Log-probability of every token that a step wrote, or a critic's value before it; shape [tokens], 0 elsewhere."""
    ids, wanted = torch.from_numpy(batch.tokens.input_ids), torch.from_numpy(batch.tokens.step_ids) >= 0
    out = torch.zeros(len(ids))
    for rows in _micro_batches(batch, range(len(batch.tokens.offsets) - 1), config.micro_tokens):
        with torch.no_grad():
            places, outputs = forward(model, batch, rows, wanted, config.dtype)
            says = outputs.squeeze(1) if critic else token_log_probs(outputs, ids[places], config.temperature)[0]
        out[places] = says.cpu()
    return out


def _micro_batches(batch: Batch, rows: Iterable[int], limit: int) -> Iterator[list[int]]:
    """Rows, the longest first, in parts of at most ``limit`` padded tokens; a longer row is a part of its own."""
    lengths, part = np.diff(batch.tokens.offsets), list[int]()
    for row in sorted(rows, key=lambda r: -lengths[r]):
        if part and (len(part) + 1) * lengths[part[0]] > limit:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


# ---------------------------------------------------------------------------------- 4. rewards become advantages


def credit(batch: Batch, config: LoopConfig, scores: Scores) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Advantage of every trained token, what a critic should say there (both [trained]), and counts worth logging."""
    old, ref, values = scores
    rows, place, step, counts = batch.rows, batch.place, batch.step, dict[str, float]()
    start = torch.from_numpy(batch.tokens.start)
    if values is not None:  # the state after a cut episode is the step that follows its last one, and is not valid
        own, following = values[start], torch.arange(len(start)).add(1).clamp(max=len(start) - 1)
        cut = rows.valid & ~rows.valid[following] & (rows.trajectory[following] == rows.trajectory)
        rows = dataclasses.replace(rows, values=own, final_values=own[following].where(cut, math.nan),
                                   tokens=TokenRows(step, values=values[place]))  # fmt: skip
    if config.kl == "reward" and ref is not None:
        penalty, counts["reward_kl"] = losses.kl_in_reward(old[place], ref[place], step, config.kl_kind, config.kl_coef)
        last = place == (start + torch.from_numpy(batch.tokens.length) - 1)[step]  # the token that a step is paid at
        paid = penalty.double() + rows.rewards[step].where(last, 0.0)
        tokens = dataclasses.replace(rows.tokens or TokenRows(step), rewards=paid)
        rewards = torch.zeros_like(rows.rewards).index_add_(0, step, paid)
        rows = dataclasses.replace(rows, rewards=rewards, tokens=tokens)
    options = EstimatorOptions(gamma=config.gamma, lam=config.lam, group_size=config.group)
    result = get_estimator(config.estimator).compute(rows, options)
    return *result.on_tokens(step), counts | result.metrics


# ---------------------------------------------------------------------------------- 5. advantages become a gradient

LossOf = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, dict[str, losses.Tally]]]
"""From a model's outputs about some trained tokens, and which of the batch's these are, to a loss and its metrics."""


def actor_loss(
    batch: Batch, weights: torch.Tensor, advantages: torch.Tensor, scores: Scores, config: LoopConfig
) -> LossOf:
    """The policy's loss, with KL and entropy where they are asked for."""
    function, options = losses.policy_loss(config.loss), losses.loss_preset(config.loss)
    old, ref, ids = scores.old, scores.ref, torch.from_numpy(batch.tokens.input_ids)

    def loss_of(outputs: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, dict[str, losses.Tally]]:
        def of(column: torch.Tensor) -> torch.Tensor:
            return column[kept].to(outputs.device)

        w, steps = of(weights), of(batch.step).unique(return_inverse=True)[1]
        log_probs, entropy = token_log_probs(outputs, of(ids[batch.place]), config.temperature)
        loss, metrics = function(log_probs, of(old[batch.place]), of(advantages), w, steps, options)
        bonus, more = losses.entropy_loss(entropy, w)
        loss, metrics = loss - config.entropy_coef * bonus, metrics | more
        if config.kl == "loss" and ref is not None:
            kl, more = losses.kl_loss(log_probs, of(ref[batch.place]), w, config.kl_kind)
            loss, metrics = loss + config.kl_coef * kl, metrics | more
        return loss, metrics

    return loss_of


def critic_loss(batch: Batch, weights: torch.Tensor, returns: torch.Tensor, values: torch.Tensor) -> LossOf:
    """The critic's loss: how far its values are from the returns."""

    def loss_of(outputs: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, dict[str, losses.Tally]]:
        old, to, w = (column[kept].to(outputs.device) for column in (values[batch.place], returns, weights))
        return losses.value_loss(outputs.squeeze(1), old, to, w, clip=0.5)

    return loss_of


def accumulate(
    model: Any, batch: Batch, weights: torch.Tensor, loss_of: LossOf, config: LoopConfig
) -> tuple[float, dict[str, losses.Tally]]:
    """Add the gradient of a mini-batch to the model's; its loss and metrics.

    A loss is a sum over tokens of weight x token loss, and every normaliser is in the weights, which are 0 outside the
    mini-batch, shape [trained]. So however it is cut into micro-batches, they are simply added up.
    """
    inside = weights != 0
    wanted = torch.zeros(len(batch.tokens.input_ids), dtype=torch.bool)
    wanted[batch.place[inside]] = True
    rows = np.unique(batch.tokens.row[batch.step[inside].numpy()]).tolist()
    total, parts = 0.0, []
    for part in _micro_batches(batch, rows, config.micro_tokens):
        places, outputs = forward(model, batch, part, wanted, config.dtype)
        loss, metrics = loss_of(outputs, torch.searchsorted(batch.place, places))
        loss.backward()
        total += float(loss.detach())
        parts.append(metrics)
    return total, losses.merge(parts)


def update(
    model: Any, optimizer: torch.optim.Optimizer, batch: Batch, config: LoopConfig,
    make_loss: Callable[[torch.Tensor], LossOf], *, at_start: bool = False, seed: Sequence[int] = (0,),
) -> dict[str, float]:  # fmt: skip
    """All updates on a batch: ``epochs`` passes of ``mini_batches`` optimiser steps, each on whole episodes.

    ``make_loss`` takes the weights of a mini-batch. With ``at_start`` only the first token of a step counts, as for a
    critic of the states before acting. ``seed`` says which episodes meet in a mini-batch.
    """
    rng, trajectory = np.random.default_rng(seed), batch.rows.trajectory
    counted = losses.action_start(batch.step) if at_start else torch.ones_like(batch.step, dtype=torch.bool)
    lengths = torch.bincount(batch.step[counted], minlength=len(trajectory))  # [steps]
    said, norms, parts = [], [], []
    for _ in range(config.epochs):
        drawn = torch.from_numpy(rng.permutation(int(trajectory.max()) + 1)) % config.mini_batches
        mini_batch = drawn[trajectory]  # [steps]
        weights = losses.token_weights(config.weighting, lengths, trajectory, batch.step, mini_batch) * counted
        for number in mini_batch[batch.step].unique():
            own = weights * (mini_batch[batch.step] == number)
            loss, metrics = accumulate(model, batch, own, make_loss(own), config)
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)))
            optimizer.step()
            optimizer.zero_grad()
            said.append(loss)
            parts.append(metrics)
    return {"loss": float(np.mean(said)), "grad_norm": float(np.mean(norms)), **losses.averages(losses.merge(parts))}


# ---------------------------------------------------------------------------------- all of it


def learn(
    config: LoopConfig, batch: Batch, models: Mapping[str, Any], optimizers: Mapping[str, Any], seed: Sequence[int]
) -> Record:
    """Steps 3 to 5 on one batch: change the model, and the critic where there is one."""
    old = score(models["model"], batch, config)
    ref = score(models["reference"], batch, config) if "reference" in models else None
    values = score(models["critic"], batch, config, critic=True) if "critic" in models else None
    scores = Scores(old, ref, values)
    advantages, returns, record = credit(batch, config, scores)
    record["rollout/logprob_diff"] = float((old - torch.from_numpy(batch.tokens.logprobs))[batch.place].abs().mean())

    def of_actor(weights: torch.Tensor) -> LossOf:
        return actor_loss(batch, weights, advantages, scores, config)

    record |= named("actor", update(models["model"], optimizers["model"], batch, config, of_actor, seed=seed))
    if values is not None:
        at_start = get_estimator(config.estimator).critic_at_action_start

        def of_critic(weights: torch.Tensor) -> LossOf:
            return critic_loss(batch, weights, returns, values)

        said = update(models["critic"], optimizers["critic"], batch, config, of_critic, at_start=at_start, seed=seed)
        record |= named("critic", said)
    return record


def train(config: LoopConfig) -> list[Record]:
    """Train a model and leave it in OUT/checkpoint/model. The same settings continue a run that was stopped.

    Returns:
        The lines of OUT/metrics.jsonl: one per iteration, with ``val/success`` at the first and the last.

    Raises:
        ConfigError: There is no such environment, model, estimator or loss, or OUT holds a run with other settings.
    """
    estimator, _ = get_estimator(config.estimator), losses.policy_loss(config.loss)
    pool, held_out = task_pools(config)
    run = Run(config)
    start, device = run.start_model(), config.device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(start)
    models = {"model": load_model(run.at("model", start), dtype=torch.float32, device=device)}
    rates = {"model": config.learning_rate}
    if estimator.needs_critic:
        models["critic"] = load_critic(run.at("critic", start), device, config.seed)
        rates["critic"] = config.critic_learning_rate
    adam = {"betas": (0.9, 0.98), "weight_decay": 0.0}
    optimizers = {name: torch.optim.AdamW(models[name].parameters(), **adam) for name in rates}
    run.restore(optimizers)
    if config.kl != "none":
        models["reference"] = load_model(start, dtype=torch.float32, device=device)

    def play(number: int, split: str, tasks: Any, per_task: int, temperature: float) -> list[Episode]:
        policy = TransformersPolicy(
            models["model"], tokenizer=tokenizer, temperature=temperature, max_tokens=config.max_response_tokens,
            context_length=config.max_tokens, concurrency=config.concurrency, seed=1_000_003 * config.seed + number,
        )  # fmt: skip
        episodes = run_episodes(
            config.env, policy, len(tasks) * per_task, seeds=config.seed, wrappers=config.wrappers, progress=False,
            options=[{"index": int(index)} for index in tasks for _ in range(per_task)], concurrency=config.concurrency,
            env_kwargs={"data": config.data, **config.env_kwargs, "split": split},
        )  # fmt: skip
        policy.close()
        return episodes

    def evaluate(number: int) -> Record:
        return named("val", about(play(number, config.eval_split, held_out, 1, config.temperature)))

    if not run.records:
        run.log({"step": 0, **evaluate(0)})
    for number in tqdm(range(run.step + 1, config.steps + 1), initial=run.step, total=config.steps, unit="step"):
        began = time.monotonic()
        for name, rate in rates.items():
            optimizers[name].param_groups[0]["lr"] = rate * min(1.0, number / max(1, config.warmup))
        indices = np.random.default_rng([config.seed, number]).choice(pool, min(config.tasks, pool), replace=False)
        episodes = play(number, config.split, indices, config.group, config.temperature)
        record: Record = {"step": number, **named("train", about(episodes))}
        baselines = None
        if estimator.needs_baseline:
            greedy = play(number, config.split, indices, 1, 0.0)
            baselines = [math.nan if e.stop_reason.broken else e.reward for e in greedy for _ in range(config.group)]
        played = time.monotonic()
        groups = [i // config.group for i in range(len(episodes))]
        if "critic" in models:
            episodes = [with_last_state(episode, tokenizer, config.max_tokens) for episode in episodes]
        batch = assemble(episodes, groups, baselines)
        record["train/rows"] = len(batch.tokens.offsets) - 1
        if len(batch.place):  # else no episode has a token to learn from
            record |= learn(config, batch, models, optimizers, (config.seed, number))
        record |= {"seconds/play": played - began, "seconds/update": time.monotonic() - played}
        if number == config.steps:
            record |= evaluate(number)
        run.log(record)
        if number % config.save_every == 0 or number == config.steps:
            run.save(number, {name: models[name] for name in rates}, tokenizer, optimizers)
    return run.records


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m agent_envs.adapters.torch_loop``."""

    def action() -> str:
        config = read_command_line(argv, "Train a model on an environment with plain PyTorch, on one device.")
        return summary(train(config), config.out)

    return run_command(action)


if __name__ == "__main__":
    sys.exit(main())
