"""What becomes of a text whose tool calls cannot be read: it costs a step, is asked for again, or ends the episode."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs

from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.tools.registry import ToolResult
from agent_envs.wrapping.order import check_order

__all__ = ["MalformedCalls"]

POLICIES = ("observe", "retry", "end")
_NOT_RUN = "not run: another call of this text is malformed"


class MalformedCalls(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Says what happens on a malformed call: one that cannot be read, of no tool there is, or with wrong arguments.

    - ``"observe"``: as without this wrapper. The policy sees an error text, the other calls of the text run, and a step
      is used.
    - ``"retry"``: the correction is the observation, nothing of the text is carried out and no step is used: the step
      limit does not count it. After ``max_retries`` in a row the next malformed text is carried out as with "observe".
    - ``"end"``: nothing of the text is carried out, and the episode terminates unsolved with reward 0.

    An empty text is malformed too, and with ``AsTool`` a text without a call. Info counts, per episode, the malformed
    texts (``malformed_calls``) and the retries granted (``retries``). An episode has at most ``1 + max_retries`` times
    as many texts as steps.

    Args:
        env: An environment with tools, or one in ``AsTool``.
        policy: See above.
        max_retries: Corrections in a row with ``"retry"``, at least 1.

    >>> import agent_envs
    >>> env = MalformedCalls(gym.make("AgentR1/GSM8KTool-v0"), policy="retry")
    >>> _ = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step("<tool_call>{oops}</tool_call>")
    >>> observation[:43], info["malformed_calls"], info["retries"]
    ('error: the tool call is not valid JSON: Exp', 1, 1)
    """

    def __init__(self, env: gym.Env[str, str], policy: str = "observe", max_retries: int = 2) -> None:
        if policy not in POLICIES:
            raise ConfigError(f"MalformedCalls: there is no policy {policy!r}.{did_you_mean(policy, POLICIES)}")
        if type(max_retries) is not int or max_retries < 1:
            raise ConfigError(f"MalformedCalls: max_retries must be an integer of at least 1, got {max_retries!r}")
        check_order(env, "MalformedCalls")
        try:
            env.get_wrapper_attr("malformed_calls")
        except AttributeError as e:
            raise ConfigError(
                "MalformedCalls is for environments with tool calls; here the actions are commands: put AsTool beneath "
                "it, or take InvalidActionPenalty"
            ) from e
        RecordConstructorArgs.__init__(self, policy=policy, max_retries=max_retries)
        gym.Wrapper.__init__(self, env)
        self.policy = policy
        self.max_retries = max_retries
        self._malformed = self._retries = self._row = 0
        self._ended = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Reset, and count anew."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._malformed = self._retries = self._row = 0
        self._ended = False
        return observation, self._counted(info)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, unless the text is malformed and the policy says otherwise."""
        if self._ended:
            raise ResetNeeded("the episode is over: call reset() before step()")
        found: list[ToolResult | None] = []
        if isinstance(action, str):
            found = self.env.get_wrapper_attr("malformed_calls")(action)
        malformed = any(found)
        self._malformed += malformed
        if not malformed or self.policy == "observe" or (self.policy == "retry" and self._row == self.max_retries):
            self._row = 0
            observation, reward, terminated, truncated, info = self.env.step(action)
            return observation, reward, terminated, truncated, self._counted(info)
        results = [ToolResult("", _NOT_RUN, error=True) if result is None else result for result in found]
        observation, info = self.env.get_wrapper_attr("refuse")(action, results)
        if self.policy == "end":
            self._ended = True
        else:
            self._row += 1
            self._retries += 1
        return observation, 0.0, self._ended, False, self._counted(info)

    def _counted(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "malformed_calls": self._malformed, "retries": self._retries}
