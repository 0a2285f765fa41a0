"""TableQA: questions over a table that programs read as a file.

    question  "Which port has the largest total cargo?"      table.csv  "ship,port,cargo\\nBelarcor,Osken,512 t"

The real rows are those of WikiTableQuestions (Pasupat and Liang 2015) and TabMWP (Lu et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agent_envs.datasets.tableqa.generated.tables import DEFAULT_LEVEL, GeneratedTables, TableTask
from agent_envs.datasets.tableqa.rows import table_rows
from agent_envs.envs.answers import NO_ANSWER, judged
from agent_envs.envs.code_env import CodeEnv
from agent_envs.envs.tableqa.reward import given_answers, same_answers
from agent_envs.errors import ConfigError
from agent_envs.tasks import TaskSource
from agent_envs.text_env import Outcome

_SHOWN_LINES = 4  # of each file, header included
_SHOWN_LINE = 200
_SHOWN = 200
_LOOK = "rows = list(csv.DictReader(open('table.csv', newline='')))\nprint(len(rows), rows[:2])"


class TableQAEnv(CodeEnv):
    """Answer a question over a table by writing programs.

    ## Description
    The sandbox holds a table as the file `table.csv`; some tasks have a second file to join it with. The policy may run
    a program in every step: the standard library, and pandas where it is installed.

    ## Action Space
    Any text: programs, written as in GSM8KCode-v0, or the final answer between `<answer>` tags, several values
    separated by `;`. Without tags it is in `\\boxed{}` or the last line.

    ## Observation Space
    Text: the question and the first lines of each file at reset; then what the programs print, as in GSM8KCode-v0.

    ## Starting State
    A task drawn from the split, or `options={"index": i}`. Variables stay for the episode.

    ## Rewards
    1 if the values answered are the gold ones, in any order, else 0. Case, accents, quotes, footnotes and brackets at
    the end, markup and the spelling of numbers and dates do not matter; a number may be given without its unit.

    ## Episode End
    Terminates with the first text without a program. Truncated after 10 steps.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the question and the outputs so far, its last 10,000 characters),
    `invalid_action` (a call that cannot be read, or an empty answer), `score`, `success`, `reward_components`
    (`answer`), `tool_results` (style "tool": list of `name`, `content`, `error`), `calls` (other styles: how many),
    `family` ("" for real rows).

    ## Arguments
    `gym.make("AgentR1/TableQA-v0", split="train", data="generated", level="1-5", style="tool", sandbox="forked")`
    - `split`: "train", "test" and, if generated, "validation"; a file is "all". In a folder of WikiTableQuestions
      "train" and "test" are its `training` and `pristine-unseen-tables`.
    - `data`: "generated", or the path of WikiTableQuestions (a folder or .tsv) or of TabMWP (a folder or .json).
    - `level`: 1 (20 to 40 rows, filters and sums) to 5 (up to 2,000 rows, missing values, units, dates, joins), or a
      range such as "1-3".
    - `style`, `parser`, `sandbox`, `code_timeout`, `memory_mb`, `max_output`, `max_parallel_calls`: as in GSM8KCode-v0.

    ## Data
    Generated: 100,000 train, 1,000 validation and 1,000 test questions over tables of their own; each answer is
    computed from the records that the table was written from, not by the expert's program. Real rows have no expert.
    """

    answer_format = "Write the final answer between <answer> and </answer>, several values separated by ;."

    recorded_arguments = ("level",)

    def __init__(self, *, level: int | str | Sequence[int] = DEFAULT_LEVEL, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.level = level
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split, level or path

    def open_tasks(self) -> TaskSource:
        if self.data == "generated":
            return GeneratedTables.shared(self.split, self.level)
        if self.level != DEFAULT_LEVEL:
            raise ConfigError(f"level={self.level!r} is for generated tasks; rows of {self.data!r} have no level")
        return table_rows(self.data, self.split)

    def question(self, task: TableTask) -> str:
        files = []
        for name, content in task.files:
            lines = content.splitlines()
            head = "\n".join(line[:_SHOWN_LINE] for line in lines[:_SHOWN_LINES])
            files.append(f"{name} has {max(0, len(lines) - 1)} rows and begins:\n{head}")
        return "\n\n".join([task.question, *files])

    def files(self, task: TableTask) -> Mapping[str, str | bytes]:
        return dict(task.files)

    def right_answer(self) -> str:
        return "; ".join(self.task.answers)

    def answer(self, text: str) -> Outcome:
        answers = given_answers(text)
        right = same_answers(answers, self.task.answers, self.task.unit)
        said = "; ".join(answers)[:_SHOWN]
        return judged(f"The answer was read as {said}." if said else NO_ANSWER, float(right), invalid=not answers)

    def info(self, outcome: Outcome) -> dict[str, Any]:
        return super().info(outcome) | {"family": self.task.family}

    def expert_action(self) -> str | None:
        """Look at the table, run the question's program, answer what it printed; None for real rows."""
        task, outputs = self.task, self.state.outputs
        if not task.program:
            return None
        if self.state.failed or len(outputs) > 1:
            return f"<answer>{'; '.join(task.answers)}</answer>"
        return self.write_program(task.program if outputs else f"import csv\n{_LOOK}")

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that with probability `noise` reads only a part of the table."""
        task, outputs = self.task, self.state.outputs
        if not task.program:
            return None
        if self.state.failed or len(outputs) > 1:
            return f"<answer>{outputs[-1] if outputs else ''}</answer>"
        if not outputs or rng.random() >= noise:
            return self.expert_action()
        rows = int(rng.integers(1, 10))
        return self.write_program(task.program.replace("newline='')))\nfor r", f"newline='')))[:{rows}]\nfor r", 1))
