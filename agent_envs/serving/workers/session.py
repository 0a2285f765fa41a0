"""One client's session: every message that a client may send, and the answer to it. Knows nothing of the network."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from agent_envs import branching
from agent_envs._version import __version__
from agent_envs.checks import integer, number
from agent_envs.errors import AgentEnvsError, ConfigError
from agent_envs.messages import content_text, without_pictures
from agent_envs.pictures.picture import is_pictured
from agent_envs.pictures.png import base64_png
from agent_envs.registration import available_actions, prompt_state
from agent_envs.serving.protocol import (
    PROTOCOL,
    decode,
    encode,
    error_data,
    traceback_text,
)
from agent_envs.serving.served_env import ServedEnv, prompt_parts
from agent_envs.serving.workers.state import DrainingError, FullError, WorkerState

__all__ = ["Answer", "Session"]

_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """The answer to a message."""

    text: str
    """The message, as JSON."""
    failed: bool = False
    """Whether it is an error."""
    close: bool = False
    """Whether the client asked to close the session; nothing is sent then."""
    began: bool = False
    """Whether an episode began with it."""


class Session:
    """One client's environment, made with its first episode.

    `handle` and `close` may run in different threads; a `close` during `handle` takes effect at its end.

    Args:
        served_env: The environment.
        client_kwargs: The arguments that the client chose.
        state: What all sessions of the worker share.
        on_closed: Called when the environment is closed.
    """

    def __init__(
        self,
        served_env: ServedEnv,
        client_kwargs: Mapping[str, Any],
        state: WorkerState,
        on_closed: Callable[[], None],
    ) -> None:
        self.slow = False
        """Whether the last call was so slow that the next one gets a thread of its own."""
        self._on_closed = on_closed
        self._room = False  # whether an environment may be made
        self._last = False  # whether no episode may begin
        self._served_env, self._client_kwargs, self._state = served_env, dict(client_kwargs), state
        self._name = encode([served_env.name, sorted(self._client_kwargs.items())])
        self._env: gym.Env[Any, Any] | None = None
        self._lock = threading.Lock()
        self._busy = self._closed = False
        self._episode_id, self._steps, self._done = "", 0, False
        self._handlers: dict[str, Callable[[Any], dict[str, Any]]] = {
            "reset": self._reset,
            "step": self._step,
            "state": self._report,
            "mcp": self._mcp,
            "hello": self._hello,
            "expert_action": self._expert_action,
            "demo_action": self._demo_action,
            "format_call": self._format_call,
            "available_actions": lambda data: {"value": available_actions(self._made())},
            "prompt_state": lambda data: {"value": prompt_state(self._made())},
            "snapshot": self._snapshot,
            "restore": self._restore,
        }

    @property
    def holds(self) -> bool:
        """Whether it has an environment."""
        return self._env is not None

    @property
    def playing(self) -> bool:
        """Whether an episode has begun and has not ended."""
        return self._env is not None and bool(self._episode_id) and not self._done

    def handle(self, raw: str | bytes, *, room: bool = True, last: bool = False) -> Answer:
        """Answer a message; without `room`, one that needs another environment is refused; with `last`, a reset is.

        Never raises, whatever the message is and whatever the environment does.
        """
        with self._lock:
            if self._closed:
                return Answer("", close=True)
            self._busy = True
        self._room, self._last = room, last
        try:
            return self._answer(raw)
        except FullError as e:
            return _error(e, "CAPACITY_REACHED")
        except DrainingError as e:
            return _error(e, "STOPPING")
        except BaseException as e:  # noqa: BLE001  an environment may raise or exit as it likes: that is the answer
            if not isinstance(e, (AgentEnvsError, ResetNeeded)):
                _log.error(traceback_text(self._served_env.name))
            return _error(e)
        finally:
            with self._lock:
                self._busy = False
                closed = self._closed
            if closed:
                self._close_env()

    def close(self) -> None:
        """Close the environment, now or when the running call returns."""
        with self._lock:
            close_now = not (self._closed or self._busy)
            self._closed = True
        if close_now:
            self._close_env()

    def _close_env(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            try:
                env.close()
            except Exception:  # noqa: BLE001  it is gone all the same
                _log.error(traceback_text(f"closing {self._served_env.name}"))
        self._on_closed()

    def _answer(self, raw: str | bytes) -> Answer:
        try:
            message = decode(raw)
        except ConfigError as e:
            return _error(e, "INVALID_JSON")
        if not isinstance(message, dict):
            raise ConfigError(f'expected {{"type": ..., "data": {{...}}}}, got {type(message).__name__}')
        kind: Any = message.get("type")
        if kind == "close":
            return Answer("", close=True)
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        if handler is None:
            error = ConfigError(f"unknown message type {kind!r:.100}; the types are {', '.join(self._handlers)}, close")
            return _error(error, "UNKNOWN_TYPE")
        data = message.get("data", {})
        if not isinstance(data, dict):
            raise ConfigError(f"the data of {kind!r} must be an object, got {type(data).__name__}")
        answer_type = {"reset": "observation", "step": "observation"}.get(kind, kind)
        return Answer(encode({"type": answer_type, "data": handler(data)}), began=kind in ("reset", "restore"))

    # -- OpenEnv's messages --------------------------------------------------------------------------------------

    def _reset(self, data: dict[str, Any]) -> dict[str, Any]:
        _only(data, "seed", "episode_id", "options", "index")
        if self._last:
            self._done = True  # the client has no more use for the episode that it was playing
            raise DrainingError("the server is about to stop and begins no further episodes")
        seed, options, episode_id = data.get("seed"), data.get("options"), data.get("episode_id")
        if seed is not None:
            integer("seed", seed, minimum=0)
        if options is not None and not isinstance(options, dict):
            raise ConfigError(f"options must be an object, got {type(options).__name__}")
        if episode_id is not None and (not isinstance(episode_id, str) or len(episode_id) > 255):
            raise ConfigError("episode_id must be a string of at most 255 characters")
        if data.get("index") is not None:
            options = {**(options or {}), "index": data["index"]}
        env = self._made()
        observation, info = env.reset(seed=seed, options=options)
        self._episode_id, self._steps, self._done = episode_id or uuid.uuid4().hex, 0, False
        return self._begun(observation, info)

    def _step(self, data: dict[str, Any]) -> dict[str, Any]:
        kind = data.get("type")
        if kind == "list_tools":
            tools = _mcp_tools(self._made(), "input_schema")
            return {"observation": {"tools": tools}, "reward": None, "done": self._done}
        if kind == "call_tool":
            action = self._call(data.get("tool_name"), data.get("arguments", {}))
            observed, reward, done = self._act(action)
            observed.update(tool_name=data["tool_name"], result=observed["text"], error=None)
            return self._result(observed, reward, done)
        _only(data, "text", "metadata")
        if not isinstance(data.get("text"), str):
            raise ConfigError(f'expected an action {{"text": "..."}}, got text {data.get("text")!r:.100}')
        return self._result(*self._act(data["text"]))

    def _act(self, action: str) -> tuple[dict[str, Any], float, bool]:
        if self._env is None:
            raise ResetNeeded("there is no episode yet: call reset() before step()")
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._steps += 1
        self._done = bool(terminated or truncated)
        return _observed(observation, info, bool(terminated), bool(truncated)), float(reward), self._done

    def _report(self, data: dict[str, Any]) -> dict[str, Any]:
        progress = {"episode_id": self._episode_id or None, "step_count": self._steps}
        return {**progress, "env": self._served_env.name, "done": self._done}

    def _mcp(self, data: dict[str, Any]) -> dict[str, Any]:
        """Answer JSON-RPC as the Model Context Protocol defines it: list the tools, or call one as a step."""
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": data.get("id")}
        method = data.get("method")
        parameters = data.get("params") or {}
        try:
            if method == "tools/list":
                answer["result"] = {"tools": _mcp_tools(self._made(), "inputSchema")}
            elif method == "tools/call" and isinstance(parameters, dict):
                action = self._call(parameters.get("name"), parameters.get("arguments") or {})
                observed, reward, done = self._act(action)
                content = [{"type": "text", "text": observed["text"]}]
                structured = {"reward": reward, "done": done, "info": observed["info"]}
                invalid = bool(observed["info"].get("invalid_action"))
                answer["result"] = {"content": content, "isError": invalid, "structuredContent": structured}
            else:
                answer["error"] = {"code": -32601, "message": f"unknown method {method!r:.100}"}
        except ConfigError as e:
            answer["error"] = {"code": -32602, "message": str(e)}
        except ResetNeeded as e:
            answer["error"] = {"code": -32600, "message": str(e)}
        return answer

    # -- messages of this package's own client ----------------------------------------------------------------------

    def _hello(self, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("protocol") != PROTOCOL:
            raise ConfigError(
                f"this server (agent-envs {__version__}) speaks protocol {PROTOCOL}, the client "
                f"{data.get('protocol')!r:.40}: install the same version on both sides"
            )
        return self._state.describe(self._served_env, self._client_kwargs)

    def _expert_action(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"value": _attribute(self._made(), "expert_action")()}

    def _demo_action(self, data: dict[str, Any]) -> dict[str, Any]:
        seed, noise = integer("seed", data.get("seed"), minimum=0), number("noise", data.get("noise"))
        return {"value": _attribute(self._made(), "demo_action")(np.random.default_rng(seed), noise)}

    def _format_call(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"value": self._call(data.get("name"), data.get("arguments"))}

    def _snapshot(self, data: dict[str, Any]) -> dict[str, Any]:
        if self._env is None:
            raise ResetNeeded("there is no episode yet: call reset() before snapshot()")
        return {"value": self._state.signer.pack(self._name, (branching.snapshot(self._env), self._steps, self._done))}

    def _restore(self, data: dict[str, Any]) -> dict[str, Any]:
        point, steps, done = self._state.signer.unpack(data.get("value"), self._name)
        observation, info = branching.restore(self._made(), point)
        self._steps, self._done = steps, done
        self._episode_id = self._episode_id or uuid.uuid4().hex
        return self._begun(observation, info)

    # -- helpers --------------------------------------------------------------------------------------------------

    def _made(self) -> gym.Env[Any, Any]:
        if self._env is None:
            if not self._room:
                most = self._state.max_episodes
                raise FullError(f"the server already runs {most} episodes, its maximum; try again later")
            self._env = self._served_env.make(self._client_kwargs)
        return self._env

    def _call(self, name: object, arguments: object) -> str:
        """Return a tool call in the environment's wire format."""
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ConfigError("expected a tool call with a name (a string) and arguments (an object)")
        env = self._made()
        if not env.get_wrapper_attr("tools"):
            raise ConfigError(f"{self._served_env.name} has no tools: its actions are commands")
        return str(_attribute(env, "format_call")(name, arguments))

    def _begun(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        return self._result({**_observed(observation, info), **prompt_parts(self._made())}, None, self._done)

    def _result(self, observed: dict[str, Any], reward: float | None, done: bool) -> dict[str, Any]:
        return {"observation": observed, "reward": reward, "done": done}


def _error(error: BaseException, code: str = "") -> Answer:
    return Answer(encode({"type": "error", "data": error_data(error, code)}), failed=True)


def _observed(observation: Any, info: Any, terminated: bool = False, truncated: bool = False) -> dict[str, Any]:
    """Return an observation as clients get it. If it is a whole prompt of messages, its text is the last message's."""
    result = {"text": observation, "terminated": terminated, "truncated": truncated, "info": info}
    if isinstance(observation, str):
        return result
    if is_pictured(observation):
        return {**result, "text": observation["text"], "images": list(map(base64_png, observation["images"]))}
    messages, pictures = without_pictures(observation)
    text = content_text(observation[-1]["content"]) if observation else ""
    images = {"images": list(map(base64_png, pictures))} if pictures else {}
    return {**result, "text": text, "messages": messages, **images}


def _mcp_tools(env: gym.Env[Any, Any], schema: str) -> list[dict[str, Any]]:
    """Return the tools as the Model Context Protocol lists them; OpenEnv spells the schema's key differently."""
    functions = [spec["function"] for spec in env.get_wrapper_attr("tools")]
    return [{"name": f["name"], "description": f["description"], schema: f["parameters"]} for f in functions]


def _attribute(env: gym.Env[Any, Any], name: str) -> Any:
    try:
        return env.get_wrapper_attr(name)
    except AttributeError as e:
        raise ConfigError(f"this environment has no {name}()") from e


def _only(data: dict[str, Any], *known: str) -> None:
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ConfigError(f"expected only {', '.join(known)}, got {', '.join(map(repr, unknown)):.200}")
