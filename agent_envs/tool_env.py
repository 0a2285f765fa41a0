"""Environments in which the policy calls tools: parse the calls, validate them, run them, show the results."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from agent_envs.errors import ConfigError
from agent_envs.messages import ToolCall, ToolSpec, join_tool_results
from agent_envs.parsers import get_parser
from agent_envs.text import clean_text
from agent_envs.text_env import MAX_ACTION_LENGTH, Outcome, TextEnv
from agent_envs.tools import ToolRegistry
from agent_envs.tools.registry import ToolResult

__all__ = ["MAX_NAME_LENGTH", "ToolEnv"]

MAX_NAME_LENGTH = 200
"""Characters of a called tool's name that info keeps: a policy may call anything by any name."""


class ToolEnv(TextEnv):
    """A text environment with tools.

    A text with calls runs them; their results, in call order, are the observation. A text without a call is the final
    answer (``answer``). Calls that cannot be read or do not fit a tool's schema are results with an error text. Info
    has the key ``tool_results``: a list of ``{"name", "content", "error"}``, empty where no call was made.

    Args:
        tools: The tools on offer.
        parser: Name of the wire format the policy writes calls in.
        max_parallel_calls: Calls run per step; each further one gets a result that says so.
        tool_timeout: Seconds a blocking or async call may take.
        **kwargs: See ``TextEnv``.
    """

    call_reminder: ClassVar[str] = "The text is empty. Call a tool: {format}, or write the final answer."

    def __init__(
        self,
        *,
        tools: ToolRegistry,
        parser: str = "hermes",
        max_parallel_calls: int = 4,
        tool_timeout: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if type(max_parallel_calls) is not int or max_parallel_calls < 1:
            raise ConfigError(f"max_parallel_calls must be an integer of at least 1, got {max_parallel_calls!r}")
        if not isinstance(tool_timeout, (int, float)) or not tool_timeout > 0:
            raise ConfigError(f"tool_timeout must be a number of seconds above 0, got {tool_timeout!r}")
        self.registry = tools
        self.parser = get_parser(parser, self.tools)
        self.max_parallel_calls = max_parallel_calls
        self.tool_timeout = tool_timeout

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools on offer, as a chat template's ``tools=`` takes them."""
        return self.registry.specs

    @property
    def tool_instructions(self) -> str:
        """The tools and how to call them in words, for models whose chat template is not given ``tools``."""
        specs = "\n".join(json.dumps(spec["function"]) for spec in self.tools)
        return f"Tools:\n{specs}\nCall a tool like this: {self.parser.describe()}"

    def format_call(self, name: str, arguments: dict[str, Any]) -> str:
        """A call in the wire format that this environment reads."""
        return self.parser.format(ToolCall(name, arguments))

    def malformed_calls(self, action: str) -> list[ToolResult | None]:
        """Of each call in a text what is wrong with its form, None for one that would run; nothing is run.

        An empty text counts as a call that cannot be read, a text that is the final answer has no calls.
        """
        if len(action) > MAX_ACTION_LENGTH:
            return []
        parsed = self.parser.parse(clean_text(action))
        if not parsed.calls and not parsed.text.strip():
            text = self.call_reminder.format(format=self.parser.describe())
            return [ToolResult("", text, error=True, invalid=True)]
        return self.registry.refusals(parsed.calls)

    def refuse(self, action: str, results: list[ToolResult]) -> tuple[str, dict[str, Any]]:
        """Answer a text without carrying it out: no step is taken, the state stays as it is.

        Args:
            action: The text.
            results: What is said to each of its calls.

        Returns:
            The observation and its info, with ``invalid_action``.
        """
        shown = _shown(results)
        self._observation = self._fit(join_tool_results(shown))
        self._transcript += (action, self._observation)
        info = self._info(Outcome(self._observation, invalid_action=True, extra={"tool_results": shown}))
        if self.render_mode == "human":
            self.render()
        return self._observation, info

    def close(self) -> None:
        """Free what the tools hold."""
        self.registry.close()
        super().close()

    def answer(self, text: str) -> Outcome:
        """Judge the final answer."""
        raise NotImplementedError

    def after_tools(self, action: str, outcome: Outcome) -> Outcome:
        """Last word on a step that called tools; for tasks that reward calls."""
        return outcome

    def act(self, action: str) -> Outcome:
        parsed = self.parser.parse(action)
        if not parsed.calls:
            if not parsed.text.strip():
                text = self.call_reminder.format(format=self.parser.describe())
                return Outcome(text, invalid_action=True)
            return self.answer(parsed.text)
        results = self.registry.run(parsed.calls, max_calls=self.max_parallel_calls, timeout=self.tool_timeout)
        shown = _shown(results)
        outcome = Outcome(
            join_tool_results(shown),
            invalid_action=any(r.invalid for r in results),
            extra={"tool_results": shown},
        )
        return self.after_tools(action, outcome)

    def _info(self, outcome: Outcome) -> dict[str, Any]:
        info = super()._info(outcome)
        info.setdefault("tool_results", [])
        return info


def _shown(results: list[ToolResult]) -> list[dict[str, Any]]:
    """Results as ``info["tool_results"]`` holds them."""
    return [
        {"name": clean_text(r.name[:MAX_NAME_LENGTH]), "content": clean_text(r.content), "error": r.error}
        for r in results
    ]
