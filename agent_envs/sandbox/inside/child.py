"""What a child does before it runs programs: it arranges its descriptors and puts up its walls.

Its descriptors: 0 is empty, 1 and 2 are the program's output, 3 brings programs, 4 takes the status.
"""

from __future__ import annotations

import os
import resource

from agent_envs.sandbox.inside.walls import install_filter

__all__ = ["enter"]

_LIMITS = {
    "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": 64, "RLIMIT_CORE": 0, "RLIMIT_MEMLOCK": 0, "RLIMIT_MSGQUEUE": 0,
    "RLIMIT_STACK": 64 << 20,
}  # fmt: skip


def enter(descriptors: tuple[int, ...], program: bytes) -> None:
    """Make the descriptors 0, 1, 2 and so on, close all others, and put up the limits and the seccomp filter.

    Args:
        descriptors: Which descriptors these are now.
        program: The filter as finished BPF; empty for none.
    """
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, 60 + number)
    for number in range(len(descriptors)):
        os.dup2(60 + number, number)
    os.closerange(len(descriptors), 1 << 16)
    for name, value in _LIMITS.items():
        if name in vars(resource):  # one of them is Linux's alone
            limit = vars(resource)[name]
            hard = resource.getrlimit(limit)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (value, value))
    if program:
        install_filter(program)
