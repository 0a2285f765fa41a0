"""The order of wrappers: the places, the check at construction, and the wrappers of Gymnasium that harm text."""

from __future__ import annotations

import enum
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.checks import CheckedArguments
from agent_envs.errors import ConfigError
from agent_envs.messages import copied
from agent_envs.registration import layers
from agent_envs.spaces import ImageText, MessagesSpace, UnicodeText

Shown = tuple[Any, dict[str, Any]]
"""An observation and its info."""


class Place(enum.IntEnum):
    """The place of a wrapper, counted from the environment outwards."""

    GAME = enum.auto()
    """Turns an environment with discrete actions into one over text."""
    COMMANDS = enum.auto()
    """Changes the form of actions."""
    CALLS = enum.auto()
    """Decides what becomes of malformed calls."""
    REASONING = enum.auto()
    """Removes reasoning from actions."""
    STATE = enum.auto()
    """Rebuilds the observation."""
    NOTES = enum.auto()
    """Adds to the observation."""
    INSTRUCTIONS = enum.auto()
    """Adds the instructions to the observation."""
    MESSAGES = enum.auto()
    """Makes the observation a list of messages."""
    CONTEXT = enum.auto()
    """Chooses which messages are shown."""
    BUDGET = enum.auto()
    """Limits the size of the prompt."""
    REWARD = enum.auto()
    """Changes rewards: anywhere above `CALLS`."""
    ANYWHERE = enum.auto()
    """Watches what passes."""


class PlacedWrapper(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs, CheckedArguments):
    """Base of the wrappers of this package: each declares its place, and is refused in a wrong one.

    Args:
        env: The environment to wrap.
        arguments: The constructor's other arguments, which the environment's spec keeps. They are not copied, so that
            functions, tokenizers and clients are shared.

    Raises:
        ConfigError: The wrapper does not fit around `env`; the message gives the right order.
    """

    place: ClassVar[Place]
    repeatable: ClassVar[bool] = False
    """Whether a stack may have several of them."""
    selects_history: ClassVar[bool] = False
    """Whether it decides which earlier steps are shown: a stack may have one wrapper that does."""

    def __init__(self, env: gym.Env[Any, Any], **arguments: Any) -> None:
        _check_order(env, type(self))
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)
        gym.Wrapper.__init__(self, env)


class ObservationWrapper(PlacedWrapper):
    """Base of the wrappers that change what is sent to the environment (`_sent`) or what comes back (`_observed`)."""

    last_observation: Any = ""
    _full = False  # whether no further step can be shown, which truncates the episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._remembered(*self._observed(*self.env.reset(seed=seed, options=options), None, False))

    def step(self, action: str) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(self._sent(action))
        observation, info = self._remembered(*self._observed(observation, info, action, terminated or truncated))
        return observation, reward, terminated, truncated or (self._full and not terminated), info

    def _remembered(self, observation: Any, info: dict[str, Any]) -> Shown:
        self.last_observation = copied(observation) if isinstance(observation, list) else observation
        return observation, info

    def _sent(self, action: str) -> str:
        """Return the action that the environment gets."""
        return action

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        """Return the observation and the info that are shown after an action, None for a reset."""
        return observation, info


def _check_order(env: gym.Env[Any, Any], wrapper: type[PlacedWrapper]) -> None:
    check_stock(env)
    inner = [type(layer) for layer in layers(env) if isinstance(layer, PlacedWrapper)][::-1]
    problem = _problem(env, inner, wrapper)
    if not problem:
        return
    order = {kind.__name__: kind.place for kind in (*inner, wrapper) if kind.place is not Place.ANYWHERE}
    if Place.MESSAGES < wrapper.place <= Place.BUDGET and Place.MESSAGES not in order.values():
        order["ChatMessages"] = Place.MESSAGES
    names = sorted(order, key=order.__getitem__)
    hint = f" In this order: {', '.join(names)}" if len(names) > 1 else ""
    raise ConfigError(f"{wrapper.__name__} {problem}.{hint}")


def _problem(env: gym.Env[Any, Any], inner: list[type[PlacedWrapper]], wrapper: type[PlacedWrapper]) -> str:
    """Say why a wrapper does not go around `env` in its wrappers `inner`, innermost first; "" if it does."""
    place, observations = wrapper.place, env.observation_space
    if place is Place.GAME:
        text = isinstance(env.action_space, UnicodeText)
        return "is for environments with discrete actions; this is a text environment already" if text else ""
    if place >= Place.REWARD:
        return ""
    others = [kind.__name__ for kind in inner if kind.selects_history and kind is not wrapper]
    if wrapper.selects_history and others:
        return f"and {others[0]} cannot be combined: each decides which earlier steps are shown"
    if any(kind.place is place for kind in inner) and not wrapper.repeatable:
        return "is there already: once is enough"
    if above := [kind.__name__ for kind in inner if place < kind.place < Place.REWARD]:
        return f"must go beneath {' and '.join(above)}"
    # Beneath a wrapper that changes the form of actions, rewards are given per command.
    start = next((i for i, kind in enumerate(inner) if kind.place is Place.COMMANDS), 0)
    if place is Place.CALLS and (rewards := [kind for kind in inner[start:] if kind.place is Place.REWARD]):
        return f"must go beneath {rewards[0].__name__}, which would not see the steps that it adds or ends"
    if place > Place.MESSAGES:
        return "" if isinstance(observations, MessagesSpace) else "needs messages: put ChatMessages beneath it"
    if isinstance(observations, MessagesSpace):
        return "needs text: put it beneath the wrapper that makes messages"
    if not isinstance(observations, (UnicodeText, ImageText)):
        return f"needs text, got {observations}; TextGame turns discrete actions into text"
    return ""


_PICTURES = """AddRenderObservation AddWhiteNoise AtariPreprocessing GrayscaleObservation HumanRendering ObstructView
RecordVideo ResizeObservation"""
_ARRAYS = """ArrayConversion ClipAction DiscretizeAction DiscretizeObservation DtypeObservation FlattenObservation
JaxToNumpy JaxToTorch MaxAndSkipObservation NormalizeObservation NumpyToTorch RescaleAction RescaleObservation
ReshapeObservation TimeAwareObservation"""
REFUSED: dict[str, str] = {
    **dict.fromkeys(_PICTURES.split(), "it works on pictures"),
    **dict.fromkeys(_ARRAYS.split(), "it works on arrays of numbers"),
    "DelayObservation": "the policy would answer an observation from before its last action",
    "RepeatAction": "calls would be made several times",
    "StickyAction": "another text than the policy's would be carried out",
}
"""Gymnasium's wrappers that harm text, and why."""


def check_stock(env: gym.Env[Any, Any]) -> None:
    """Refuse a text environment in one of Gymnasium's wrappers that harm text, with the reason, by a ConfigError."""
    if not isinstance(env.unwrapped.action_space, UnicodeText):
        return
    for layer in layers(env):
        name = type(layer).__name__
        if type(layer).__module__.startswith("gymnasium.") and name in REFUSED:
            fitting = "docs/wrappers.md lists those that fit"
            raise ConfigError(f"Gymnasium's {name} is not for text: {REFUSED[name]}. Leave it out; {fitting}")
