"""Offers the commands of an environment as one tool, for models that act by tool calls."""

from __future__ import annotations

import copy
import functools
import json
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.messages import ToolCall, ToolSpec, join_tool_results, observation_text
from agent_envs.parsers import get_parser
from agent_envs.pictures.picture import Pictured
from agent_envs.spaces import ImageText
from agent_envs.text import check_action, clean_text
from agent_envs.tools import ToolRegistry, tool
from agent_envs.tools.registry import ToolResult
from agent_envs.wrapping.order import Place, PlacedWrapper

__all__ = ["AsTool"]


class AsTool(PlacedWrapper):
    """Take commands as calls of one tool, `env_step{"command": ...}`, instead of as plain text.

    Several calls in one action are carried out in order, each a step of the environment, until the episode ends; their
    rewards add up. An action without a call, and calls that are malformed, are answered by an error text and marked
    with `info["invalid_action"]`; if no command comes of an action, the environment gets an empty one, so that it
    counts as a step. `info["tool_results"]` has a result for each call.

    Args:
        env: An environment whose actions are commands.
        name: The tool's name.
        parser: Name of the wire format of the calls.
        max_calls: Number of calls carried out per action; each further one gets a result that says so.

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

    place = Place.COMMANDS
    carries_pictures = True
    recorded_arguments = ("name", "parser", "max_calls")

    def __init__(
        self, env: gym.Env[Any, str], name: str = "env_step", parser: str = "hermes", max_calls: int = 4
    ) -> None:
        if not checks.string("name", name).isidentifier():
            raise ConfigError(f"name must be a name such as env_step, got {checks.shown(name)}")
        self.name = name
        self.max_calls = checks.integer("max_calls", max_calls, minimum=1)
        super().__init__(env, name=name, parser=parser, max_calls=max_calls)
        if env.get_wrapper_attr("tools"):
            raise ConfigError("AsTool is for environments whose actions are commands; this one has tools already")
        get_parser(parser, self.tools)
        self.parser = get_parser(parser)
        space = env.observation_space
        if isinstance(space, ImageText):
            self.observation_space = ImageText(space.max_length, space.max_images * max_calls, space.max_side)
        self._info: dict[str, Any] = {}

    @property
    def tools(self) -> list[ToolSpec]:
        """The tool, as a chat template's `tools=` takes it."""
        return _registry(self.name).specs

    @property
    def tool_instructions(self) -> str:
        """The tool and how to call it in words, for models whose chat template is not given `tools`."""
        spec = json.dumps(self.tools[0]["function"])
        return f"Tools:\n{spec}\nCall a tool like this: {self.parser.describe()}"

    @property
    def instructions(self) -> str:
        """The environment's instructions, and that commands go through the tool."""
        inner = self.env.get_wrapper_attr("instructions")
        return f"{inner}\n\nGive each command with the tool `{self.name}`, not as bare text.".lstrip()

    def format_call(self, name: str, arguments: dict[str, Any]) -> str:
        return self.parser.format(ToolCall(name, arguments))

    def format_command(self, command: str) -> str:
        """Return a command, such as one of `available_actions()`, as a call of the tool."""
        return self.format_call(self.name, {"command": command})

    def expert_action(self) -> str | None:
        """Return the command of the environment's expert as a call."""
        command = self.env.get_wrapper_attr("expert_action")()
        return None if command is None else self.format_command(command)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the command of the environment's demonstrator as a call."""
        command = self.env.get_wrapper_attr("demo_action")(rng, noise)
        return None if command is None else self.format_command(command)

    def malformed_calls(self, action: str) -> list[ToolResult | None]:
        """Return the error of each call of an action, None for a call that would run; nothing is run."""
        calls = self._calls(action)
        if not calls:
            return [ToolResult("", self._reminder(), error=True, invalid=True)]
        return _registry(self.name).refusals(calls)

    def refuse(self, action: str, results: list[ToolResult]) -> tuple[Any, dict[str, Any]]:
        """Answer an action without carrying it out: return the observation and its info."""
        shown = [result.to_info() for result in results]
        info = {**copy.deepcopy(self._info), "invalid_action": True, "reward_components": {}, "tool_results": shown}
        return self._fit(self._joined(shown, [result.content for result in results])), info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._info = {**info, "tool_results": []}
        return observation, dict(self._info)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        check_action(action)
        shown: list[dict[str, Any]] = []
        said: list[Any] = []
        reward, invalid, components = 0.0, False, dict[str, float]()
        last: tuple[Any, Any, bool, bool, dict[str, Any]] | None = None
        # Running a call of the tool checks its arguments and returns the command.
        for result in _registry(self.name).run(self._calls(action), max_calls=self.max_calls):
            if last is not None and (last[2] or last[3]):
                result = ToolResult(result.name, "error: not run: the episode is over", error=True)
            if result.error:
                invalid |= result.invalid
                shown.append(result.to_info())
                said.append(result.content)
                continue
            last = self.env.step(result.content)
            shown.append({"name": self.name, "content": observation_text(last[0]), "error": False})
            said.append(last[0])
            reward += float(last[1])
            invalid |= last[4]["invalid_action"]
            for key, value in last[4]["reward_components"].items():
                components[key] = components.get(key, 0.0) + value
        if last is None:
            last = self.env.step("")
            reward, components, invalid = float(last[1]), last[4]["reward_components"], True
        text = self._joined(shown, said) if shown else self._reminder()
        self._info = {**last[4], "invalid_action": invalid, "reward_components": components, "tool_results": shown}
        return self._fit(text), reward, last[2], last[3], self._info

    def _calls(self, action: str) -> tuple[Any, ...]:
        return () if not self.env.action_space.contains(action) else self.parser.parse(clean_text(action)).calls

    def _joined(self, shown: list[dict[str, Any]], said: list[Any]) -> Any:
        """Return the observation of some results, whose contents become those that are shown."""
        if not isinstance(self.observation_space, ImageText):
            return join_tool_results(shown)
        parts = list(map(Pictured.of, said))
        for result, part in zip(shown, parts, strict=True):
            result["content"] = part.text
        return Pictured.join("\n", parts)

    def _fit(self, said: Any) -> Any:
        space = self.observation_space
        if isinstance(space, ImageText):
            return Pictured.of(said).fitted(space.max_length, space.max_images, space.max_side).observation()
        return said[: space.max_length]  # type: ignore[attr-defined]

    def _reminder(self) -> str:
        return f"error: there is no call of a tool. Give a command like this: {self.format_command('...')}"


@functools.lru_cache(maxsize=16)
def _registry(name: str) -> ToolRegistry:
    """Return a registry with the tool, which checks the arguments and returns the command."""

    @tool(name=name)
    def env_step(command: str) -> str:
        """Carry out one command in the environment and see what comes of it.

        Args:
            command: The command, as the task describes them.
        """
        return command

    return ToolRegistry([env_step])
