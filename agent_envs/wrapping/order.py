"""In which order wrappers go: one table, and the check that every wrapper of this package makes when it is constructed.

From the environment outwards: how the policy's text is read, what an observation says, the whole prompt as messages,
what of it is kept. Wrappers that only add to the reward go anywhere above the ones that decide what counts as a step.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from agent_envs.errors import ConfigError
from agent_envs.layers import layers
from agent_envs.spaces import MessagesSpace, UnicodeText

__all__ = ["ORDER", "REFUSED", "check_order", "check_stock", "stack_names"]

ORDER: tuple[str, ...] = (
    "TextGame",
    "AsTool",
    "MalformedCalls",
    "StripReasoning",
    "RebuildPrompt",
    "Augment",
    "PrependInstructions",
    "ChatMessages",
    "SlidingWindow",
    "Summarize",
    "TokenBudget",
)
"""Wrappers whose order matters, from the environment outwards."""

_REWARDS = ("FormatReward", "InvalidActionPenalty", "RewardNormalisation", "StepPenalty", "ToolCallReward")
_TEXT = frozenset(ORDER[: ORDER.index("ChatMessages") + 1]) - {"TextGame"}
_LISTS = frozenset(ORDER[ORDER.index("ChatMessages") + 1 :])
_REPEATABLE = frozenset({"Augment"})
_ONE_OF = (("RebuildPrompt", "SlidingWindow", "Summarize"),)
_WHY_ONE = "each decides which earlier steps are shown"

_PICTURES = [
    "AddRenderObservation",
    "AddWhiteNoise",
    "AtariPreprocessing",
    "GrayscaleObservation",
    "HumanRendering",
    "ObstructView",
    "RecordVideo",
    "ResizeObservation",
]
_ARRAYS = [
    "ArrayConversion",
    "ClipAction",
    "DiscretizeAction",
    "DiscretizeObservation",
    "DtypeObservation",
    "FlattenObservation",
    "JaxToNumpy",
    "JaxToTorch",
    "MaxAndSkipObservation",
    "NormalizeObservation",
    "NumpyToTorch",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "TimeAwareObservation",
]
REFUSED: dict[str, str] = {
    **dict.fromkeys(_PICTURES, "it is for pictures"),
    **dict.fromkeys(_ARRAYS, "it is for arrays of numbers"),
    "DelayObservation": "the policy would answer what was said before its last action",
    "RepeatAction": "calls would be made several times",
    "StickyAction": "another text than the policy's would be carried out",
}
"""Gymnasium's wrappers that do harm to text, and why."""


def check_order(env: gym.Env[Any, Any], wrapper: str) -> None:
    """Refuse a wrapper that does not go above what ``env`` is wrapped in already.

    Args:
        env: What is to be wrapped.
        wrapper: The name of the wrapper's class.

    Raises:
        ConfigError: Says what is wrong and names the right order.

    >>> import agent_envs
    >>> check_order(gym.make("AgentR1/GSM8K-v0"), "SlidingWindow")
    Traceback (most recent call last):
    ...
    agent_envs.errors.ConfigError: SlidingWindow is over messages: put ChatMessages beneath it. In this order: \
ChatMessages, SlidingWindow
    """
    check_stock(env)
    inner = [name for name in stack_names(env) if name in ORDER or name in _REWARDS]
    problem = _problem(env, inner, wrapper)
    if problem:
        wanted = {*inner, wrapper} | ({"ChatMessages"} if wrapper in _LISTS else set())
        order = [name for name in (*ORDER, *_REWARDS) if name in wanted]
        hint = f" In this order: {', '.join(order)}" if len(order) > 1 else ""
        raise ConfigError(f"{wrapper} {problem}.{hint}")


def _problem(env: gym.Env[Any, Any], inner: list[str], wrapper: str) -> str:
    if wrapper in inner and wrapper in ORDER and wrapper not in _REPEATABLE:
        return "is there already: once is enough"
    if wrapper == "TextGame":
        if isinstance(env.action_space, UnicodeText):
            return "makes a text environment of one with discrete actions; this one is a text environment already"
        return ""
    for group in _ONE_OF:
        others = [name for name in inner if name in group]
        if wrapper in group and others:
            return f"and {others[0]} do not go together: {_WHY_ONE}; keep one of them"
    if wrapper in ORDER:
        above = [name for name in inner if name in ORDER and ORDER.index(name) > ORDER.index(wrapper)]
        if above:
            return f"goes beneath {' and '.join(above)}"
    per_text = inner[inner.index("AsTool") :] if "AsTool" in inner else inner  # beneath it rewards are per command
    if wrapper == "MalformedCalls" and any(name in _REWARDS for name in per_text):
        reward = next(name for name in per_text if name in _REWARDS)
        return f"goes beneath {reward}, which would not see the steps that it adds or ends"
    if wrapper in _LISTS and not isinstance(env.observation_space, MessagesSpace):
        return "is over messages: put ChatMessages beneath it"
    if wrapper in _TEXT and not isinstance(env.observation_space, UnicodeText):
        if isinstance(env.observation_space, MessagesSpace):
            return "is over text, and goes beneath what makes messages of it"
        return f"is over text, got {env.observation_space}; TextGame makes a text environment of one with few actions"
    return ""


def check_stock(env: gym.Env[Any, Any]) -> None:
    """Refuse what is wrapped in one of Gymnasium's wrappers that do harm to text.

    Raises:
        ConfigError: Says which and why.
    """
    if not isinstance(env.unwrapped.action_space, UnicodeText):
        return
    for layer in layers(env):
        if type(layer).__module__.startswith("gymnasium.") and type(layer).__name__ in REFUSED:
            name = type(layer).__name__
            raise ConfigError(
                f"Gymnasium's {name} is not for text: {REFUSED[name]}. Leave it out; docs/wrappers.md says which fit"
            )


def stack_names(env: gym.Env[Any, Any]) -> list[str]:
    """The names of an environment's wrappers, innermost first; a subclass of a known one counts as that one.

    >>> stack_names(gym.wrappers.TimeLimit(gym.make("CartPole-v1"), 5))
    ['PassiveEnvChecker', 'OrderEnforcing', 'TimeLimit', 'TimeLimit']
    """
    known = {*ORDER, *_REWARDS}
    *wrappers, _ = layers(env)
    return [
        next((c.__name__ for c in type(wrapper).__mro__ if c.__name__ in known), type(wrapper).__name__)
        for wrapper in reversed(wrappers)
    ]
