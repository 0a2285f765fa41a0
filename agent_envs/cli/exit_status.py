"""How every command of this package ends: with what it has to say, or with one message and an exit status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from agent_envs.errors import AgentEnvsError, BackendError

__all__ = ["run_command"]


def run_command(action: Callable[[], str]) -> int:
    """Run a command and write what it returns to standard output.

    Returns:
        The exit status. 0: done; 1: something it depends on failed, or nobody reads the output any more; 2: bad input;
        130: interrupted. Errors of this library, and files that cannot be read or written, are one message on standard
        error, not a traceback.
    """
    try:
        said = action()
        sys.stdout.write(said if said.endswith("\n") or not said else f"{said}\n")
        sys.stdout.flush()
    except AgentEnvsError as e:
        sys.stderr.write(f"agentr1: {e}\n")
        return 1 if isinstance(e, BackendError) else 2
    except KeyboardInterrupt:
        sys.stderr.write("agentr1: stopped; the same command continues\n")
        return 130
    except BrokenPipeError:  # as behind `| head`; what is left is written nowhere when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
        return 1
    except OSError as e:
        if e.filename is None:
            raise
        sys.stderr.write(f"agentr1: {e.filename}: {e.strerror}\n")
        return 1 if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else 2
    return 0
