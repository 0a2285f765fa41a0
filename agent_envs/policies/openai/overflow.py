"""How servers say that a request does not fit the model's context: overflow.json has the words, and whose they are."""

from __future__ import annotations

import re

from agent_envs.files import table

_OVERFLOW = re.compile("|".join(table(__package__, "overflow.json")), re.IGNORECASE)


def is_overflow(message: str) -> bool:
    """Return whether a server's error says that a prompt, or a prompt and its response, is too long for the model.

    >>> is_overflow("This model's maximum context length is 16 tokens."), is_overflow("Too many tokens per minute")
    (True, False)
    """
    return _OVERFLOW.search(message) is not None
