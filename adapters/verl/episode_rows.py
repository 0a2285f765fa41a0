"""An episode as a trainer's rows: one row per step, each with its own prompt, response and reward.

A row is a plain record; the agent loop turns it into verl's ``AgentLoopOutput``. Three kinds:

==========  ===========================================================================================================
``step``    one step: trained, response mask all ones over the tokens as sampled
``value``   the state after the last step of an episode that a limit cut: read by the critic alone, mask 0
``masked``  a step of a broken episode, or the one row of an episode without steps: mask 0, counted in metrics
==========  ===========================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_envs.episode import Episode, StopReason

__all__ = ["BROKEN", "Row", "episode_record", "episode_rows"]

BROKEN = frozenset({StopReason.ERROR, StopReason.STEP_TIMEOUT, StopReason.EPISODE_TIMEOUT})
"""Ends that are not the policy's doing: their steps are not trained."""


@dataclass(frozen=True)
class Row:
    """One row of a trainer's batch."""

    kind: str
    """``step``, ``value`` or ``masked``."""
    step_index: int
    """Index of the step within its episode; the number of steps for a ``value`` row."""
    prompt_ids: list[int]
    """Prompt tokens, shape [prompt tokens]."""
    response_ids: list[int]
    """Response tokens as sampled (one filler token where the mask is 0), shape [response tokens]."""
    response_logprobs: list[float]
    """Log-probability of each response token when it was sampled (nats), shape [response tokens]."""
    reward: float
    """Reward of the step."""
    terminated: bool
    """Whether the task ended here."""
    truncated: bool
    """Whether a limit ended the episode here."""

    @property
    def response_mask(self) -> list[int]:
        """1 for every token that is trained, shape [response tokens]."""
        return [int(self.kind == "step")] * len(self.response_ids)


def episode_rows(episode: Episode, *, filler_id: int, final_prompt_ids: list[int] | None = None) -> list[Row]:
    """The rows of an episode, steps in order and last.

    Args:
        episode: With the tokens of every step.
        filler_id: Token of rows that have none of their own.
        final_prompt_ids: Prompt of the state after the last step, where its value is wanted; used only if a limit ended
            the episode there.

    Returns:
        At least one row. A ``value`` row comes first, so that the last row is always the last step.
    """
    broken = episode.stop_reason in BROKEN
    rows: list[Row] = []
    for index, step in enumerate(episode.steps):
        if not step.response_ids or not step.prompt_ids:
            continue  # nothing was sampled for it: a scripted action has no tokens to train
        rows.append(
            Row(
                kind="masked" if broken else "step",
                step_index=index,
                prompt_ids=list(step.prompt_ids),
                response_ids=list(step.response_ids),
                response_logprobs=list(step.response_logprobs or [0.0] * len(step.response_ids)),
                reward=float(step.reward),
                terminated=step.terminated,
                truncated=step.truncated,
            )
        )
    if not rows:
        return [Row("masked", 0, [filler_id], [filler_id], [0.0], 0.0, False, True)]
    cut = rows[-1].truncated and not rows[-1].terminated
    if final_prompt_ids is not None and cut and not broken:
        value = Row("value", len(episode.steps), list(final_prompt_ids), [filler_id], [0.0], 0.0, False, False)
        rows.insert(0, value)
    return rows


def episode_record(episode: Episode) -> dict[str, Any]:
    """What metrics need of an episode: flat, small, the same keys for every episode."""
    steps = len(episode.steps)
    return {
        "acc": float(episode.success),
        "success": float(episode.success),
        "return": episode.reward,
        "score": episode.score,
        "num_steps": float(steps),
        "invalid_actions": float(sum(bool(step.info.get("invalid_action", False)) for step in episode.steps)),
        "stop_reason": episode.stop_reason.value,
        "prompt_tokens": float(sum(len(step.prompt_ids or ()) for step in episode.steps)),
        "response_tokens": float(sum(len(step.response_ids or ()) for step in episode.steps)),
    }
