"""A domain of the help desk: what a shop deals in, what its customers ask for, and what rules may depend on.

`domains/README.md` says what is in a file of `domains/` and in `phrases.json`; tests hold each file to it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, NamedTuple

from agent_envs.datasets.helpdesk.generated.rules import Condition, Field, Value, value_key
from agent_envs.files import table

PACKAGE = "agent_envs.datasets.helpdesk"
PHRASES = table(PACKAGE, "phrases.json")


class Ask(NamedTuple):
    """What only the customer knows about a wish."""

    name: str
    values: tuple[Value, ...]
    say: str | tuple[str, ...]
    question: str
    words: tuple[str, ...]

    @property
    def follows(self) -> bool:
        """Whether it is said behind verb and object, not in sentences of its own."""
        return isinstance(self.say, str)

    def said(self, value: Value) -> str:
        """Return the words for a value."""
        return self.say.format(value) if isinstance(self.say, str) else self.say[self.values.index(value)]


class Amount(NamedTuple):
    """A share of an integer of the item, which the rules set."""

    name: str
    of: str
    words: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """What the shop may do to an item, or a customer to a device."""

    name: str
    verbs: tuple[str, ...]
    done: str
    object: str
    needs: Mapping[str, tuple[str, ...]]
    asks: tuple[Ask, ...]
    effect: tuple[tuple[str, str, Value], ...]
    amount: Amount | None
    say: str = ""
    """What the customer says when it is done to a device."""
    final: bool = False
    """Whether something is lost by it."""

    def words(self, verb: str, item: str, asked: Mapping[str, Value] = {}) -> str:
        """Return the words for doing it to an item, with what is asked for as far as it follows the object."""
        clauses = [ask.said(asked[ask.name]) for ask in self.asks if ask.follows and ask.name in asked]
        return " ".join([verb, self.object.replace("{item}", item), *clauses])


class Kind(NamedTuple):
    """A kind of rows: customers, items or the catalogue."""

    noun: str
    plural: str
    id: str
    fields: Mapping[str, Field]


class Read(NamedTuple):
    """What can be seen of a device."""

    field: str
    words: tuple[str, ...]
    question: str
    say: Mapping[str, str]
    """A sentence for each value, by its key in JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """What a customer can look at and act on."""

    noun: str
    fields: Mapping[str, Field]
    works: Mapping[str, Value]
    wishes: tuple[str, ...]
    reads: Mapping[str, Read]
    acts: Mapping[str, Act]

    def remedy(self, field: str) -> Act:
        """Return the act that sets a field right and loses nothing."""
        wanted = ("set", field, self.works[field])
        return next(act for act in self.acts.values() if wanted in act.effect and not act.final)

    def remedies(self, row: Mapping[str, Value]) -> list[Act]:
        """Return the acts that set right what is wrong with a device."""
        return [self.remedy(field) for field, value in self.works.items() if row[field] != value]


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A whole domain."""

    name: str
    shop: str
    names: tuple[str, ...]
    customer: Kind
    item: Kind
    catalogue: Kind
    label: str
    labels: tuple[str, ...]
    described: str
    acts: Mapping[str, Act]
    conditions: tuple[Condition, ...]
    outside: tuple[str, ...]
    device: Device | None = None
    at_odds: tuple[tuple[str, str], ...] = ()
    """Acts of which nobody wants one where the other was refused."""
    lasting: tuple[str, ...] = ()
    """What is asked for that is the same in all wishes of a customer."""
    unseen: bool = False
    """Whether only the split "new" has it."""

    def fields(self, scope: str) -> Mapping[str, Field]:
        """Return the fields of a scope, none but of customers, items and the catalogue."""
        kind = {"customer": self.customer, "item": self.item, "catalogue": self.catalogue}.get(scope)
        return kind.fields if kind else {}

    def conditions_of(self, act: Act) -> list[Condition]:
        """Return what the rules about an act may depend on."""
        if act.name in self.acts:
            return [found for found in self.conditions if act.name in found.acts]
        return [found for found in self.conditions if found.scope == "customer"]

    def act(self, name: str) -> Act | None:
        """Return the act of a name, also one on the device; None if there is none."""
        return self.acts.get(name) or (self.device.acts.get(name) if self.device else None)


@functools.cache
def domain_names() -> tuple[str, ...]:
    """Return the names of the domains that are shipped, in order."""
    files = [file.name for file in resources.files(PACKAGE).joinpath("domains").iterdir()]
    return tuple(sorted(file.removesuffix(".json") for file in files if file.endswith(".json")))


@functools.cache
def load_domain(name: str) -> Domain:
    """Return a domain that is shipped."""
    raw = table(PACKAGE, f"domains/{name}.json")
    kinds = {
        scope: Kind(raw[scope]["noun"], raw[scope]["plural"], raw[scope].get("id", ""), _fields(raw[scope]["fields"]))
        for scope in ("customer", "item", "catalogue")
    }
    acts = {key: _act(key, act) for key, act in raw["acts"].items()}
    device = _device(raw["device"]) if "device" in raw else None
    conditions = tuple(found for entry in raw["conditions"] for found in _conditions(entry, kinds, acts))
    called = {key: raw["item"][key] for key in ("label", "labels", "described")}
    return Domain(**raw | kinds | called | {"name": name, "acts": acts, "conditions": conditions, "device": device})


def _fields(raw: Mapping[str, Any]) -> dict[str, Field]:
    fields = {}
    for name, values in raw.items():
        if isinstance(values, str):
            low, high = values.removeprefix("date ").split("..")
            fields[name] = Field(name, "date", (int(low), int(high)))
        else:
            fields[name] = Field(name, {str: "words", int: "number", bool: "flag"}[type(values[0])], values)
    return fields


def _act(name: str, raw: Mapping[str, Any]) -> Act:
    asks = tuple(Ask(key, **ask) for key, ask in raw.get("asks", {}).items())
    amount = Amount(**raw["amount"]) if "amount" in raw else None
    return Act(**{"needs": {}, **raw, "name": name, "asks": asks, "amount": amount})


def _device(raw: Mapping[str, Any]) -> Device:
    acts = {name: _act(name, act) for name, act in raw["does"].items()}
    reads = {name: Read(**read) for name, read in raw["reads"].items()}
    return Device(raw["noun"], _fields(raw["fields"]), raw["works"], raw["wishes"], reads, acts)


def _conditions(raw: Mapping[str, Any], kinds: Mapping[str, Kind], acts: Mapping[str, Act]) -> Iterator[Condition]:
    """Yield a condition, or one for each act that asks what it tests: each has values of its own, which can decide."""
    scope, _, name = raw["on"].partition(".")
    fields = [(tuple(acts), kinds[scope].fields[name] if scope in kinds else Field(name, "number", (0, 9)))]
    if scope == "ask":
        asks = [(act.name, ask.values) for act in acts.values() for ask in act.asks if ask.name == name]
        fields = [((act,), Field(name, "words", values)) for act, values in asks]
    say = raw["say"]
    for of_acts, field in fields:
        keys = {value_key(value): value for value in field.values}
        values = tuple(keys[key] for key in say if key in keys) if isinstance(say, dict) else raw["values"]
        one = Condition(scope, name, raw["test"], values, say, raw.get("term", ""), of_acts, field)
        if decide := [value for value in values if len({one.holds(actual, value) for actual in field.values}) == 2]:
            yield replace(one, values=tuple(decide))
