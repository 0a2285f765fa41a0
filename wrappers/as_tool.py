"""Offer the commands of an environment as one tool, for models that act by tool calls."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from agent_envs.errors import ConfigError
from agent_envs.messages import ToolCall, ToolSpec, join_tool_results
from agent_envs.parsers import get_parser
from agent_envs.text import clean_text
from agent_envs.text_env import MAX_ACTION_LENGTH
from agent_envs.tool_env import MAX_NAME_LENGTH
from agent_envs.tools import ToolRegistry, tool
from agent_envs.tools.registry import ToolResult
from agent_envs.wrapping.order import check_order

__all__ = ["AsTool"]


class AsTool(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Takes commands as calls of one tool, `env_step{"command": ...}`, instead of as bare text.

    Several calls in one text are carried out in order, each a step of the environment, until the episode is over;
    their rewards add up. A text without a call, and calls that cannot be read or do not fit the tool, are answered by
    an error text and marked with `info["invalid_action"]`; where no command came of a text, the environment is given an
    empty one, so that it counts as a step. `info["tool_results"]` has a result for each call.

    Args:
        env: An environment whose actions are commands.
        name: The tool's name.
        parser: Name of the wire format of the calls.
        max_calls: Calls carried out per text; each further one gets a result that says so.

    Raises:
        ConfigError: The environment has tools of its own, or an argument is out of range.

    >>> import agent_envs
    >>> env = AsTool(gym.make("AgentR1/ALFWorld-v0", size=1))
    >>> _ = env.reset(seed=0)
    >>> env.step('<tool_call>{"name": "env_step", "arguments": {"command": "inventory"}}</tool_call>')[0]
    'You are not carrying anything.'
    >>> observation, *_, info = env.step("inventory")
    >>> observation[:32], info["invalid_action"]
    ('error: there is no call of a too', True)
    """

    def __init__(
        self, env: gym.Env[str, str], name: str = "env_step", parser: str = "hermes", max_calls: int = 4
    ) -> None:
        check_order(env, "AsTool")
        RecordConstructorArgs.__init__(self, name=name, parser=parser, max_calls=max_calls)
        gym.Wrapper.__init__(self, env)
        if env.get_wrapper_attr("tools"):
            raise ConfigError("AsTool is for environments whose actions are commands; this one has tools already")
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"AsTool: name must be a name such as env_step, got {name!r}")
        if not isinstance(max_calls, int) or isinstance(max_calls, bool) or max_calls < 1:
            raise ConfigError(f"AsTool: max_calls must be an integer of at least 1, got {max_calls!r}")
        get_parser(parser, _registry(name).specs)
        self.name = name
        self.parser = parser
        self.max_calls = max_calls
        self._info: dict[str, Any] = {}

    @property
    def tools(self) -> list[ToolSpec]:
        """The tool, as a chat template's `tools=` takes it."""
        return _registry(self.name).specs

    @property
    def tool_instructions(self) -> str:
        """The tool and how to call it in words, for models whose chat template is not given `tools`."""
        spec = json.dumps(self.tools[0]["function"])
        return f"Tools:\n{spec}\nCall a tool like this: {get_parser(self.parser).describe()}"

    @property
    def instructions(self) -> str:
        """The environment's instructions, and that commands go through the tool."""
        told = self.env.get_wrapper_attr("instructions")
        return f"{told}\n\nGive each command with the tool `{self.name}`, not as bare text.".lstrip()

    def format_call(self, name: str, arguments: dict[str, Any]) -> str:
        """A call in the wire format that is read."""
        return get_parser(self.parser).format(ToolCall(name, arguments))

    def format_command(self, command: str) -> str:
        """A command as a call of the tool."""
        return self.format_call(self.name, {"command": command})

    def expert_action(self) -> str | None:
        """The environment's expert's command, as a call."""
        command = self.env.get_wrapper_attr("expert_action")()
        return None if command is None else self.format_command(command)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """The environment's demonstrator's command, as a call."""
        command = self.env.get_wrapper_attr("demo_action")(rng, noise)
        return None if command is None else self.format_command(command)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Reset; no call has been made."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._info = {**info, "tool_results": []}
        return observation, dict(self._info)

    def malformed_calls(self, action: str) -> list[ToolResult | None]:
        """Of each call in a text what is wrong with its form, None for one that would run; nothing is run."""
        calls = () if len(action) > MAX_ACTION_LENGTH else get_parser(self.parser).parse(clean_text(action)).calls
        if not calls:
            return [ToolResult("", self._reminder(), error=True, invalid=True)]
        return _registry(self.name).refusals(calls)

    def refuse(self, action: str, results: list[ToolResult]) -> tuple[str, dict[str, Any]]:
        """Answer a text without carrying it out: the observation and its info."""
        shown = [_shown(result) for result in results]
        info = {**copy.deepcopy(self._info), "invalid_action": True, "reward_components": {}, "tool_results": shown}
        return self._fit(join_tool_results(shown)), info

    def _fit(self, text: str) -> str:
        return text[: self.observation_space.max_length]  # type: ignore[attr-defined]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out the calls of a text."""
        if not isinstance(action, str):
            raise TypeError(f"an action is a string, got {type(action).__name__}: {action!r:.80}")
        results = self._calls(action)
        shown: list[dict[str, Any]] = []
        rewards, invalid, parts = 0.0, False, dict[str, float]()
        last: tuple[str, Any, bool, bool, dict[str, Any]] | None = None
        for result in results:
            if last is not None and (last[2] or last[3]):
                result = ToolResult(result.name, "error: not run: the episode is over", error=True)
            if result.error:
                invalid |= result.invalid
                shown.append(_shown(result))
                continue
            last = self.env.step(result.content)
            shown.append({"name": self.name, "content": last[0], "error": False})
            rewards += float(last[1])
            invalid |= last[4]["invalid_action"]
            for key, value in last[4]["reward_components"].items():
                parts[key] = parts.get(key, 0.0) + value
        if last is None:
            last = self.env.step("")
            rewards, parts, invalid = float(last[1]), last[4]["reward_components"], True
        text = join_tool_results(shown) if shown else self._reminder()
        info = {**last[4], "invalid_action": invalid, "reward_components": parts, "tool_results": shown}
        self._info = info
        return self._fit(text), rewards, last[2], last[3], info

    def _calls(self, action: str) -> Sequence[ToolResult]:
        """Of each call its command, or what is wrong with it."""
        if len(action) > MAX_ACTION_LENGTH:
            return ()
        calls = get_parser(self.parser).parse(clean_text(action)).calls
        return _registry(self.name).run(calls, max_calls=self.max_calls)

    def _reminder(self) -> str:
        example = self.format_command("...")
        return f"error: there is no call of a tool. Give a command like this: {example}"


def _shown(result: ToolResult) -> dict[str, Any]:
    return {
        "name": clean_text(result.name[:MAX_NAME_LENGTH]),
        "content": clean_text(result.content),
        "error": result.error,
    }


@functools.lru_cache(maxsize=16)
def _registry(name: str) -> ToolRegistry:
    """The tool's checks; what it is called with is for the environment to carry out."""

    @tool(name=name)
    def env_step(command: str) -> str:
        """Carry out one command in the environment and see what comes of it.

        Args:
            command: The command, as the task describes them.
        """
        return command

    return ToolRegistry([env_step])
