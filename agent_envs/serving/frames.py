"""What a server and its worker processes say to each other: frames of bytes over a pair of sockets.

A frame has a session's number (0 for the worker itself), a kind and a text, as a client wrote it or reads it. The
server reads nothing else from a worker, least of all a pickle: a worker has handled what clients sent.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

__all__ = ["BEGAN", "CLOSE", "FAILED", "HOLDS", "Frame", "FrameReader", "Kind"]

_HEAD = struct.Struct("!IIBB")  # bytes of the text, session, kind, flags

_LONGEST = 1 << 28  # bytes of a text: more than any message or answer

# What the answer to a message says beside its text.
FAILED, CLOSE, HOLDS, BEGAN = 1, 2, 4, 8


class Kind(IntEnum):
    """Kinds of frames."""

    OPEN = 1
    """To a worker: a session of an environment begins."""
    MESSAGE = 2
    """To a worker: a client's message; with the flag `HOLDS`, it may make an environment if it has none."""
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


class Frame(NamedTuple):
    """One frame."""

    session: int
    kind: int
    flags: int = 0
    text: bytes = b""

    def packed(self) -> bytes:
        """Return the frame's bytes."""
        return _HEAD.pack(len(self.text), self.session, self.kind, self.flags) + self.text


class FrameReader:
    """Puts frames together from the pieces in which they come.

    >>> reader = FrameReader()
    >>> data = Frame(3, Kind.MESSAGE, 0, b"hello").packed()
    >>> reader.feed(data[:9]), reader.feed(data[9:] + data[:1])
    ([], [Frame(session=3, kind=2, flags=0, text=b'hello')])
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete with this piece."""
        buffer = self._data
        buffer += data
        frames, at, end = [], 0, len(buffer)
        while end - at >= _HEAD.size:
            length, session, kind, flags = _HEAD.unpack_from(buffer, at)
            if length > _LONGEST:
                raise ValueError(f"a frame of {length} bytes")
            begin = at + _HEAD.size
            if end - begin < length:
                break
            at = begin + length
            frames.append(Frame(session, kind, flags, bytes(buffer[begin:at])))
        del buffer[:at]
        return frames
