"""What pretraining practises beside whole episodes: moments of them, and what follows an action that stumbles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
from transformers import PreTrainedTokenizerBase

from agent_envs.adapters.tiny.supervised import Conversation, Sequences
from agent_envs.errors import ConfigError
from agent_envs.messages import Message, Observation, content_text, observation_text
from agent_envs.policies import Actor, Policy
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.rollout.demonstrations import Demonstration

_LONG_WORD = re.compile(r"\w{3,}")


def transcript(demonstration: Demonstration) -> str:
    """Return the episode as plain text, for training a tokenizer."""
    parts = [content_text(message["content"]) for message in demonstration.opening]
    for tool in demonstration.tools:
        function = tool["function"]
        parts.append(f"{function['name']}({', '.join(function['parameters'].get('properties', {}))})")
    parts += [content_text(message["content"]) for message in demonstration.messages[len(demonstration.opening) :]]
    return "\n".join(["system", "Tools:", "user", "assistant", *parts])


def opening(demonstration: Demonstration) -> list[Message]:
    """Return the first observation and action, without instructions; nothing if the action is marked as a mistake."""
    if any(demonstration.mistaken[:1]):
        return []
    return [demonstration.opening[-1], {"role": "assistant", "content": demonstration.actions[0]}]


def ending(demonstration: Demonstration) -> list[Message]:
    """Return the first observation and the last two actions, if the last takes words from what came between them.

    Nothing otherwise: it is a mistake, or says only what is in the first observation, or has been said before.
    """
    if len(demonstration.actions) < 2 or any(demonstration.mistaken[-1:]) or not demonstration.success:
        return []
    *_, before, last = demonstration.actions
    question, answer = demonstration.opening[-1], demonstration.answers[-1]
    taken = set(_LONG_WORD.findall(last)) & set(
        _LONG_WORD.findall("\n".join(content_text(m["content"]) for m in answer))
    )
    if not taken.difference(_LONG_WORD.findall(content_text(question["content"])), _LONG_WORD.findall(before)):
        return []
    said: list[Message] = [question, {"role": "assistant", "content": before}]
    return [*said, *answer, {"role": "assistant", "content": last}]


def encode_moments(
    demonstrations: Iterable[Demonstration],
    tokenizer: PreTrainedTokenizerBase,
    moment: Callable[[Demonstration], list[Message]],
    *,
    max_tokens: int,
    length: int = 600,
) -> Sequences:
    """Return one moment of each demonstration, many in a sequence, without instructions and tools.

    A small model learns slowly which words of a task or a page an action takes, because few tokens of an episode depend
    on it. Here every action is such a choice, and several of them stand in a sequence of about `length` tokens. Only
    the last action of a moment is learned. Sequences of more than twice the length are left out.

    Args:
        demonstrations: Episodes.
        tokenizer: The model's.
        moment: Returns messages of an episode that end with an action, or nothing: `opening` or `ending`.
        max_tokens: Tokens of all sequences, about.
        length: Tokens of a sequence, about.

    Raises:
        ConfigError: No moment fits.
    """
    builder = PromptBuilder(tokenizer)
    found: list[Conversation] = []
    messages: list[Message] = []
    learned: list[bool] = []
    count = gathered = 0
    for demonstration in demonstrations:
        chosen = moment(demonstration)
        actions = sum(message["role"] == "assistant" for message in chosen)
        messages += chosen
        learned += [n == actions for n in range(1, actions + 1)]
        gathered += sum(len(tokenizer.encode(message["content"])) for message in chosen)
        if gathered >= length:
            ids, spans = builder.conversation(messages, 1)
            if len(ids) <= 2 * length:
                ignored = [span for span, kept in zip(spans, learned, strict=True) if not kept]
                found.append(Conversation(ids, spans, ignored))
                count += len(ids)
            messages, learned, gathered = [], [], 0
            if count >= max_tokens:
                break
    if not found:
        raise ConfigError(f"no such moment of a demonstration fits into {2 * length} tokens")
    return Sequences.of(found)


class Stumbling:
    """A policy that mangles some of another's actions, so that what an environment says to that is seen.

    Half of these actions are cut off or have a word in the wrong place; the others have been taken before, some with
    another word. Half of them are said once more, so that what follows a refusal is rarely the same again.
    """

    def __init__(self, policy: Policy, share: float, seed: int) -> None:
        self._policy, self._share = policy, share
        self._rng = np.random.default_rng([seed, 1])

    def start(self, env: gym.Env[Any, str]) -> Actor:
        actor, rng = self._policy.start(env), self._rng
        taken: list[str] = []
        task: list[str] = []
        stubborn: list[str] = []

        def act(observation: Observation, info: dict[str, Any]) -> Any:
            words = observation_text(observation).split() or ["?"]
            task[:] = task or words
            if stubborn and rng.random() < 0.5:
                return stubborn[0]
            action: Any = actor.act(observation, info)
            stubborn.clear()
            if rng.random() >= self._share or len(action) < 2:
                taken.append(action)
                return action
            if rng.random() < 0.5:
                stumble = self._misspoken(action, words)
            else:
                stumble = (taken or [action])[int(rng.integers(len(taken) or 1))]
                stumble = stumble if rng.random() < 0.5 else _with_word(stumble, task, rng)
            stubborn[:] = [stumble]
            return stumble

        return SimpleNamespace(act=act)

    def _misspoken(self, action: str, words: Sequence[str]) -> str:
        if self._rng.random() < 0.5:
            return action[: int(self._rng.integers(1, len(action)))]
        return _with_word(action, words, self._rng)


def _with_word(action: str, words: Sequence[str], rng: np.random.Generator) -> str:
    """Return an action with one word exchanged for one of `words`."""
    parts = action.split() or [action]
    parts[int(rng.integers(len(parts)))] = words[int(rng.integers(len(words)))]
    return " ".join(parts)
