"""The prompt of a household task that is rebuilt at every step."""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView, sections


def alfworld_prompt(view: PromptView) -> str:
    """Show the room and the task, the steps so far, the last observation and the admissible commands."""
    return sections(
        ("Task", view.task),
        (f"Steps so far ({view.steps})", view.history() or NONE),
        ("Now", view.observation if view.steps else ""),
        ("Admissible commands", view.action_lines()),
    )
