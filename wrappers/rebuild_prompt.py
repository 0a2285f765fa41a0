"""Observations that are whole prompts, rebuilt at every step from the task, the earlier steps and the current state."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.layers import available_actions, prompt_state
from agent_envs.prompts.templates import PLACEHOLDERS, PromptView, TurnView, history_prompt, shown_action
from agent_envs.spaces import UnicodeText, kept_action
from agent_envs.text import clean_text
from agent_envs.wrappers.chat_messages import action_parser
from agent_envs.wrapping.order import Place, PlacedWrapper

__all__ = ["RebuildPrompt"]

_PROBLEMS = 3
_LONGEST_PROBLEM = 300  # characters


class RebuildPrompt(PlacedWrapper):
    """Show the whole state at each step instead of what is new, as the released recipes do: prompts stay short.

    ``info["rebuilt"]`` is True, so that an actor drops the conversation and starts again from this observation. The
    instructions stay where they are.

    Args:
        template: The name of one of the environment's ``prompt_templates``, or ``"history"`` (the steps so far, for any
            environment); None for the environment's own, else the history; a text with ``$task``, ``$history``,
            ``$observation``, ``$commands``, ``$problems``, ``$step`` and ``$instructions``; a function of a
            `agent_envs.prompts.templates.PromptView`; or the name of such a function, ``"module:function"``.
        history: Number of steps that the history shows; None for all.
        max_length: Maximum length of a prompt in characters. A longer one loses its oldest steps first, then its end.

    Raises:
        ConfigError: There is no such template or placeholder.

    >>> import agent_envs
    >>> env = RebuildPrompt(gym.make("AgentR1/ALFWorld-v0", size=1), history=1)
    >>> _ = env.reset(seed=0)
    >>> observation, *_, info = env.step("inventory")
    >>> "1. inventory -> You are not carrying anything." in observation, info["rebuilt"]
    (True, True)
    """

    place = Place.STATE
    selects_history = True

    def __init__(
        self,
        env: gym.Env[str, str],
        template: str | Callable[[PromptView], str] | None = None,
        history: int | None = None,
        max_length: int = 1 << 18,
    ) -> None:
        self.history = None if history is None else checks.integer("history", history, minimum=0)
        self.max_length = checks.integer("max_length", max_length, minimum=1000)
        super().__init__(env, template=template, history=history, max_length=max_length)
        self._shows_instructions = False
        self._shared = self._template(template)
        self.observation_space = UnicodeText(max_length)
        self.last_observation = ""
        self._task = ""
        self._turns: list[TurnView] = []
        self._problems: list[str] = []

    @property
    def instructions(self) -> str:
        """The environment's instructions; empty if the template shows them."""
        return "" if self._shows_instructions else self.env.get_wrapper_attr("instructions")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._task, info = self.env.reset(seed=seed, options=options)
        self._turns, self._problems = [], []
        return self._prompt(self._task, info), {**info, "rebuilt": True}

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        invalid = bool(info.get("invalid_action", False))
        kept = clean_text(kept_action(action, self.env.action_space))
        self._turns.append(TurnView(shown_action(kept, action_parser(self.env)), observation, invalid))
        if invalid:
            errors = [result["content"] for result in info.get("tool_results", ()) if result["error"]]
            self._problems += [problem[:_LONGEST_PROBLEM] for problem in errors or [observation]]
            self._problems = self._problems[-_PROBLEMS:]
        return self._prompt(observation, info), reward, terminated, truncated, {**info, "rebuilt": True}

    def _prompt(self, observation: str, info: dict[str, Any]) -> str:
        turns = len(self._turns) if self.history is None else min(self.history, len(self._turns))
        actions, state = tuple(available_actions(self.env) or ()), prompt_state(self.env)
        while True:
            view = PromptView(
                task=self._task,
                observation=observation,
                info=info,
                turns=self._turns[len(self._turns) - turns :],
                steps=len(self._turns),
                problems=tuple(self._problems),
                instructions=self.env.get_wrapper_attr("instructions"),
                actions=actions,
                state=state,
            )
            text = self._shared(view)
            if not isinstance(text, str):
                raise ConfigError(f"a template must return a string, got {type(text).__name__}")
            if len(text) <= self.max_length or not turns:
                break
            turns //= 2
        self.last_observation = clean_text(text)
        if len(text) > self.max_length:
            note = f"\n[cut: {len(text)} characters, at most {self.max_length} are shown]"
            self.last_observation = self.last_observation[: self.max_length - len(note)] + note
        return self.last_observation

    def _template(self, template: str | Callable[[PromptView], str] | None) -> Callable[[PromptView], str]:
        templates: dict[str, Callable[[PromptView], str]] = {}
        if self.env.has_wrapper_attr("prompt_templates"):
            templates |= self.env.get_wrapper_attr("prompt_templates")
        templates.setdefault("history", history_prompt)
        if template is None:
            return next(iter(templates.values()))
        if isinstance(template, str) and "$" in template:
            return self._text_template(template)
        if isinstance(template, str) and ":" not in template:
            return templates[checks.choice("template", template, templates)]
        return checks.load_function(template, what="template")

    def _text_template(self, template: str) -> Callable[[PromptView], str]:
        parsed = string.Template(template)
        names = parsed.get_identifiers()
        unknown = sorted(set(names) - set(PLACEHOLDERS))
        if not parsed.is_valid() or unknown:
            what = f"${unknown[0]}" if unknown else "a $ without a name (write $$ for a dollar)"
            known = ", ".join(f"${name}" for name in PLACEHOLDERS)
            raise ConfigError(f"the template has {what}; the placeholders are {known}")
        self._shows_instructions = "instructions" in names
        return lambda view: parsed.substitute({name: PLACEHOLDERS[name](view) for name in names})
