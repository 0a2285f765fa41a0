"""Decides what becomes of an action with a malformed call: it costs a step, is retried, or ends the episode."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.error import ResetNeeded

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.tools.registry import ToolResult
from agent_envs.wrapping.order import Place, PlacedWrapper

_NOT_RUN = "not run: another call of this text is malformed"


class MalformedCalls(PlacedWrapper):
    """Decide what happens on a malformed call: one that cannot be parsed, names no tool, or has wrong arguments.

    - ``"observe"``: as without this wrapper. The policy sees an error text, the other calls of the action run, and the
      step counts.
    - ``"retry"``: the observation is the error, nothing of the action is carried out, and the step limit does not count
      the step. After ``max_retries`` in a row, the next malformed action is carried out as with "observe".
    - ``"end"``: nothing of the action is carried out, and the episode terminates unsolved with reward 0.

    An empty action is malformed too, and with ``AsTool`` an action without a call. Info counts, per episode, the
    malformed actions (``malformed_calls``) and the retries granted (``retries``). An episode has at most
    ``1 + max_retries`` times as many actions as steps.

    Args:
        env: An environment with tools, or one in ``AsTool``.
        policy: See above.
        max_retries: Maximum number of retries in a row with ``"retry"``, at least 1.

    >>> import agent_envs
    >>> env = MalformedCalls(gym.make("AgentR1/GSM8KTool-v0"), policy="retry")
    >>> _ = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step("<tool_call>{oops}</tool_call>")
    >>> observation[:43], info["malformed_calls"], info["retries"]
    ('error: the tool call is not valid JSON: Exp', 1, 1)
    """

    place = Place.CALLS
    recorded_arguments = ("policy", "max_retries")

    def __init__(self, env: gym.Env[Any, str], policy: str = "observe", max_retries: int = 2) -> None:
        self.policy = checks.choice("policy", policy, ("observe", "retry", "end"))
        self.max_retries = checks.integer("max_retries", max_retries, minimum=1)
        super().__init__(env, policy=policy, max_retries=max_retries)
        if not env.has_wrapper_attr("malformed_calls"):
            raise ConfigError(
                "MalformedCalls is for environments with tool calls; here the actions are commands: put AsTool beneath "
                "it, or use InvalidActionPenalty instead"
            )
        self._malformed = self._retries = self._row = 0
        self._ended = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._malformed = self._retries = self._row = 0
        self._ended = False
        return observation, self._counted(info)

    def step(self, action: str) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._ended:
            raise ResetNeeded("the episode is over: call reset() before step()")
        read = self.env.get_wrapper_attr("malformed_calls")
        errors: list[ToolResult | None] = read(action) if isinstance(action, str) else []
        malformed = any(errors)
        self._malformed += malformed
        if not malformed or self.policy == "observe" or (self.policy == "retry" and self._row == self.max_retries):
            self._row = 0
            observation, reward, terminated, truncated, info = self.env.step(action)
            return observation, reward, terminated, truncated, self._counted(info)
        results = [ToolResult("", _NOT_RUN, error=True) if error is None else error for error in errors]
        observation, info = self.env.get_wrapper_attr("refuse")(action, results)
        if self.policy == "end":
            self._ended = True
        else:
            self._row += 1
            self._retries += 1
        return observation, 0.0, self._ended, False, self._counted(info)

    def _counted(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "malformed_calls": self._malformed, "retries": self._retries}
