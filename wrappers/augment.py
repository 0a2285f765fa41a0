"""Wrappers of what the policy sees and says: notes, instructions and an expert's labels added, reasoning removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.messages import join_tool_results, observation_text
from agent_envs.parsers.reasoning import strip_reasoning
from agent_envs.pictures.picture import around, literal
from agent_envs.spaces import ImageText, longer
from agent_envs.text import clean_text
from agent_envs.wrappers.chat_messages import action_parser
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


class PrependInstructions(ObservationWrapper):
    """Put the instructions, and the tools with the way to call them, before the first observation of each episode.

    Where every observation is a whole prompt (``RebuildPrompt``), they go before each. Policies that build a prompt
    from ``instructions`` and ``tools`` find them empty, so that nothing is shown twice.

    Args:
        separator: What stands between the instructions and the observation.

    >>> import agent_envs
    >>> env = PrependInstructions(gym.make("AgentR1/GSM8K-v0"))
    >>> observation, info = env.reset(seed=0)
    >>> observation.startswith(env.unwrapped.instructions), env.instructions
    (True, '')
    """

    place = Place.INSTRUCTIONS
    recorded_arguments = ("separator",)
    instructions = ""
    """Empty: the observation has them."""
    tools: tuple[()] = ()
    """Empty: the observation has them."""

    def __init__(self, env: gym.Env[Any, str], separator: str = "\n\n") -> None:
        self.separator = checks.string("separator", separator)
        super().__init__(env, separator=separator)

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        if action is None or info.get("rebuilt", False):
            parts = [self.env.get_wrapper_attr(name) for name in ("instructions", "tool_instructions")]
            observation = around("".join(part + self.separator for part in parts if part), observation, "")
        return observation, info


class StripReasoning(ObservationWrapper):
    """Remove reasoning from an action before the environment reads it: ``<think>``, ``[THINK]``, Harmony's analysis.

    Environments with tools do this themselves, in their parsers. Those whose action is the whole text need this wrapper
    with a model that thinks. Later prompts show the action as it was, or without reasoning under
    ``ChatMessages(reasoning="strip")``.

    >>> import agent_envs
    >>> env = StripReasoning(gym.make("AgentR1/ALFWorld-v0", size=1))
    >>> _ = env.reset(seed=0)
    >>> env.step("<think>What do I have?</think>inventory")[0]
    'You are not carrying anything.'
    """

    place = Place.REASONING
    recorded_arguments = ()

    def __init__(self, env: gym.Env[Any, str]) -> None:
        super().__init__(env)

    def _sent(self, action: str) -> str:
        return strip_reasoning(action, action_parser(self.env)) if isinstance(action, str) else action


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
