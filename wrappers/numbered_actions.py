"""Shows the actions that can be taken as a numbered list and reads a number, for small models."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.pictures.picture import around
from agent_envs.registration import available_actions
from agent_envs.spaces import longer
from agent_envs.wrapping.order import ObservationWrapper, Place, Shown

_NUMBER = re.compile(r"\s*([0-9]{1,6})(?:[.:)](?!\d)|(?=\s)|$)\s*(.*)", re.DOTALL)
_DOTS = "..."  # stands for free text in an available action
_LIST_LENGTH = 1 << 18  # characters of a list of actions


class NumberedActions(ObservationWrapper):
    """Show the available actions as a numbered list below each observation, and take an action's number for it.

    A small model that cannot yet copy names out of a page can choose a number. Where an action has free text, such as
    ``search[...]``, the text follows the number: ``1 red shoes`` is ``search[red shoes]``. A text that is no number of
    the list reaches the environment unchanged, so commands work as well and anything else is answered there.

    Args:
        env: An environment that lists its actions, such as ALFWorld and WebShop.
        leave_out: Patterns of actions that are not listed (``*`` stands for any characters), such as ``examine *``.

    Raises:
        ConfigError: The environment does not list its actions, or `leave_out` is no list of strings.

    >>> import agent_envs
    >>> env = NumberedActions(gym.make("AgentR1/ALFWorld-v0", size=1), leave_out=["go to *", "examine *"])
    >>> print(env.reset(seed=0)[0].partition("Actions:")[2])
    <BLANKLINE>
    1 help
    2 inventory
    3 look
    >>> env.step("2")[0].splitlines()[0]
    'You are not carrying anything.'
    """

    place = Place.COMMANDS
    recorded_arguments = ("leave_out",)

    def __init__(self, env: gym.Env[Any, str], leave_out: Sequence[str] = ()) -> None:
        if not isinstance(leave_out, (list, tuple)) or not all(isinstance(pattern, str) for pattern in leave_out):
            raise ConfigError(f"leave_out must be a list of patterns, got {checks.shown(leave_out)}")
        super().__init__(env, leave_out=leave_out)
        if not env.has_wrapper_attr("available_actions") or env.get_wrapper_attr("tools"):
            raise ConfigError("NumberedActions needs environments that list their actions: ALFWorld, WebShop, TextGame")
        patterns = (fnmatch.translate(re.sub(r"[?[]", r"[\g<0>]", pattern)) for pattern in leave_out)
        self._left_out = re.compile("|".join(patterns) or "(?!)")
        self.observation_space = longer(env.observation_space, _LIST_LENGTH)
        self.actions: list[str] = []

    @property
    def instructions(self) -> str:
        """The environment's instructions, and that an action is chosen by its number."""
        inner = self.env.get_wrapper_attr("instructions")
        how = f"Answer with the number of an action in the list; where it has {_DOTS}, your text follows the number."
        return f"{inner}\n\n{how}".lstrip()

    def available_actions(self) -> list[str]:
        """Return the numbers of the list, as a policy would write them; ``1 ...`` where free text follows."""
        return [f"{n} {_DOTS}" if _DOTS in action else str(n) for n, action in enumerate(self.actions, start=1)]

    def numbered(self, action: str) -> str:
        """Return an action of the environment by its number in the list; one that is not listed stays unchanged."""
        lower = action.lower()  # WebShop shows `Buy Now` and lists `click[buy now]`
        for n, listed in enumerate(self.actions, start=1):
            before, dots, after = listed.lower().partition(_DOTS)
            if lower == before and not dots:
                return str(n)
            if dots and lower.startswith(before) and lower.endswith(after):
                return f"{n} {action[len(before) : len(action) - len(after)]}"
        return action

    def expert_action(self) -> str | None:
        """Return the number of the expert's action."""
        action = self.env.get_wrapper_attr("expert_action")()
        return None if action is None else self.numbered(action)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the number of the demonstrator's action."""
        action = self.env.get_wrapper_attr("demo_action")(rng, noise)
        return None if action is None else self.numbered(action)

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        if over:
            return observation, info
        actions = available_actions(self.env) or []
        self.actions = [action for action in actions if not self._left_out.fullmatch(action)]
        lines = [f"{n} {action}" for n, action in enumerate(self.actions, start=1)]
        text = "\n".join(["", "", "Actions:", *lines])[:_LIST_LENGTH] if lines else ""
        return around("", observation, text), info

    def _sent(self, action: str) -> str:
        """Return the action that a text chooses, or the text if it is no number of the list."""
        match = _NUMBER.fullmatch(action) if isinstance(action, str) else None
        if match is None or not 1 <= int(match[1]) <= len(self.actions):
            return action
        before, dots, after = self.actions[int(match[1]) - 1].partition(_DOTS)
        text = match[2].strip()
        if dots:
            return f"{before}{text}{after}" if text else action
        return action if text else before
