"""Agents that come with the package: the best of several candidates, and one that sums up a long conversation."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from agent_envs.checks import choice, integer
from agent_envs.errors import PolicyError
from agent_envs.messages import Message
from agent_envs.policies.policy import Response

Scorer = Callable[[Any, Sequence[Response]], Sequence[float]]
"""Maps the environment and the candidates to a score for each."""


def _majority(env: Any, candidates: Sequence[Response]) -> list[float]:
    """Score a candidate by how many have its text, except for outer white space: self-consistency.

    Wang et al. 2023, Self-Consistency Improves Chain of Thought Reasoning in Language Models; here of whole actions.
    """
    counts = Counter(candidate.text.strip() for candidate in candidates)
    return [float(counts[candidate.text.strip()]) for candidate in candidates]


def _logprob(env: Any, candidates: Sequence[Response]) -> list[float]:
    if any(not candidate.response_logprobs for candidate in candidates):
        raise PolicyError("best_of by logprob needs a policy that reports log-probabilities (--logprobs)")
    return [math.fsum(c.response_logprobs or ()) / len(c.response_logprobs or ()) for c in candidates]


_SCORERS: dict[str, Scorer] = {"logprob": _logprob, "majority": _majority}


async def best_of(env: Any, model: Any, n: int = 4, by: str | Scorer = "majority") -> None:
    """Ask for `n` candidates at every step, play the one with the highest score, and go on from it.

    Every candidate is a step of the episode and is trained: what was not chosen could have been. For the best of
    several whole episodes see pass@k in `evaluate(samples=k)`.

    Args:
        n: Number of candidates. One that fails is left out if there are others.
        by: `"majority"`; `"logprob"`; `"reward"`, what the environment pays for it, found out by trying it, which is an
            upper bound for the others; or a function `(env, candidates) -> scores`.
    """
    integer("n", n, minimum=1)
    score = by if callable(by) else _SCORERS.get(choice("by", by, ("reward", *_SCORERS)))
    messages = [{"role": "system", "content": env.instructions}, *env.messages]
    while not env.over:
        asked = (model.chat(messages, env.tools) for _ in range(n))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        candidates = [answer for answer in answers if isinstance(answer, Response)]
        if not candidates:
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        rewards = await env.tried(candidates) if score is None else score(env, candidates)
        if len(rewards) != len(candidates):
            raise PolicyError(f"the scorer returned {len(rewards)} scores for {len(candidates)} candidates")
        best = max(range(len(rewards)), key=lambda i: (not math.isnan(rewards[i]), rewards[i]))
        await env.step(candidates[best])
        messages = [*messages, candidates[best].message, *env.messages]


_ASK = "Sum up what was done and found so far, so that the task can be finished from your words alone."


async def compact(env: Any, model: Any, after: int = 6000, keep: int = 2) -> None:
    """Play one call per step; before a prompt of more than `after` tokens, the model sums up all but `keep` exchanges.

    The summary is a step like the others and is trained. It follows the task in the prompts after it, and the next one
    covers it.
    """
    opening = messages = [{"role": "system", "content": env.instructions}, *env.messages]
    exchanges: list[list[Message]] = []
    while not env.over:
        if len(exchanges) > keep and model.count(messages, env.tools) > after:
            summary = await model.chat([*messages, {"role": "user", "content": _ASK}], env.tools)
            exchanges = exchanges[len(exchanges) - keep :]
            so_far: Message = {"role": "user", "content": f"So far:\n{summary.text}"}
            messages = [*opening, so_far, *chain.from_iterable(exchanges)]
        reply = await model.chat(messages, env.tools)
        await env.step(reply)
        exchanges.append([reply.message, *env.messages])
        messages = [*messages, *exchanges[-1]]
