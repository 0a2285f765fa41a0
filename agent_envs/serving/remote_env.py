"""An environment that runs on a server, with the same observations, rewards and info as in this process."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Space

from agent_envs.checks import number, option_mapping
from agent_envs.errors import BackendDownError, BackendReplyError, ConfigError, DataError
from agent_envs.messages import ToolSpec, with_pictures
from agent_envs.parsers import PARSERS, READINGS, get_parser
from agent_envs.per_process import PerProcess
from agent_envs.pictures.png import LARGEST_SIDE, from_base64
from agent_envs.serving.access import read_token
from agent_envs.serving.client import Connection, RefusedError, StaleError, socket_url
from agent_envs.spaces import ImageText, MessagesSpace, UnicodeText, kept_action, shows_pictures
from agent_envs.tasks import IndexedTasks
from agent_envs.text import check_action
from agent_envs.text_env import Snapshot, TextEnv

T = TypeVar("T")

_MOST_BITS = 1000  # of an integer that a float holds
_MOST_PICTURES = 1 << 12  # of an observation
_NONE = type(None)
_SEEDS = 2**63  # that can be drawn
_LONGEST_PAUSE = 1.0  # seconds between two attempts
_LONGEST_WAIT = 1e6  # seconds; sockets refuse much longer ones


class _RemoteTasks(IndexedTasks[Any]):
    """The number of tasks of a split on a server; the tasks themselves stay there."""

    def __init__(self, name: str, split: str, number: int) -> None:
        super().__init__(name, split)
        self._number = number

    def __len__(self) -> int:
        return self._number

    def content(self, index: int) -> None:
        """Return None: it is not known here."""

    def __getitem__(self, index: Any) -> Any:
        raise ConfigError("tasks of a remote environment stay on its server; reset(options={'index': i}) plays one")


class RemoteEnv(TextEnv):
    """Plays an environment of `agentr1 serve`, which may run on another machine.

    Description:
        Observations, rewards, info, instructions, tools, the expert, snapshots and the types of errors are the same as
        in this process. Step limits and wrappers of the server are part of the environment. Each object has one
        connection and one episode at a time.

    Information:
        That of the environment on the server.

    Arguments:
        ``gym.make("AgentR1/Remote-v0", url="http://127.0.0.1:8000")``

    Args:
        url: The server's address: "http://host:port", or "https://" behind a proxy that encrypts.
        env_id: One of the server's environments; by default its first.
        split: Split of the tasks; by default the server's.
        data: Where the tasks come from, if the server lets clients choose it; "generated", the default of trainers,
            leaves the choice to the server.
        env_kwargs: Further arguments of the environment, if the server lets clients choose them.
        token: The server's token; by default the environment variable ``AGENT_ENVS_TOKEN``.
        timeout: Seconds to wait for an answer.
        connect_timeout: Seconds to keep trying to connect, at construction and in a ``reset`` after a lost connection.
        busy_timeout: Seconds to keep asking a server that is full, also to connect.
        render_mode: See ``TextEnv``.

    A lost connection ends the episode: the call that notices it raises ``BackendDownError``, further ones
    ``ResetNeeded`` until ``reset`` or ``restore`` connects again. Without a seed, such a ``reset`` draws one from
    ``np_random``, so that the tasks that follow depend on the last seed alone.

    Raises:
        ConfigError: An argument does not fit, or the server refuses the token, the environment or its arguments.
        BackendDownError: Nothing answers.
        MissingExtraError: The package websockets is not installed.
    """

    harmless_arguments = ("url", "token", "timeout", "connect_timeout", "busy_timeout")

    def __init__(
        self,
        url: str,
        *,
        env_id: str | None = None,
        split: str | None = None,
        data: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        token: str | None = None,
        timeout: float = 150.0,
        connect_timeout: float = 10.0,
        busy_timeout: float = 60.0,
        render_mode: str | None = None,
    ) -> None:
        waits = {"timeout": timeout, "connect_timeout": connect_timeout, "busy_timeout": busy_timeout}
        for name, seconds in waits.items():
            number(name, seconds, above=0, maximum=_LONGEST_WAIT)
        client_kwargs = dict(env_kwargs or {})
        client_kwargs |= {} if split is None else {"split": split}
        client_kwargs |= {} if data in (None, "generated") else {"data": data}
        self._url = socket_url(url, env_id, client_kwargs)
        self._token = read_token() if token is None else token
        self._timeout, self._connect_timeout, self._busy_timeout = timeout, connect_timeout, busy_timeout
        self._connections: PerProcess[Connection] = PerProcess()  # one, or none
        about = self._connected().description
        super().__init__(
            split=about["split"], data=url, render_mode=render_mode, max_observation_length=about["observation_length"]
        )
        length, pictures = about["observation_length"], _picture_limits(about.get("pictures", []), self._url)
        if about["messages"]:
            self.observation_space = MessagesSpace(length, *pictures)
        elif pictures:
            self.observation_space = ImageText(length, *pictures)
        self.action_space = UnicodeText(about["action_length"])
        self._tasks = _RemoteTasks(url, about["split"], about["num_tasks"])
        self._set_prompt_parts(about)
        parser = str(about.get("parser"))
        if parser in PARSERS | READINGS:
            self.parser = get_parser(parser, self._remote_tools)

    # -- attributes ---------------------------------------------------------------------------------------------

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools on offer."""
        return self._remote_tools

    @property
    def tool_instructions(self) -> str:
        """The tools and how to call them, in words."""
        return self._tool_instructions

    @property
    def task(self) -> Any:
        """Not available: always a ConfigError."""
        raise ConfigError("tasks of a remote environment stay on its server; the info of reset() has task_id and index")

    def format_call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return a tool call in the wire format that this environment reads."""
        data = {"name": name, "arguments": arguments}
        return self._value(self._ask("format_call", data, self._connected()), "a text", str)

    def available_actions(self) -> list[str] | None:
        """Return the actions that can be taken now, or None if they cannot be listed."""
        return self._value(self._ask("available_actions"), "a list of actions", list, _NONE)

    def prompt_state(self) -> dict[str, Any]:
        """Return what a rebuilt prompt may show of the state on the server."""
        return self._value(self._ask("prompt_state"), "the prompt's state as an object", dict)

    def expert_action(self) -> str | None:
        """Return the next action of the environment's expert."""
        return self._value(self._ask("expert_action"), "a text", str, _NONE)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that makes mistakes, with a seed that is drawn from ``rng``."""
        data = {"seed": int(rng.integers(_SEEDS)), "noise": noise}
        return self._value(self._ask("demo_action", data), "a text", str, _NONE)

    def _value(self, answer: dict[str, Any], what: str, *kinds: type) -> Any:
        value = answer.get("value")
        strings = not isinstance(value, list) or all(isinstance(each, str) for each in value)
        if not isinstance(value, kinds) or not strings:
            raise BackendReplyError(f"{self._url}: expected {what}, got {value!r:.200}")
        return value

    # -- Gymnasium -----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a task; connects again if the connection was lost.

        Raises:
            Exception: What the environment raises, such as `TaskIndexError`.
            BackendError: The server cannot be reached or fails; if it was full, a `BackendBusyError`.
        """
        gym.Env.reset(self, seed=seed)
        observation, info = self._begin("reset", {"seed": seed, "options": options and option_mapping(options)})
        self._over, self._transcript = False, [self._observation]
        if self.render_mode == "human":
            self.render()
        return observation, info

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out the policy's text.

        Raises:
            ResetNeeded: The episode is over or has not begun.
            BackendDownError, BackendSlowError: The connection is lost, or the step takes too long; so is the episode.
            BackendError: Something the environment depends on is broken.
        """
        check_action(action)
        data = self._ask("step", {"text": action})
        observation, info = self._read_observation(data)
        seen, reward = data["observation"], data.get("reward")
        if not isinstance(reward, (int, float)) or (isinstance(reward, int) and reward.bit_length() > _MOST_BITS):
            raise BackendReplyError(f"{self._url}: expected a number as reward, got {reward!r:.80}")
        self._over = bool(seen.get("terminated"))
        self._transcript += (kept_action(action, self.action_space), self._observation)
        if self.render_mode == "human":
            self.render()
        return observation, float(reward), self._over, bool(seen.get("truncated")), info

    def close(self) -> None:
        """Close the connection; the server then closes the episode."""
        _close(self._connections)
        super().close()

    # -- branching -----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return this point of the episode, the server's wrappers included. Valid while the server's process runs."""
        value = self._value(self._ask("snapshot"), "a text", str)
        rng_state = copy.deepcopy(self.np_random.bit_generator.state)
        return Snapshot(self._index, value, rng_state, self._observation, self._over, tuple(self._transcript))

    def restore(self, snapshot: Snapshot) -> tuple[Any, dict[str, Any]]:
        """Go back to a snapshot of this environment, or of another of the same server with the same arguments.

        A snapshot of another one, or from before the server's restart, raises a ConfigError.
        """
        if not isinstance(snapshot.state, str):
            raise ConfigError("expected a snapshot of a remote environment, got one of a local environment")
        result = self._begin("restore", {"value": snapshot.state})
        self.np_random.bit_generator.state = copy.deepcopy(snapshot.rng_state)
        self._over, self._observation = snapshot.over, snapshot.observation
        self._transcript = list(snapshot.transcript)
        return result

    # -- requests --------------------------------------------------------------------------------------------------

    def _connected(self) -> Connection:
        """Return the connection; opens one if there is none."""

        def connect() -> Connection:
            return Connection(self._url, self._token, self._connect_timeout)

        waits = {BackendDownError: self._connect_timeout, RefusedError: self._busy_timeout}
        return self._connections.get("", lambda: _until(connect, waits, pause=0.05))

    def _begin(self, kind: str, data: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, over a new connection if there is none; return its first observation and info."""

        def ask() -> dict[str, Any]:
            connection = self._connected()
            if kind == "reset" and data["seed"] is None and not connection.playing:
                data["seed"] = int(self.np_random.integers(_SEEDS))
            answer = self._ask(kind, data, connection)
            connection.playing = True
            return answer

        try:
            answer = ask()
        except StaleError:  # the server may have restarted since
            answer = ask()
        observation, info = self._read_observation(answer)
        self._set_prompt_parts(answer["observation"])
        index = info.get("index", 0)
        self._index = index if isinstance(index, int) else 0
        return observation, info

    def _ask(
        self, kind: str, data: dict[str, Any] | None = None, connection: Connection | None = None
    ) -> dict[str, Any]:
        """Send a message, again for a while if the server is full; an episode has ended with its connection."""
        asked = connection or self._connections.get("", _lost)
        waits = {RefusedError: self._busy_timeout}
        try:
            return _until(lambda: asked.ask(kind, data or {}, self._timeout), waits, pause=0.02)
        finally:
            if not asked.alive:
                _close(self._connections)

    def _read_observation(self, data: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        observed = data.get("observation")
        if not isinstance(observed, dict) or not isinstance(observed.get("text"), str):
            raise BackendReplyError(f"{self._url}: expected an observation with a text, got {observed!r:.200}")
        info = observed.get("info")
        if not isinstance(info, dict):
            raise BackendReplyError(f"{self._url}: expected info, got {info!r:.200}")
        self._observation = observed["text"]
        return _shown(observed, self.observation_space, self._url), info

    def _set_prompt_parts(self, about: dict[str, Any]) -> None:
        try:
            self.instructions = str(about["instructions"])
            self._remote_tools: list[ToolSpec] = list(about["tools"])
            self._tool_instructions = str(about["tool_instructions"])
        except (KeyError, TypeError) as e:
            raise BackendReplyError(f"{self._url}: expected instructions and tools, got {about!r:.200}") from e


def _lost() -> NoReturn:
    raise ResetNeeded("the connection was closed or lost, and the episode with it: call reset()")


def _until(call: Callable[[], T], waits: Mapping[Any, float], pause: float) -> T:
    """Make a call again after these errors, with growing pauses, for so many seconds."""
    begin = time.monotonic()
    while True:
        try:
            return call()
        except tuple(waits) as e:
            longest = max(seconds for kind, seconds in waits.items() if isinstance(e, kind))
            if time.monotonic() + pause > begin + longest:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _close(connections: PerProcess[Connection]) -> None:
    connection = connections.pop("")
    if connection is not None:
        connection.close()


def _picture_limits(described: Any, where: str) -> tuple[int, ...]:
    """Return the most pictures of an observation and their greatest side, as the server says; nothing for none."""
    if described == []:
        return ()
    numbers = isinstance(described, list) and len(described) == 2 and all(type(value) is int for value in described)
    if not numbers or not 1 <= described[0] <= _MOST_PICTURES or not 1 <= described[1] <= LARGEST_SIDE:
        raise BackendReplyError(f"{where}: expected how many pictures and their greatest side, got {described!r:.80}")
    return tuple(described)


def _shown(observed: Mapping[str, Any], space: Space[Any], where: str) -> Any:
    """Return the observation in a server's answer, with its pictures; a BackendReplyError if these do not fit."""
    if not shows_pictures(space):
        return observed.get("messages", observed["text"])
    assert isinstance(space, (ImageText, MessagesSpace))
    images = observed.get("images", [])
    if not isinstance(images, list) or len(images) > space.max_images:
        raise BackendReplyError(f"{where}: expected at most {space.max_images} pictures, got {images!r:.80}")
    try:
        pictures = [from_base64(image, where, max_side=space.max_side) for image in images]
    except DataError as e:
        raise BackendReplyError(f"{e}") from e
    observation: Any = {"text": observed["text"], "images": tuple(picture.array for picture in pictures)}
    if isinstance(space, MessagesSpace):
        try:
            observation = with_pictures(observed["messages"], pictures)
        except (KeyError, TypeError, StopIteration):  # no messages, or fewer pictures than parts
            observation = None
    if not space.contains(observation):
        raise BackendReplyError(f"{where}: expected an observation in {space!r}, got {observed['text']!r:.200}")
    return observation
