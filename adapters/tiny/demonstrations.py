"""Demonstrations of an environment by its own, sometimes mistaken, demonstrator: played, and as tokens.

Tokens are made as in the rollout (`PromptBuilder.conversation`). One episode is one sequence; if its prompts are
rebuilt, each of its steps is one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from agent_envs.adapters.tiny.supervised import Conversation, Sequences
from agent_envs.errors import ConfigError
from agent_envs.messages import pictures_of
from agent_envs.policies import Policy
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.pictures import PictureTokens
from agent_envs.rollout.demonstrations import Demonstration, demonstrate
from agent_envs.wrapping.specs import make_text_env

_HOPELESS = 200  # demonstrations after which none will fit if none did


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
        env_id: What `gymnasium.make` takes.
        policy: Who plays them.
        seed: Seed of the order.
        env_kwargs: The environment's keyword arguments.
        wrappers: Specs, innermost first.
        mark_mistakes: Whether demonstrations say which of their actions are wrong.
        pool: Only tasks below this index are played; None for all.
        reader: Who learns from them, if that is somebody who takes text alone; see `make_text_env`.
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
