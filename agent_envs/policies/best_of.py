"""Best of n: several candidates for every action, of which the one with the best score is played."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium as gym

from agent_envs import checks
from agent_envs.branching import tried
from agent_envs.errors import EpisodeStop, PolicyError
from agent_envs.messages import Observation
from agent_envs.policies.policy import Policy, Response, check_policy
from agent_envs.threads import run_in_thread

__all__ = ["SCORERS", "BestOfN", "ForkingActor", "Scorer", "score_logprob", "score_majority", "score_reward"]

Scorer = Callable[[gym.Env[Any, str], Observation, dict[str, Any], Sequence[Response]], Sequence[float]]
"""Maps (env, observation, info, candidates) to a score per candidate, and leaves the environment as it was."""


class ForkingActor(Protocol):
    """An actor that can be copied, as `BestOfN` needs it."""

    def fork(self, number: int) -> ForkingActor:
        """Return an independent actor with the same history; forks with different numbers sample differently."""
        ...

    def act(self, observation: Observation, info: dict[str, Any]) -> Any:
        """See `Actor.act`."""
        ...


def score_majority(
    env: gym.Env[Any, str], observation: Observation, info: dict[str, Any], candidates: Sequence[Response]
) -> list[float]:
    """Score a candidate by the share of candidates with the same text, except for outer white space: self-consistency.

    Wang et al. 2023, Self-Consistency Improves Chain of Thought Reasoning in Language Models; here of whole actions.
    """
    counts = Counter(candidate.text.strip() for candidate in candidates)
    return [counts[candidate.text.strip()] / len(candidates) for candidate in candidates]


def score_logprob(
    env: gym.Env[Any, str], observation: Observation, info: dict[str, Any], candidates: Sequence[Response]
) -> list[float]:
    """Score a candidate by the mean log-probability of its tokens; a PolicyError if the policy does not report them."""
    if any(not candidate.response_logprobs for candidate in candidates):
        raise PolicyError("best of n by log-probability needs a policy that reports log-probabilities (--logprobs)")
    return [math.fsum(c.response_logprobs or ()) / len(c.response_logprobs or ()) for c in candidates]


def score_reward(
    env: gym.Env[Any, str], observation: Observation, info: dict[str, Any], candidates: Sequence[Response]
) -> list[float]:
    """Score a candidate by the environment's reward, which is found out by trying it and restoring a snapshot.

    Since an evaluation measures this reward, the result is an upper bound for scorers. Each different text is tried
    once. An environment that cannot be branched raises a ConfigError.
    """
    rewards: dict[str, float] = {}
    for candidate in candidates:
        if candidate.text not in rewards:
            with tried(env):
                rewards[candidate.text] = float(env.step(candidate.text)[1])
    return [rewards[candidate.text] for candidate in candidates]


SCORERS: dict[str, Scorer] = {"logprob": score_logprob, "majority": score_majority, "reward": score_reward}
"""Scorers by name."""


class BestOfN:
    """Ask a policy for n candidates at every step and play the one with the highest score, the first of equals.

    The candidates answer the same conversation and are sampled at the same time; the conversation continues with the
    one that is played. An episode costs about n times as much, as the usage of its steps shows. For the best of n whole
    episodes see pass@n in `evaluate(samples=n)`.

    Args:
        policy: A policy whose actors can fork: OpenAIPolicy, TransformersPolicy, VLLMPolicy, RandomPolicy.
        n: Number of candidates.
        score: `"majority"`, `"logprob"`, `"reward"`, or a function `(env, observation, info, candidates) -> scores`,
            which may branch the environment (`agent_envs.snapshot`) or ask a judge or a value model. It runs in its own
            thread.

    A candidate that ends in an error or at a limit is left out if there are others.
    """

    def __init__(self, policy: Policy, n: int, score: str | Scorer = "majority") -> None:
        self.policy = check_policy(policy)
        self.n = checks.integer("n", n, minimum=1)
        self.score: Scorer = score if callable(score) else SCORERS[checks.choice("score", score, SCORERS)]

    def start(self, env: gym.Env[Any, str]) -> _BestOfActor:
        actor: Any = self.policy.start(env)
        if not callable(getattr(actor, "fork", None)):
            raise PolicyError(
                f"best of n needs a policy whose actors can fork; those of {type(self.policy).__name__} cannot"
            )
        return _BestOfActor(self, env, actor)


class _BestOfActor:
    def __init__(self, policy: BestOfN, env: gym.Env[Any, str], actor: ForkingActor) -> None:
        self._policy, self._env, self._actor = policy, env, actor

    async def act(self, observation: Observation, info: dict[str, Any]) -> Response:
        forks = [self._actor.fork(number) for number in range(self._policy.n)]
        answers = await asyncio.gather(*(_answer(fork, observation, info) for fork in forks), return_exceptions=True)
        usable = []
        for fork, answer in zip(forks, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                raise answer
            if isinstance(answer, Response) and not answer.empty:
                usable.append((fork, answer))
        if not usable:
            failure = next((a for a in answers if isinstance(a, EpisodeStop)), answers[0])
            if isinstance(failure, BaseException):
                raise failure
            return failure
        candidates = [answer for _, answer in usable]
        waiting = run_in_thread(self._policy.score, self._env, observation, info, candidates)
        scores = list(await asyncio.wrap_future(waiting))
        if len(scores) != len(candidates):
            raise PolicyError(f"the scorer returned {len(scores)} scores for {len(candidates)} candidates")
        best = max(range(len(scores)), key=lambda i: (not math.isnan(scores[i]), scores[i]))
        self._actor, chosen = usable[best]
        usage: Counter[str] = Counter()
        for one in candidates:
            counted = {"prompt_tokens": len(one.prompt_ids or ()), "completion_tokens": len(one.response_ids or ())}
            usage.update(one.usage or (counted if one.response_ids is not None else {}))
        return dataclasses.replace(chosen, usage=dict(usage) or None)


async def _answer(actor: ForkingActor, observation: Observation, info: dict[str, Any]) -> Response:
    answer = actor.act(observation, info)
    if inspect.isawaitable(answer):
        answer = await answer
    return Response(answer) if isinstance(answer, str) else answer
