"""Rows in the layout of verl's data sets, which the processed data releases have.

    {"data_source": "musique", "prompt": [{"role": "user", "content": "Who is the spouse of the Green performer?"}],
     "reward_model": {"ground_truth": "Miquette Giraudy", "style": "rule"},
     "extra_info": {"index": 0, "split": "validation", "answers": ["Miquette Giraudy"], ...}}

Some have `agent_name`, `ability` and `env_kwargs` too. What `ground_truth` and `extra_info` hold is the task's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.fields import as_list, as_object, text_field

__all__ = ["VerlRow", "verl_row"]


@dataclass(frozen=True, slots=True)
class VerlRow:
    """What such a row says."""

    question: str
    """Its last user message."""
    ground_truth: Any
    """A text, a list of texts, an object, or None, as the task has it."""
    extra: dict[str, Any]
    """`extra_info`."""

    @property
    def golds(self) -> list[Any]:
        """The ground truth as a list: empty for None."""
        if self.ground_truth is None:
            return []
        return list(self.ground_truth) if isinstance(self.ground_truth, (list, tuple)) else [self.ground_truth]


def verl_row(row: Any, where: str) -> VerlRow:
    """Read a row; a DataError says what is wrong and `where`.

    >>> row = {"prompt": [{"content": "1 + 1?", "role": "user"}], "reward_model": {"ground_truth": "2"}}
    >>> verl_row(row, "row 1")
    VerlRow(question='1 + 1?', ground_truth='2', extra={})
    """
    fields = as_object(row, "an object with 'prompt' and 'reward_model'", where)
    reward_model = as_object(fields.get("reward_model"), "an object under 'reward_model'", where)
    extra = fields.get("extra_info")
    messages = [
        as_object(each, "messages under 'prompt'", where) for each in as_list(fields.get("prompt"), "prompt", where)
    ]
    asked = [message for message in messages if message.get("role") == "user"]
    question = text_field(asked[-1] if asked else {}, "content", f"{where}: the user message of 'prompt'")
    extra = {} if extra is None else as_object(extra, "an object under 'extra_info'", where)
    return VerlRow(question, reward_model.get("ground_truth"), extra)
