"""A policy that asks a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from agent_envs.errors import EmptyGeneration
from agent_envs.messages import Observation, latest_words, observation_text
from agent_envs.policies.policy import Response
from agent_envs.policies.terminal import read_text, show, tool_lines
from agent_envs.policies.terminal_pictures import PersonPictures
from agent_envs.registration import available_actions

__all__ = ["HumanPolicy"]


class HumanPolicy:
    """Show observations at the terminal and ask a person for every action.

    The instructions and tools come first, and the available actions before each step if the environment can list them.
    A line is an action; a backslash at its end continues it on the next. The end of the input (Ctrl-D) ends the episode
    with ``StopReason.EMPTY_GENERATION``. A person plays one episode at a time: use ``concurrency=1`` in
    ``run_episodes``. Pictures are drawn by a terminal that draws (kitty, iTerm2 and others), else written to files.

    Args:
        ask: Shows a prompt and returns what the person writes; raises EOFError at the end. Default: standard input.
        show: Shows untrusted text. Default: standard output, with control characters escaped.
    """

    def __init__(self, ask: Callable[[str], str] = read_text, show: Callable[[str], None] = show) -> None:
        self.ask = ask
        self.show = show

    def start(self, env: gym.Env[Any, str]) -> _HumanActor:
        instructions, tools = env.get_wrapper_attr("instructions"), env.get_wrapper_attr("tools")
        if instructions:
            self.show(instructions)
        if tools:
            example = env.get_wrapper_attr("tool_instructions").rpartition("\n")[2]  # how to write a call
            self.show(f"Tools:\n{tool_lines(tools)}\n{example}")
        return _HumanActor(self, env)


class _HumanActor:
    def __init__(self, policy: HumanPolicy, env: gym.Env[Any, str]) -> None:
        self._policy = policy
        self._env = env
        self._pictures = PersonPictures()

    def act(self, observation: Observation, info: dict[str, Any]) -> Response:
        policy = self._policy
        policy.show(f"\n{observation_text(observation)}")
        self._pictures.show(latest_words(observation), policy.show)
        if actions := available_actions(self._env):
            policy.show(f"Commands: {', '.join(actions)}")
        while True:
            try:
                text = policy.ask("> ")
            except EOFError as e:
                raise EmptyGeneration("the input has ended") from e
            if text.strip():
                return Response(text)
