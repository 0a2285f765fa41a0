"""What a customer wants now and what it has said, and the words for both: frames filled with values of the world."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent_envs.datasets.helpdesk.generated.book import frames
from agent_envs.datasets.helpdesk.generated.domain import Act, Device, Domain
from agent_envs.datasets.helpdesk.generated.rules import Value
from agent_envs.datasets.helpdesk.generated.solving import HelpDeskTask, Request, Wish
from agent_envs.envs.helpdesk.desk import Desk


@dataclass(slots=True)
class Mind:
    """What changes in a customer."""

    request: int = 0
    wish: int = 0
    read: int = 0
    """Letters settled."""
    told: set[str] = field(default_factory=set)
    """Facts said: "name", "code", and of this wish "number" and what it asks."""
    changed: bool = False
    """Whether the mind about this wish has been changed."""
    corrected: bool = False
    """Whether the misread number of this request has been put right."""
    settled: bool = False
    """Whether this wish is settled, and only an amount is waited for."""
    pleas: int = 0
    refused: bool = False
    """Whether the letter about a refusal is there, and the customer pleads."""
    beliefs: dict[str, int] = field(default_factory=dict)
    """The amount that was understood, by the act and the item."""
    fruitless: int = 0
    """Texts of which nothing was understood, in this wish."""
    texts: int = 0
    last: str = ""
    heard: str = ""
    """What was heard last, in short."""
    volunteered: int = 0
    """Facts told without being asked."""
    declined: list[str] = field(default_factory=list)
    """What on the device a letter said is not to be done."""
    pressed: list[str] = field(default_factory=list)
    """What the customer said it did to the device."""
    pending: str = ""
    """What it asked back about before doing it."""
    over: bool = False

    def begin(self) -> None:
        """Begin a wish."""
        self.changed = self.settled = self.refused = False
        self.pleas = self.fruitless = 0
        self.told &= {"name", "code", "number"}
        self.pending = ""


class Wanting:
    """What the customer of a task wants, and its sentences, drawn from the task's own name.

    `plain` leaves each kind of sentence one frame, for very small models.
    """

    def __init__(self, task: HelpDeskTask, domain: Domain, desk: Desk, mind: Mind, *, plain: bool) -> None:
        self.task, self.domain, self.desk, self.mind, self.plain = task, domain, desk, mind, plain

    @property
    def request(self) -> Request:
        """The open request."""
        return self.task.requests[self.mind.request]

    @property
    def wish(self) -> Wish | None:
        """The open wish; None in a request that no rule is about, and at the end."""
        if self.mind.request >= len(self.task.requests):
            return None
        request = self.request
        return None if request.outside or request.trouble else request.wishes[self.mind.wish]

    @property
    def device(self) -> Device | None:
        """The device, if the open request is about it."""
        return self.domain.device if not self.mind.over and self.request.trouble else None

    @property
    def act(self) -> Act | None:
        """The act of the open wish."""
        return self.domain.acts[wish.act] if (wish := self.wish) else None

    @property
    def wanted(self) -> Mapping[str, Value]:
        """What the open wish asks for now, nothing if there is none."""
        wish = self.wish
        return {} if wish is None else wish.wanted if self.mind.changed else wish.asks

    @property
    def number(self) -> str:
        """The number that the customer says."""
        assert self.wish is not None
        return self.request.misread if self.request.misread and not self.mind.corrected else self.wish.item

    @property
    def asks_amount(self) -> bool:
        """Whether the customer waits for an amount."""
        return self.wish is not None and self.wish.question and self.key not in self.mind.beliefs

    @property
    def key(self) -> str:
        """The act and the item of the open wish, "" if there is none."""
        return f"{self.wish.act} {self.wish.item}" if self.wish else ""

    def pick(self, choices: Sequence[str]) -> str:
        """Return one of some sentences: the next one at the next turn, the same one whenever the task is played."""
        place = zlib.crc32(f"{self.task.task_id} {choices[0]}".encode()) + self.mind.texts
        return choices[0 if self.plain else place % len(choices)]

    def say(self, key: str, **slots: object) -> str:
        """Return a sentence of a kind."""
        return self.filled(frames(key, self.task.task_id.split("/")[1]), **slots)

    def filled(self, choices: Sequence[str], **slots: object) -> str:
        """Return one of some sentences with its slots filled."""
        return re.sub(r"\b1 euros", "1 euro", self.pick(choices).format(**slots))

    def item(self) -> str:
        """Return how the customer names the item of the request: by a number, or by its label."""
        if self.request.named == "number":
            return f"my {self.domain.item.noun} {self.number}"
        row = self.task.rows["item"][self.request.wishes[0].item]
        return self.domain.described.replace("{label}", str(row[self.domain.label]))

    def doing(self, act: Act, asks: Mapping[str, Value]) -> str:
        """Return the words for the open wish, whose act it is, with what is asked for as far as it is given."""
        return act.words(self.pick(act.verbs), self.item(), asks)

    def wish_words(self, key: str) -> str:
        """Return the open wish in words, with what is told along and the question for the amount."""
        wish, act = self.wish, self.act
        if wish is None or act is None:
            return self.request.outside or self.request.trouble
        told = {name: wish.asks[name] for name in wish.told}
        parts = [self.say(key, do=self.doing(act, told))]
        parts += [ask.said(told[ask.name]) for ask in act.asks if not ask.follows and ask.name in told]
        self.mind.told.update(told, ["number"] * (self.request.named == "number"))
        return " ".join(parts + self.question())

    def question(self) -> list[str]:
        """Return the question for the amount if the customer waits for one."""
        amount = self.act.amount if self.act else None
        return [self.pick(amount.questions)] if amount and self.asks_amount else []

    def values(self) -> dict[str, str]:
        """Return the values of the facts, as an agent would say them."""
        name = self.task.rows["customer"][self.task.customer]["name"]
        values = {"name": name, "code": self.task.codes[self.task.customer]}
        values |= {"number": self.number} if self.wish else {}
        return values | {ask: str(value) for ask, value in self.wanted.items()}
