"""Play any Gymnasium environment with a few discrete actions by text, and show its states as text or pictures."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.utils import RecordConstructorArgs

from agent_envs import checks
from agent_envs.errors import ConfigError, MissingExtraError
from agent_envs.messages import ToolSpec
from agent_envs.pictures.picture import Picture, Pictured
from agent_envs.pictures.png import shrunk
from agent_envs.registration import env_name
from agent_envs.spaces import ImageText, UnicodeText
from agent_envs.text import check_action
from agent_envs.wrapping.order import Place, PlacedWrapper

_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
_MAX_ACTIONS = 1000
_GAMES = 100_000  # seeds that count as tasks
_DISCOUNT = 0.999  # so that a way that is longer is worth less
# Gymnasium's documentation gives these names, its environments do not.
_NAMES = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "MountainCar": ("left", "wait", "right"),
    "Acrobot": ("-1", "0", "+1"),
    "LunarLander": ("wait", "left", "main", "right"),
}


class TextGame(PlacedWrapper):
    """Play an environment with discrete actions by their names, and show its states as text.

    An action is a name, its number, or a text whose last word is either. Any other text changes nothing; the answer
    lists the actions, and ``info["invalid_action"]`` is True. The observation is what the environment renders in mode
    ``"ansi"``, with the coloured square in brackets, or else its observation as numbers. Info has the keys of this
    package's environments, so that rollouts and evaluation work. ``success`` is a return above 0 when the game ends.

    A game whose transitions are a table (``env.unwrapped.P``, as those of FrozenLake, Taxi and CliffWalking) has an
    expert, which plays the action of highest value.

    Args:
        env: The environment, including its step limit.
        actions: The names of the actions, in order; None for those of Gymnasium's own games, else ``0``, ``1``...
        instructions: Shown to the policy before the names of the actions.

    Raises:
        ConfigError: The actions are not discrete, or the number of names differs from theirs.

    >>> env = TextGame(gym.make("FrozenLake-v1", render_mode="ansi", is_slippery=False))
    >>> print(env.reset(seed=0)[0])
    [S]FFF
    FHFH
    FFFH
    HFFG
    >>> env.step("I go down")[0].splitlines()[1]
    '[F]HFH'
    """

    place = Place.GAME
    recorded_arguments: ClassVar[tuple[str, ...]] = ("actions", "instructions")

    def __init__(
        self, env: gym.Env[Any, Any], actions: Sequence[str] | None = None, instructions: str | None = None
    ) -> None:
        super().__init__(env, actions=actions, instructions=instructions)
        space = env.action_space
        if not isinstance(space, gym.spaces.Discrete) or space.n > _MAX_ACTIONS:
            raise ConfigError(f"{type(self).__name__} needs at most {_MAX_ACTIONS} discrete actions, got {space}")
        game = "" if env.spec is None else env.spec.name
        names = actions if actions is not None else _NAMES.get(game, [str(i) for i in range(int(space.n))])
        self.names = [str(name).strip().lower() for name in names]
        if len(self.names) != space.n or len(set(self.names)) != len(self.names) or not all(self.names):
            raise ConfigError(f"actions must be {space.n} different names, got {list(names)}")
        self._numbers = {name: int(space.start) + i for i, name in enumerate(self.names)}
        for number in range(int(space.start), int(space.start + space.n)):
            self._numbers.setdefault(str(number), number)
        self.observation_space = UnicodeText(65536)
        self.action_space = UnicodeText(65536)
        how = f"Answer with one of these actions: {', '.join(self.names)}."
        self.instructions = f"{instructions}\n{how}" if instructions else how
        self.tools: list[ToolSpec] = []
        self.tool_instructions = ""
        self.num_tasks = _GAMES  # whatever the seed: where tasks are drawn by index, these are
        self._state: Any = ""
        self._return = 0.0
        self._task_id = ""
        self._solved: tuple[Any, np.ndarray] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; ``options["index"]`` is used as the seed, so that an index is always the same game."""
        options = dict(options or {})
        index = options.pop("index", None)
        observation, info = self.env.reset(seed=seed if index is None else int(index), options=options or None)
        self._return = 0.0
        self._task_id = f"{env_name(self.env)}/{'drawn' if index is None else index}"
        self._state = self._show(observation)
        return self._state, self._info(info, invalid=False, over=False, index=index)

    def step(self, action: str) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        check_action(action)
        text = action.strip().lower()
        last = text[-100:].rstrip(" .!\"'`*").split()[-1:]
        number = self._numbers.get(text, self._numbers.get(last[0]) if last else None)
        if number is None:
            words = f"Expected one of these actions: {', '.join(self.names)}.\n"
            return self._after(words), 0.0, False, False, self._info({}, invalid=True, over=False)
        observation, reward, terminated, truncated, info = self.env.step(number)
        self._return += float(reward)
        self._state = self._show(observation)
        return self._state, float(reward), terminated, truncated, self._info(info, invalid=False, over=terminated)

    def available_actions(self) -> list[str]:
        return list(self.names)

    def expert_action(self) -> str | None:
        """Return the name of the action of highest value; None where the game has no table of transitions."""
        values = self._values()
        return None if values is None else self.names[int(np.argmax(values))]

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the expert's action or, with probability `noise`, another one."""
        right = self.expert_action()
        others = [name for name in self.names if name != right]
        return right if right is None or rng.random() >= noise else str(rng.choice(others))

    def _values(self) -> np.ndarray | None:
        """Return the value of each action now, by value iteration over the game's table of transitions."""
        game = self.env.unwrapped
        table, state = getattr(game, "P", None), getattr(game, "s", None)
        if not isinstance(table, dict) or not isinstance(state, (int, np.integer)):
            return None
        if self._solved is None or self._solved[0] is not table:
            self._solved = table, _action_values(table)
        return self._solved[1][int(state)]

    def _show(self, observation: Any) -> Any:
        if self.env.render_mode == "ansi":
            return _plain(str(self.env.render()))
        if isinstance(observation, np.ndarray):
            return np.array2string(observation, precision=3, threshold=1000, separator=", ")
        return str(observation)

    def _after(self, words: str) -> Any:
        """Return the state behind some words."""
        return words + self._state

    def _anchor(self) -> str:
        return str(self._state)

    def _info(self, info: dict[str, Any], *, invalid: bool, over: bool, index: int | None = None) -> dict[str, Any]:
        plain = {key: value for key, value in info.items() if isinstance(value, (bool, int, float, str))}
        return {
            **plain,
            **({} if index is None else {"index": int(index)}),
            "task_id": self._task_id,
            "invalid_action": invalid,
            "score": self._return,
            "success": over and self._return > 0,
            "reward_components": {},
            "anchor": self._anchor(),
            "admissible_commands": list(self.names),
        }


