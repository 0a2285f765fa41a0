"""The frames that a server and its worker processes exchange: whose they are, what they mean, and a text.

The server reads nothing else from a worker, least of all a pickle: a worker has handled what clients sent.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_HEAD = struct.Struct("!cBIIf")  # a letter, flags, session, bytes of the text, seconds
_LETTER = b"f"
_LONGEST = 1 << 28  # bytes of a text: more than any message or answer


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
        if letter != _LETTER or length > _LONGEST:
            raise ValueError("these bytes are no frame")
        end = at + _HEAD.size + length
        if end > len(buffer):
            break
        frames.append(Frame(session, flags, bytes(buffer[end - length : end]), seconds))
        at = end
    del buffer[:at]
    return frames
