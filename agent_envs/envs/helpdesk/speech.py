"""The sentences of a customer: frames filled with the values of the world, drawn from the task's own name."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from agent_envs.datasets.helpdesk.generated.book import frames
from agent_envs.datasets.helpdesk.generated.conditions import Value
from agent_envs.datasets.helpdesk.generated.domain import Act, Domain
from agent_envs.datasets.helpdesk.generated.solving import HelpDeskTask, Request, Wish


class Speech:
    """What a customer says in a task.

    Args:
        task: The task.
        domain: Its domain.
        plain: Whether each kind of sentence has one frame only, for very small models.
    """

    def __init__(self, task: HelpDeskTask, domain: Domain, plain: bool) -> None:
        self.task, self.domain, self.plain = task, domain, plain
        self.split = task.task_id.split("/")[1]
        self.temper = zlib.crc32(task.task_id.encode()) % 3
        """0 terse, 1 plain, 2 chatty."""

    def pick(self, choices: Sequence[str], turn: int) -> str:
        """Return one of some sentences: another one at another turn, the same one whenever the task is played."""
        if self.plain:
            return choices[0]
        return choices[zlib.crc32(f"{self.task.task_id} {turn} {len(choices)} {choices[0]}".encode()) % len(choices)]

    def frame(self, key: str, turn: int, **slots: object) -> str:
        """Return a sentence of a kind."""
        return self.pick(frames(key, self.split), turn).format(**slots)

    def item(self, request: Request, number: str) -> str:
        """Return how the customer names the item: by a number, or by its label."""
        if request.named == "number":
            return f"my {self.domain.item.noun} {number}"
        return self.domain.described.replace("{label}", self.label(request))

    def label(self, request: Request) -> str:
        """Return what the item is called."""
        return str(self.task.rows["item"][request.wishes[0].item][self.domain.label])

    def doing(self, wish: Wish, item: str, asks: Mapping[str, Value], turn: int) -> str:
        """Return the words for what is wanted, with what was asked for as far as it is given.

        Args:
            wish: The wish.
            item: How the item is named.
            asks: What is said of it.
            turn: The number of the customer's reply.
        """
        act = self.domain.acts[wish.act]
        clauses = [ask.say.format(asks[ask.name]) for ask in act.asks if isinstance(ask.say, str) and ask.name in asks]
        return " ".join([self.pick(act.verbs, turn), act.object.replace("{item}", item), *clauses])

    def reasons(self, act: Act, asks: Mapping[str, Value]) -> list[str]:
        """Return a sentence for each fact that has sentences of its own."""
        return [
            ask.say[ask.values.index(asks[ask.name])]
            for ask in act.asks
            if not isinstance(ask.say, str) and ask.name in asks
        ]

    def fact(self, wish: Wish, name: str, asks: Mapping[str, Value]) -> str:
        """Return the answer to the question for what only the customer knows."""
        ask = next(ask for ask in self.domain.acts[wish.act].asks if ask.name == name)
        if not isinstance(ask.say, str):
            return ask.say[ask.values.index(asks[name])]
        said = ask.say.format(asks[name])
        return f"{said[0].upper()}{said[1:]}, please."
