"""Runs a program, and ends it with all that it started when the process that asked for it ends or closes it.

`python -I -S guard.py PARENT PROGRAM [ARGUMENT ...]`. It imports nothing of this package, so it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.1  # seconds between two looks at the parent and the program


def main(parent: int, command: list[str]) -> int:
    """Run the program until it ends, the process `parent` ends, or a SIGTERM comes; return its exit status."""
    if sys.platform == "linux":  # what the program leaves behind becomes a child of this process
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child, ended, status = 0, False, 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setpgroup=0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # the program alone holds them, so that its end is seen
            os.dup2(nothing, stream)
        while os.getppid() == parent and not ended:
            time.sleep(_PAUSE)
            reaped, status = os.waitpid(child, os.WNOHANG)
            ended = reaped == child
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_all(child)
    return os.waitstatus_to_exitcode(status)


def _end_all(group: int) -> None:
    """Kill the program's group, and whatever else is a child of this process by now, until there is none."""
    if group:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(100):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as file:  # where that is
            for child in map(int, file.read().split()):
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
