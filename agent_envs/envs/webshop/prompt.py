"""The prompt of a shopping task that is rebuilt at every step."""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView, one_line, sections

SEARCH = "search[...]"  # how `available_actions()` writes a search


def webshop_prompt(view: PromptView) -> str:
    """Show the instruction, the actions so far, the page and the actions that it offers."""
    earlier = (f"{number}. {t.action}{' (not possible)' if t.invalid else ''}" for number, t in view.numbered())
    actions = ("search[words]" if action == SEARCH else one_line(action) for action in view.actions)
    return sections(
        ("Instruction", view.state["instruction"]),
        (f"Actions so far ({view.steps})", "\n".join(earlier) or NONE),
        ("Page", view.observation),
        ("Available actions", "\n".join(actions)),
    )
