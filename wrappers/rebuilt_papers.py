"""Paper search with a prompt that is built anew at every step: the query, what was done, the best of the pool."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

__all__ = ["RebuiltPapers"]


class RebuiltPapers(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Shows the whole state instead of what is new, as the released system does: prompts stay short.

    The query; "[Search] query" and "[Expand] id" for every call that ran; of the papers in the pool the best expanded
    and the best others; and what was wrong with the last calls. `info["rebuilt"]` is True, so that an actor forgets the
    conversation and begins with this observation; `info["tool_results"]` is empty, as nothing is shown as one.

    Args:
        env: `AgentR1/PaperSearch-v0`, or any environment with a `rebuilt_observation`.

    >>> import agent_envs
    >>> env = RebuiltPapers(gym.make("AgentR1/PaperSearch-v0", split="test"))
    >>> observation, info = env.reset(options={"index": 0})
    >>> _ = env.step(env.unwrapped.expert_action())
    >>> info["rebuilt"], observation.splitlines()[2:4]
    (True, ['History:', '(none)'])
    """

    def __init__(self, env: gym.Env[str, str]) -> None:
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Reset, and show the state."""
        _, info = self.env.reset(seed=seed, options=options)
        return self._shown(), {**info, "rebuilt": True}

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and show the state."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._shown(), reward, terminated, truncated, {**info, "rebuilt": True, "tool_results": []}

    def _shown(self) -> str:
        observation: str = self.env.get_wrapper_attr("rebuilt_observation")
        return observation
