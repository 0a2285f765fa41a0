"""ToolEnv, the base class of environments with tools: it parses calls, checks and runs them, and shows the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from agent_envs.checks import choice, integer, number
from agent_envs.messages import ParseFailure, ToolCall, ToolSpec, join_tool_results
from agent_envs.parsers import get_parser
from agent_envs.parsers.parser import describe_tools
from agent_envs.pictures.picture import Pictured
from agent_envs.text import clean_text
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tools import Tool, ToolRegistry
from agent_envs.tools.base import open_specs
from agent_envs.tools.registry import ToolResult


class ToolEnv(TextEnv):
    """A text environment with tools.

    An action with tool calls runs them, and the observation is their results in call order. An action without a call is
    the final answer (``answer``). A call that cannot be read or does not fit its tool's schema gets an error result.
    Info has the key ``tool_results``: a list of ``{"name", "content", "error"}``, empty if no call was made. A tool of
    an environment with pictures (``max_images``) may return a `Pictured`; the content in info is then its text.

    Args:
        tools: Typed functions with docstrings, ``Tool`` objects, or a ``ToolRegistry`` of either.
        parser: Name of the format that calls are written in.
        max_parallel_calls: Calls run per step; each further call gets an error result.
        tool_timeout: Time limit in seconds of a blocking or async call.
        rules: "checked", or "released" as in the released recipes: a block that cannot be read is no call, a text
            without a call is the final answer even if it is empty, and further calls are not answered.
        **kwargs: See ``TextEnv``.
    """

    recorded_arguments: ClassVar[tuple[str, ...]] = ("parser", "max_parallel_calls", "rules")
    call_reminder: ClassVar[str] = "The text is empty. Call a tool: {format}, or write the final answer."

    def __init__(
        self,
        *,
        tools: ToolRegistry | Iterable[Tool | Callable[..., Any]],
        parser: str = "hermes",
        max_parallel_calls: int = 4,
        tool_timeout: float = 10.0,
        rules: str = "checked",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.released = choice("rules", rules, ("checked", "released")) == "released"
        self.registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self.parser = get_parser(parser, self.tools)
        self.max_parallel_calls = integer("max_parallel_calls", max_parallel_calls, minimum=1)
        self.tool_timeout = number("tool_timeout", tool_timeout, above=0)

    # -- what a task implements ----------------------------------------------------------------------------------

    def answer(self, text: str) -> Outcome:
        """Judge the final answer."""
        raise NotImplementedError

    def after_tools(
        self, calls: Sequence[ToolCall | ParseFailure], results: Sequence[ToolResult], outcome: Outcome
    ) -> Outcome:
        """Adjust the outcome of a step that called tools, for example to reward calls.

        The calls are in order, with those that could not be read and a result for each.
        """
        return outcome

    def usable_calls(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that count under the released rules, as they are run."""
        return list(calls)

    # -- what it has ---------------------------------------------------------------------------------------------

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools on offer, as a chat template's ``tools=`` takes them."""
        return open_specs(self.registry.specs) if self.released else self.registry.specs

    @property
    def tool_instructions(self) -> str:
        """The tools and how to call them in words, for models whose chat template is not given ``tools``."""
        return describe_tools(self.tools, self.parser)

    def format_call(self, name: str, arguments: dict[str, Any]) -> str:
        """Write a call in the format that this environment reads."""
        return self.parser.format(ToolCall(name, arguments))

    def malformed_calls(self, action: str) -> list[ToolResult | None]:
        """Check the calls of an action without running them.

        Returns:
            For each call, an error result if it is malformed, else None. An empty action counts as one malformed call;
            a final answer has no calls.
        """
        if not self.action_space.contains(action):
            return []
        parsed = self.parser.parse(clean_text(action))
        if not parsed.calls and not parsed.text.strip():
            return [ToolResult("", self._reminder(), error=True, invalid=True)]
        return self.registry.refusals(parsed.calls)

    def refuse(self, action: str, results: list[ToolResult]) -> tuple[Any, dict[str, Any]]:
        """Reply to an action without carrying it out: no step is taken and the state does not change.

        Args:
            action: The action.
            results: The reply to each of its calls.

        Returns:
            The observation and its info, with ``invalid_action``.
        """
        outcome = self._shown_results(results)
        outcome.invalid_action = True
        return self._reply(action, outcome)

    def close(self) -> None:
        """Free what the tools hold."""
        self.registry.close()
        super().close()

    def act(self, action: str) -> Outcome:
        parsed = self.parser.parse(action)
        calls: Sequence[ToolCall | ParseFailure] = parsed.calls
        if self.released:
            readable = [call for call in calls if isinstance(call, ToolCall)]
            if not readable:
                return self.answer(action)
            calls = self.usable_calls(readable[: self.max_parallel_calls])
        elif not calls:
            if parsed.text.strip():
                return self.answer(parsed.text)
            return Outcome(self._reminder(), invalid_action=True)
        results = self.registry.run(calls, max_calls=self.max_parallel_calls, timeout=self.tool_timeout)
        return self.after_tools(calls, results, self._shown_results(results))

    def info(self, outcome: Outcome) -> dict[str, Any]:
        info = super().info(outcome)
        info.setdefault("tool_results", [])
        return info

    def _reminder(self) -> str:
        return self.call_reminder.format(format=self.parser.describe())

    def _shown_results(self, results: Sequence[ToolResult]) -> Outcome:
        infos, invalid = [], False
        for result in results:
            infos.append(result.to_info())
            invalid = invalid or result.invalid
        observation: str | Pictured
        if self.max_images:
            parts = [Pictured.of(result.shown()) for result in results]
            for info, part in zip(infos, parts, strict=True):
                info["content"] = part.text
            observation = Pictured.join("\n", parts)
        else:
            observation = join_tool_results(infos)
        # By position: with keywords it takes twice the time, and every call comes through here.
        return Outcome(observation, 0.0, False, invalid, 0.0, False, {}, {"tool_results": infos})
