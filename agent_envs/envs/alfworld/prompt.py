"""The prompts of a household task that are rebuilt at every step: this package's, and those of the released recipes."""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView, listed_lines, sections
from agent_envs.prompts.texts import released

_GOAL = "Your task is to:"


def alfworld_prompt(view: PromptView) -> str:
    """Show the room and the task, the steps so far, the last observation and the admissible commands."""
    return sections(
        ("Task", view.task),
        (f"Steps so far ({view.steps})", view.history() or NONE),
        ("Now", view.observation if view.steps else ""),
        ("Admissible commands", view.action_lines()),
    )


FIELDS = {
    "goal": lambda view: f"{_GOAL} {view.task.partition(_GOAL)[2].strip().partition(chr(10))[0]}",
    "command_list": lambda view: listed_lines(action for action in view.actions if action != "help"),
}

CAPO, AGENT_R1 = released("alfworld"), released("alfworld-agent-r1")
