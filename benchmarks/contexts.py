"""A context of the study of contexts in docs/results.md: a line for each earlier exchange, and the last one in full."""

from __future__ import annotations

from itertools import chain
from typing import Any

from agent_envs.messages import Message
from agent_envs.wrappers.context import ContextWrapper, add_to_task, split_exchanges

_BEGINNING = 120  # characters of an answer


class Summary(ContextWrapper):
    """Show each earlier exchange as its action and how its answer begins, after the task."""

    selects_history = True

    def _choose(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        opening, exchanges = split_exchanges(messages)
        if len(exchanges) > 1:
            opening = add_to_task(opening, "\n\nSo far:\n" + "\n".join(map(_line, exchanges[:-1])))
        return [*opening, *chain.from_iterable(exchanges[-1:])], {}


def _line(exchange: list[Message]) -> str:
    action, *answers = (" ".join(str(message["content"]).split()) for message in exchange)
    return f"{action} -> {' '.join(answers)[:_BEGINNING]}"
