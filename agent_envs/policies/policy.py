"""What a policy is: it starts an actor per episode, and the actor answers observations with text.

A policy is shared by all episodes of a rollout and holds what they share (a client, an engine, a seed). An
actor belongs to one episode and owns its chat history. The rollout reads nothing else of either.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from agent_envs.messages import Observation

__all__ = ["Action", "Actor", "Policy", "Response", "episode_rng"]


@dataclass(frozen=True)
class Response:
    """What an actor answers, with the tokens behind it where they are known.

    The tokens are those that were sampled, never made again from the text. A response with no
    ``response_ids``, or an empty text where no ids are reported, ends the episode with
    ``StopReason.EMPTY_GENERATION``.
    """

    text: str
    """The action, verbatim."""
    prompt_ids: Sequence[int] | None = None
    """Tokens the model was given (prompt tokens), or None."""
    response_ids: Sequence[int] | None = None
    """Tokens the model sampled (response tokens), or None."""
    response_logprobs: Sequence[float] | None = None
    """Natural log-probability of each sampled token (response tokens), or None."""
    usage: Mapping[str, int] | None = None
    """What it cost as far as known: `prompt_tokens`, `cached_tokens` among them, `completion_tokens`; or None."""

    @property
    def empty(self) -> bool:
        """Whether nothing was generated.

        >>> Response("").empty, Response("", response_ids=(7,)).empty, Response("hm").empty
        (True, False, False)
        """
        return not self.text if self.response_ids is None else len(self.response_ids) == 0


Action = str | Response


class Actor(Protocol):
    """Plays one episode."""

    def act(self, observation: Observation, info: dict[str, Any]) -> Action | Awaitable[Action]:
        """The next action for what the environment just said.

        Called once per step, with the observation and info of ``reset`` first and of the last ``step`` after
        that. An awaitable is awaited on an event loop shared by all episodes, so it must not block.

        Raises:
            EpisodeStop: a limit of the policy ends the episode: ``ContextLengthExceeded``, ``EmptyGeneration``,
                ``TokenLimitReached`` or ``RunBudgetSpent``.
            PolicyError: the policy cannot act.
            BackendError: what serves the model is broken.
        """
        ...


class Policy(Protocol):
    """Starts actors; ``start`` is called from many threads at once, after the episode's ``reset``."""

    def start(self, env: gym.Env[Any, str]) -> Actor:
        """A fresh actor for an episode of ``env``.

        Instructions and tools are read with ``env.get_wrapper_attr("instructions")`` and ``("tools")``, so
        that wrappers may override them.
        """
        ...


def episode_rng(seed: int, task_id: str) -> np.random.Generator:
    """A generator that depends on the policy's seed and the task alone, not on which thread plays when.

    >>> int(episode_rng(0, "train/7").integers(100)) == int(episode_rng(0, "train/7").integers(100))
    True
    """
    return np.random.default_rng([seed, zlib.crc32(task_id.encode("utf-8", "surrogatepass"))])
