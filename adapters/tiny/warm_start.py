"""Supervised warm start of tiny-base or a model of yours on demonstrations by an environment's expert.

A model that never acts in a task's form gives reinforcement learning nothing to reinforce. The demonstrations come from
`ExpertPolicy(noise=P)`: a share P of the demonstrated actions is well-formed but wrong on purpose. The warm start
therefore teaches a task's form; which actions are right is left to reinforcement learning.

Demonstrations become tokens as in the rollout (`PromptBuilder.conversation`): an episode is a sequence, or each of its
steps if its prompts are rebuilt.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm, trange
from transformers import PreTrainedTokenizerBase

from agent_envs.adapters.tiny.model import load_base, save_model
from agent_envs.adapters.tiny.supervised import Conversation, Sequences, SupervisedTrainer
from agent_envs.adapters.tiny.vision import VisionModel, build_vision_model, load_vision_base, spread_features
from agent_envs.errors import ConfigError, DataError, PolicyError, first_line
from agent_envs.files import replacing
from agent_envs.messages import pictures_of
from agent_envs.policies import ExpertPolicy, Policy
from agent_envs.policies.local.loading import load_model
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.pictures import PictureTokens
from agent_envs.rollout.demonstrations import Demonstration, demonstrate
from agent_envs.wrapping.specs import make_text_env

TOKENS_PER_STEP = 4096
_HOPELESS = 200  # demonstrations after which none will fit if none did
_SAVED = 120.0  # seconds between two states, which take seconds to write
MAX_TOKENS = 4_000_000
"""Most tokens of different demonstrations; a longer warm start repeats them in another order."""


def make_warm_model(
    folder: str | Path,
    env_id: str,
    *,
    model: str | None = None,
    steps: int,
    noise: float,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    generated: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    max_length: int = 2048,
    pool: int | None = None,
    pictures: bool = False,
    progress: bool = True,
) -> None:
    """Teach a model an environment's form and write it to `folder`, completely or not at all.

    That of a model of yours goes on where it was stopped: every two minutes its state is written beside `folder`.

    Args:
        model: A Hugging Face folder or name; None for tiny-base.
        steps: Supervised steps of about 4,096 tokens; 0 leaves the base model unchanged.
        noise: Share of the demonstrated actions that are wrong on purpose.
        generated: Arguments for the environment's generated tasks, shown where those of `env_kwargs` have no expert.
        max_length: Tokens of the longest demonstration that is trained on.
        pool: Only tasks below this index are demonstrated; None for all.
        pictures: Whether the environment shows pictures. With 0 steps the base model is then tiny-vision, which reads
            pages; otherwise tiny-base gets a new tower for larger patches, which is trained with it (`vision`).

    Raises:
        PolicyError: The environment has no expert for these tasks.
        ConfigError: No demonstration fits, or `model` is to learn from pictures.
    """
    if model is not None:
        if pictures:
            raise ConfigError("a warm start teaches your model from text alone; leave --model or --warm-start out")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        own = load_model(model, dtype=torch.float32, device=device)
        made = VisionModel(own, load_tokenizer(model), None)
    elif not pictures:
        made = VisionModel(*load_base(), None)
    else:
        made = build_vision_model(seed=seed) if steps else load_vision_base()
    if steps:

        def shown(kwargs: Mapping[str, Any] | None, below: int | None) -> Sequences:
            expert, reader = ExpertPolicy(noise=noise, seed=seed), "" if pictures else model or "a tiny model"
            where: dict[str, Any] = {"env_kwargs": kwargs, "wrappers": wrappers, "pool": below, "reader": reader}
            demonstrations = play(env_id, policy=expert, seed=seed, **where)
            limits = {"max_tokens": min(MAX_TOKENS, steps * TOKENS_PER_STEP), "max_length": max_length}
            return encode(demonstrations, made.tokenizer, **limits, image_tokens=made.pictures)

        try:
            sequences = shown(env_kwargs, pool)
        except PolicyError:
            if generated is None or generated == env_kwargs:
                raise
            tqdm.write("warm start: these tasks have no expert, so generated ones are shown", file=sys.stderr)
            sequences = shown(generated, None)
        if pictures:
            spread_features(made, itertools.chain.from_iterable(sequences.pictures))
        rate = 1.2 / math.sqrt(made.model.num_parameters()) if model else 1e-3 if pictures else 2e-3
        trainer = SupervisedTrainer(
            made.model, sequences, steps=steps, tokens_per_step=TOKENS_PER_STEP, learning_rate=rate, seed=seed,
            image_tokens=made.pictures, muon=model is None, warmup=50 if model is None else min(50, steps // 10 + 1),
        )  # fmt: skip
        state = Path(folder).with_name(f".{Path(folder).name}.warm-start.pt")
        if state.exists():
            try:
                trainer.resume(torch.load(state, map_location="cpu", weights_only=True))
            except Exception as e:  # what a damaged file raises has no common base
                raise DataError(f"{state} is damaged ({first_line(e)}): delete it to begin the warm start anew") from e
        saved = time.monotonic()
        for _ in trange(trainer.step, steps, desc="warm start", unit="step", disable=not progress):
            trainer.train_step()
            if model is not None and time.monotonic() - saved >= _SAVED:
                with replacing(state) as partial:
                    torch.save(trainer.state(), partial)
                saved = time.monotonic()
        state.unlink(missing_ok=True)
    save_model(made.model, made.tokenizer, folder, made.pictures)


def play(
    env_id: str,
    *,
    policy: Policy,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    mark_mistakes: bool = False,
    pool: int | None = None,
    reader: str = "a tiny model",
) -> Iterator[Demonstration]:
    """Play tasks in a drawn order, each once, for as long as demonstrations are taken.

    Args:
        env_id, env_kwargs, wrappers, reader: As for `make_text_env`; the reader learns from the demonstrations.
        seed: Seed of the order.
        mark_mistakes: Whether demonstrations say which of their actions are wrong.
        pool: Only tasks below this index are played; None for all.
    """
    with contextlib.closing(make_text_env(env_id, dict(env_kwargs or {}), wrappers, reader=reader)) as env:
        count = int(env.get_wrapper_attr("num_tasks"))
        for index in np.random.default_rng(seed).permutation(count if pool is None else min(pool, count)):
            yield from demonstrate(env, policy, int(index), mark_mistakes=mark_mistakes)


def encoded(
    demonstrations: Iterable[Demonstration],
    tokenizer: PreTrainedTokenizerBase,
    image_tokens: PictureTokens | None = None,
) -> Iterator[Conversation]:
    """Yield the tokens of each demonstration; actions that are marked as mistakes are ignored.

    A response ends with the end of its turn, like a sampled one.
    """
    for demonstration in demonstrations:
        builder = PromptBuilder(
            tokenizer, demonstration.tools, pictures=image_tokens, tool_instructions=demonstration.tool_instructions
        )
        ids, spans = builder.conversation(demonstration.messages, len(demonstration.opening))
        wrong = demonstration.mistaken or [False] * len(spans)
        ignored = [span for span, mistaken in zip(spans, wrong, strict=True) if mistaken]
        yield Conversation(ids, spans, ignored, pictures_of(demonstration.messages))


def encode(
    demonstrations: Iterable[Demonstration], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int, max_length: int,
    image_tokens: PictureTokens | None = None,
) -> Sequences:  # fmt: skip
    """Return demonstrations as tokens, at least `max_tokens` in all or all that there are.

    Those of more than `max_length` tokens are left out.
    """
    conversations, count, shortest = list[Conversation](), 0, math.inf
    for tried, conversation in enumerate(encoded(demonstrations, tokenizer, image_tokens), start=1):
        length = len(conversation.ids)
        shortest = min(shortest, length)
        if length <= max_length:
            conversations.append(conversation)
            count += length
        if count >= max_tokens or (tried >= _HOPELESS and not conversations):
            break
    if not conversations:
        raise ConfigError(f"no demonstration fits into {max_length} tokens; the shortest has {shortest}")
    return Sequences.of(conversations)
