"""Every observation is a whole prompt, written anew by a template: the task, what was done, what is to be seen now."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.checks import load_function
from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.spaces import UnicodeText
from agent_envs.text import clean_text
from agent_envs.wrappers.chat_messages import action_parser
from agent_envs.wrappers.context import check_count
from agent_envs.wrappers.templates import PLACEHOLDERS, TEMPLATES, PromptView, TurnView, shown_action, template_for
from agent_envs.wrapping.order import check_order

__all__ = ["RebuildPrompt"]

_PROBLEMS = 3
_LONGEST_PROBLEM = 300  # characters


class RebuildPrompt(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Shows all there is to know at each step instead of what is new, as the released recipes do: prompts stay short.

    ``info["rebuilt"]`` is True, so that an actor forgets the conversation and begins with this observation. The
    instructions stay where they are.

    Templates by name (`agent_envs.wrappers.templates`): ``"hotpotqa"`` (query, searches, numbered passages, the last
    problems), ``"alfworld"`` (task, steps so far, admissible commands), ``"webshop"`` (instruction, actions so far,
    page, available actions), ``"papersearch"`` (query, calls so far, the best of the pool), ``"history"`` (any task).

    Args:
        env: An environment over text.
        template: A name; None for the one of this environment; a text with ``$task``, ``$history``, ``$observation``,
            ``$commands``, ``$problems``, ``$step`` and ``$instructions``; a function of a ``PromptView``; or the name
            of one, ``"module:function"``.
        history: Steps of the history that are shown; None for all.
        max_length: Characters of the longest prompt. A longer one loses its oldest history, then its end.

    Raises:
        ConfigError: There is no such template or placeholder.

    >>> import agent_envs
    >>> env = RebuildPrompt(gym.make("AgentR1/ALFWorld-v0", size=1), history=1)
    >>> _ = env.reset(seed=0)
    >>> observation, *_, info = env.step("inventory")
    >>> "1. inventory -> You are not carrying anything." in observation, info["rebuilt"]
    (True, True)
    """

    def __init__(
        self,
        env: gym.Env[str, str],
        template: str | Callable[[PromptView], str] | None = None,
        history: int | None = None,
        max_length: int = 1 << 18,
    ) -> None:
        if history is not None:
            check_count("RebuildPrompt", "history", history, 0)
        check_count("RebuildPrompt", "max_length", max_length, 1000)
        check_order(env, "RebuildPrompt")
        RecordConstructorArgs.__init__(
            self, _disable_deepcopy=True, template=template, history=history, max_length=max_length
        )
        gym.Wrapper.__init__(self, env)
        self._tells = False
        self._shared = self._template(template)
        self.history = history
        self.max_length = max_length
        self.observation_space = UnicodeText(max_length)
        self.last_observation = ""
        self._task = ""
        self._turns: list[TurnView] = []
        self._problems: list[str] = []

    @property
    def instructions(self) -> str:
        """The environment's; empty where the template shows them."""
        return "" if self._tells else self.env.get_wrapper_attr("instructions")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Reset, and show the beginning."""
        self._task, info = self.env.reset(seed=seed, options=options)
        self._turns, self._problems = [], []
        return self._shown(self._task, info), {**info, "rebuilt": True}

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and show the whole."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        said = shown_action(clean_text(action), action_parser(self.env))
        self._turns.append(TurnView(said, observation, bool(info.get("invalid_action", False))))
        if info.get("invalid_action", False):
            errors = [result["content"] for result in info.get("tool_results", ()) if result["error"]]
            self._problems += [problem[:_LONGEST_PROBLEM] for problem in errors or [observation]]
            self._problems = self._problems[-_PROBLEMS:]
        return self._shown(observation, info), reward, terminated, truncated, {**info, "rebuilt": True}

    def _shown(self, observation: str, info: dict[str, Any]) -> str:
        turns = len(self._turns) if self.history is None else min(self.history, len(self._turns))
        while True:
            view = PromptView(
                task=self._task,
                observation=observation,
                info=info,
                turns=self._turns[len(self._turns) - turns :],
                steps=len(self._turns),
                problems=tuple(self._problems),
                env=self.env,
            )
            text = self._shared(view)
            if not isinstance(text, str):
                raise ConfigError(f"RebuildPrompt: a template must return a text, got {type(text).__name__}")
            if len(text) <= self.max_length or not turns:
                break
            turns //= 2
        self.last_observation = clean_text(text)
        if len(text) > self.max_length:
            note = f"\n[cut: {len(text)} characters, at most {self.max_length} are shown]"
            self.last_observation = self.last_observation[: self.max_length - len(note)] + note
        return self.last_observation

    def _template(self, template: str | Callable[[PromptView], str] | None) -> Callable[[PromptView], str]:
        if template is None:
            return template_for(self.env)
        if not isinstance(template, str):
            if not callable(template):
                raise ConfigError(f"RebuildPrompt: template must be a name, a text or a function, got {template!r:.99}")
            return template
        if template in TEMPLATES:
            return TEMPLATES[template]
        if "$" in template:
            return self._text_template(template)
        if ":" in template:
            return load_function(template, what="RebuildPrompt: template")
        raise ConfigError(f"RebuildPrompt: there is no template {template!r:.100}.{did_you_mean(template, TEMPLATES)}")

    def _text_template(self, template: str) -> Callable[[PromptView], str]:
        parsed = string.Template(template)
        unknown = sorted(set(parsed.get_identifiers()) - set(PLACEHOLDERS))
        if not parsed.is_valid() or unknown:
            what = f"${unknown[0]}" if unknown else "a $ that is no placeholder (write $$)"
            known = ", ".join(f"${name}" for name in PLACEHOLDERS)
            raise ConfigError(f"RebuildPrompt: the template has {what}; there are {known}")
        self._tells = "instructions" in parsed.get_identifiers()

        def fill(view: PromptView) -> str:
            return parsed.substitute({name: PLACEHOLDERS[name](view) for name in parsed.get_identifiers()})

        return fill
