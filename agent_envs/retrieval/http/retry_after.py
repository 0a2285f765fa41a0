"""How long a server asks its clients to wait: the one reader of Retry-After headers."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping
from email.message import Message

__all__ = ["retry_after"]


def retry_after(headers: Mapping[str, str] | Message) -> float:
    """Return the seconds that a reply asks to wait before the next request; 0.0 if it does not ask, or the time is up.

    Reads `retry-after-ms` (OpenAI) and then `Retry-After`, a number of seconds or a date.

    >>> retry_after({"retry-after": "2"}), retry_after({"retry-after-ms": "250"}), retry_after({"retry-after": "soon"})
    (2.0, 0.25, 0.0)
    >>> retry_after({}), retry_after({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"})
    (0.0, 0.0)

    Args:
        headers: The reply's headers, with a `get` that ignores case as those of http.client and httpx do.
    """
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            seconds = float(milliseconds) / 1000
        else:
            seconds = _seconds(headers.get("retry-after") or "0")
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return email.utils.parsedate_to_datetime(text).timestamp() - time.time()
