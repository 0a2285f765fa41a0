"""The interface of policies: a policy starts an actor per episode, and the actor answers observations with actions.

A policy serves all episodes of a rollout and holds what they share (a client, an engine, a seed). An actor belongs to
one episode and owns its chat history.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np

from agent_envs.checks import shown
from agent_envs.errors import ConfigError
from agent_envs.messages import Message, Observation
from agent_envs.pictures.picture import Picture


@dataclass(frozen=True)
class Response:
    """An actor's answer, with its tokens if they are known.

    The tokens are the sampled ones, never tokenized again from the text. A response with empty ``response_ids``, or
    with an empty text and no ids, ends the episode with ``StopReason.EMPTY_GENERATION``.
    """

    text: str
    """The action, verbatim."""
    prompt_ids: Sequence[int] | None = None
    """Token ids of the prompt, shape [prompt tokens], or None."""
    response_ids: Sequence[int] | None = None
    """Token ids that the model sampled, shape [response tokens], or None."""
    response_logprobs: Sequence[float] | None = None
    """Natural log-probability of each sampled token, shape [response tokens], or None."""
    usage: Mapping[str, int] | None = None
    """Token counts as far as known: `prompt_tokens`, of these `cached_tokens`, and `completion_tokens`; or None."""
    pictures: Sequence[Picture] = ()
    """The pictures of the prompt, in the order of their tokens."""
    number: int | None = None
    """Number of the call of the model within its episode, in the order in which calls began; None if there is none."""
    after: int | None = None
    """Number of the call whose conversation the prompt continues; None if it begins one."""

    cut: bool = False
    """Whether a limit of tokens cut it off."""

    @property
    def message(self) -> Message:
        """The response as a message of the conversation."""
        return {"role": "assistant", "content": self.text}

    @property
    def empty(self) -> bool:
        """Whether nothing was generated.

        >>> Response("").empty, Response("", response_ids=(7,)).empty, Response("hm").empty
        (True, False, False)
        """
        return not self.text if self.response_ids is None else len(self.response_ids) == 0


Action = str | Response


class Actor(Protocol):
    """Plays one episode.

    Time-outs leave out an awaited ``act`` if the actor has an attribute ``untimed`` that is True: it waits for
    something that is no fault of the episode.
    """

    def act(self, observation: Observation, info: dict[str, Any]) -> Action | Awaitable[Action]:
        """Return the next action.

        Called once per step with the latest observation and info, those of ``reset`` first. An awaitable is awaited on
        an event loop that all episodes share, so it must not block.

        Raises:
            EpisodeStop: A limit of the policy ends the episode: ``ContextLengthExceeded``, ``EmptyGeneration``,
                ``TokenLimitReached`` or ``RunBudgetSpent``.
            PolicyError: The policy cannot act.
            BackendError: The model's server or engine failed.
        """


@runtime_checkable
class Policy(Protocol):
    """Starts actors; ``start`` is called from many threads at once, after each episode's ``reset``."""

    def start(self, env: gym.Env[Any, str]) -> Actor:
        """Return a new actor for an episode of ``env``.

        Read instructions and tools with ``env.get_wrapper_attr("instructions")`` and ``("tools")``, so that wrappers
        can override them.
        """


PolicyLike = Policy | Callable[[Any], Action | Awaitable[Action]]
"""A policy, or a function that returns an action for the latest observation."""


class _FunctionPolicy:
    """Plays what a function makes of each observation; it is its own actor, since it keeps nothing."""

    def __init__(self, function: Callable[[Any], Action | Awaitable[Action]]) -> None:
        self.function = function

    def start(self, env: gym.Env[Any, str]) -> _FunctionPolicy:
        return self

    def act(self, observation: Observation, info: dict[str, Any]) -> Action | Awaitable[Action]:
        return self.function(observation)


def check_policy(policy: Any) -> Policy:
    """Return `policy` as a policy: a function of the latest observation becomes one.

    >>> check_policy("expert")
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: policy must be an object with start(env), such as ExpertPolicy(), or a function ...
    """
    if isinstance(policy, type):
        raise ConfigError(f"policy must be an object, got the class {policy.__name__}; write {policy.__name__}()")
    if isinstance(policy, Policy):
        return policy
    if callable(policy):
        return _FunctionPolicy(policy)
    raise ConfigError(
        "policy must be an object with start(env), such as ExpertPolicy(), or a function from an observation to an "
        f"action, got {shown(policy)}"
    )


def episode_rng(seed: int, task_id: str) -> np.random.Generator:
    """Return a generator that depends only on the policy's seed and the task, whatever thread plays when.

    >>> int(episode_rng(0, "train/7").integers(100)) == int(episode_rng(0, "train/7").integers(100))
    True
    """
    return np.random.default_rng([seed, zlib.crc32(task_id.encode("utf-8", "surrogatepass"))])
