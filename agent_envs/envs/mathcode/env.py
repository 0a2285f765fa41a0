"""MathCode: problems of mathematics, solved by writing programs.

    problem  "Let $x,y$ and $z$ be positive real numbers ..."      answer  "33"      (AIME)

The forms and the released score follow ReTool (arXiv 2504.11536) and its recipe in verl; `agent_envs.envs.code_env`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agent_envs.checks import choice
from agent_envs.datasets.mathcode.generated.problems import DEFAULT_LEVEL, GeneratedMath, MathProblem
from agent_envs.datasets.mathcode.rows import MathRow, math_rows
from agent_envs.envs.answers import judged
from agent_envs.envs.code_env import CodeEnv
from agent_envs.envs.mathcode.judge import equivalent, need_math_verify
from agent_envs.errors import ConfigError
from agent_envs.rewards.tagged import boxed
from agent_envs.tasks import TaskSource
from agent_envs.text_env import Outcome

REWARDS = ("terminal", "released")
_NO_BOX = "No answer was found. Expected the final answer inside \\boxed{}, like: \\boxed{72}"
_SHOWN = 200  # characters of an answer that the last observation repeats


class MathCodeEnv(CodeEnv):
    """Solve a problem of mathematics with the help of Python.

    ## Description
    A problem that needs more than mental arithmetic: counting, number theory, simulation, systems of equations, dates
    and probability if generated; competition problems if released. The policy may run a program in every step.

    ## Action Space
    Any text: programs, written as in GSM8KCode-v0, or the final answer in `\\boxed{}`; with `style="retool"` in
    `<answer>\\boxed{...}</answer>`. Sample that style with the stop string `</code>`.

    ## Observation Space
    Text: the problem at reset; then what the programs print, as in GSM8KCode-v0.

    ## Starting State
    A task drawn from the split, or `options={"index": i}`; `options={"question": "..."}` asks one of your own, which
    has no gold answer. Variables stay for the episode; `random` is seeded with the task's index.

    ## Rewards
    - `reward="terminal"`: 1 if the answer equals the gold one, else 0.
    - `reward="released"`: 1 if it does, else -1, as ReTool scores; an episode that gives no answer gets 0.

    Answers are equal as exact numbers, or as math-verify (the extra `math`) judges them, in a sandbox of its own.

    ## Episode End
    Terminates with the first text without a program. Truncated after 10 steps.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the problem and the outputs so far, its last 10,000 characters),
    `invalid_action` (a call that cannot be read, or an answer without `\\boxed{}`), `score` and `success` (the answer
    is right, whatever the reward), `reward_components` (`answer`), `tool_results` (style "tool": list of `name`,
    `content`, `error`), `calls` (other styles: how many), `family` ("" for real rows).

    ## Arguments
    `gym.make("AgentR1/MathCode-v0", split="train", data="generated", style="tool", level="1-5", reward="terminal")`
    - `split`: "train", "test" and, if generated, "validation"; a file is "all".
    - `data`: "generated", or the path of a jsonl, json, parquet or folder: DAPO-Math-17k, AIME, MATH.
    - `level`: how large the numbers of generated problems are, 1 to 5 or a range such as "1-3".
    - `families`: kinds of generated problems, such as "dates,dice": change, dates, dice, digits, divisible, paths,
      power, primes, sequence, system.
    - `reward`: see above. `style`, `parser`, `sandbox`, `code_timeout`, `memory_mb`, `max_output`,
      `max_parallel_calls`: as in GSM8KCode-v0.

    ## Data
    Generated: 100,000 train, 1,000 validation and 1,000 test problems, disjoint by their numbers; each answer comes
    from another calculation than the expert's program. Real rows have no expert.
    """

    reset_options = ("index", "question")
    recorded_arguments = ("level", "families", "reward")
    answer_format = "Write the final answer inside \\boxed{}."

    def __init__(
        self,
        *,
        level: int | str | Sequence[int] = DEFAULT_LEVEL,
        families: str | Sequence[str] | None = None,
        reward: str = "terminal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.level = level
        self.families = families
        self.reward = choice("reward", reward, REWARDS)
        if self.style == "retool":
            self.instructions = self.instructions.replace("\\boxed{}", "<answer>\\boxed{}</answer>")
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split, level or path

    def open_tasks(self) -> TaskSource:
        if self.data == "generated":
            return GeneratedMath.shared(self.split, self.level, self.families)
        if self.level != DEFAULT_LEVEL or self.families is not None:
            raise ConfigError(f"level= and families= are for generated problems; rows of {self.data!r} have neither")
        need_math_verify()
        return math_rows(self.data, self.split)

    def own_task(self, question: str) -> MathRow:
        return MathRow("mathcode/question", question, answer="")

    def right_answer(self) -> str:
        return self.task.answer

    def answer(self, text: str) -> Outcome:
        answer = boxed(text)
        right = equivalent(answer, self.task.answer) if answer else False
        said = f"The answer was read as {answer[:_SHOWN]}." if answer else _NO_BOX
        reward = float(right) if self.reward == "terminal" or right else -1.0
        return judged(said, float(right), invalid=not answer, reward=reward)

    def info(self, outcome: Outcome) -> dict[str, Any]:
        return super().info(outcome) | {"family": self.task.family if isinstance(self.task, MathProblem) else ""}

    def expert_action(self) -> str | None:
        """Return the problem's program, or the answer that it printed; None for real rows and the user's own."""
        task = self.task
        if not isinstance(task, MathProblem):
            return None
        if self.state.outputs or self.state.failed:
            return self._final(task.answer)
        return self.write_program(task.program)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that mistakes a number of the program, and never notices."""
        task = self.task
        if not isinstance(task, MathProblem):
            return None
        if self.state.outputs or self.state.failed:
            return self._final(self.state.outputs[-1] if self.state.outputs else "0")
        if rng.random() >= noise:
            return self.write_program(task.program)
        digits = "".join(c if c.isdigit() else " " for c in task.program).split()
        largest = max(digits, key=lambda number: (len(number), number))
        return self.write_program(task.program.replace(largest, str(int(largest) + int(rng.integers(1, 10))), 1))

    def _final(self, answer: str) -> str:
        boxed = f"\\boxed{{{answer.strip()}}}"
        return f"<answer>{boxed}</answer>" if self.style == "retool" else boxed
