"""The result of a program that ran in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_OUTPUT = 65536
"""Bytes of stdout and of stderr that a program may write."""

Status = Literal["ok", "error", "timeout", "memory", "output-limit", "refused"]

STATUSES: tuple[Status, ...] = ("ok", "error", "timeout", "memory", "output-limit", "refused")
"""How a program can end: it finished; it raised or exited with a code; it ran too long, needed too much memory, wrote
too much, or tried something forbidden and did not catch the refusal."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a program did. A sandbox that fails raises BackendError instead, so that training can mask the episode."""

    status: Status
    """One of `STATUSES`."""
    stdout: str
    """What it printed, with a note at the end if it was cut."""
    stderr: str
    """What it wrote to the standard error: its traceback, if it raised."""
    seconds: float
    """How long it ran."""
    ended: bool = False
    """Whether a session's interpreter ended with this program, and its variables with it."""

    @property
    def ok(self) -> bool:
        """Whether the program finished."""
        return self.status == "ok"


def bounded_text(output: bytes) -> str:
    r"""Return output as text, with a note where it is cut.

    >>> bounded_text(b"\xff\n"), bounded_text(b"a" * (MAX_OUTPUT + 1))[-32:]
    ('\ufffd\n', 'aa\n[cut: more than 65536 bytes]\n')
    """
    text = output[:MAX_OUTPUT].decode("utf-8", "replace")
    return f"{text}\n[cut: more than {MAX_OUTPUT} bytes]\n" if len(output) > MAX_OUTPUT else text
