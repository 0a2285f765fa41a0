"""The prompts of a shopping task that are rebuilt at every step: this package's, and those of the released recipes."""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView, listed_lines, one_line, sections
from agent_envs.prompts.texts import released

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


FIELDS = {
    "goal": lambda view: view.state["instruction"],
    "recent_steps": lambda view: view.recent_steps(longest=1800),
    "command_list": lambda view: listed_lines(
        "search[<your query>]" if action == SEARCH else action for action in view.actions
    ),
}

CAPO, AGENT_R1 = released("webshop"), released("webshop-agent-r1")
