"""The kernel's walls that a process puts up around itself: Landlock, namespaces, another user, limits, seccomp.

Constants are those of the kernel's headers (linux/landlock.h, sched.h, prctl.h, capability.h, seccomp.h).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from typing import Any

NOBODY = 65534
"""The user that a sandbox of root runs as."""
MOST_DESCRIPTORS = 1 << 16
"""Descriptors that the zygote may have open."""

_libc = ctypes.CDLL(None, use_errno=True)
_clone = ctypes.PyDLL(None).syscall
_clone.argtypes = (ctypes.c_long,) * 6
_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, -1)

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # the same on every architecture
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_NAMESPACES = {"user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000}
_LIMITS = {
    "FSIZE": 0, "NOFILE": 64, "CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0, "STACK": 64 << 20, "CPU": 3600,
}  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def landlock() -> int:
    """Deny this process and its children every file, TCP port, signal to others and abstract socket.

    Returns the kernel's Landlock ABI, or 0 if it has none: then nothing is denied.
    """
    abi = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return 0
    file_rights = (1 << (13 if abi < 2 else 14 if abi < 3 else 15 if abi < 5 else 16)) - 1
    attributes = struct.pack("QQQ", file_rights, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    attributes = attributes[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    rules = _libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        return 0
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    denied = _libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(rules)
    return abi if denied else 0


def namespaces() -> list[str]:
    """Go on in a child in namespaces of its own and return their names; none, and no child, if the system forbids it.

    The child is the first process of its namespace: when it ends, the kernel ends all others in it. This process waits
    for it and ends with it. (`unshare` would not do: a library of pandas has a thread.)
    """
    child = raw_clone(sum(_NAMESPACES.values()) | signal.SIGCHLD)
    if child < 0:
        return []
    if child:
        os.waitpid(child, 0)
        os._exit(0)
    die_with_parent()
    _libc.sethostname(b"sandbox", 7)
    return list(_NAMESPACES)


def raw_clone(flags: int) -> int:
    """Fork as `os.fork` does, with other flags, in a process whose only thread this is; negative if it is refused."""
    return _clone(_CLONE, flags, 0, 0, 0, 0)


def leave_root() -> int:
    """Become nobody if this process is root's and may change its user; return the user it has then."""
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except OSError:  # a user namespace that maps root only
            pass
    return os.geteuid()


def powerless() -> None:
    """Give up every capability, and be neither traced nor dumped by processes of the same user."""
    _libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def limit(memory: int) -> None:
    """Put up the kernel's limits, that of the address space at `memory` bytes."""
    for name, value in {**_LIMITS, "AS": memory}.items():
        kind = vars(resource)[f"RLIMIT_{name}"]
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def install_filter(program: bytes, *, listener: bool = False) -> int:
    """Install a seccomp filter, finished BPF, for good; an OSError if the kernel refuses it.

    With `listener` it returns a descriptor that takes the calls for which the filter asks, otherwise 0.
    """
    filters: Any = ctypes.byref(_Program(len(program) // 8, program))
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    flags = _NEW_LISTENER if listener else 0
    descriptor = _libc.syscall(_SECCOMP[os.uname().machine], _SET_MODE_FILTER, flags, filters)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses the seccomp filter")
    return descriptor
