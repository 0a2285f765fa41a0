"""The prompts of a household task that are rebuilt at every step: this package's, and those of the released recipes.

The released ones have the sections of https://github.com/AgentR1/CAPO (August 2026), or those of AgentR1/StepPO and
Agent-R1 of July 2026; the words are this project's.
"""

from __future__ import annotations

from agent_envs.prompts.templates import NONE, PromptView, listed_lines, sections
from agent_envs.prompts.texts import PromptTexts

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

_SYSTEM = (
    "You play a household game of ALFWorld in TextWorld. In each turn choose exactly one of the admissible commands. "
    "You may think it over briefly between <think> and </think>. Send the command by calling the tool env_step. Do not "
    "write a final answer in prose."
)

_RULES = """### Admissible Commands
$command_list

### Instructions
- Think briefly between <think> and </think> before you act.
- Carry out one command, by one call of env_step.
- Write the command exactly as one of the admissible commands.
- Commands look like: go to shelf 1; open drawer 2; take book 1 from shelf 1.
- Go by what is observed, not by what you would expect.
- Write no explanation and no answer beside it.

### Output Format
<think>
...
</think>
<tool_call>
{"name": "env_step", "arguments": {"command": "..."}}
</tool_call>"""

_TASK = "### Task\n$goal"
_RECENT = "### Recent Interaction History\n$recent_steps"
_NOW = "### Current Observation\n$observation"
_ACTIONS = "### History Actions\n$all_commands"

CAPO = PromptTexts(_SYSTEM, "\n\n".join((_TASK, _RECENT, _NOW, _RULES)))
AGENT_R1 = PromptTexts(_SYSTEM, "\n\n".join((_TASK, _NOW, _ACTIONS, _RULES)))
