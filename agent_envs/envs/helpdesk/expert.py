"""The expert, who knows the book and acts on what was said and shown only, and its mistakes for demonstrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from agent_envs.datasets.helpdesk.generated.book import OUTSIDE_RULE, Section
from agent_envs.datasets.helpdesk.generated.domain import PHRASES, Device
from agent_envs.datasets.helpdesk.generated.rules import Facts, value_key
from agent_envs.datasets.helpdesk.generated.solving import Deed, Wish, WishFacts, amount_of
from agent_envs.envs.helpdesk.customer import Customer
from agent_envs.envs.helpdesk.tools import tool_name

MISTAKES = ("exception", "bar", "yes", "identity", "amount", "row")
"""What a demonstrator gets wrong: it ignores an exception, cites another bar, does not wait for a yes, does not check
the code word, miscounts an amount, or takes another row."""


class Move(NamedTuple):
    """What the expert does: a call of a tool, or a text."""

    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = {}
    reasons: str = ""
    """Why, where it has judged: each rule with what it tests, and what follows."""


def next_move(customer: Customer, mistake: str = "") -> Move:
    """Return the expert's next move, with one of the `MISTAKES` if it can be made here."""
    return _Expert(customer, mistake).move()


class _Expert:
    def __init__(self, customer: Customer, mistake: str) -> None:
        self.customer, self.mistake = customer, mistake
        self.task, self.domain, self.desk, self.mind = customer.task, customer.domain, customer.desk, customer.mind

    def move(self) -> Move:
        mind, wish = self.mind, self.customer.wish
        if "name" not in mind.told or "code" not in mind.told:
            return self._say("identify")
        if not self.desk.verified and self.mistake != "identity":
            row, tried = self.task.rows["customer"][self.task.customer], self.desk.seen
            if row["name"].lower() not in tried:
                return Move("", f"find_{tool_name(self.domain.customer.noun)}", {"name": row["name"]})
            same = sorted(key for key, other in self.task.rows["customer"].items() if other["name"] == row["name"])
            key = next((key for key in same if f"code {key}" not in tried), same[0])
            return Move("", "verify", {"id": key, "code": self.task.codes[self.task.customer]})
        if wish is None and (device := self.customer.device):
            return self._set_right(device)
        if wish is None:
            if mind.read < len(self.desk.letters):
                return self._say("passed_on")
            return Move("", "transfer", {"rule": OUTSIDE_RULE})
        section = self.task.book.sections[wish.act]
        if mind.settled:
            return self._say("tell", n=self._amount(section, wish))
        if mind.read < len(self.desk.letters) or mind.refused:
            last = self.desk.letters[-1]
            if last.kind == "decline":
                return self._say("refuse", r=last.rule)
            told = f" {self._say('tell', n=self._amount(section, wish)).text}" if self.customer.asks_amount else ""
            return Move(self._say("done").text + told)
        return self._look_up(section, wish) or self._judge(section, wish)

    def _set_right(self, device: Device) -> Move:
        """Have the customer look at the device and do what sets it right; note what a rule forbids."""
        mind = self.mind
        if mind.read < len(self.desk.letters):
            return self._say("refuse", r=self.desk.letters[-1].rule)
        unseen = [read.question for name, read in device.reads.items() if name not in mind.told]
        if unseen:
            return Move(" ".join(unseen))
        row = self.desk.tables["device"]["device"]
        act = next((act for act in device.remedies(row) if act.name not in mind.declined), None)
        if act is None:
            return self._say("done")
        section = self.task.book.sections.get(act.name)
        if section and (reason := section.reason(self._facts(Wish(act.name, self.task.customer, {})))):
            return Move("", "decline", {"id": self.task.customer, "act": act.name, "rule": reason})
        return self._say("press", do=act.words(act.verbs[0], ""))

    def _look_up(self, section: Section, wish: Wish) -> Move | None:
        """Return what is still to be looked up or asked before a wish can be judged."""
        seen, number = self.desk.seen, self.customer.number
        if self.customer.request.named == "label" and not {f"list {self.task.customer}", number} & {*seen}:
            return Move("", f"list_{tool_name(self.domain.item.plural)}", {"id": self.task.customer})
        if number not in seen:
            return Move("", f"get_{tool_name(self.domain.item.noun)}", {"id": number})
        if number != wish.item:
            return self._say("doubt", item=self.domain.item.noun)
        label = self.task.rows["item"][wish.item][self.domain.label]
        scopes = {link.condition.scope for link in section.links()}
        if "catalogue" in scopes and label not in seen:
            return Move("", f"get_{tool_name(self.domain.catalogue.noun)}", {"name": label})
        untold = [ask.question for ask in section.act.asks if ask.name not in self.mind.told]
        return Move(" ".join(untold)) if untold else None

    def _judge(self, section: Section, wish: Wish) -> Move:
        act, judged = section.act, section
        if self.mistake == "exception":
            judged = section._replace(chains=tuple(chain._replace(links=chain.links[:1]) for chain in section.chains))
        if reason := judged.reason(self._facts(wish)):
            if self.mistake == "bar":
                others = [f"{section.number}.{chain.first}" for chain in section.chains]
                reason = next((other for other in others if other != reason), reason)
            note = {"id": wish.item, "act": act.name, "rule": reason}
            return Move("", "decline", note, self._reasons(judged, wish, reason))
        asked, amount = dict(self.customer.wanted), self._amount(section, wish)
        if amount is not None and self.mistake == "amount":
            amount += 1
        number = wish.item
        if self.mistake == "row":
            number = next((key for key in self.task.rows["item"] if key != number), number)
        if Deed("act", act.name, wish.item, "", asked) not in self.desk.agreed and self.mistake != "yes":
            do = act.words(act.verbs[0], f"{self.domain.item.noun} {number}", asked).replace(" my ", " your ")
            told = f"{self._say('tell', n=amount).text} " if self.customer.asks_amount else ""
            return Move(told + self._say("offer", do=do).text, reasons=self._reasons(judged, wish))
        if amount is not None and act.amount is not None:
            asked[act.amount.name] = amount
        return Move("", act.name, {"id": number, **asked})

    def _reasons(self, section: Section, wish: Wish, reason: str = "") -> str:
        """Return what each rule of a section tests and whether that holds, and which rule forbids the wish, if any."""
        facts, lines = self._facts(wish), []
        for chain in section.chains:
            for number, (condition, value) in enumerate(chain.links, chain.first):
                actual, field = facts(condition), condition.field.replace("_", " ")
                shown = f"{abs(int(actual))} days" if condition.options.kind == "date" else value_key(actual)
                against = f" against {section.number}.{number - 1}" if number > chain.first else ""
                test = (
                    f"{condition.clause(value)}? {field} {shown}, {'yes' if condition.holds(actual, value) else 'no'}"
                )
                lines.append(f"{section.number}.{number}{against}: {test}.")
        return "\n".join([*lines, f"Rule {reason} forbids it." if reason else "No rule forbids it."])

    def _facts(self, wish: Wish) -> Facts:
        done = Counter(letter.act for letter in self.desk.letters[: self.mind.read] if letter.kind == "act")
        return WishFacts(self.domain, self.task.rows, self.task.customer, wish, done)

    def _amount(self, section: Section, wish: Wish) -> int | None:
        return amount_of(section, self.task.rows["item"][wish.item], self._facts(wish))

    def _say(self, key: str, **slots: object) -> Move:
        return Move(self.customer.filled(PHRASES["agent"][key], **slots))


def mistaken_move(customer: Customer, rng: np.random.Generator) -> Move:
    """Return a move with a mistake that shows, or the right one if none can be made here."""
    right = next_move(customer)
    order = rng.permutation(len(MISTAKES))
    wrong = (next_move(customer, MISTAKES[place]) for place in order)
    return next((move for move in wrong if move[:3] != right[:3]), right)  # whatever the reasons
