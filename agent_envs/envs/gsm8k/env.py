"""GSM8K, grade-school word problems: answered in one step, or with tools in several.

    question  "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. ..."
    answer    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\\nNatalia sold 48+24 = <<48+24=72>>72 ...\\n#### 72"

Scoring follows Agent-R1's gsm8k environment and tool task (`reward="agentr1"`, `tool="check_answer"`), which follow
verl's utils/reward_score/gsm8k.py; the default is stricter and pays once: `agent_envs.rewards.math_answers`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from agent_envs.datasets.data_dir import data_name
from agent_envs.datasets.gsm8k.generated.problems import (
    DEFAULT_LEVEL,
    GeneratedTask,
    Level,
    generated_gsm8k,
    parse_level,
)
from agent_envs.datasets.gsm8k.rows import GSM8KTask, find_gsm8k_files, gsm8k_rows
from agent_envs.envs.gsm8k.expert import combined, demonstrated, worked_steps, wrong_answer
from agent_envs.errors import ConfigError, ToolError, did_you_mean
from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.rewards.math_answers import extract_answer, score, score_agentr1
from agent_envs.tasks import TaskSource
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import Tool, ToolRegistry, ToolResult
from agent_envs.tools.calculator import calculator

__all__ = ["CheckAnswerTool", "GSM8KEnv", "GSM8KToolEnv"]

REWARDS = ("terminal", "agentr1")
TOOLS = ("calculator", "check_answer")
EXPERTS = ("oracle",)
STEP_LIMIT = 10  # of GSM8KTool-v0 as registered; the expert counts on it where it knows of no other
NO_NUMBER = "No number was found in the answer. Expected the final answer as a number after ####, like: #### 72"

_CALCULATOR = ToolRegistry([calculator])


def _open_gsm8k(data: str, split: str, level: Level) -> TaskSource:
    return generated_gsm8k(split, level) if data == "generated" else gsm8k_rows(data, split)


def _own_gsm8k(question: str) -> GSM8KTask:
    return GSM8KTask("gsm8k/question", question, answer="", solution="")


def _check_arguments(data: str, split: str, level: Level, reward: str, expert: str) -> None:
    """Refuse what does not exist before anything is read."""
    if reward not in REWARDS:
        raise ConfigError(f"there is no reward {reward!r}.{did_you_mean(reward, REWARDS)}")
    if expert not in EXPERTS:
        raise ConfigError(f"there is no expert {expert!r}.{did_you_mean(expert, EXPERTS)}")
    if data == "generated":
        generated_gsm8k(split, level)
        return
    if parse_level(level) != parse_level(DEFAULT_LEVEL):
        raise ConfigError(f"level={level!r} is for generated tasks; rows of {data!r} have no level, leave it out")
    find_gsm8k_files(data, split)


class _TextSpec:
    """An environment whose spec has `data` as text, so that it can be written as JSON where a path object was given."""

    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """What the environment was made from."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None and isinstance(spec.kwargs.get("data"), os.PathLike):
            spec.kwargs["data"] = os.fspath(spec.kwargs["data"])
        self._spec = spec


class GSM8KEnv(_TextSpec, TextEnv):
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

    reset_options = ("index", "question")
    instructions = "Solve the problem. Think step by step, and write the final answer as a number after ####."

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
        data = data_name(data)
        _check_arguments(data, split, level, reward, expert)
        super().__init__(split=split, data=data, **kwargs)
        self.level = level
        self.reward = reward

    def open_tasks(self) -> TaskSource:
        return _open_gsm8k(self.data, self.split, self.level)

    def own_task(self, question: str) -> GSM8KTask:
        return _own_gsm8k(question)

    def begin(self, task: GSM8KTask | GeneratedTask) -> tuple[str, Any]:
        return task.question, None

    def act(self, action: str) -> Outcome:
        return _judge(action.rpartition("</think>")[2], self.task.answer, self.reward, whole=action)

    def expert_action(self) -> str | None:
        """The worked solution; None for a question of one's own."""
        return str(self.task.solution) or None

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """The worked solution; with probability `noise` its last line names a wrong number."""
        right = self.expert_action()
        if right is None or rng.random() >= noise:
            return right
        body = self.task.solution.rpartition("####")[0]
        return f"{body}#### {wrong_answer(self.task.answer, rng)}"


