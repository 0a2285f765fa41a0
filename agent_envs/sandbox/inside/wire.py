"""What the host, the zygote and its children say to each other."""

from __future__ import annotations

import os
import signal
import struct

FORK = struct.Struct("<Q")
"""Host to zygote: bytes of memory that a child may use beside what it has. With the descriptor of the child's end of a
channel it asks for a child; with the process of a child's copy beside that, it asks to say how the copy ends."""
PROGRAM = struct.Struct("<I")
"""Host to child: length of the program that follows, with the descriptors of its output and error output. The length 0
asks for a copy of the child, with the descriptor of the copy's end of a channel."""
END = struct.Struct("<h")
"""Zygote to host, with a descriptor, which no program can send: the exit code of a child, or minus its signal."""
CHANNEL = 3
"""A child's descriptor that brings programs and takes one byte when each has ended; 0 is empty, 1 and 2 its output."""
AS_SIBLING = 0x8000 | signal.SIGCHLD
"""The flags of `clone` for a copy: CLONE_PARENT makes it the zygote's child too, and no program's fork has it."""

OK, ERROR, MEMORY, REFUSED = range(4)
"""The statuses that a child says."""


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
