"""The seccomp filters of the children: every system call that is not listed fails with EPERM.

"Closed": no call that takes a path is listed, nor any that makes a process, a thread, a socket or a signal to another,
nor any that tells of the machine or of other processes.
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import signal
from typing import Any

from agent_envs.errors import BackendError
from agent_envs.sandbox.inside import wire

_ALLOWED = """
    read readv write writev pread64 close fstat lseek munmap mremap brk madvise mprotect rt_sigaction
    rt_sigprocmask rt_sigreturn sigaltstack setitimer getitimer alarm pause poll ppoll select pselect6 nanosleep
    gettimeofday time times getrusage getrandom futex sched_yield restart_syscall exit exit_group getcwd dup dup2 dup3
"""
_ZERO = "getpid getppid gettid getuid geteuid getgid getegid"  # what these say of the host is nobody's affair
_CLOCK_CALLS = "clock_gettime clock_getres clock_nanosleep"
_CLOCKS = (0, 1, 2, 3, 4)  # of this process: a negative number is another's
# TCGETS FIOCLEX FIONREAD TIOCGWINSZ; not FIONBIO, a flag that all who have a descriptor see
_TERMINAL_REQUESTS = (0x5401, 0x5451, 0x541B, 0x5413)
_DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 1030)  # F_DUPFD F_GETFD F_SETFD F_GETFL F_DUPFD_CLOEXEC: neither F_SETOWN nor locks
_MAP_TYPE = 0x0F
_LOW_HALF = 0xFFFFFFFF  # the kernel reads 32 bits of these arguments
_PR_SET_PDEATHSIG = 1


@functools.lru_cache(maxsize=1)
def filter_programs() -> dict[str, bytes]:
    """Return the filters as finished BPF; a BackendError if pyseccomp or libseccomp is missing or cannot build them.

    "alone" is for a child that makes no copies of itself, "copies" for one that may, and "asks" goes before that: the
    host lets each copy pass.
    """
    try:
        import pyseccomp
    except ModuleNotFoundError as e:
        raise BackendError("the sandbox needs the package pyseccomp: pip install pyseccomp") from e
    except (RuntimeError, OSError) as e:
        raise BackendError(f"the sandbox needs libseccomp (Debian: apt-get install libseccomp2): {e}") from e

    def argument(place: int, value: int) -> Any:
        return pyseccomp.Arg(place, pyseccomp.MASKED_EQ, _LOW_HALF, value)

    try:
        finished = {}
        for name in ("alone", "copies"):
            rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ERRNO(errno.EPERM))
            for call in _ALLOWED.split():
                rules.add_rule(pyseccomp.ALLOW, call)
            for call in _ZERO.split():
                rules.add_rule(pyseccomp.ERRNO(0), call)
            rules.add_rule(pyseccomp.ALLOW, "recvmsg", argument(0, wire.CHANNEL))
            # Memory that stays shared with a copy would tell one branch of an episode of the others.
            rules.add_rule(pyseccomp.ALLOW, "mmap", pyseccomp.Arg(3, pyseccomp.MASKED_EQ, _MAP_TYPE, mmap.MAP_PRIVATE))
            clocks = [(call, 0, _CLOCKS) for call in _CLOCK_CALLS.split()]
            for call, place, values in (
                *clocks, ("ioctl", 1, _TERMINAL_REQUESTS), ("fcntl", 1, _DESCRIPTOR_COMMANDS),
            ):  # fmt: skip
                for value in values:
                    rules.add_rule(pyseccomp.ALLOW, call, argument(place, value))
            # Its flags are in memory, where no filter sees them; the C library falls back to clone, which is refused.
            rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
            if name == "copies":
                rules.add_rule(pyseccomp.ALLOW, "clone", pyseccomp.Arg(0, pyseccomp.EQ, wire.AS_SIBLING))
                rules.add_rule(pyseccomp.ALLOW, "prctl", argument(0, _PR_SET_PDEATHSIG), argument(1, signal.SIGKILL))
            finished[name] = _finished(rules)
        rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
        rules.add_rule(pyseccomp.NOTIFY, "clone", pyseccomp.Arg(0, pyseccomp.EQ, wire.AS_SIBLING))
        return {**finished, "asks": _finished(rules)}
    except OSError as e:
        raise BackendError(f"libseccomp cannot build the sandbox's filter: {e}") from e


def _finished(rules: Any) -> bytes:
    descriptor = os.memfd_create("filter")
    with os.fdopen(descriptor, "w+b") as file:
        rules.export_bpf(file)
        return os.pread(descriptor, 1 << 16, 0)
