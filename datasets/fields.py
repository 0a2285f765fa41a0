"""Checked access to data rows; each error says where the row is, what was expected and what was found.

`where` describes the row, like "rows.jsonl, line 3". Rows in the layout of verl's data sets, which the processed data
releases have, are read here too:

    {"data_source": "musique", "prompt": [{"role": "user", "content": "Who is the spouse of the Green performer?"}],
     "reward_model": {"ground_truth": "Miquette Giraudy", "style": "rule"},
     "extra_info": {"index": 0, "split": "validation", "answers": ["Miquette Giraudy"], ...}}

Some have `agent_name`, `ability` and `env_kwargs` too. What `ground_truth` and `extra_info` hold is the task's own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from agent_envs.errors import DataError
from agent_envs.files import read_text, table

VERL_SOURCES: dict[str, str] = table(__package__, "release_rows.json")["sources"]
"""How the `data_source` of each task's released rows begins."""


def as_object(value: Any, expected: str, where: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object; `expected` says what was expected instead of something else."""
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected {expected}, got {type(value).__name__} {value!r:.60}")
    return value


def data_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file."""
    try:
        return read_text(path)
    except (OSError, ValueError) as e:
        raise DataError(f"{os.fspath(path)} cannot be read: {e}") from e


def text_field(row: Mapping[str, Any], key: str, where: str) -> str:
    """Return the non-empty string under a key.

    >>> text_field({"question": 1}, "question", "rows.jsonl, line 3")
    Traceback (most recent call last):
        ...
    agent_envs.errors.DataError: rows.jsonl, line 3: expected text under 'question', got 1 (keys: 'question')
    """
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: expected text under {key!r}, got {value!r:.60} (keys: {keys_of(row)})")
    return value


def answer_field(row: Mapping[str, Any], key: str, where: str) -> str:
    """Return the answer under a key: a non-empty string, or a finite number as text, a whole one without a point.

    >>> [answer_field({"answer": answer}, "answer", "") for answer in ("27.0", 27.0, 1e3, 0.5)]
    ['27.0', '27', '1000', '0.5']
    """
    value = row.get(key)
    if isinstance(value, (Real, Decimal)) and not isinstance(value, bool) and math.isfinite(value):
        return str(int(value) if value == int(value) else value)  # type: ignore[arg-type]
    return text_field(row, key, where)


def as_list(value: Any, key: str, where: str) -> list[Any]:
    """Return the value under a key as a list."""
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
        raise DataError(f"{where}: expected a list under {key!r}, got {value!r:.60}")
    return list(value)


def as_texts(value: Any, key: str, where: str) -> list[str]:
    """Return the value under a key as a list of strings."""
    texts = as_list(value, key, where)
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{where}: expected a list of strings under {key!r}, got {text!r:.60} in it")
    return texts


def keys_of(row: Mapping[str, Any]) -> str:
    """Return the keys of a row as an error shows them."""
    return (", ".join(map(repr, row)) or "none")[:200]


@dataclass(frozen=True, slots=True)
class VerlRow:
    """What such a row says."""

    question: str
    """Its last user message."""
    ground_truth: Any
    """A text, a list of texts, an object, or None, as the task has it."""
    extra: dict[str, Any]
    """`extra_info`; what it leaves out, a ground truth that is an object may say."""

    @property
    def golds(self) -> list[Any]:
        """The ground truth as a list: empty for None."""
        truth = () if self.ground_truth is None else self.ground_truth
        return list(truth) if isinstance(truth, (list, tuple)) else [truth]


def verl_row(row: Any, where: str, *tasks: str) -> VerlRow:
    """Read a row; a DataError says what is wrong and `where`, such as a `data_source` of none of the `tasks`.

    >>> row = {"prompt": [{"content": "1 + 1?", "role": "user"}], "reward_model": {"ground_truth": "2"}}
    >>> verl_row(row, "row 1")
    VerlRow(question='1 + 1?', ground_truth='2', extra={})
    """
    fields = as_object(row, "an object with 'prompt' and 'reward_model'", where)
    source = str(fields.get("data_source"))
    if tasks and (other := {task for task, begin in VERL_SOURCES.items() if source.startswith(begin)} - {*tasks}):
        raise DataError(f"{where}: expected a row of {' or '.join(tasks)}, got one of {other.pop()} ({source!r:.60})")
    reward_model = as_object(fields.get("reward_model"), "an object under 'reward_model'", where)
    extra = fields.get("extra_info")
    known = {} if extra is None else as_object(extra, "an object under 'extra_info'", where)
    prompt = as_list(fields.get("prompt"), "prompt", where)
    messages = [as_object(each, "messages under 'prompt'", where) for each in prompt]
    asked = [message for message in messages if message.get("role") == "user"]
    question = text_field(asked[-1] if asked else {}, "content", f"{where}: the user message of 'prompt'")
    truth = reward_model.get("ground_truth")
    told = truth if isinstance(truth, dict) else {}
    return VerlRow(question, truth, told | {name: value for name, value in known.items() if value is not None})
