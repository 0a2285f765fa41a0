"""GSM8K, grade-school word problems: answered in one step, or with tools in several.

    question  "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. ..."
    answer    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\\nNatalia sold 48+24 = <<48+24=72>>72 ...\\n#### 72"

`reward.py` decides the rewards, `expert.py` what the expert calculates next. `reward="agentr1"` and
`tool="check_answer"` follow Agent-R1's gsm8k environment and tool task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from agent_envs.checks import choice
from agent_envs.datasets.gsm8k.generated.problems import DEFAULT_LEVEL, GeneratedGSM8K, Level
from agent_envs.datasets.gsm8k.rows import GSM8KTask, gsm8k_rows
from agent_envs.envs.gsm8k.expert import demonstrated, next_calculation, worked_steps, wrong_answer
from agent_envs.envs.gsm8k.reward import REWARDS, judge, score_agentr1
from agent_envs.errors import ConfigError, ToolError
from agent_envs.problem_env import ProblemEnv
from agent_envs.prompts.templates import history_prompt
from agent_envs.prompts.texts import released
from agent_envs.rewards.math_answers import extract_answer
from agent_envs.tasks import TaskSource
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolResult
from agent_envs.tools.calculator import calculator

TOOLS = {"calculator": ("calculator", "expression"), "check_answer": ("calc_gsm8k_reward", "answer")}  # name, argument
STEP_LIMIT = 10  # as GSM8KTool-v0 and GSM8KCode-v0 are registered: the expert answers within it
ANCHOR_LENGTH = 10_000  # the most characters of an anchor, so that a step costs the same in an episode of any length


class GSM8KTasks(TextEnv):
    """What the environments of GSM8K share: their tasks, and the argument about them."""

    reset_options = ("index", "question")
    recorded_arguments: ClassVar[tuple[str, ...]] = ("level",)

    def __init__(self, *, level: Level = DEFAULT_LEVEL, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.level = level
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split, level or path

    def open_tasks(self) -> TaskSource:
        if self.data == "generated":
            return GeneratedGSM8K.shared(self.split, self.level)
        if self.level != DEFAULT_LEVEL:
            raise ConfigError(f"level={self.level!r} is for generated tasks; rows of {self.data!r} have no level")
        return gsm8k_rows(self.data, self.split)

    def own_task(self, question: str) -> GSM8KTask:
        return GSM8KTask("gsm8k/question", question, answer="", solution="")

    def right_answer(self) -> str:
        return self.task.answer


class StepwiseGSM8K(GSM8KTasks):
    """A problem that takes a calculation a step: what the expert and the demonstrator of such an environment do.

    Its state has the number of ``steps`` and whether a calculation ``failed``.
    """

    def seen(self) -> list[str]:
        """Return the results so far as numbers in plain form."""
        raise NotImplementedError

    def calculate(self, calculation: str) -> str:
        """Return the action that makes a calculation."""
        raise NotImplementedError

    def steps_left(self) -> int:
        """Return the steps that are left of those that the ids are registered with."""
        return STEP_LIMIT - int(self.state.steps)

    def expert_action(self) -> str | None:
        """Return the first calculation not seen yet, or the answer; None for a question of the user's own."""
        if not self.task.answer:
            return None
        calculation = next_calculation(self.task, self.seen(), self.steps_left())
        if calculation is None or self.steps_left() <= 1:
            return f"#### {self.task.answer}"
        return self.calculate(calculation)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that mistakes the operation of a calculation, and never notices."""
        task, seen = self.task, self.seen()
        if not task.answer:
            return None
        right = [result for _, result in worked_steps(task.solution)]
        if len(seen) < len(right) and not self.state.failed:
            return self.calculate(demonstrated(task, seen, rng, noise))
        if seen[: len(right)] == right and not self.state.failed:
            return f"#### {task.answer}"
        return f"#### {seen[-1] if seen else 0}"


class _Rewarded(GSM8KTasks):
    """With the released reward too."""

    recorded_arguments: ClassVar[tuple[str, ...]] = ("reward",)
    prompt_fields = {"goal": lambda view: view.state["question"]}  # noqa: RUF012

    def __init__(self, *, reward: str = "terminal", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reward = choice("reward", reward, REWARDS)

    def prompt_state(self) -> dict[str, Any]:
        return {"question": self.task.question}

    def paid(self, outcome: Outcome, text: str) -> Outcome:
        """Pay for the last number of the text instead, if that is the reward in use."""
        if self.reward == "agentr1":
            outcome.reward = score_agentr1(text, self.task.solution)
            outcome.components = {"last_number": outcome.reward}
        return outcome


class GSM8KEnv(_Rewarded, ProblemEnv):
    """Answer a word problem in a single reply.

    ## Description
    A grade-school word problem whose answer is a number. The policy reasons and answers in a single text.

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
    - `reward="agentr1"`: 1 if the last number in the last 300 characters is written as the gold number, as released:
      with a full stop, decimals or commas it earns nothing.

    ## Episode End
    Terminates with the first action.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the question), `invalid_action` (no number in the text), `score`
    and `success` (the answer is right, whatever the reward), `reward_components` (`answer` or `last_number`).

    ## Arguments
    `gym.make("AgentR1/GSM8K-v0", split="train", data="generated", level="1-8", reward="terminal")`
    - `split`: "train", "test" and, if generated, "validation"; a file is "all".
    - `data`: "generated", "official" (after `agentr1 prepare gsm8k`) or the path of a jsonl, parquet or folder.
    - `level`: operations per generated problem, 1 to 8 or a range such as "1-3" or [1, 3].
    - `reward`: see above.

    ## Data
    Generated: 100,000 train, 1,000 validation and 1,000 test tasks, disjoint by their events and numbers. Official:
    7,473 train and 1,319 test rows (Cobbe et al. 2021, https://github.com/openai/grade-school-math, MIT licence).
    """

    instructions = "Solve the problem. Think step by step, and write the final answer as a number after ####."
    prompt_templates = {"history": history_prompt, "agent-r1": released("gsm8k-agent-r1")}  # noqa: RUF012

    def check(self, task: Any, text: str) -> Outcome:
        return judge(text, task.answer)

    def act(self, action: str) -> Outcome:
        return self.paid(super().act(action), action)

    def expert_action(self) -> str | None:
        """Return the worked solution, or None for a question of the user's own."""
        return self.task.solution or None

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the worked solution, which with probability `noise` ends in a wrong number."""
        solution = self.expert_action()
        if solution is None or rng.random() >= noise:
            return solution
        return f"{solution.rpartition('####')[0]}#### {wrong_answer(self.task.answer, rng)}"


@dataclass(slots=True)
class _Progress:
    anchor: str  # the question and the results so far, one a line
    observed: list[str] = field(default_factory=list)  # the results without errors, in order
    steps: int = 0  # actions so far
    failed: bool = False  # whether a call returned an error


class GSM8KToolEnv(StepwiseGSM8K, _Rewarded, ToolEnv):
    """Answer a word problem with a calculator.

    ## Description
    The problems of GSM8K-v0, whose page covers the rest. The policy may call a tool in every step; its first text
    without a call is the answer.

    ## Action Space
    Any text. Tool calls in Hermes form, `<tool_call>{"name": "calculator", "arguments": {"expression": "12*7"}}
    </tool_call>`, up to 4 a step; or the final answer, read as in GSM8K-v0.

    ## Observation Space
    Text: the question at reset; then the results of the calls, one a line.

    ## Rewards
    As in GSM8K-v0; but `reward="agentr1"` pays every step's text, tool calls included, so the return can exceed 1.

    ## Episode End
    Terminates with the answer. Truncated after 10 steps; the released `max_episode_steps` is 5.

    ## Information
    As in GSM8K-v0, and `tool_results` (list of `name`, `content`, `error`). `anchor` is the question and the results so
    far, its last 10,000 characters; `invalid_action` also means a malformed call or a wrong argument.

    ## Arguments
    `gym.make("AgentR1/GSM8KTool-v0", split="train", data="generated", level="1-8", tool="calculator")`

    As in GSM8K-v0, and:
    - `tool`: "calculator" (`calculator{expression}`, exact arithmetic), or "check_answer", the released
      `calc_gsm8k_reward{answer}`, which tells whether an answer is right: it leaks the gold number to a policy that
      tries candidates.
    - `parser`, `max_parallel_calls`, `tool_timeout`, `rules`: see `ToolEnv`. With `rules="released"`, `check_answer`
      reports the answer as it was read and its reward.
    """

    instructions = "Solve the problem. Use the tool, and write the final answer as a number after ####."
    settled_arguments = ("tools",)
    recorded_arguments = ("tool",)
    prompt_templates = {"history": history_prompt, "agent-r1": released("gsm8k-tool-agent-r1")}  # noqa: RUF012

    def __init__(self, *, tool: str = "calculator", **kwargs: Any) -> None:
        self.tool = choice("tool", tool, TOOLS)
        super().__init__(tools=[calculator if tool == "calculator" else self.calc_gsm8k_reward], **kwargs)

    def calc_gsm8k_reward(self, answer: str) -> str:
        """Check an answer to the problem: tells whether it is right.

        Args:
            answer: The answer to check, a number.
        """
        if not self.task.answer:
            raise ToolError("the right answer to this question is not known")
        if self.released:
            marked = answer if "####" in answer else f"#### {answer}"
            return f"Reward {score_agentr1(marked, self.task.solution)} for the answer {marked}"
        number = extract_answer(answer)
        if number is None:
            raise ToolError(f"there is no number in the answer {answer[:80]!r}; expected one like '72'")
        return f"The answer {number} is {'right' if number == self.task.answer else 'wrong'}."

    def begin(self, task: Any) -> tuple[str, _Progress]:
        return task.question, _Progress(task.question)

    def act(self, action: str) -> Outcome:
        self.state.steps += 1
        outcome = super().act(action)
        return outcome if outcome.terminated or self.reward == "terminal" else self.paid(outcome, action)

    def answer(self, text: str) -> Outcome:
        return self.paid(judge(text, self.task.answer), text)

    def after_tools(self, calls: Sequence[Any], results: Sequence[ToolResult], outcome: Outcome) -> Outcome:
        state = self.state
        for result in results:
            if result.error:
                state.failed = True
            else:
                state.observed.append(result.content)
                state.anchor = f"{state.anchor}\n{result.content}"[-ANCHOR_LENGTH:]
        return outcome

    def anchor(self) -> str:
        return self.state.anchor

    def seen(self) -> list[str]:
        return self.state.observed

    def calculate(self, calculation: str) -> str:
        name, key = TOOLS[self.tool]
        return self.format_call(name, {key: calculation})

    def expert_action(self) -> str | None:
        """Return the first calculation not seen yet, or the answer; None for a question of the user's own."""
        if self.tool == "check_answer" and self.task.answer:
            done = self.seen() or self.steps_left() <= 1
            return f"#### {self.task.answer}" if done else self.calculate(self.task.answer)
        return super().expert_action()

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that mistakes the operation of a calculation, and never notices.

        With `tool="check_answer"` a mistake is a wrong answer, which is kept whatever the tool says.
        """
        if self.tool == "check_answer" and self.task.answer:
            if self.seen():
                return f"#### {extract_answer(self.seen()[0])}"
            return self.calculate(wrong_answer(self.task.answer, rng) if rng.random() < noise else self.task.answer)
        return super().demo_action(rng, noise)
