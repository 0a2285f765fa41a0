"""ProblemEnv: a one-step task of a question and a check."""

import gymnasium as gym
import pytest

from agent_envs import ProblemEnv
from agent_envs.problem_env import Problem
from agent_envs.tasks import IndexedTasks
from agent_envs.testing import check_text_env
from agent_envs.text_env import Outcome


class Sums(IndexedTasks[Problem]):
    def __len__(self) -> int:
        return 30

    def get(self, index: int) -> Problem:
        a, b = divmod(index, 6)
        return Problem(f"sums/{self.split}/{index}", f"{a} + {b}?", str(a + b))


class SumsEnv(ProblemEnv):
    instructions = "Write the sum and nothing else."

    def open_tasks(self) -> Sums:
        return Sums("generated", self.split)

    def check(self, task: Problem, text: str) -> bool:
        return text.strip() == task.answer


class NearEnv(SumsEnv):
    """Scores by distance, and asks in words of its own."""

    def question(self, task: Problem) -> str:
        return f"What is {task.question}"

    def check(self, task: Problem, text: str) -> float:  # type: ignore[override]
        return 0.5 if text.strip().isdigit() else 0.0


class OutcomeEnv(SumsEnv):
    def check(self, task: Problem, text: str) -> Outcome:  # type: ignore[override]
        return Outcome(f"You said {text}.", reward=2.0, score=1.0, success=True, extra={"length": len(text)})


@pytest.fixture(scope="module", autouse=True)
def registered():
    gym.register("Test/Sums-v0", SumsEnv, max_episode_steps=2)
    yield
    del gym.registry["Test/Sums-v0"]


@pytest.mark.parametrize(
    ("action", "observation", "reward", "invalid"),
    [
        ("3", "The answer is right.", 1.0, False),
        (" 3\n", "The answer is right.", 1.0, False),
        ("4", "The answer is wrong.", 0.0, False),
        ("<think>4?</think>3", "The answer is right.", 1.0, False),
        ("4?</think>no</think>3", "The answer is right.", 1.0, False),  # after the last end of reasoning
        ("<think>3</think>", "No answer was given.", 0.0, True),
        ("", "No answer was given.", 0.0, True),
    ],
)
def test_an_answer_ends_the_episode(action, observation, reward, invalid):
    env = gym.make("Test/Sums-v0")
    assert env.reset(options={"index": 8})[0] == "1 + 2?"
    seen, paid, terminated, truncated, info = env.step(action)
    assert (seen, paid, terminated, truncated) == (observation, reward, True, False)
    assert info["invalid_action"] is invalid and info["success"] is (reward == 1.0)
    assert info["reward_components"] == {"answer": reward} and info["score"] == reward


def test_a_check_may_give_a_part_of_the_score():
    env = NearEnv()
    assert env.reset(options={"index": 8})[0] == "What is 1 + 2?"
    seen, reward, terminated, _, info = env.step("7")
    assert (seen, reward, terminated, info["success"]) == ("The answer scores 0.5.", 0.5, True, False)


def test_a_check_may_return_the_outcome():
    env = OutcomeEnv()
    env.reset(options={"index": 8})
    seen, reward, terminated, _, info = env.step("3")
    assert (seen, reward, terminated, info["length"]) == ("You said 3.", 2.0, True, 1)


def test_it_keeps_the_contract():
    check_text_env("Test/Sums-v0", tasks=2, vectors=False)
