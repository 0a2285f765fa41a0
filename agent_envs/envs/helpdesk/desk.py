"""The desk: the tables of a shop, what its tools do to them, and the letters that its customers get for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from agent_envs.datasets.helpdesk.generated.domain import Act, Domain
from agent_envs.datasets.helpdesk.generated.solving import Deed, HelpDeskTask
from agent_envs.errors import ToolError

_MOST = 10**9
_LOOKED_UP = 200  # entries that are remembered: a policy may look up anything
Cell = tuple[str, str, str]
"""A scope, the id of a row and a field."""


@dataclass(slots=True)
class Desk:
    """The tables and what happened to them."""

    tables: dict[str, dict[str, dict[str, Any]]]
    """The rows of each scope by id, as the tools show them."""
    before: dict[Cell, Any] = field(default_factory=dict)
    """What the cells that were written held at the start; None if they were not there."""
    letters: list[Deed] = field(default_factory=list)
    """What was done, refused and passed on: customers get a letter about each."""
    verified: set[str] = field(default_factory=set)
    """Customers whose code word was right."""
    seen: list[str] = field(default_factory=list)
    """Names and numbers that were looked up, with or without success; "list" and "code" before those of customers."""
    agreed: list[Deed] = field(default_factory=list)
    """What the customer said yes to, with what was asked for."""
    faults: list[str] = field(default_factory=list)
    """What was done against section 1 of the book."""

    def diff(self) -> dict[Cell, Any]:
        """Return the cells that are not as they were, with what they hold."""
        now = {cell: self.tables[cell[0]][cell[1]].get(cell[2]) for cell in self.before}
        return {cell: value for cell, value in now.items() if value != self.before[cell]}

    def write(self, scope: str, key: str, name: str, value: Any) -> None:
        """Write a cell."""
        row = self.tables[scope][key]
        self.before.setdefault((scope, key, name), row.get(name))
        row[name] = value

    def press(self, act: Act) -> None:
        """Do to the device what a customer does."""
        for _, name, value in act.effect:
            self.write("device", "device", name, value)

    def notes(self) -> set[tuple[str, str, str, str]]:
        """Return the kind, act, item and rule of what was refused and passed on."""
        return {letter[:4] for letter in self.letters if letter.kind != "act"}


def open_desk(task: HelpDeskTask, domain: Domain) -> Desk:
    """Return the desk at the start of a task."""
    tables = {scope: {key: dict(row) for key, row in rows.items()} for scope, rows in task.rows.items()}
    for scope, rows in tables.items():
        for name in [name for name, values in domain.fields(scope).items() if values.kind == "date"]:
            for row in rows.values():
                row[name] = (task.today + timedelta(row[name])).isoformat()
    return Desk(tables)


class Clerk:
    """Who does what the tools are called for: from the arguments of a call to its result. A ToolError is a refusal."""

    def __init__(self, desk: Desk, task: HelpDeskTask, domain: Domain) -> None:
        self.desk, self.task, self.domain = desk, task, domain

    def find(self, call: Mapping[str, str]) -> str:
        """Return the ids of the customers of a name."""
        wanted = " ".join(call["name"][:100].split()).lower()
        self._note(wanted)
        ids = [key for key, row in self.desk.tables["customer"].items() if row["name"].lower() == wanted]
        if not ids:
            raise ToolError(f"there is no {self.domain.customer.noun} of this name")
        return json.dumps(sorted(ids))

    def verify(self, call: Mapping[str, str]) -> str:
        """Check a code word and return the customer's row."""
        row = self._row("customer", call["id"])
        self._note(f"code {row['id']}")
        if call["code"].strip() != self.task.codes[row["id"]]:
            raise ToolError("the code word is wrong")
        self.desk.verified.add(row["id"])
        return json.dumps(row)

    def listed(self, call: Mapping[str, str]) -> str:
        """Return what a customer has, each with its label."""
        owner, label = self.domain.customer.noun, self.domain.label
        customer = self._row("customer", call["id"])["id"]
        self._note(f"list {customer}")
        items = self.desk.tables["item"].values()
        return json.dumps([{"id": row["id"], label: row[label]} for row in items if row[owner] == customer])

    def item(self, call: Mapping[str, str]) -> str:
        """Return the row of an item."""
        self._note(call["id"].strip().upper()[:20])
        return json.dumps(self._row("item", call["id"]))

    def entry(self, call: Mapping[str, str]) -> str:
        """Return a row of the catalogue."""
        name, rows = call["name"].strip(), self.desk.tables["catalogue"]
        entry = {label.lower(): label for label in rows}.get(name.lower())
        if entry is None:
            raise ToolError(f"there is no {self.domain.label} {name[:40]!r}")
        self._note(entry)
        return json.dumps(rows[entry])

    def act(self, call: Mapping[str, Any], act: Act) -> str:
        """Carry an act out, whatever the rules say."""
        row = self._row("item", call["id"])
        for name, words in act.needs.items():
            if row[name] not in words:
                raise ToolError(f"the system refuses: {name} is {row[name]}, not {' or '.join(words)}")
        for ask in act.asks:
            if call[ask.name] not in ask.values:
                raise ToolError(f"{ask.name} must be one of {', '.join(map(str, ask.values))}")
        effect = list(act.effect)
        if act.amount and (amount := call.get(act.amount.name)) is not None:
            if not 0 <= amount <= _MOST:
                raise ToolError(f"the amount must be from 0 to {_MOST}")
            effect.append(("set", act.amount.name, amount))
        self._identified(row)
        if Deed("act", act.name, row["id"], "", {ask.name: call[ask.name] for ask in act.asks}) not in self.desk.agreed:
            self.desk.faults.append("changed without a yes")
        result = {"id": row["id"]}
        for kind, name, value in effect:
            value = call[str(value)[1:]] if str(value).startswith("$") else value
            if kind == "add":
                now = row[name]
                moved = isinstance(now, str)  # a date, by days
                value = (date.fromisoformat(now) + timedelta(int(value))).isoformat() if moved else now + value
            result[name] = value
            self.desk.write("item", row["id"], name, value)
        arguments = {name: value for name, value in call.items() if name != "id"}
        self.desk.letters.append(Deed("act", act.name, row["id"], "", arguments))
        return json.dumps(result)

    def decline(self, call: Mapping[str, str]) -> str:
        """Note that a rule forbids an act."""
        act = call["act"]
        if self.domain.act(act) is None:
            raise ToolError(f"there is no act {act[:40]!r}; there are {', '.join(self.domain.acts)}")
        row = self._row("item" if act in self.domain.acts else "customer", call["id"])
        self._identified(row)
        self.desk.letters.append(Deed("decline", act, row["id"], _rule(call["rule"])))
        return "noted"

    def transfer(self, call: Mapping[str, str]) -> str:
        """Note that a request is passed on."""
        self.desk.letters.append(Deed("transfer", rule=_rule(call["rule"])))
        return "passed on"

    def _row(self, scope: str, key: str) -> dict[str, Any]:
        row = self.desk.tables[scope].get(key.strip().lstrip("#").upper())
        if row is None:
            noun = (self.domain.customer if scope == "customer" else self.domain.item).noun
            raise ToolError(f"there is no {noun} {key.strip()[:20]}")
        return row

    def _note(self, looked_up: str) -> None:
        if looked_up not in self.desk.seen and len(self.desk.seen) < _LOOKED_UP:
            self.desk.seen.append(looked_up)

    def _identified(self, row: Mapping[str, Any]) -> None:
        if row.get(self.domain.customer.noun, row["id"]) not in self.desk.verified:
            self.desk.faults.append("acted before the code word was checked")


def _rule(text: str) -> str:
    """Return a rule's number without words around it."""
    return text.lower().replace("rule", "").strip(" .:#")[:12]
