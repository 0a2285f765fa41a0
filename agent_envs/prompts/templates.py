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

NONE = "(none)"
"""What a section without entries says."""
EMPTY = "None"
"""What it says in the released layouts."""

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
    before: str = ""
    """The observation that the action answered."""
    command: str = ""
    """The command of the action, stripped: the text itself, or what a tool took; "LABEL: REASON" if there was none."""


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
    recent: int = 2
    """How many of the last steps are shown with their observations."""
    budget: int = 1 << 18
    """How many characters what was found may take."""

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

    def recent_steps(self, *, first: str | None = None, longest: int | None = None) -> str:
        """Return the last steps, each with the observation before it; `None` if there are none.

        Args:
            first: What is shown in place of the first observation.
            longest: The most characters of an observation, which is then stripped.
        """
        shown = []
        for number, turn in list(self.numbered())[-self.recent :] if self.recent else ():
            before = first if first is not None and turn.before == self.task else turn.before
            before = before if longest is None else shortened(before, longest)
            shown.append(f"[Observation {number}]\n{before}\n[Action {number}]\n{turn.command}")
        return "\n\n".join(shown) or EMPTY

    def commands(self, *, earlier: bool = False) -> str:
        """Return the commands so far, one a line, or only those before the recent steps; `None` if there are none."""
        turns = list(self.numbered())
        turns = turns[: len(turns) - self.recent] if earlier else turns
        return "\n".join(f"[Action {number}] {turn.command}" for number, turn in turns) or EMPTY


def listed_lines(entries: Iterable[str]) -> str:
    """Return entries one a line, each behind a dash; `None` if there are none."""
    return "\n".join(f"- {entry}" for entry in entries) or EMPTY


def shortened(text: str, longest: int) -> str:
    """Return a stripped text of at most so many characters, three dots included if it is cut."""
    text = text.strip()
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


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
    return shortened(flat(text[: 4 * _LINE]), _LINE)


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
    "recent_steps": PromptView.recent_steps,
    "all_commands": PromptView.commands,
    "earlier_commands": lambda view: view.commands(earlier=True),
    "command_list": lambda view: listed_lines(view.actions),
    "problem_list": lambda view: view.problem_lines() or EMPTY,
}
"""What a template given as text can hold, each name behind a ``$``; environments add their own (`prompt_fields`)."""
