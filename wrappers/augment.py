"""Adds what a function returns to an observation: retrieved notes, hints, reminders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.messages import join_tool_results, observation_text
from agent_envs.pictures.picture import around, literal
from agent_envs.spaces import ImageText, longer
from agent_envs.text import clean_text
from agent_envs.wrapping.order import ObservationWrapper, Place, Shown

_MAX_CHARS = 10_000  # of notes; longer ones are cut


class Augment(ObservationWrapper):
    """Add what ``fn`` returns after the observation, under a heading; beyond 10,000 characters it is cut.

    If the observation consists of tool results, the notes become part of the last one, so that the results still answer
    their calls.

    Args:
        fn: A function ``fn(observation, info)`` that returns a string, several strings, or None for nothing to add; or
            its name, ``"module:function"``. It is called once per observation, the first one included.
        heading: The line above the notes; "" for none.

    >>> import agent_envs
    >>> def hint(observation, info):
    ...     return "Write #### before the answer." if not info["reward_components"] else None
    >>> env = Augment(gym.make("AgentR1/GSM8K-v0"), fn=hint, heading="Hint:")
    >>> print(env.reset(seed=0)[0][-35:])
    Hint:
    Write #### before the answer.
    """

    place = Place.NOTES
    carries_pictures = True
    repeatable = True

    def __init__(
        self,
        env: gym.Env[Any, str],
        fn: str | Callable[[str, dict[str, Any]], str | Sequence[str] | None],
        heading: str = "Notes:",
    ) -> None:
        self.heading = checks.string("heading", heading)
        super().__init__(env, fn=fn, heading=heading)
        self._shared = checks.load_function(fn, what="fn")
        self._pictured = isinstance(env.observation_space, ImageText)
        # Twice the length: where there are pictures, `<image>` in the notes becomes longer by a space.
        more = _MAX_CHARS + len(heading) + 3
        self.observation_space = longer(env.observation_space, 2 * more if self._pictured else more)

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        notes = self._shared(observation, info)
        if notes is None:
            return observation, info
        lines = [notes] if isinstance(notes, str) else list(notes)
        if not all(isinstance(line, str) for line in lines):
            raise ConfigError(f"fn must return a string, several strings or None, got {checks.shown(notes)}")
        text = clean_text("\n".join(lines))[:_MAX_CHARS]
        if not text:
            return observation, info
        text = f"{self.heading}\n{text}" if self.heading else text
        results = info.get("tool_results")
        if results and join_tool_results(results) == observation_text(observation):
            results = [dict(result) for result in results]
            added = literal(text) if self._pictured else text
            results[-1]["content"] = around("", results[-1]["content"], f"\n\n{added}")
            info = {**info, "tool_results": results}
        return around("", observation, f"\n\n{text}"), info
