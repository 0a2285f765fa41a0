"""Plays any Gymnasium environment with a few discrete actions by text, and shows its states as pictures."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from gymnasium.error import DependencyNotInstalled
from gymnasium.utils import RecordConstructorArgs

from agent_envs import checks
from agent_envs.errors import ConfigError, MissingExtraError
from agent_envs.pictures.picture import Picture, Pictured
from agent_envs.pictures.png import shrunk
from agent_envs.spaces import ImageText
from agent_envs.wrappers.text_game import TextGame

_rendering = threading.Lock()  # pygame, and importing it, are not thread-safe


class ImageGame(TextGame):
    """Play an environment with discrete actions by their names, and show its states as pictures.

    The twin of `TextGame`: actions, rewards, ends and info are the same, and the observation is the picture that the
    environment renders in mode ``"rgb_array"``: ``{"text": "<image>", "images": (array,)}`` in the space `ImageText`.
    The anchor in info is a digest of the picture.

    Args:
        env: The environment, including its step limit, made with ``render_mode="rgb_array"``.
        actions: The names of the actions, in order; None for those of Gymnasium's own games, else ``0``, ``1``...
        instructions: Shown to the policy before the names of the actions.
        max_side: Longest side of a picture in pixels. A larger one is shrunk, which needs the extra ``games``.

    Raises:
        ConfigError: The actions are not discrete, the number of names differs from theirs, or the environment renders
            no pictures.

    >>> env = ImageGame(gym.make("FrozenLake-v1", render_mode="rgb_array", is_slippery=False))
    >>> observation, info = env.reset(seed=0)
    >>> observation["text"], observation["images"][0].shape
    ('<image>', (256, 256, 3))
    >>> env.step("I jump")[0]["text"]
    'Expected one of these actions: left, down, right, up.\\n<image>'
    """

    recorded_arguments = ("max_side",)

    def __init__(
        self,
        env: gym.Env[Any, Any],
        actions: Sequence[str] | None = None,
        instructions: str | None = None,
        max_side: int = 1024,
    ) -> None:
        self.max_side = checks.integer("max_side", max_side, minimum=1)
        arguments = {"actions": actions, "instructions": instructions, "max_side": max_side}
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)  # the base's are left out then
        super().__init__(env, actions, instructions)
        if env.render_mode != "rgb_array":
            raise ConfigError(
                "ImageGame needs an environment that renders pictures: make it with render_mode='rgb_array', got "
                f"{checks.shown(env.render_mode)}"
            )
        self.observation_space = ImageText(65536, max_images=1, max_side=self.max_side)
        self._said = Pictured()
        self._seen = ""

    def _after(self, words: str) -> Any:
        return Pictured(words, self._said).observation()

    def _anchor(self) -> str:
        return self._seen

    def _show(self, observation: Any) -> Any:
        try:
            with _rendering:
                rendered: Any = self.env.render()
        except DependencyNotInstalled as e:
            if "pygame" not in str(e):
                raise
            raise MissingExtraError("pygame-ce", extra="games") from e
        picture = Picture(shrunk(rendered, self.max_side))
        self._said, self._seen = Pictured(picture), f"picture {picture.digest[:16]}"
        return self._said.observation()
