"""What a child does before it runs programs, and how it makes a copy of itself."""

from __future__ import annotations

import contextlib
import os
import socket

from agent_envs.sandbox.inside import walls, wire


def enter(channel: socket.socket, memory: int, filters: dict[str, bytes]) -> None:
    """Put up the walls, and hand the host what it holds this process by.

    Args:
        channel: The connection to the host at `wire.CHANNEL`; what is above it is closed.
        memory: Bytes of address space that this process may have.
        filters: The seccomp filters: "asks" for copies, "copies" for what else is done where the kernel takes the
            first, "alone" where it does not.
    """
    walls.die_with_parent()
    os.setpgid(0, 0)  # its copies are in its group
    os.dup2(1, 2)  # where nothing is kept, until a program's output comes
    os.closerange(wire.CHANNEL + 1, walls.MOST_DESCRIPTORS)
    walls.limit(memory)
    held, strict = [os.pidfd_open(os.getpid())], filters["alone"]
    with contextlib.suppress(OSError):  # an old kernel, or one that asks somebody else already
        held.append(walls.install_filter(filters["asks"], listener=True))
        strict = filters["copies"]
    socket.send_fds(channel, [b"r"], held)
    for descriptor in held:
        os.close(descriptor)
    walls.install_filter(strict)


def forked(descriptors: list[int]) -> None:
    """Return twice: here, and in a copy of this process whose channel is the descriptor.

    The host lets one such call pass when it has asked for it, and knows the copy by a second one, which it refuses.
    """
    if walls.raw_clone(wire.AS_SIBLING) == 0:
        walls.raw_clone(wire.AS_SIBLING)
        walls.die_with_parent()
        os.dup2(descriptors[0], wire.CHANNEL)
    for descriptor in descriptors:
        os.close(descriptor)
