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
from agent_envs.messages import ParseFailure, ToolCall, ToolSpec, join_tool_results, observation_text
from agent_envs.parsers import get_parser
from agent_envs.pictures.picture import Pictured
from agent_envs.prompts.templates import flat
from agent_envs.spaces import ImageText
from agent_envs.text import check_action, clean_text
from agent_envs.tools import ToolRegistry, tool
from agent_envs.tools.base import open_specs
from agent_envs.tools.registry import ToolResult
from agent_envs.wrapping.order import Place, PlacedWrapper


class AsTool(PlacedWrapper):
    """Take commands as calls of one tool, `env_step{"command": ...}`, instead of as plain text.

    Several calls in one action are carried out in order, each a step of the environment, until the episode ends; their
    rewards add up. An action without a call, and calls that are malformed, are answered by an error text and marked
    with `info["invalid_action"]`; if no command comes of an action, the environment gets an empty one, so that it
    counts as a step. `info["tool_results"]` has a result for each call.

    With `on_invalid="wrap"` or `"keep"`, as in the released recipes, an action from which no command comes does not
    reach the environment, but counts for the limit of `gym.make`, and earns `invalid_reward`; an empty command is none,
    and arguments beside the command are ignored.

    Args:
        env: An environment whose actions are commands.
        name: The tool's name.
        parser: Name of the wire format of the calls.
        max_calls: Number of calls carried out per action; each further one gets a result that says so.
        calls: Which calls of an action count: `"all"`, the `"first"`, or `"exactly_one"`, where several are a mistake.
        on_invalid: What follows on an action without a command: a `"step"` with an empty one; a notice `"wrap"`ped
            around the last observation; or the last observation, `"keep"`.
        invalid_reward: The reward of such an action, unless it is a step.

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
    recorded_arguments = ("name", "parser", "max_calls", "calls", "on_invalid", "invalid_reward")

    def __init__(
        self,
        env: gym.Env[Any, str],
        name: str = "env_step",
        parser: str = "hermes",
        max_calls: int = 4,
        calls: str = "all",
        on_invalid: str = "step",
        invalid_reward: float = 0.0,
    ) -> None:
        if not checks.string("name", name).isidentifier():
            raise ConfigError(f"name must be a name such as env_step, got {checks.shown(name)}")
        self.name = name
        self.max_calls = checks.integer("max_calls", max_calls, minimum=1)
        self.calls = checks.choice("calls", calls, ("all", "first", "exactly_one"))
        self.on_invalid = checks.choice("on_invalid", on_invalid, ("step", "wrap", "keep"))
        self.invalid_reward = checks.number("invalid_reward", invalid_reward)
        how = {"calls": calls, "on_invalid": on_invalid, "invalid_reward": invalid_reward}
        super().__init__(env, name=name, parser=parser, max_calls=max_calls, **how)
        if env.get_wrapper_attr("tools"):
            raise ConfigError("AsTool is for environments whose actions are commands; this one has tools already")
        get_parser(parser, self.tools)
        self.parser = get_parser(parser)
        space = env.observation_space
        if isinstance(space, ImageText):
            if on_invalid == "wrap":
                raise ConfigError("on_invalid='wrap' is for text; this environment shows pictures: use 'keep'")
            self.observation_space = ImageText(space.max_length, space.max_images * max_calls, space.max_side)
        self._info: dict[str, Any] = {}
        self.last_observation: Any = ""
        self._decisions = 0

    @property
    def tools(self) -> list[ToolSpec]:
        """The tool, as a chat template's `tools=` takes it."""
        specs = _registry(self.name).specs
        return specs if self.on_invalid == "step" else open_specs(specs)

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
        self.last_observation, self._decisions = observation, 0
        return observation, dict(self._info)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        check_action(action)
        self._decisions += 1
        if self.on_invalid != "step" and (reason := self.read_commands(action)[1]):
            return self._without_step(reason)
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
        self.last_observation = self._fit(text)
        return self.last_observation, reward, last[2], last[3] or self._at_limit(last[2]), self._info

    def read_commands(self, action: str) -> tuple[list[str], str]:
        """Return the commands of an action, and why there is none ("" if there is one); nothing is carried out."""
        calls = self._calls(action)
        refused = _registry(self.name).refusals(calls)
        commands = [call.arguments["command"] for call, no in zip(calls, refused, strict=True) if no is None]
        reason = next((result.content for result in refused if result), "there is no call of a tool")
        return commands[: self.max_calls], "" if commands else flat(reason.removeprefix("error: "))

    def _without_step(self, reason: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Answer an action of which no command comes; the environment does not hear of it."""
        if self.on_invalid == "wrap":
            sample = json.dumps({"name": self.name, "arguments": {"command": "..."}})
            notice = f"Call {self.name} once in a turn, with one command, like this: {sample}\nReason: {reason}"
            self.last_observation = self._fit(
                f"{notice}\n\nNothing has changed.\nThe observation before:\n{self.last_observation}"
            )
        components = {"invalid_call": self.invalid_reward} if self.invalid_reward else {}
        shown = [{"name": self.name, "content": observation_text(self.last_observation), "error": True}]
        self._info = {**self._info, "invalid_action": True, "reward_components": components, "tool_results": shown}
        return self.last_observation, self.invalid_reward, False, self._at_limit(False), self._info

    def _at_limit(self, terminated: bool) -> bool:
        """Return whether actions that were no steps have used up the limit of `gym.make`."""
        limit = None if self.on_invalid == "step" or self.spec is None else self.spec.max_episode_steps
        return limit is not None and not terminated and self._decisions >= limit > 0

    def _calls(self, action: str) -> tuple[Any, ...]:
        if not self.env.action_space.contains(action):
            return ()
        calls = self.parser.parse(clean_text(action)).calls
        if self.calls == "exactly_one" and len(calls) > 1:
            return (ParseFailure(f"there are {len(calls)} calls of tools; write exactly one", action),)
        calls = calls[:1] if self.calls == "first" else calls
        return calls if self.on_invalid == "step" else tuple(map(_only_command, calls))

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


def _only_command(call: ToolCall | ParseFailure) -> ToolCall | ParseFailure:
    """Return a call without other arguments than the command, which must not be empty."""
    command = call.arguments.get("command") if isinstance(call, ToolCall) else None
    if not isinstance(call, ToolCall) or not isinstance(command, str):
        return call
    if not command.strip():
        return ParseFailure("the command is empty", call.raw)
    return ToolCall(call.name, {"command": command.strip()}, call.raw)


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
