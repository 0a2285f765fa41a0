"""Prompts that are written anew at every step, in the layouts of the released recipes.

Agent-R1 v0.1 (https://github.com/0russwest0/Agent-R1): its HotpotQA, ALFWorld, WebShop and paper search flows show the
task, what was done and what is to be seen now, in place of a growing chat. The words here are this project's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.errors import ConfigError
from agent_envs.messages import ToolCall
from agent_envs.parsers.base import Parser
from agent_envs.parsers.reasoning import strip_reasoning

__all__ = [
    "PLACEHOLDERS",
    "TEMPLATES",
    "PromptView",
    "TurnView",
    "alfworld_prompt",
    "history_prompt",
    "hotpotqa_prompt",
    "papersearch_prompt",
    "shown_action",
    "template_for",
    "webshop_prompt",
]

PASSAGE_CHARS = 1200
_LINE = 500  # characters of an action or an observation in a history
_NONE = "(none)"


@dataclass(frozen=True, slots=True)
class TurnView:
    """A step that was made."""

    action: str
    """What the policy did, in a line."""
    observation: str
    """What came of it."""
    invalid: bool
    """Whether it could not be carried out."""


@dataclass(frozen=True, slots=True)
class PromptView:
    """What a template can show."""

    task: str
    """The first observation of the episode."""
    observation: str
    """The last one."""
    info: Mapping[str, Any]
    """The info that came with it."""
    turns: Sequence[TurnView]
    """The steps so far, or the last of them."""
    steps: int
    """How many steps were made."""
    problems: tuple[str, ...]
    """What was wrong with the last actions that could not be carried out, at most three."""
    env: gym.Env[str, str]
    """The environment, for what else it tells."""


def shown_action(action: str, parser: Parser | None) -> str:
    """An action in a line: its calls where there are any, else its words without reasoning.

    >>> from agent_envs.parsers import get_parser
    >>> shown_action('Hm. {"name": "search", "arguments": {"query": "tea"}}', get_parser("json"))
    'search tea'
    >>> shown_action("<think>cold?</think>open\\nfridge 1", None)
    'open fridge 1'
    """
    if parser is not None:
        calls = [call for call in parser.parse(action).calls if isinstance(call, ToolCall)]
        if calls:
            return "; ".join(_line(" ".join([c.name, *map(str, c.arguments.values())])) for c in calls[:10])
    return _line(strip_reasoning(action, parser))


def hotpotqa_prompt(view: PromptView) -> str:
    """The question, the searches, every passage found, numbered and with its query, and the last problems."""
    try:
        question, found = view.env.get_wrapper_attr("task").question, view.env.get_wrapper_attr("state").found_by
    except AttributeError as e:
        raise ConfigError("the template 'hotpotqa' is for environments that answer questions by searching") from e
    passages: dict[tuple[str, str], str] = {}
    for query, results in found:
        for passage in results:
            passages.setdefault((passage.title, passage.text[:PASSAGE_CHARS]), query)
    shown = [
        f"[{number}] {f'(query: {_line(query)}) ' if query else ''}{_flat(f'{title}: {text}' if title else text)}"
        for number, ((title, text), query) in enumerate(passages.items(), start=1)
    ]
    empty = view.steps > 0 and not view.info["invalid_action"] and not (found and found[-1][1])
    return _sections(
        ("Question", question),
        ("Searches so far", "\n".join(f"[Search] {_line(query)}" for query, _ in found if query) or _NONE),
        ("Passages found", "\n".join(shown) or _NONE),
        ("Last result", view.observation if empty else ""),
        ("Problems with the last calls", _problems(view)),
    )


def alfworld_prompt(view: PromptView) -> str:
    """The room and the task, the steps so far, what is to be seen now, and the commands that can be given."""
    return _sections(
        ("Task", view.task),
        (f"Steps so far ({view.steps})", _history(view) or _NONE),
        ("Now", view.observation if view.steps else ""),
        ("Admissible commands", _commands(view)),
    )


def webshop_prompt(view: PromptView) -> str:
    """The instruction, the actions so far, the page, and what can be done on it."""
    try:
        instruction = view.env.get_wrapper_attr("task").goal.instruction
    except AttributeError:
        instruction = view.task
    first = view.steps - len(view.turns) + 1
    actions = (
        f"{number}. {turn.action}{' (not possible)' if turn.invalid else ''}"
        for number, turn in enumerate(view.turns, start=first)
    )
    return _sections(
        ("Instruction", instruction),
        (f"Actions so far ({view.steps})", "\n".join(actions) or _NONE),
        ("Page", view.observation),
        ("Available actions", _commands(view)),
    )


def papersearch_prompt(view: PromptView) -> str:
    """The query, the calls so far, the best papers of the pool, expanded and not, and the last problems."""
    try:
        text: str = view.env.get_wrapper_attr("rebuilt_observation")
    except AttributeError as e:
        raise ConfigError("the template 'papersearch' is for environments that search for papers") from e
    return text


def history_prompt(view: PromptView) -> str:
    """The task, the steps so far in a line each, and what was said last."""
    return _sections(
        ("Task", view.task),
        (f"Steps so far ({view.steps})", _history(view) or _NONE),
        ("Last observation", view.observation if view.steps else ""),
    )


TEMPLATES: dict[str, Callable[[PromptView], str]] = {
    "alfworld": alfworld_prompt,
    "history": history_prompt,
    "hotpotqa": hotpotqa_prompt,
    "papersearch": papersearch_prompt,
    "webshop": webshop_prompt,
}
"""The templates by name."""

PLACEHOLDERS: dict[str, Callable[[PromptView], str]] = {
    "task": lambda view: view.task,
    "history": lambda view: _history(view),
    "observation": lambda view: view.observation,
    "commands": lambda view: _commands(view),
    "problems": lambda view: _problems(view),
    "step": lambda view: str(view.steps + 1),
    "instructions": lambda view: view.env.get_wrapper_attr("instructions"),
}
"""What a template that is a text can have, each behind a ``$``."""

_OF_ENV = {"ALFWorldEnv": "alfworld", "PaperSearchEnv": "papersearch", "QAEnv": "hotpotqa", "WebShopEnv": "webshop"}


def template_for(env: gym.Env[str, str]) -> Callable[[PromptView], str]:
    """The template of an environment, by its class; the history for any other."""
    names = (_OF_ENV[c.__name__] for c in type(env.unwrapped).__mro__ if c.__name__ in _OF_ENV)
    return TEMPLATES[next(names, "history")]


def _sections(*sections: tuple[str, str]) -> str:
    """Sections with their headings, without those that are empty."""
    return "\n\n".join(f"{heading}:\n{text}" for heading, text in sections if text)


def _flat(text: str) -> str:
    """Text without line breaks, so that nothing in it passes for another line of the prompt."""
    return " ".join(text.split())


def _line(text: str) -> str:
    """The beginning of a text in one line."""
    flat = _flat(text[: 4 * _LINE])
    return flat if len(flat) <= _LINE else flat[: _LINE - 3] + "..."


def _history(view: PromptView) -> str:
    first = view.steps - len(view.turns) + 1
    return "\n".join(
        f"{number}. {turn.action} -> {_line(turn.observation)}" for number, turn in enumerate(view.turns, start=first)
    )


def _problems(view: PromptView) -> str:
    return "\n".join(_line(problem) for problem in view.problems)


def _commands(view: PromptView) -> str:
    """What can be done now, as far as the environment says it."""
    if "admissible_commands" in view.info:
        return "\n".join(map(_line, view.info["admissible_commands"]))
    available = view.info.get("available_actions")
    if available is None:
        return ""
    search = ["search[words]"] if available["has_search_bar"] else []
    clickable = [name for name in available["clickables"] if not (name == "search" and search)]
    return "\n".join([*search, *(f"click[{_line(name)}]" for name in clickable)])
