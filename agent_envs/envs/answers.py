"""The outcome of a final answer, as the tasks that judge one have it."""

from __future__ import annotations

from agent_envs.text_env import Outcome

NO_ANSWER = "No answer was found. Expected <answer>...</answer>."


def judged(
    said: str, score: float, *, invalid: bool = False, reward: float | None = None, success: bool | None = None
) -> Outcome:
    """Return the outcome of a final answer. Its reward is its score, and success is a score of 1, unless given."""
    return Outcome(
        said,
        reward=score if reward is None else reward,
        terminated=True,
        invalid_action=invalid,
        score=score,
        success=score >= 1.0 if success is None else success,
        components={"answer": score},
    )
