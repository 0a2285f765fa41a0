"""The messages between server and client, and the frames between the server and its worker processes.

The messages are JSON that carries every string, with errors that keep their type. The format is OpenEnv's (openenv-core
0.3, `WSResetMessage` and its relatives): a message is `{"type": ..., "data": {...}}`, an error `{"type": "error",
"data": {"message", "code"}}`; this package adds the exception's name as `"error"`.

A frame says whose it is, what it means, and a text. The server reads nothing else from a worker, least of all a pickle:
a worker has handled what clients sent.
"""

from __future__ import annotations

import json
import struct
import traceback
from typing import Any, NamedTuple

import numpy as np
from gymnasium.error import ResetNeeded

from agent_envs import errors
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, MissingExtraError
from agent_envs.serving.access import StatusError
from agent_envs.text import plain

PROTOCOL = 1
"""Version of the messages that go beyond OpenEnv's; server and client have to have the same."""

MAX_MESSAGE = 32 << 20
"""Most bytes of a message: enough for any action an environment reads, however it is escaped."""

MAX_ADDRESS = 1 << 16
"""Most characters of a WebSocket's address, which holds the environment's arguments."""

_MOST_SAID = 4000  # characters of an error message

# Exceptions that a reply may name. A package missing on the server is a broken backend to the client.
_TYPES: dict[str, type[Exception]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.AgentEnvsError) and kind is not MissingExtraError
} | {"ResetNeeded": ResetNeeded, "TypeError": TypeError}


def encode(value: Any) -> str:
    """Return `value` as JSON in ASCII, which carries lone surrogates too; NumPy's numbers become plain ones.

    >>> encode({"text": "\\ud800", "reward": np.float64(0.5)})
    '{"text": "\\\\ud800", "reward": 0.5}'
    """
    return _ENCODER.encode(value)


def decode(text: str | bytes) -> Any:
    """Return the value of a JSON text; a ConfigError if it is none, or nested too deeply."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"expected JSON: {e}") from e


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be sent as JSON: {value!r:.80}")


_ENCODER = json.JSONEncoder(default=_plain, check_circular=False)


def error_data(error: BaseException, code: str = "") -> dict[str, Any]:
    """Return the `data` of an error: at most 4000 characters of its message; of an unexpected exception only its name.

    Args:
        code: OpenEnv's code; by default that of the exception's type. After `CAPACITY_REACHED` and `BUSY`, for which
            nothing was done, the message may be sent again.

    >>> error_data(ConfigError("no such split"))
    {'message': 'no such split', 'code': 'VALIDATION_ERROR', 'error': 'ConfigError'}
    >>> error_data(KeyError("secret"))["message"]
    'KeyError in the environment; the server has logged it'
    >>> len(error_data(ConfigError("no" * 5000))["message"])
    4000
    """
    name = type(error).__name__
    if isinstance(error, MissingExtraError):
        error, name = BackendError(f"the server lacks a package: {error}"), "BackendError"
    if not isinstance(error, AgentEnvsError) and name not in _TYPES:
        error, name = BackendError(f"{name} in the environment; the server has logged it"), "BackendError"
    elif name not in _TYPES:
        name = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _TYPES)
    if not code:
        invalid = isinstance(error, (ConfigError, TypeError, IndexError))
        code = "RESET_NEEDED" if name == "ResetNeeded" else "VALIDATION_ERROR" if invalid else "EXECUTION_ERROR"
    return {"message": str(error)[:_MOST_SAID], "code": code, "error": name}


class SessionError(StatusError):
    """What a client is told in place of an answer: an error, as the `data` of a message.

    A client that has no session yet is refused with status 503: the server is full or stops.
    """

    def __init__(self, error: AgentEnvsError, code: str) -> None:
        super().__init__(503, str(error))
        self.data = error_data(error, code)


def error_from(data: dict[str, Any], where: str) -> Exception:
    """Return the exception that the `data` of an error message from the server at `where` describes.

    >>> error_from({"message": "no such split", "error": "ConfigError"}, "here")
    ConfigError('no such split')
    >>> error_from({"message": "\\x1b[2J"}, "here")
    BackendError('here: \\\\x1b[2J')
    """
    kind = _TYPES.get(str(data.get("error")), BackendError)
    message = plain(str(data.get("message", "an error without a message"))[:_MOST_SAID])
    return kind(f"{where}: {message}" if issubclass(kind, BackendError) else message)


def traceback_text(what: str) -> str:
    """Return the current exception's traceback for the log, without control characters: clients wrote parts of it."""
    return f"{what} failed:\n{plain(traceback.format_exc())}"


_HEAD = struct.Struct("!cBIIf")  # a letter, flags, session, bytes of the text, seconds
_LETTER = b"f"
_MOST_TEXT = 1 << 28  # bytes of a text: more than any message or answer


# What a frame says beside its text: to a worker ...
OPEN = 1  # a session begins, of the environment and with the arguments in the text
LAST = 2  # the message may begin no episode
END = 4  # a session ends; from a worker: its environment is closed
# ... and from one.
FAILED = 8  # the answer is an error
BEGAN = 16  # an episode began with it
PLAYING = 32  # an episode goes on after it


class Frame(NamedTuple):
    """One frame: a message of a session's client, or the answer to it.

    Session 0 is the worker itself: it says first what its environments are, or why they cannot be made, and then
    answers every message, to show that it is there.
    """

    session: int
    flags: int = 0
    text: bytes = b""
    """JSON; an answer that is empty closes the client's connection."""
    seconds: float = 0.0
    """Of an answer: the time that it took."""

    def packed(self) -> bytes:
        """Return the frame's bytes."""
        return _HEAD.pack(_LETTER, self.flags, self.session, len(self.text), self.seconds) + self.text


def split_frames(buffer: bytearray) -> list[Frame]:
    """Take the complete frames out of the bytes that have come; a ValueError if they are no frames.

    >>> buffer = bytearray(Frame(3, BEGAN, b"hello").packed() + b"f")
    >>> split_frames(buffer), buffer
    ([Frame(session=3, flags=16, text=b'hello', seconds=0.0)], bytearray(b'f'))
    """
    frames, at = [], 0
    while len(buffer) - at >= _HEAD.size:
        letter, flags, session, length, seconds = _HEAD.unpack_from(buffer, at)
        if letter != _LETTER or length > _MOST_TEXT:
            raise ValueError("these bytes are no frame")
        end = at + _HEAD.size + length
        if end > len(buffer):
            break
        frames.append(Frame(session, flags, bytes(buffer[end - length : end]), seconds))
        at = end
    del buffer[:at]
    return frames
