"""What a prompt that is rebuilt at every step can show, and the pieces that its templates share.

A template is a pure function from a `PromptView` to the prompt's text. Tasks have their own in
`agent_envs.envs.TASK.prompt`; the wrapper `RebuildPrompt` fills them. The released flows of Agent-R1 v0.1
(https://github.com/0russwest0/Agent-R1) rebuild their prompts in this way; the words here are this project's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_envs.messages import ToolCall
from agent_envs.parsers.parser import Parser
from agent_envs.parsers.reasoning import strip_reasoning

__all__ = [
    "NONE",
    "PLACEHOLDERS",
    "PromptView",
    "TurnView",
    "flat",
    "history_prompt",
    "one_line",
    "sections",
    "shown_action",
]

NONE = "(none)"
"""What a section without entries says."""

_LINE = 500  # characters of an action or an observation in a history


@dataclass(frozen=True, slots=True)
class TurnView:
    """An earlier step."""

    action: str
    """The policy's action in one line."""
    observation: str
    """What the environment answered."""
    invalid: bool
    """Whether the action was invalid."""


@dataclass(frozen=True, slots=True)
class PromptView:
    """What a template can show, as plain data."""

    task: str
    """The first observation of the episode."""
    observation: str
    """The last observation."""
    info: Mapping[str, Any]
    """The info of the last observation."""
    turns: Sequence[TurnView]
    """The steps so far, or the last few of them."""
    steps: int
    """How many steps have been taken."""
    problems: Sequence[str]
    """What was wrong with the last invalid actions, at most three texts."""
    instructions: str = ""
    """The environment's instructions."""
    actions: Sequence[str] = ()
    """The environment's `available_actions()`; empty if they cannot be listed."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The environment's `prompt_state()`."""

    def numbered(self) -> Iterable[tuple[int, TurnView]]:
        """Return the turns with their step numbers, which start at 1."""
        return enumerate(self.turns, start=self.steps - len(self.turns) + 1)

    def history(self) -> str:
        """Return the turns, one a line: number, action and observation."""
        return "\n".join(f"{number}. {t.action} -> {one_line(t.observation)}" for number, t in self.numbered())

    def problem_lines(self) -> str:
        """Return the problems, one a line."""
        return "\n".join(map(one_line, self.problems))

    def action_lines(self) -> str:
        """Return the available actions, one a line."""
        return "\n".join(map(one_line, self.actions))


def shown_action(action: str, parser: Parser | None) -> str:
    """Return an action in one line: its tool calls, or its text without reasoning if it makes none.

    >>> from agent_envs.parsers import get_parser
    >>> shown_action('Hm. {"name": "search", "arguments": {"query": "tea"}}', get_parser("json"))
    'search tea'
    >>> shown_action("<think>cold?</think>open\\nfridge 1", None)
    'open fridge 1'
    """
    if parser is not None:
        calls = [call for call in parser.parse(action).calls if isinstance(call, ToolCall)]
        if calls:
            return "; ".join(one_line(" ".join([c.name, *map(str, c.arguments.values())])) for c in calls[:10])
    return one_line(strip_reasoning(action, parser))


def sections(*sections: tuple[str, str]) -> str:
    """Join sections of a heading and a text; those without text are left out."""
    return "\n\n".join(f"{heading}:\n{text}" for heading, text in sections if text)


def flat(text: str) -> str:
    """Replace line breaks by spaces, so that no text can pass for another line of the prompt."""
    return " ".join(text.split())


def one_line(text: str) -> str:
    """Return the beginning of a text in one line."""
    line = flat(text[: 4 * _LINE])
    return line if len(line) <= _LINE else line[: _LINE - 3] + "..."


def history_prompt(view: PromptView) -> str:
    """Show the task, the steps so far and the last observation: the template for any environment."""
    return sections(
        ("Task", view.task),
        (f"Steps so far ({view.steps})", view.history() or NONE),
        ("Last observation", view.observation if view.steps else ""),
    )


PLACEHOLDERS: dict[str, Callable[[PromptView], str]] = {
    "task": lambda view: view.task,
    "history": PromptView.history,
    "observation": lambda view: view.observation,
    "commands": PromptView.action_lines,
    "problems": PromptView.problem_lines,
    "step": lambda view: str(view.steps + 1),
    "instructions": lambda view: view.instructions,
}
"""What a template given as text can hold, each name behind a ``$``."""