class CheckAnswerTool(Tool):
    """The released oracle tool: it tells whether an answer is right, so a policy can guess until it is."""

    name = "calc_gsm8k_reward"
    description = "Check an answer to the problem: tells whether it is right."
    parameters: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The answer to check, a number."}},
        "required": ["answer"],
        "additionalProperties": False,
    }

    def __init__(self, env: GSM8KToolEnv) -> None:
        self.env = env

    def call(self, *, answer: str) -> str:  # type: ignore[override]
        """Compare the answer with the current task's gold number."""
        number = extract_answer(answer)
        if not self.env.task.answer:
            raise ToolError("the right answer to this question is not known")
        if number is None:
            raise ToolError(f"there is no number in the answer {answer[:80]!r}; expected one like '72'")
        return f"The answer {number} is {'right' if score(number, self.env.task.answer) else 'wrong'}."


@dataclass(slots=True)
class _Progress:
    """What has happened in an episode."""

    steps: int = 0
    """Actions so far."""
    failed: bool = False
    """Whether a call came to an error."""
    observed: list[str] = field(default_factory=list)
    """The tool's results in order, errors left out."""
    anchor: str = ""
    """The question and the results."""


class GSM8KToolEnv(_TextSpec, ToolEnv):
    """Answer a word problem with a calculator.

    ## Description
    A grade-school word problem whose answer is a number. The policy may call a tool any number of times within the
    step limit; the first text without a call is its final answer.

    ## Action Space
    Any text. Tool calls in Hermes form, `<tool_call>{"name": "calculator", "arguments": {"expression": "12*7"}}
    </tool_call>`, up to 4 a step; or the final answer, read as in GSM8K-v0.

    ## Observation Space
    Text: the question at reset; then the results of the calls, one a line.

    ## Starting State
    A task drawn from the split, or `options={"index": i}`; `options={"question": "..."}` asks one of your own, which
    has no gold answer.

    ## Rewards
    - `reward="terminal"`: 1 at the final answer if it equals the gold number exactly, else 0.
    - `reward="agentr1"`: as released, every step's text is scored by its last number, tool calls included, so the
      return can exceed 1.

    ## Episode End
    Terminates with the final answer (a text without a call), right or wrong. Truncated after 10 steps; the released
    limit is 5: `gym.make(..., max_episode_steps=5)`.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the question and the results so far), `invalid_action` (a
    malformed call, a wrong argument, an answer without a number), `score` and `success` (the final answer is right,
    whatever the reward), `reward_components` (`answer` or `last_number`), `tool_results` (list of `name`, `content`,
    `error`).

    ## Arguments
    `gym.make("AgentR1/GSM8KTool-v0", split="train", data="generated", level="1-8", tool="calculator")`
    - `split`, `data`, `level`: as in GSM8K-v0.
    - `tool`: "calculator" (`calculator{expression}`, exact arithmetic), or "check_answer", the released
      `calc_gsm8k_reward{answer}`. The latter tells whether an answer is right before the final answer is given: it
      leaks the gold number to any policy that tries candidates, so its scores say little about solving problems.
    - `reward`: "terminal" or "agentr1".
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

    reset_options = ("index", "question")
    instructions = "Solve the problem. Use the tool, and write the final answer as a number after ####."

    def __init__(
        self,
        *,
        split: str = "train",
        data: str | os.PathLike[str] = "generated",
        level: Level = DEFAULT_LEVEL,
        tool: str = "calculator",
        reward: str = "terminal",
        expert: str = "oracle",
        step_limit: int | None = None,
        **kwargs: Any,
    ) -> None:
        data = data_name(data)
        _check_arguments(data, split, level, reward, expert)
        if tool not in TOOLS:
            raise ConfigError(f"there is no tool {tool!r}.{did_you_mean(tool, TOOLS)}")
        if step_limit is not None and (isinstance(step_limit, bool) or not isinstance(step_limit, int)):
            raise ConfigError(f"step_limit must be a number of steps or None, got {step_limit!r}")
        registry = _CALCULATOR if tool == "calculator" else ToolRegistry([CheckAnswerTool(self)])
        super().__init__(tools=registry, split=split, data=data, **kwargs)
        self.level = level
        self.tool = tool
        self.reward = reward
        self.step_limit = step_limit

    def open_tasks(self) -> TaskSource:
        return _open_gsm8k(self.data, self.split, self.level)

    def own_task(self, question: str) -> GSM8KTask:
        return _own_gsm8k(question)

    def begin(self, task: GSM8KTask | GeneratedTask) -> tuple[str, _Progress]:
        return task.question, _Progress(anchor=task.question)

    def act(self, action: str) -> Outcome:
        self.state.steps += 1
        outcome = super().act(action)
        if self.reward == "agentr1" and not outcome.terminated:
            outcome.reward = _last_number(action, self.task.answer)
            outcome.components = {"last_number": outcome.reward}
        return outcome

    def answer(self, text: str) -> Outcome:
        return _judge(text, self.task.answer, self.reward)

    def after_tools(
        self, calls: Sequence[ToolCall | ParseFailure], results: Sequence[ToolResult], outcome: Outcome
    ) -> Outcome:
        progress: _Progress = self.state
        for result in results:
            if result.error:
                progress.failed = True
            else:
                progress.observed.append(result.content)
                progress.anchor += f"\n{result.content}"
        return outcome

    def anchor(self) -> str:
        return self.state.anchor

    def expert_action(self) -> str | None:
        """The first calculation whose result has not been seen, or the answer; None for a question of one's own.

        It wins from any state that has a step left, within `step_limit` steps: as its end comes near, what remains is
        one expression.
        """
        if not self.task.solution:
            return None
        progress: _Progress = self.state
        answer = f"#### {self.task.answer}"
        left = self._limit() - progress.steps
        if left <= 1:
            return answer
        if self.tool == "check_answer":
            return answer if progress.observed else self._check(self.task.answer)
        unseen = [step for step, result in worked_steps(self.task) if result not in progress.observed]
        if not unseen:
            return answer
        if left == 2 and len(unseen) > 1 and isinstance(self.task, GeneratedTask):
            return self._calculate(combined(self.task, progress.observed))
        return self._calculate(unseen[0])

    def _limit(self) -> int:
        """The steps of an episode, as far as they are known here."""
        if self.step_limit is not None:
            return self.step_limit
        spec = self.spec
        registered = gym.registry.get(spec.id) if spec is not None else None
        return (registered and registered.max_episode_steps) or STEP_LIMIT

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """The next action of a demonstrator that keeps the operands and mistakes the operation.

        With probability `noise` a calculation gets another of `+ - * /`, drawn evenly (`/` only where it leaves no
        remainder). What the tool answers is carried on and given as the final answer: a mistake is never noticed. With
        `tool="check_answer"` a mistake is a wrong answer, which is then kept whatever the tool says.
        """
        if not self.task.solution:
            return None
        progress: _Progress = self.state
        done = len(progress.observed)
        if self.tool == "check_answer":
            if done:
                return f"#### {extract_answer(progress.observed[0])}"
            return self._check(wrong_answer(self.task.answer, rng) if rng.random() < noise else self.task.answer)
        steps = worked_steps(self.task)
        if done >= len(steps) or progress.failed:
            right = not progress.failed and all(s[1] == o for s, o in zip(steps, progress.observed, strict=False))
            last = progress.observed[-1] if progress.observed else "0"
            return f"#### {self.task.answer if right else last}"
        return self._calculate(demonstrated(self.task, progress.observed, rng, noise))

    def _calculate(self, expression: str) -> str:
        return self.format_call("calculator", {"expression": expression})

    def _check(self, answer: str) -> str:
        return self.format_call("calc_gsm8k_reward", {"answer": answer})


def _last_number(text: str, gold: str) -> float:
    return score_agentr1(text, gold) if gold else 0.0  # none is known for a question of one's own


def _judge(text: str, gold: str, reward: str, whole: str | None = None) -> Outcome:
    """The end of an episode by a final answer; the released scoring reads the whole action."""
    found = extract_answer(text)
    right = float(found == gold)  # both are in plain form
    part, paid = ("answer", right) if reward == "terminal" else ("last_number", _last_number(whole or text, gold))
    return Outcome(
        NO_NUMBER if found is None else f"The answer was read as {found}.",
        reward=paid,
        terminated=True,
        invalid_action=found is None,
        score=right,
        success=right == 1.0,
        components={part: paid},
    )
