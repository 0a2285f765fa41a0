"""The prompts of a shopping task that are rebuilt at every step: this package's, and those of the released recipes.

The released ones have the sections of https://github.com/AgentR1/CAPO (August 2026), or those of AgentR1/StepPO and
Agent-R1 of July 2026; the words are this project's.
"""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView, listed_lines, one_line, sections
from agent_envs.prompts.texts import PromptTexts

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


def _actions(view: PromptView) -> str:
    return listed_lines("search[<your query>]" if action == SEARCH else action for action in view.actions)


FIELDS = {
    "goal": lambda view: view.state["instruction"],
    "recent_steps": lambda view: view.recent_steps(longest=1800),
    "command_list": _actions,
}

_SYSTEM = (
    "You shop in WebShop. Find and buy the product that fits the instruction best. Take exactly one action a turn, by "
    "calling the tool env_step. Write no explanations."
)

_RULES = """### Available Actions
$command_list

### Instructions
- Take one action, by one call of env_step.
- Write it exactly as one of the available actions; only the words of a search are your own.
- Click nothing that is not listed.
- Buy only a product that fits, with the options that were asked for."""
_TASK = "### Shopping Instruction\n$goal"
_HISTORY = "### Recent History\n$recent_steps"
_NOW = "### Current Observation\n$observation"

CAPO = PromptTexts(_SYSTEM, "\n\n".join((_TASK, _HISTORY, _NOW, _RULES)), "INVALID_TOOL_CALL")
AGENT_R1 = PromptTexts(_SYSTEM, "\n\n".join((_TASK, _NOW, _HISTORY, _RULES)), "INVALID_TOOL_CALL")
