"""What host, lane and child say to each other: fixed headers, and bytes of the length that a header gives."""

from __future__ import annotations

import os
import struct

__all__ = [
    "ANSWER", "DISCARD", "ERROR", "FAULT", "KEEP", "LENGTH", "MEMORY", "OK", "OUTPUT", "PROGRAM", "PROGRAMS", "REFUSED",
    "REQUEST", "STATUS", "TIMEOUT", "read_exactly",
]  # fmt: skip

REQUEST = struct.Struct("<IdQIB")
"""Host to lane: length of the program that follows, seconds, bytes of memory, bytes of output, flags."""
ANSWER = struct.Struct("<BBIId")
"""Lane to host: status, whether the interpreter ended, lengths of stdout and stderr that follow, seconds."""
PROGRAM = struct.Struct("<IQ")
"""Lane to child: length of the program that follows, bytes of memory it may use beside what the child has."""
PROGRAMS, STATUS = 3, 4
"""A child's descriptors that bring programs and take the status; 0 is empty, 1 and 2 are its output."""
LENGTH = struct.Struct("<I")
"""Between host and zygote: length of the JSON that follows."""

KEEP, DISCARD = 1, 2
"""Flags of a request: the interpreter is kept for the next program; the kept interpreter is thrown away."""

OK, ERROR, TIMEOUT, MEMORY, OUTPUT, REFUSED, FAULT = range(7)
"""The statuses; a child says one of them as a single byte, FAULT excepted."""


def read_exactly(fd: int, length: int) -> bytes:
    """Read so many bytes from a blocking descriptor; EOFError if it ends before."""
    parts = []
    while length:
        part = os.read(fd, min(length, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
