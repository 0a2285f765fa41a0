"""The seccomp filter of the children: every system call that is not listed fails with EPERM.

"Closed": no call that takes a path is listed, nor any that makes a process, a thread, a socket or a signal to another.
"""

from __future__ import annotations

import errno
import functools
import os

from agent_envs.errors import BackendError

__all__ = ["filter_program"]

_ALLOWED = """
    read readv write writev pread64 close fstat lseek mmap munmap mremap brk madvise mprotect rt_sigaction
    rt_sigprocmask rt_sigreturn sigaltstack setitimer getitimer alarm pause poll ppoll select pselect6 getpid getppid
    gettid getuid geteuid getgid getegid clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times
    getrusage getrandom futex sched_yield sched_getaffinity restart_syscall exit exit_group getcwd uname dup dup2 dup3
    set_robust_list rseq membarrier sysinfo getcpu
"""
_TERMINAL_REQUESTS = (0x5401, 0x5451, 0x5421, 0x541B, 0x5413)  # TCGETS FIOCLEX FIONBIO FIONREAD TIOCGWINSZ
_DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 1030)  # F_DUPFD F_GETFD F_SETFD F_GETFL F_DUPFD_CLOEXEC: neither F_SETOWN nor locks
_LOW_HALF = 0xFFFFFFFF  # the kernel reads 32 bits of these arguments


@functools.lru_cache(maxsize=1)
def filter_program() -> bytes:
    """Return the filter as finished BPF, built by libseccomp.

    Raises:
        MissingExtraError: pyseccomp is not installed.
        BackendError: libseccomp is not installed, or cannot build the filter.
    """
    try:
        import pyseccomp
    except ModuleNotFoundError as e:
        raise BackendError("the sandbox needs the package pyseccomp: pip install pyseccomp") from e
    except (RuntimeError, OSError) as e:
        raise BackendError(f"the sandbox needs libseccomp (Debian: apt-get install libseccomp2): {e}") from e
    try:
        rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ERRNO(errno.EPERM))
        for name in _ALLOWED.split():
            rules.add_rule(pyseccomp.ALLOW, name)
        for call, values in (("ioctl", _TERMINAL_REQUESTS), ("fcntl", _DESCRIPTOR_COMMANDS)):
            for value in values:
                rules.add_rule(pyseccomp.ALLOW, call, pyseccomp.Arg(1, pyseccomp.MASKED_EQ, _LOW_HALF, value))
        # Its flags lie in memory, where no filter sees them; the C library falls back to clone, which is refused.
        rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
        descriptor = os.memfd_create("filter")
        with os.fdopen(descriptor, "w+b") as file:
            rules.export_bpf(file)
            return os.pread(descriptor, 1 << 16, 0)
    except OSError as e:
        raise BackendError(f"libseccomp cannot build the sandbox's filter: {e}") from e
