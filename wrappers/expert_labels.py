"""Says what the expert would do next, so that a trainer can teach it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from agent_envs.wrappers.chat_messages import action_parser
from agent_envs.wrapping.order import ObservationWrapper, Place, Shown


class ExpertLabels(ObservationWrapper):
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

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        if over or not self.env.has_wrapper_attr("expert_action"):  # games that are no text environments have none
            return observation, info
        if (right := self.env.get_wrapper_attr("expert_action")()) is None:
            return observation, info
        parser = action_parser(self.env)
        return observation, {**info, "expert_action": right, "expert_calls": bool(parser and parser.parse(right).calls)}
