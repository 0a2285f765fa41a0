"""Demonstrations of an environment by its own, sometimes mistaken, demonstrator: played, and as tokens.

Tokens are made as in the rollout: a prompt from `PromptBuilder.start`, then prompt + response + the tokens of the
answer from `PromptBuilder.extend`. One episode is one sequence; if its prompts are rebuilt, each of its steps is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
from transformers import PreTrainedTokenizerBase

from agent_envs.adapters.tiny.supervised import Conversation, Sequences
from agent_envs.errors import ConfigError
from agent_envs.messages import Message, Observation, observation_text
from agent_envs.policies import Actor, ExpertPolicy, Policy
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.rollout.demonstrations import Demonstration, demonstrate, encode_conversation
from agent_envs.wrapping.specs import make_text_env

__all__ = ["encode", "encode_openings", "encoded", "play", "transcript"]

_HOPELESS = 200  # demonstrations after which none will fit if none did


def play(
    env_id: str,
    *,
    noise: float,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    mark_mistakes: bool = False,
    stumbles: float = 0.0,
) -> Iterator[Demonstration]:
    """Play tasks in a drawn order, each once, for as long as demonstrations are taken.

    Args:
        env_id: What `gymnasium.make` takes.
        noise: Share of the actions that are wrong on purpose.
        seed: Seed of the order and the mistakes.
        env_kwargs: The environment's keyword arguments.
        wrappers: Specs, innermost first.
        mark_mistakes: Whether demonstrations say which of their actions are wrong.
        stumbles: Share of the actions that are hardly understood: they are cut off, or have a word in the wrong place.

    Raises:
        PolicyError: The environment has no expert for these tasks.
    """
    env = make_text_env(env_id, dict(env_kwargs or {}), wrappers)
    policy: Policy = ExpertPolicy(noise=noise, seed=seed)
    if stumbles:
        policy = _Stumbling(policy, stumbles, seed)
    try:
        for index in np.random.default_rng(seed).permutation(int(env.get_wrapper_attr("num_tasks"))):
            yield from demonstrate(env, policy, int(index), mark_mistakes=mark_mistakes)
    finally:
        env.close()


class _Stumbling:
    """A policy that mangles some of another's actions, so that what an environment says to that is seen."""

    def __init__(self, policy: Policy, share: float, seed: int) -> None:
        self._policy, self._share = policy, share
        self._rng = np.random.default_rng([seed, 1])

    def start(self, env: gym.Env[Any, str]) -> Actor:
        actor, rng = self._policy.start(env), self._rng

        def act(observation: Observation, info: dict[str, Any]) -> Any:
            action: Any = actor.act(observation, info)
            if rng.random() >= self._share or len(action) < 2:
                return action
            if rng.random() < 0.5:
                return action[: int(rng.integers(1, len(action)))]
            words, others = action.split(), observation_text(observation).split() or ["?"]
            words[int(rng.integers(len(words)))] = others[int(rng.integers(len(others)))]
            return " ".join(words)

        return SimpleNamespace(act=act)


def transcript(demonstration: Demonstration) -> str:
    """Return the episode as plain text, for training a tokenizer."""
    parts = [message["content"] for message in demonstration.opening]
    for tool in demonstration.tools:
        function = tool["function"]
        parts.append(f"{function['name']}({', '.join(function['parameters'].get('properties', {}))})")
    parts += [message["content"] for message in demonstration.messages[len(demonstration.opening) :]]
    return "\n".join(["system", "Tools:", "user", "assistant", *parts])


def encoded(demonstrations: Iterable[Demonstration], tokenizer: PreTrainedTokenizerBase) -> Iterator[Conversation]:
    """Yield the tokens of each demonstration; actions that are marked as mistakes are ignored.

    A response ends with the tokenizer's end token, like a sampled one.
    """
    builders: dict[tuple[str, ...], PromptBuilder] = {}
    for demonstration in demonstrations:
        key = tuple(tool["function"]["name"] for tool in demonstration.tools)
        if key not in builders:
            builders[key] = PromptBuilder(tokenizer, tools=list(demonstration.tools))
        ids, spans = encode_conversation(demonstration.messages, builders[key], len(demonstration.opening))
        wrong = demonstration.mistaken or [False] * len(spans)
        yield Conversation(ids, spans, [span for span, mistaken in zip(spans, wrong, strict=True) if mistaken])


def encode(
    demonstrations: Iterable[Demonstration], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int, max_length: int
) -> Sequences:
    """Return demonstrations as tokens, at least `max_tokens` in all or all that there are.

    Those of more than `max_length` tokens are left out.

    Raises:
        ConfigError: No demonstration fits.
    """
    found: list[Conversation] = []
    count, shortest = 0, math.inf
    for tried, conversation in enumerate(encoded(demonstrations, tokenizer), start=1):
        length = len(conversation.ids)
        shortest = min(shortest, length)
        if length <= max_length:
            found.append(conversation)
            count += length
        if count >= max_tokens or (tried >= _HOPELESS and not found):
            break
    if not found:
        raise ConfigError(f"no demonstration fits into {max_length} tokens; the shortest has {shortest}")
    return Sequences.of(found)


def encode_openings(
    demonstrations: Iterable[Demonstration], tokenizer: PreTrainedTokenizerBase, *, max_tokens: int, length: int = 600
) -> Sequences:
    """Return the first observations and actions of demonstrations, many in a sequence, without instructions and tools.

    A small model learns slowly which words of a task an action takes, because few tokens of an episode depend on it.
    Here every task is such a choice, and some ten of them stand in a sequence of about `length` tokens. Actions that
    are marked as mistakes are left out, and sequences of more than twice the length.

    Raises:
        ConfigError: No demonstration fits.
    """
    builder = PromptBuilder(tokenizer)
    found: list[Conversation] = []
    messages: list[Message] = []
    count = gathered = 0
    for demonstration in demonstrations:
        if not any(demonstration.mistaken[:1]):
            opening: list[Message] = [
                demonstration.opening[-1],
                {"role": "assistant", "content": demonstration.actions[0]},
            ]
            messages += opening
            gathered += sum(len(tokenizer.encode(message["content"])) for message in opening)
        if gathered >= length:
            ids, spans = encode_conversation(messages, builder, 1)
            messages, gathered = [], 0
            if len(ids) <= 2 * length:
                found.append(Conversation(ids, spans))
                count += len(ids)
            if count >= max_tokens:
                break
    if not found:
        raise ConfigError(f"no first observation and action fit into {2 * length} tokens")
    return Sequences.of(found)
