"""Says what the expert would do next, so that a trainer can teach it."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs.wrapping.order import Place, PlacedWrapper


class ExpertLabels(PlacedWrapper):
    """Add to info what the expert would do in the state that was reached, whoever got there, for ``--teacher``.

    ``info["expert_action"]`` is the text of its action, in the form that the wrappers beneath take: put it outermost.
    ``info["expert_calls"]`` says whether a tool answers it. At the end of an episode, and where the expert knows
    nothing to do, there is neither. A policy does not see info.

    >>> import agent_envs
    >>> env = ExpertLabels(gym.make("AgentR1/ALFWorld-v0", size=1))
    >>> _, info = env.reset(seed=0)
    >>> info["expert_action"] == env.unwrapped.expert_action()
    True
    """

    place = Place.ANYWHERE
    carries_pictures = True
    recorded_arguments = ()

    def __init__(self, env: gym.Env[Any, str]) -> None:
        super().__init__(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._labelled(info)

    def step(self, action: str) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        over = terminated or truncated
        return observation, reward, terminated, truncated, info if over else self._labelled(info)

    def _labelled(self, info: dict[str, Any]) -> dict[str, Any]:
        known = self.env.has_wrapper_attr("expert_action")  # not so in games that are no text environments
        if not known or (action := self.env.get_wrapper_attr("expert_action")()) is None:
            return info
        parser = self.env.get_wrapper_attr("parser") if self.env.has_wrapper_attr("parser") else None
        return {**info, "expert_action": action, "expert_calls": bool(parser and parser.parse(action).calls)}
