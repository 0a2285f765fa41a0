"""The kernel's walls that a process puts up around itself: Landlock, namespaces, another user, seccomp.

Constants are those of the kernel's headers (linux/landlock.h, linux/sched.h, linux/prctl.h, linux/capability.h).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

__all__ = ["NOBODY", "die_with_parent", "drop_capabilities", "install_filter", "landlock", "leave_root", "namespaces"]

NOBODY = 65534
"""The user that a sandbox of root runs as."""

_libc = ctypes.CDLL(None, use_errno=True)

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # the same on every architecture
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_NAMESPACES = {"user": 0x10000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def landlock() -> int:
    """Deny this process and its children every file, TCP port, signal to others and abstract socket.

    Returns:
        The kernel's Landlock ABI, or 0 if it has none: then nothing is denied.
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
    """Move this process into namespaces of its own and return their names; none if the system forbids it."""
    wanted = 0
    for flag in _NAMESPACES.values():
        wanted |= flag
    return list(_NAMESPACES) if _libc.unshare(wanted) == 0 else []


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


def drop_capabilities() -> None:
    """Give up every capability, and be neither traced nor dumped by processes of the same user."""
    _libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; exit if it has died already."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def install_filter(program: bytes) -> None:
    """Install a finished seccomp filter for good.

    Raises:
        OSError: The kernel refuses it.
    """
    filters = _Program(len(program) // 8, program)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(filters), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel refuses the seccomp filter")
