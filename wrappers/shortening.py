"""Cuts the texts of a prompt to a size: the longest first, each with a note of its length."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable

from agent_envs.messages import Message, content_text, cut_content, joined_content

_LEAST_SHOWN = 16  # characters of a shortened message


def shorten(
    messages: list[Message], protected: int, *, fits: Callable[[list[Message]], bool]
) -> tuple[list[Message], int]:
    """Cut every text to the largest number of characters with which the prompt fits.

    If all texts at their shortest are still too long, the last results are left out, as few as possible.

    Args:
        messages: The prompt: the part that stays, then one action and the answers to it.
        protected: Number of messages at the beginning that stay unchanged.
        fits: Whether a prompt is short enough.

    Returns:
        The prompt, and how many of its texts were cut or left out. At its shortest it may still not fit.

    >>> messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "a" * 100}]
    >>> shorten(messages, 1, fits=lambda tried: sum(len(m["content"]) for m in tried) < 70)[0][-1]["content"]
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\n[cut: 100 characters]'
    """
    low = 0  # fits or is the minimum
    high = max(len(content_text(m["content"])) for m in messages)  # does not fit
    best = None
    while True:
        middle = (low + high) // 2
        cut = _cut_texts(messages, protected, max(middle, _LEAST_SHOWN))
        if fits(cut[0]):
            best, low = cut, middle
        else:
            high = middle
        if high - low <= max(1, low // 64) or middle <= _LEAST_SHOWN:
            break
    shortest, count = _cut_texts(messages, protected, _LEAST_SHOWN)
    return best or _first_results(messages, shortest, protected, fits) or (shortest, count)


def _cut_texts(messages: list[Message], protected: int, limit: int) -> tuple[list[Message], int]:
    """Return the messages with all texts but the protected ones cut to ``limit`` characters, and how many are."""
    out = list(messages[:protected])
    for message in messages[protected:]:
        length = len(content_text(message["content"]))
        note = f"\n[cut: {length} characters]"
        if length > limit + len(note):
            message = {**message, "content": cut_content(message["content"], limit, note)}
        out.append(message)
    return out, sum(a is not b for a, b in zip(out, messages, strict=True))


def _first_results(
    messages: list[Message], cut: list[Message], protected: int, fits: Callable[[list[Message]], bool]
) -> tuple[list[Message], int] | None:
    """Keep as many results of an action with many calls as fit, with a note of the others; None if none fits."""

    def chosen(kept: int) -> list[Message]:
        last, left_out = cut[protected + kept], len(cut) - protected - kept - 1
        note = f"[{left_out} more results are left out]"
        noted: Message = {**last, "content": joined_content([last["content"], note], "\n")}
        return [*cut[: protected + kept], noted]

    # Messages kept after the protected ones, the action first: more of them never make a prompt shorter.
    most = bisect(range(1, len(cut) - protected), False, key=lambda kept: not fits(chosen(kept)))
    if not most:
        return None
    changed = sum(a is not b for a, b in zip(cut[: protected + most], messages, strict=False))
    return chosen(most), changed + len(cut) - protected - most
