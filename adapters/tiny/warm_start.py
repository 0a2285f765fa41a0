"""Supervised warm start of a tiny model on demonstrations by the environment's expert.

An untrained model never calls a tool, so reinforcement learning would have nothing to reinforce. The demonstrations
come from `ExpertPolicy(noise=P)`: a share P of the demonstrated calls is well-formed but wrong on purpose. The warm
start therefore teaches a task's format; which calls are right is left to reinforcement learning.

Tokens are made as in the rollout: a prompt from `PromptBuilder.start`, then prompt + response + the tokens of the
answer from `PromptBuilder.extend`. One episode is one sequence; only response tokens have a loss.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

from agent_envs.adapters.tiny.model import build_model, save_model
from agent_envs.adapters.tiny.tokenizer import build_tokenizer
from agent_envs.errors import ConfigError
from agent_envs.policies import ExpertPolicy
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.rollout.demonstrations import Demonstration, demonstrate, encode_conversation
from agent_envs.wrapping.specs import make_text_env

__all__ = ["EncodedDemonstration", "encode", "make_warm_model", "play_demonstrations", "train_on", "transcript"]

MAX_DEMONSTRATIONS = 12_000
"""Maximum number of different episodes; a longer warm start repeats them in another order."""
MAX_TOKENS = 4_000_000
"""Maximum tokens of different episodes: fewer long episodes suffice to teach the format."""
BATCH_SIZE = 48
"""Maximum episodes of a supervised step."""
TOKENS_PER_BATCH = 24_576
"""Average tokens of a supervised step if episodes are long."""
_TOKENIZER_EPISODES = 3_000


def make_warm_model(
    folder: str | Path,
    env_id: str,
    *,
    steps: int,
    noise: float,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    texts: Sequence[str] = (),
    max_length: int = 2048,
    progress: bool = True,
) -> None:
    """Make a tokenizer and a tiny model, teach it the format, and write both to `folder`, completely or not at all.

    Args:
        steps: Supervised steps; 0 leaves the model untrained.
        noise: Share of the demonstrated calls that are wrong on purpose.
        texts: More texts to train the tokenizer on, such as observations of other tasks.
        max_length: Tokens of the model's context.

    Raises:
        PolicyError: The environment has no expert for these tasks.
        ConfigError: No demonstration fits into the context.
    """
    limit = max(_TOKENIZER_EPISODES, min(MAX_DEMONSTRATIONS, steps * BATCH_SIZE))
    episodes = _episodes(env_id, limit, noise=noise, seed=seed, env_kwargs=env_kwargs, wrappers=wrappers)
    demonstrations = _played(episodes, _TOKENIZER_EPISODES, progress)
    tokenizer = build_tokenizer([*map(transcript, demonstrations), *texts])
    model = build_model(tokenizer, context_length=max_length, seed=seed)
    if steps:
        encoded = encode(demonstrations, tokenizer, max_length=max_length, progress=progress)
        # Episodes ten times as long come in batches of a tenth, so a step takes about as long on every task.
        mean_length = sum(len(d.ids) for d in encoded) / len(encoded)
        batch_size = min(BATCH_SIZE, max(1, round(TOKENS_PER_BATCH / mean_length)))
        wanted = min(limit, round(MAX_TOKENS / mean_length), steps * batch_size)
        more = _played(episodes, wanted - _TOKENIZER_EPISODES, progress)
        if more:
            encoded += encode(more, tokenizer, max_length=max_length, progress=progress)
        train_on(model, encoded, steps=steps, batch_size=batch_size, seed=seed, progress=progress)
    save_model(model, tokenizer, folder)


@dataclass(frozen=True, slots=True)
class EncodedDemonstration:
    """One demonstrated episode as tokens."""

    ids: tuple[int, ...]
    """Tokens of the whole episode, shape [tokens]."""
    spans: tuple[tuple[int, int], ...]
    """Where each response begins and ends in `ids`."""


def play_demonstrations(
    env_id: str,
    count: int,
    *,
    noise: float,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    progress: bool = True,
) -> list[Demonstration]:
    """Play `count` episodes with the environment's expert and return the demonstrations.

    An episode is one demonstration; if its prompts are rebuilt (`info["rebuilt"]`), each of its steps is one. `noise`
    is the share of the calls that are wrong on purpose.

    Raises:
        PolicyError: The environment has no expert for these tasks.
    """
    episodes = _episodes(env_id, count, noise=noise, seed=seed, env_kwargs=env_kwargs, wrappers=wrappers)
    return _played(episodes, count, progress)


def _episodes(
    env_id: str, count: int, *, noise: float, seed: int, env_kwargs: Mapping[str, Any] | None, wrappers: Sequence[str]
) -> Iterator[Sequence[Demonstration]]:
    """The demonstrations of `count` episodes, one episode at a time."""
    env = make_text_env(env_id, dict(env_kwargs or {}), wrappers)
    rng = np.random.default_rng(seed)
    policy = ExpertPolicy(noise=noise, seed=seed)
    pool = int(env.unwrapped.num_tasks)  # type: ignore[attr-defined]
    try:
        for index in rng.choice(pool, size=count, replace=count > pool):
            yield demonstrate(env, policy, int(index))
    finally:
        env.close()


def _played(episodes: Iterator[Sequence[Demonstration]], count: int, progress: bool) -> list[Demonstration]:
    """The demonstrations of the next `count` episodes."""
    part = itertools.islice(episodes, max(0, count))
    bar = tqdm(part, total=count, desc="demonstrations", disable=not progress or count <= 0, leave=False)
    return [demonstration for episode in bar for demonstration in episode]


def transcript(demonstration: Demonstration) -> str:
    """Return the episode as plain text, for training a tokenizer."""
    parts = [message["content"] for message in demonstration.opening]
    for tool in demonstration.tools:
        function = tool["function"]
        parts.append(f"{function['name']}({', '.join(function['parameters'].get('properties', {}))})")
    parts += [message["content"] for message in demonstration.messages[len(demonstration.opening) :]]
    return "\n".join(["system", "Tools:", "user", "assistant", *parts])


def encode(
    demonstrations: Iterable[Demonstration],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    progress: bool = False,
) -> list[EncodedDemonstration]:
    """Return the tokens of every demonstration that has at most `max_length` tokens.

    A response ends with the tokenizer's end token, like a sampled one.

    Raises:
        ConfigError: No demonstration fits.
    """
    builders: dict[tuple[str, ...], PromptBuilder] = {}
    encoded, shortest = [], math.inf
    for demonstration in tqdm(demonstrations, desc="tokens", disable=not progress, leave=False):
        key = tuple(tool["function"]["name"] for tool in demonstration.tools)
        if key not in builders:
            builders[key] = PromptBuilder(tokenizer, tools=list(demonstration.tools))
        builder = builders[key]
        ids, spans = encode_conversation(demonstration.messages, builder, len(demonstration.opening))
        shortest = min(shortest, len(ids))
        if len(ids) <= max_length:
            encoded.append(EncodedDemonstration(tuple(ids), tuple(spans)))
    if not encoded:
        raise ConfigError(f"no demonstration fits into {max_length} tokens; the shortest has {shortest}")
    return encoded


def train_on(
    model: Qwen2ForCausalLM,
    demonstrations: Sequence[EncodedDemonstration],
    *,
    steps: int,
    batch_size: int = BATCH_SIZE,
    learning_rate: float = 3e-3,
    warmup: int = 50,
    seed: int = 0,
    progress: bool = True,
) -> list[float]:
    """Train `model` in place on batches of `batch_size` episodes drawn without replacement, pass after pass.

    The learning rate rises over `warmup` steps and then falls to a tenth along a cosine.

    Returns:
        The loss of every step, in nats per response token.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    order = _batches(len(demonstrations), batch_size, seed)
    losses = []
    model.train()
    bar = tqdm(range(1, steps + 1), desc="warm start", unit="step", disable=not progress)
    for step in bar:
        cosine = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, step / warmup) * cosine
        loss = _loss(model, [demonstrations[i] for i in next(order)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0:
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
    model.eval()
    return losses


def _batches(count: int, size: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    waiting = np.empty(0, dtype=np.int64)
    while True:
        while len(waiting) < size:
            waiting = np.concatenate([waiting, rng.permutation(count)])
        yield waiting[:size]
        waiting = waiting[size:]


def _loss(model: Qwen2ForCausalLM, batch: Sequence[EncodedDemonstration]) -> torch.Tensor:
    """Mean negative log-likelihood of the batch's response tokens."""
    longest = max(len(d.ids) for d in batch) - 1
    ids = torch.zeros(len(batch), longest, dtype=torch.long)  # [episodes, tokens], padded on the right
    positions: list[int] = []
    targets: list[int] = []
    for row, d in enumerate(batch):
        ids[row, : len(d.ids) - 1] = torch.tensor(d.ids[:-1])
        for start, end in d.spans:
            positions.extend(range(row * longest + start - 1, row * longest + end - 1))
            targets.extend(d.ids[start:end])
    # No attention mask: attention is causal and the padding is on the right, so no response token sees it.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # [episodes, tokens, hidden]
    chosen = hidden.flatten(0, 1)[torch.tensor(positions)]
    return torch.nn.functional.cross_entropy(model.lm_head(chosen), torch.tensor(targets))
