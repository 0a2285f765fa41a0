"""Texts of a prompt cut to a size: the longest first, each with a note of how long it was."""

from __future__ import annotations

from collections.abc import Callable

from agent_envs.messages import Message

__all__ = ["shorten", "split_summary"]

_LEAST_SHOWN = 16  # characters of a shortened message


def shorten(
    messages: list[Message], protected: int, *, fits: Callable[[list[Message]], bool], summary: str = ""
) -> tuple[list[Message], int]:
    """Cut every text of more than so many characters, with the most characters that fit.

    If all of them at their shortest are still too long, the last results are left out, as few as possible.

    Args:
        messages: The prompt: what stays, then one text of the policy and what came of it.
        protected: Messages at the beginning that stay as they are, summaries apart.
        fits: Whether a prompt is short enough.
        summary: The heading behind which the protected messages hold a summary, which is cut too; "" for none.

    Returns:
        The prompt and how many of its texts were cut or left out. At its shortest it may still not fit.

    >>> told = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "a" * 100}]
    >>> shorten(told, 1, fits=lambda messages: sum(len(m["content"]) for m in messages) < 70)[0][-1]["content"]
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\n[cut: 100 characters]'
    """
    low, high = 0, max(len(m["content"]) for m in messages)  # low fits or is the least there is, high does not fit
    best = None
    while True:
        middle = (low + high) // 2
        cut = _cut_texts(messages, protected, max(middle, _LEAST_SHOWN), summary)
        if fits(cut[0]):
            best, low = cut, middle
        else:
            high = middle
        if high - low <= max(1, low // 64) or middle <= _LEAST_SHOWN:
            break
    shortest, count = _cut_texts(messages, protected, _LEAST_SHOWN, summary)
    return best or _first_results(messages, shortest, protected, fits) or (shortest, count)


def split_summary(content: str, heading: str) -> tuple[str, str]:
    """A text and the summary behind it with its heading, "" for none.

    >>> split_summary("Task. Summary: done", " Summary:")
    ('Task.', ' Summary: done')
    """
    task, found, summary = content.rpartition(heading) if heading else ("", "", "")
    return (task, found + summary) if found else (content, "")


def _cut_texts(messages: list[Message], protected: int, limit: int, summary: str) -> tuple[list[Message], int]:
    """Messages with all texts but the protected ones cut to ``limit`` characters, and how many were cut."""
    out: list[Message] = []
    for position, message in enumerate(messages):
        stays, text = split_summary(message["content"], summary) if position < protected else ("", message["content"])
        note = f"\n[cut: {len(text)} characters]"
        if len(text) > limit + len(note):
            message = {**message, "content": stays + text[:limit] + note}
        out.append(message)
    return out, sum(a is not b for a, b in zip(out, messages, strict=True))


def _first_results(
    messages: list[Message], cut: list[Message], protected: int, fits: Callable[[list[Message]], bool]
) -> tuple[list[Message], int] | None:
    """The most results of a text with many calls that fit, and a note of how many there are; None for none."""
    low, high = 1, len(cut) - protected - 1  # messages kept after the protected ones, the policy's text first
    best = None
    while low <= high:
        middle = (low + high) // 2
        left = len(cut) - protected - middle
        last = cut[protected + middle]
        note: Message = {**last, "content": f"{last['content']}\n[{left - 1} more results are left out]"}
        chosen = [*cut[: protected + middle], note]
        if fits(chosen):
            changed = sum(a is not b for a, b in zip(cut[: protected + middle], messages, strict=False))
            best, low = (chosen, changed + left), middle + 1
        else:
            high = middle - 1
    return best
