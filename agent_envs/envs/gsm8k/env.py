"""GSM8K, grade-school word problems: answered in one step, or with tools in several.

    question  "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. ..."
    answer    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\\nNatalia sold 48+24 = <<48+24=72>>72 ...\\n#### 72"

`reward.py` decides the rewards, `expert.py` what the expert calculates next. `reward="agentr1"` and
`tool="check_answer"` follow Agent-R1's gsm8k environment and tool task.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.checks import choice, integer
from agent_envs.datasets.data_dir import data_name
from agent_envs.datasets.gsm8k.generated import problems
from agent_envs.datasets.gsm8k.generated.problems import DEFAULT_LEVEL, GeneratedTask, Level, generated_gsm8k
from agent_envs.datasets.gsm8k.rows import GSM8KTask, find_gsm8k_files, gsm8k_rows
from agent_envs.envs.gsm8k.expert import demonstrated, next_calculation, worked_steps, wrong_answer
from agent_envs.envs.gsm8k.reward import REWARDS, judge, pay_last_number
from agent_envs.errors import ConfigError, ToolError
from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.problem_env import ProblemEnv
from agent_envs.rewards.math_answers import extract_answer
from agent_envs.tasks import TaskSource
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import Tool, ToolRegistry, ToolResult
from agent_envs.tools.base import string_parameter
from agent_envs.tools.calculator import calculator

__all__ = ["CheckAnswerTool", "GSM8KEnv", "GSM8KToolEnv"]

TOOLS = {"calculator": ("calculator", "expression"), "check_answer": ("calc_gsm8k_reward", "answer")}  # name, argument
STEP_LIMIT = 10  # as GSM8KTool-v0 is registered, for an environment that was not made with gym.make

_CALCULATOR = ToolRegistry([calculator])


class _GSM8K(TextEnv):
    """What both environments share: tasks and arguments."""

    reset_options = ("index", "question")

    def __init__(
        self,
        *,
        split: str = "train",
        data: str | os.PathLike[str] = "generated",
        level: Level = DEFAULT_LEVEL,
        reward: str = "terminal",
        expert: str = "oracle",
        **kwargs: Any,
    ) -> None:
        data, self.level = data_name(data), level
        self.reward = choice("reward", reward, REWARDS)
        choice("expert", expert, ["oracle"])
        if data == "generated":
            generated_gsm8k(split, level)
        elif problems.parse_level(level) != problems.parse_level(DEFAULT_LEVEL):
            raise ConfigError(f"level={level!r} is for generated tasks; rows of {data!r} have no level, leave it out")
        else:
            find_gsm8k_files(data, split)
        super().__init__(split=split, data=data, **kwargs)

    def open_tasks(self) -> TaskSource:
        if self.data == "generated":
            return generated_gsm8k(self.split, self.level)
        return gsm8k_rows(self.data, self.split)

    def own_task(self, question: str) -> GSM8KTask:
        return GSM8KTask("gsm8k/question", question, answer="", solution="")

    def prompt_state(self) -> dict[str, Any]:
        return {"question": self.task.question}


class GSM8KEnv(_GSM8K, ProblemEnv):
    """Answer a word problem in one text.

    ## Description
    A grade-school word problem whose answer is a number. The policy reasons and answers in a single text; the episode
    ends with it.

    ## Action Space
    Any text; what comes before the last `</think>` is not judged. The answer is the number after `####`; failing that
    the one in `\\boxed{}`, then the one after "the answer is", then the last number. Thousands separators, units,
    currency signs and LaTeX around it do not matter.

    ## Observation Space
    Text: the question at reset; after the answer, how it was read.

    ## Starting State
    A task drawn from the split, or `options={"index": i}`; `options={"question": "..."}` asks one of your own, which
    has no gold answer.

    ## Rewards
    - `reward="terminal"`: 1 if the answer equals the gold number exactly, else 0.
    - `reward="agentr1"`: 1 if the last number of the text equals the gold number, as released.

    ## Episode End
    Terminates with the first action. A text without a number scores 0.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the question), `invalid_action` (no number in the text), `score`
    and `success` (the answer is right, whatever the reward), `reward_components` (`answer` or `last_number`).

    ## Arguments
    `gym.make("AgentR1/GSM8K-v0", split="train", data="generated", level="1-8", reward="terminal")`
    - `split`: generated and official data have "train" and "test", generated also "validation"; a file is "all".
    - `data`: "generated", "official" (after `agentr1 prepare gsm8k`) or the path of a jsonl, parquet or folder.
    - `level`: operations per generated problem, 1 to 8 or a range such as "1-3" or [1, 3].
    - `reward`: "terminal" or "agentr1".
    - `expert`: "oracle": `expert_action()` is the worked solution.

    ## Data
    Generated: 100,000 train, 1,000 validation and 1,000 test tasks, disjoint by their events and numbers. Official:
    7,473 train and 1,319 test rows of GSM8K (Cobbe et al. 2021, https://github.com/openai/grade-school-math), MIT
    licence.

    ## Version History
    - v0: first version
    """

    instructions = "Solve the problem. Think step by step, and write the final answer as a number after ####."

    def check(self, task: GSM8KTask | GeneratedTask, text: str) -> Outcome:
        return judge(text, task.answer)

    def act(self, action: str) -> Outcome:
        outcome = super().act(action)
        return outcome if self.reward == "terminal" else pay_last_number(outcome, action, self.task.answer)

    def expert_action(self) -> str | None:
        """Return the worked solution, or None for a question of the user's own."""
        return str(self.task.solution) or None

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the worked solution, which with probability `noise` ends in a wrong number."""
        solution = self.expert_action()
        if solution is None or rng.random() >= noise:
            return solution
        return f"{solution.rpartition('####')[0]}#### {wrong_answer(self.task.answer, rng)}"


class CheckAnswerTool(Tool):
    """The released tool that tells whether an answer is right."""

    name = "calc_gsm8k_reward"
    description = "Check an answer to the problem: tells whether it is right."
    parameters = string_parameter("answer", "The answer to check, a number.")

    def __init__(self, env: GSM8KToolEnv) -> None:
        self.env = env

    def call(self, *, answer: str) -> str:  # type: ignore[override]
        number = extract_answer(answer)
        if not self.env.task.answer:
            raise ToolError("the right answer to this question is not known")
        if number is None:
            raise ToolError(f"there is no number in the answer {answer[:80]!r}; expected one like '72'")
        return f"The answer {number} is {'right' if number == self.env.task.answer else 'wrong'}."


@dataclass(slots=True)
class _Progress:
    anchor: str  # the question and the results so far, one per line
    observed: list[str] = field(default_factory=list)  # the results without errors, in order
    steps: int = 0  # actions so far
    failed: bool = False  # whether a call returned an error


class GSM8KToolEnv(_GSM8K, ToolEnv):
    """Answer a word problem with a calculator.

    ## Description
    The problems of GSM8K-v0. The policy may call a tool any number of times within the step limit; the first text
    without a call is its final answer.

    ## Action Space
    Any text. Tool calls in Hermes form, `<tool_call>{"name": "calculator", "arguments": {"expression": "12*7"}}
    </tool_call>`, up to 4 a step; or the final answer, read as in GSM8K-v0.

    ## Observation Space
    Text: the question at reset; then the results of the calls, one a line.

    ## Starting State
    As in GSM8K-v0.

    ## Rewards
    - `reward="terminal"`: 1 at the final answer if it equals the gold number exactly, else 0.
    - `reward="agentr1"`: as released, every step's text is scored by its last number, tool calls included, so the
      return can exceed 1.

    ## Episode End
    Terminates with the final answer (a text without a call), right or wrong. Truncated after 10 steps; the released
    limit is 5: `gym.make(..., max_episode_steps=5)`.

    ## Information
    As in GSM8K-v0, and `tool_results` (list of `name`, `content`, `error`). `anchor` is the question and the results so
    far; `invalid_action` also means a malformed call or a wrong argument.

    ## Arguments
    `gym.make("AgentR1/GSM8KTool-v0", split="train", data="generated", level="1-8", tool="calculator")`

    As in GSM8K-v0, and:
    - `tool`: "calculator" (`calculator{expression}`, exact arithmetic), or "check_answer", the released
      `calc_gsm8k_reward{answer}`. The latter tells whether an answer is right before the final answer is given: it
      leaks the gold number to any policy that tries candidates, so its scores say little about solving problems.
    - `expert`: "oracle": `expert_action()` replays the worked solution, one calculation a step, and wins within the
      step limit: where two steps are left, it writes what remains as one expression (on real rows it goes on to the
      answer), and with one step left it answers.
    - `step_limit`: the limit that the expert counts on; None is the one that the id is registered with (10). Say it
      where `gym.make` is given another `max_episode_steps`, which an environment cannot see.
    - `parser`, `max_parallel_calls`, `tool_timeout`: see `ToolEnv`.

    ## Data
    As in GSM8K-v0.

    ## Version History
    - v0: first version
    """

    instructions = "Solve the problem. Use the tool, and write the final answer as a number after ####."
    settled_arguments = ("tools",)

    def __init__(self, *, tool: str = "calculator", step_limit: int | None = None, **kwargs: Any) -> None:
        self.tool = choice("tool", tool, TOOLS)
        self.step_limit = None if step_limit is None else integer("step_limit", step_limit)
        super().__init__(tools=_CALCULATOR if tool == "calculator" else [CheckAnswerTool(self)], **kwargs)

    def begin(self, task: GSM8KTask | GeneratedTask) -> tuple[str, _Progress]:
        return task.question, _Progress(task.question)

    def act(self, action: str) -> Outcome:
        self.state.steps += 1
        outcome = super().act(action)
        if self.reward == "terminal" or outcome.terminated:
            return outcome
        return pay_last_number(outcome, action, self.task.answer)

    def answer(self, text: str) -> Outcome:
        outcome = judge(text, self.task.answer)
        return outcome if self.reward == "terminal" else pay_last_number(outcome, text, self.task.answer)

    def after_tools(
        self, calls: Sequence[ToolCall | ParseFailure], results: Sequence[ToolResult], outcome: Outcome
    ) -> Outcome:
        for result in results:
            if result.error:
                self.state.failed = True
            else:
                self.state.observed.append(result.content)
                self.state.anchor += f"\n{result.content}"
        return outcome

    def anchor(self) -> str:
        return self.state.anchor

    def expert_action(self) -> str | None:
        """Return the first calculation not seen yet, or the answer; None for a question of the user's own."""
        task, observed, steps_left = self.task, self.state.observed, self._limit() - self.state.steps
        if not task.answer:
            return None
        if self.tool == "check_answer":
            argument = None if observed else task.answer
        else:
            argument = next_calculation(task, observed, steps_left)
        return f"#### {task.answer}" if argument is None or steps_left <= 1 else self._call(argument)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that keeps the operands and mistakes the operation.

        With probability `noise` a calculation uses another of `+ - * /`, drawn evenly (`/` only if it leaves no
        remainder). Later calculations and the final answer use the tool's result: a mistake is never noticed. With
        `tool="check_answer"` a mistake is a wrong answer, which is kept whatever the tool says.
        """
        task, observed = self.task, self.state.observed
        if not task.answer:
            return None
        if self.tool == "check_answer":
            if observed:
                return f"#### {extract_answer(observed[0])}"
            return self._call(wrong_answer(task.answer, rng) if rng.random() < noise else task.answer)
        steps = worked_steps(task)
        if len(observed) < len(steps) and not self.state.failed:
            return self._call(demonstrated(task, observed, rng, noise))
        right = not self.state.failed and all(s[1] == o for s, o in zip(steps, observed, strict=False))
        return f"#### {task.answer if right else observed[-1] if observed else '0'}"

    def _limit(self) -> int:
        """Return the step limit of an episode, as far as it is known here."""
        if self.step_limit is not None:
            return self.step_limit
        registered = gym.registry.get(self.spec.id) if self.spec is not None else None
        return (registered and registered.max_episode_steps) or STEP_LIMIT

    def _call(self, argument: str) -> str:
        name, key = TOOLS[self.tool]
        return self.format_call(name, {key: argument})