def _plain(rendered: str) -> str:
    """Remove the terminal codes of a rendering and put coloured text in brackets.

    >>> _plain("  (Down)\\nS\\x1b[41mF\\x1b[0mH\\n")
    'S[F]H'
    """
    out, marked = [], False
    for i, part in enumerate(_COLOUR.split(rendered)):
        if i % 2 == 0:
            out.append(f"[{part}]" if marked and part else part)
        else:
            marked = part not in ("", "0")
    lines = "".join(out).strip("\n").splitlines()
    # Gymnasium's toy games start with the last action's name in parentheses, which is not part of the state.
    if lines and lines[0].strip().startswith("(") and lines[0].strip().endswith(")"):
        lines = lines[1:]
    return "\n".join(line.rstrip() for line in lines)


def _action_values(table: Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]) -> np.ndarray:
    """Return the discounted value of each action in each state [states, actions] of a table of transitions.

    Args:
        table: For each state and action, the ways it can go: probability, next state, reward, whether that is the end.
    """
    ways = max(len(way) for actions in table.values() for way in actions.values())
    shape = len(table), max(len(actions) for actions in table.values()), ways
    chance, reward, onward = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    after = np.zeros(shape, dtype=np.int64)
    for state, actions in table.items():
        for action, way in actions.items():
            for number, (probability, next_state, paid, over) in enumerate(way):
                place = state, action, number
                chance[place], after[place], reward[place] = probability, int(next_state), paid
                onward[place] = 0.0 if over else _DISCOUNT
    values, before = np.zeros(shape[0]), np.full(shape[0], np.inf)
    while np.abs(values - before).max() > 1e-9:
        before = values
        values = (chance * (reward + onward * values[after])).sum(-1).max(-1)
    worth: np.ndarray = (chance * (reward + onward * values[after])).sum(-1)
    return worth


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
        self._picture: Picture

    def _after(self, words: str) -> Any:
        return Pictured(words, self._picture).observation()

    def _anchor(self) -> str:
        return f"picture {self._picture.digest[:16]}"

    def _show(self, observation: Any) -> Any:
        try:
            with _rendering:
                rendered: Any = self.env.render()
        except DependencyNotInstalled as e:
            if "pygame" not in str(e):
                raise
            raise MissingExtraError("pygame-ce", extra="games") from e
        self._picture = Picture(shrunk(rendered, self.max_side))
        return Pictured(self._picture).observation()
