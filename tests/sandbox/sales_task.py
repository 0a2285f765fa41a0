"""A data-analysis environment as a package of somebody else's would have it."""

import gymnasium as gym

from agent_envs.problem_env import Problem
from agent_envs.sandbox import open_sandbox
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools.python import PythonTool


class Sales(IndexedTasks):
    """One table a task: a column of prices, a column of pieces."""

    def __len__(self):
        return 100

    def table(self, index):
        offset = {"train": 0, "validation": 1, "test": 2}[self.split]
        return [(7 + (3 * index + row) % 11, 1 + (index + offset * row) % 5) for row in range(30 + index)]

    def get(self, index):
        total = sum(price * pieces for price, pieces in self.table(index))
        return Problem(f"sales/{self.split}/{index}", "What is the turnover in sales.csv?", str(total))


class SalesEnv(ToolEnv):
    """Find a number in a table by writing programs."""

    instructions = "Analyse sales.csv (price,pieces) with Python. Write the number and nothing else when you have it."

    def __init__(self, sandbox="forked", **kwargs):
        self.sandbox = sandbox
        super().__init__(tools=[PythonTool(self.current_session)], **kwargs)

    def current_session(self):
        return self.state["session"]

    def open_tasks(self):
        return Sales("generated", self.split)

    def begin(self, task):
        rows = "".join(f"{price},{pieces}\n" for price, pieces in self.tasks.table(self._index))
        session = open_sandbox(self.sandbox).session(files={"sales.csv": "price,pieces\n" + rows}, seed=0)
        return task.question, {"session": session, "outputs": []}

    def after_tools(self, calls, results, outcome):
        self.state["outputs"] += [result.content for result in results]
        return outcome

    def answer(self, text):
        right = text.strip() == self.task.answer
        return Outcome("Right." if right else "Wrong.", float(right), True, score=float(right), success=right)

    def expert_action(self):
        if self.state["outputs"]:
            return self.task.answer
        code = "import csv\nsum(int(r['price']) * int(r['pieces']) for r in csv.DictReader(open('sales.csv')))"
        return self.format_call("python", {"code": code})


gym.register("Mine/Sales-v0", SalesEnv, max_episode_steps=5, vector_entry_point="agent_envs.vector.make:Mine/Sales-v0")
