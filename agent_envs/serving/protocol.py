"""The messages between server and client: JSON that carries every string, and errors that keep their type. Also the
frames in which server and workers pass them on.

The format is OpenEnv's (openenv-core 0.3, `WSResetMessage` and its relatives): a message is
`{"type": ..., "data": {...}}`, an error `{"type": "error", "data": {"message", "code"}}`; this package adds the
exception's name as `"error"`.
"""

from __future__ import annotations

import json
import struct
import traceback
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from gymnasium.error import ResetNeeded

from agent_envs import errors
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, MissingExtraError
from agent_envs.text import plain

__all__ = [
    "BEGAN", "CLOSE", "FAILED", "HOLDS", "LAST", "MAX_ADDRESS", "MAX_MESSAGE", "PLAYING", "PROTOCOL", "Frame",
    "FrameReader", "Kind", "decode", "encode", "error_data", "error_from", "traceback_text",
]  # fmt: skip

PROTOCOL = 1
"""Version of the messages that go beyond OpenEnv's; server and client have to have the same."""

MAX_MESSAGE = 32 << 20
"""Most bytes of a message: enough for any action an environment reads, however it is escaped."""

MAX_ADDRESS = 1 << 16
"""Most characters of a WebSocket's address, which holds the environment's arguments."""

_LONGEST = 4000  # characters of an error message
_HEAD = struct.Struct("!IIBBf")  # of a frame: bytes of the text, session, kind, flags, seconds
_LONGEST_FRAME = 1 << 28  # bytes of a text: more than any message or answer

# What the answer to a message says beside its text.
FAILED, CLOSE, HOLDS, BEGAN, PLAYING = 1, 2, 4, 8, 16

LAST = 32
"""What a message says beside its text: the session's episode is its last."""

# Exceptions that a reply may name. A package missing on the server is a broken backend to the client.
_TYPES: dict[str, type[Exception]] = {
    name: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and kind is not MissingExtraError
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
    """Return the `data` of an error message. Of an unexpected exception it tells only the name.

    Args:
        error: What went wrong.
        code: OpenEnv's code; by default that of the exception's type. After `CAPACITY_REACHED` and `BUSY`, for which
            nothing was done, the message may be sent again.

    >>> error_data(ConfigError("no such split"))
    {'message': 'no such split', 'code': 'VALIDATION_ERROR', 'error': 'ConfigError'}
    >>> error_data(KeyError("secret"))["message"]
    'KeyError in the environment; the server has logged it'
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
    return {"message": str(error)[:_LONGEST], "code": code, "error": name}


def error_from(data: dict[str, Any], where: str) -> Exception:
    """Return the exception that the `data` of an error message from the server at `where` describes.

    >>> error_from({"message": "no such split", "error": "ConfigError"}, "here")
    ConfigError('no such split')
    >>> error_from({"message": "\\x1b[2J"}, "here")
    BackendError('here: \\\\x1b[2J')
    """
    kind = _TYPES.get(str(data.get("error")), BackendError)
    message = plain(str(data.get("message", "an error without a message"))[:_LONGEST])
    return kind(f"{where}: {message}" if issubclass(kind, BackendError) else message)


def traceback_text(what: str) -> str:
    """Return the current exception's traceback for the log, without control characters: clients wrote parts of it."""
    return f"{what} failed:\n{plain(traceback.format_exc())}"


class Kind(IntEnum):
    """Kinds of frames, which a server and its worker processes exchange.

    A frame has a session's number (0 for the worker itself), a kind and a text, as a client wrote it or reads it. The
    server reads nothing else from a worker, least of all a pickle: a worker has handled what clients sent.
    """

    OPEN = 1
    """To a worker: a session of an environment begins."""
    MESSAGE = 2
    """To a worker: a client's message; with the flag `HOLDS`, it may make an environment if it has none, and
    with `LAST` it may begin no episode."""
    END = 3
    """To a worker: a session ends."""
    PING = 4
    """To a worker: say that you are there."""
    READY = 5
    """From a worker: its environments can be played; their descriptions."""
    BROKEN = 6
    """From a worker: its environments cannot be made; the data of an error."""
    ANSWER = 7
    """From a worker: the answer to a message, with flags."""
    ENDED = 8
    """From a worker: the session's environment is closed."""
    PONG = 9
    """From a worker: it is there."""


_KINDS = frozenset(Kind)


class Frame(NamedTuple):
    """One frame."""

    session: int
    kind: int
    flags: int = 0
    text: bytes = b""
    seconds: float = 0.0
    """Of an answer: the time that its call took."""

    def packed(self) -> bytes:
        """Return the frame's bytes."""
        return _HEAD.pack(len(self.text), self.session, self.kind, self.flags, self.seconds) + self.text


class FrameReader:
    """Puts frames together from the pieces in which they come.

    >>> reader = FrameReader()
    >>> data = Frame(3, Kind.MESSAGE, 0, b"hello").packed()
    >>> reader.feed(data[:9]), reader.feed(data[9:] + data[:1])
    ([], [Frame(session=3, kind=2, flags=0, text=b'hello', seconds=0.0)])
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete with this piece; a ValueError if it is no part of one."""
        buffer = self._data
        buffer += data
        frames, at, end = [], 0, len(buffer)
        while end - at >= _HEAD.size:
            length, session, kind, flags, seconds = _HEAD.unpack_from(buffer, at)
            if length > _LONGEST_FRAME or kind not in _KINDS:
                raise ValueError(f"no frame: kind {kind}, {length} bytes")
            begin = at + _HEAD.size
            if end - begin < length:
                break
            at = begin + length
            frames.append(Frame(session, kind, flags, bytes(buffer[begin:at]), seconds))
        del buffer[:at]
        return frames
