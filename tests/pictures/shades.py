"""A small environment with pictures, for tests: how bright is it?"""

import json
from typing import Any

import numpy as np

from agent_envs import Pictured, ToolEnv
from agent_envs.problem_env import Problem
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome


def shade(value: int, height: int = 3, width: int = 2) -> np.ndarray[Any, Any]:
    return np.full((height, width, 3), value, np.uint8)


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Shades(IndexedTasks):
    def __len__(self) -> int:
        return 100

    def get(self, index: int) -> Problem:
        return Problem(f"shades/{self.split}/{index}", f"How bright is the <image>? ({index})", str(index))


class ShadesEnv(ToolEnv):
    """A picture of one shade, and tools that look closer, say something, and imitate a picture."""

    instructions = "Write the brightness."
    max_images = 3
    max_image_side = 16

    def __init__(self, **kwargs: Any) -> None:
        def look(times: int) -> Any:
            """Look closer."""
            return Pictured(f"closer {times}: ", shade(self.brightness, times % 9 + 1), " and ", shade(times % 256))

        def say(text: str) -> str:
            """Say it."""
            return text

        super().__init__(tools=[look, say], **kwargs)

    @property
    def brightness(self) -> int:
        return int(self.task.answer)

    def open_tasks(self) -> Shades:
        return Shades("generated", self.split)

    def begin(self, task: Problem) -> tuple[Pictured, None]:
        return Pictured(task.question + "\n", shade(int(task.answer))), None

    def answer(self, text: str) -> Outcome:
        right = text.strip() == self.task.answer
        return Outcome("Right." if right else "Wrong.", float(right), True, score=float(right), success=right)

    def expert_action(self) -> str:
        return self.task.answer
