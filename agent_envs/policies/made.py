"""A policy that is made where it plays."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import gymnasium as gym

from agent_envs.errors import PolicyError
from agent_envs.per_process import PerProcess
from agent_envs.policies.model import EpisodeModel, ModelPolicy
from agent_envs.policies.policy import Actor, Policy, PolicyLike, check_policy

_made: PerProcess[PolicyLike | Sequence[PolicyLike]] = PerProcess()


class MadePolicy:
    """Stands for a policy that is made in the process where it first plays, and is then kept there.

    It pickles as the function that makes it. So a model or a server's client is not sent to the workers of a cluster:
    `run_episodes(env, MadePolicy(lambda: TransformersPolicy("Qwen/Qwen3-0.6B")), 100, engine="ray")`.

    Args:
        make: Returns a policy (or a function that is one), or a list of policies that share what they need.
        number: Which of a list.
    """

    def __init__(self, make: Callable[[], PolicyLike | Sequence[PolicyLike]], number: int | None = None) -> None:
        self._make, self._number = make, number
        self._key = uuid.uuid4().hex

    def with_number(self, number: int) -> MadePolicy:
        """Return another one of the list, which is made once for all of them."""
        other = MadePolicy(self._make, number)
        other._key = self._key
        return other

    def start(self, env: gym.Env[str, str]) -> Actor:
        return self._policy().start(env)

    def open(self, env: gym.Env[str, str]) -> EpisodeModel:
        """Return its model in an episode; a PolicyError if it has none."""
        policy = self._policy()
        if not isinstance(policy, ModelPolicy):
            raise PolicyError(f"an agent needs a model to ask; {type(policy).__name__} is none")
        return policy.open(env)

    def _policy(self) -> Policy:
        made = _made.get(self._key, self._make)
        return check_policy(made if self._number is None else made[self._number])  # type: ignore[index]
