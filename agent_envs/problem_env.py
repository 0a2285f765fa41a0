"""ProblemEnv, the base class of one-step tasks: a question, and a check of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_envs.checks import finite
from agent_envs.text_env import Outcome, TextEnv


@dataclass(frozen=True, slots=True)
class Problem:
    """A question and its answer, for tasks that need no more."""

    task_id: str
    """Name of the task, unique within its environment."""
    question: str
    """The first observation."""
    answer: str
    """What ``check`` compares an answer with."""


class ProblemEnv(TextEnv):
    """One question, one answer: the first action ends the episode.

    A subclass defines where tasks come from (``open_tasks``) and how an answer is judged (``check``). The first
    observation is the task's ``question`` attribute; override ``question`` for tasks without one.

    >>> from agent_envs.tasks import ListedTasks
    >>> class SquaresEnv(ProblemEnv):
    ...     instructions = "Write the number and nothing else."
    ...
    ...     def open_tasks(self):
    ...         return ListedTasks([Problem("squares/0", "What is 9 squared?", "81")], "generated", self.split)
    ...
    ...     def check(self, task, text):
    ...         return text.strip() == task.answer
    >>> env = SquaresEnv()
    >>> env.reset()[0]
    'What is 9 squared?'
    >>> env.step("<think>9 * 9 is</think>81")[:3]
    ('The answer is right.', 1.0, True)
    """

    def question(self, task: Any) -> str:
        """Return the question of a task."""
        return task.question

    def check(self, task: Any, text: str) -> Outcome | float:
        """Judge an answer.

        Args:
            task: The task.
            text: The action after the last ``</think>``.

        Returns:
            The score, which is also the reward, from 0 or False to 1 or True for a right answer. Return an ``Outcome``
            to set the observation, the reward or info as well.
        """
        raise NotImplementedError

    def begin(self, task: Any) -> tuple[str, Any]:
        return self.question(task), None

    def right_answer(self) -> str:
        return self.task.answer if isinstance(self.task, Problem) else ""

    def act(self, action: str) -> Outcome:
        text = action.rpartition("</think>")[2]
        result = self.check(self.task, text)
        if not isinstance(result, Outcome):
            score = finite(f"what {type(self).__name__}.check returns", result)
            verdict = {1.0: "is right", 0.0: "is wrong"}.get(score, f"scores {score:g}")
            result = Outcome(
                f"The answer {verdict}." if text.strip() else "No answer was given.",
                reward=score,
                invalid_action=not text.strip(),
                score=score,
                success=score == 1.0,
                components={"answer": score},
            )
        result.terminated = True
        return result
