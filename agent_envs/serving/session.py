"""One client's session: every message that a client may send, and the answer to it. Knows nothing of the network."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import logging
import pickle
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from agent_envs import branching
from agent_envs._version import __version__
from agent_envs.checks import integer, number
from agent_envs.errors import AgentEnvsError, BackendDownError, BackendError, ConfigError
from agent_envs.messages import content_text, without_pictures
from agent_envs.pictures.picture import is_pictured
from agent_envs.pictures.png import base64_png
from agent_envs.registration import available_actions, prompt_state
from agent_envs.serving.protocol import (
    BEGAN,
    FAILED,
    MAX_MESSAGE,
    PLAYING,
    PROTOCOL,
    SessionError,
    decode,
    encode,
    error_data,
    traceback_text,
)
from agent_envs.serving.served_env import ServedEnv, prompt_parts

_log = logging.getLogger(__name__)


class Session:
    """One client's environment, made with the first message that needs it.

    `handle` and `close` may run in different threads; a `close` during `handle` takes effect at its end.

    The client chose `client_kwargs`; `secret` signs snapshots, `describe` is that of `served_env`, and `on_closed` is
    called when the environment is closed.
    """

    def __init__(
        self,
        served_env: ServedEnv,
        client_kwargs: Mapping[str, Any],
        secret: bytes,
        describe: Callable[[ServedEnv, Mapping[str, Any]], dict[str, Any]],
        on_closed: Callable[[], None],
    ) -> None:
        self.slow = False
        """Whether the last call was so slow that the next one gets a thread of its own."""
        self._served_env, self._client_kwargs, self._describe = served_env, dict(client_kwargs), describe
        self._on_closed = on_closed
        # A snapshot belongs to an environment with its arguments.
        self._key = hmac.digest(
            secret, json.dumps([served_env.name, self._client_kwargs], sort_keys=True).encode(), hashlib.sha256
        )
        self._env: gym.Env[Any, Any] | None = None
        self._lock = threading.Lock()  # held by the running call
        self._left = self._closed = self._last = False
        self._episode_id, self._steps, self._done = "", 0, False
        self._handlers: dict[str, Callable[[Any], dict[str, Any]]] = {
            "reset": self._reset,
            "step": self._step,
            "state": self._report,
            "hello": self._hello,
            "expert_action": lambda data: {"value": _attribute(self._made(), "expert_action")()},
            "demo_action": self._demo_action,
            "format_call": lambda data: {"value": self._call(data.get("name"), data.get("arguments"))},
            "available_actions": lambda data: {"value": available_actions(self._made())},
            "prompt_state": lambda data: {"value": prompt_state(self._made())},
            "snapshot": self._snapshot,
            "restore": self._restore,
        }

    def handle(self, raw: bytes, *, last: bool = False) -> tuple[str, int]:
        """Return the answer to a message and its flags; with `last`, no episode may begin.

        Never raises, whatever the message is and whatever the environment does.
        """
        self._last = last
        with self._lock:
            try:
                text, flags = ("", 0) if self._closed else self._answer(raw)
            except BaseException as e:  # noqa: BLE001  an environment may raise or exit as it likes: that is the answer
                if not isinstance(e, (AgentEnvsError, ResetNeeded, SessionError)):
                    _log.error(traceback_text(self._served_env.name))
                data = e.data if isinstance(e, SessionError) else error_data(e)
                text, flags = encode({"type": "error", "data": data}), FAILED
            playing = self._env is not None and self._episode_id and not self._done
        self._close_if_left()
        return text, flags | (PLAYING if playing else 0)

    def close(self) -> None:
        """Close the environment, now or when the running call returns."""
        self._left = True
        self._close_if_left()

    def _close_if_left(self) -> None:
        if not self._left or not self._lock.acquire(blocking=False):
            return
        env, self._env, closed, self._closed = self._env, None, self._closed, True
        try:
            if env is not None:
                env.close()
        except Exception:  # noqa: BLE001  it is gone all the same
            _log.error(traceback_text(f"closing {self._served_env.name}"))
        finally:
            self._lock.release()
        if not closed:
            self._on_closed()

    def _answer(self, raw: bytes) -> tuple[str, int]:
        try:
            message = decode(raw)
        except ConfigError as e:
            raise SessionError(e, "INVALID_JSON") from e
        if not isinstance(message, dict):
            raise ConfigError(f'expected {{"type": ..., "data": {{...}}}}, got {type(message).__name__}')
        kind: Any = message.get("type")
        if kind == "close":
            return "", 0
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        if handler is None:
            known = f"the types are {', '.join(self._handlers)}, close"
            raise SessionError(ConfigError(f"unknown message type {kind!r:.100}; {known}"), "UNKNOWN_TYPE")
        data = message.get("data", {})
        if not isinstance(data, dict):
            raise ConfigError(f"the data of {kind!r} must be an object, got {type(data).__name__}")
        answer_type = {"reset": "observation", "step": "observation"}.get(kind, kind)
        text = encode({"type": answer_type, "data": handler(data)})
        if len(text) > 2 * MAX_MESSAGE:
            raise BackendError(f"the answer has {len(text)} characters, more than can be sent")
        return text, BEGAN if kind in ("reset", "restore") else 0

    # -- OpenEnv's messages --------------------------------------------------------------------------------------

    def _reset(self, data: dict[str, Any]) -> dict[str, Any]:
        _only(data, "seed", "episode_id", "options", "index")
        if self._last:
            self._done = True  # the client has no more use for the episode that it was playing
            error = BackendDownError("the server is about to stop and begins no further episodes")
            raise SessionError(error, "STOPPING")
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
            tools = [
                {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
                for f in (spec["function"] for spec in self._made().get_wrapper_attr("tools"))
            ]
            return {"observation": {"tools": tools}, "reward": None, "done": self._done}
        if kind == "call_tool":
            action = self._call(data.get("tool_name"), data.get("arguments", {}))
            result = self._act(action)
            observed = result["observation"]
            observed.update(tool_name=data["tool_name"], result=observed["text"], error=None)
            return result
        _only(data, "text", "metadata")
        if not isinstance(data.get("text"), str):
            raise ConfigError(f'expected an action {{"text": "..."}}, got text {data.get("text")!r:.100}')
        return self._act(data["text"])

    def _act(self, action: str) -> dict[str, Any]:
        if self._env is None:
            raise ResetNeeded("there is no episode yet: call reset() before step()")
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._steps += 1
        self._done = bool(terminated or truncated)
        observed = _observed(observation, info, bool(terminated), bool(truncated))
        return {"observation": observed, "reward": float(reward), "done": self._done}

    def _report(self, data: dict[str, Any]) -> dict[str, Any]:
        progress = {"episode_id": self._episode_id or None, "step_count": self._steps}
        return {**progress, "env": self._served_env.name, "done": self._done}

    # -- messages of this package's own client ----------------------------------------------------------------------

    def _hello(self, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("protocol") != PROTOCOL:
            raise ConfigError(
                f"this server (agent-envs {__version__}) speaks protocol {PROTOCOL}, the client "
                f"{data.get('protocol')!r:.40}: install the same version on both sides"
            )
        return self._describe(self._served_env, self._client_kwargs)

    def _demo_action(self, data: dict[str, Any]) -> dict[str, Any]:
        seed, noise = integer("seed", data.get("seed"), minimum=0), number("noise", data.get("noise"))
        return {"value": _attribute(self._made(), "demo_action")(np.random.default_rng(seed), noise)}

    def _snapshot(self, data: dict[str, Any]) -> dict[str, Any]:
        if self._env is None:
            raise ResetNeeded("there is no episode yet: call reset() before snapshot()")
        packed = pickle.dumps((branching.snapshot(self._env), self._steps, self._done))
        return {"value": base64.b64encode(hmac.digest(self._key, packed, hashlib.sha256) + packed).decode()}

    def _restore(self, data: dict[str, Any]) -> dict[str, Any]:
        """Restore a snapshot; it is unpickled only if this server has signed it for this environment."""
        value, signed = data.get("value"), b""
        with contextlib.suppress(ValueError):
            signed = base64.b64decode(value if isinstance(value, str) else "", validate=True)
        if not hmac.compare_digest(signed[:32], hmac.digest(self._key, signed[32:], hashlib.sha256)):
            why = "snapshots are lost when the server restarts"
            raise ConfigError(f"not a snapshot of this environment on this server; {why}")
        point, steps, done = pickle.loads(signed[32:])
        observation, info = branching.restore(self._made(), point)
        self._steps, self._done = steps, done
        self._episode_id = self._episode_id or uuid.uuid4().hex
        return self._begun(observation, info)

    # -- helpers --------------------------------------------------------------------------------------------------

    def _made(self) -> gym.Env[Any, Any]:
        if self._env is None:
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
        observed = {**_observed(observation, info), **prompt_parts(self._made())}
        return {"observation": observed, "reward": None, "done": self._done}


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


def _attribute(env: gym.Env[Any, Any], name: str) -> Any:
    try:
        return env.get_wrapper_attr(name)
    except AttributeError as e:
        raise ConfigError(f"this environment has no {name}()") from e


def _only(data: dict[str, Any], *known: str) -> None:
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ConfigError(f"expected only {', '.join(known)}, got {', '.join(map(repr, unknown)):.200}")
