"""A domain of the help desk: what a shop deals in, what its customers ask for, and what rules may depend on.

One JSON file of `domains/` each, an object with these keys (`bicycle_hire.json` has every kind of entry):

    shop       "the bicycle hire shop {name}"; in a sentence it follows "customers of"
    names      at least 6 names of the shop
    customer   {"noun": "member", "plural": "members", "id": "M#####", "fields": FIELDS}
    item       {"noun": "hire", "plural": "hires", "id": "H#####", "label": "bike", "labels": [at least 20 texts],
               "described": "my hire of the {label}", "fields": FIELDS}
               What customers have, many each. A row has its label under the name that "label" says: what a customer
               calls it who does not know the number. No label is a part of another.
    catalogue  {"noun": "bike", "plural": "bikes", "fields": FIELDS}, or left out. A row per label; the tool get_NOUN
               takes the label. "label" of the item is then the same noun.
    acts       {name: ACT}, 4 to 7 of them. The name is a verb and a noun, as the tool is called: "cancel_hire".
    conditions [CONDITION, ...]: at least 14, and at least 12 different fields that can be asked of each act; at least 4
               each of the customer, the item and the catalogue (without a catalogue, 7 of the item).
    outside    at least 4 sentences of a customer who wants what no act and no rule is about
    device     DEVICE, or left out
    unseen     true for the domains of the split "new", which no other split has; else left out

FIELDS is {name: what it may be}. Names are nouns that can be read after "the" ("price"; "day_price" is "day price"):

    ["basic", "silver", "gold"]   one of these words
    [1, 7]                        an integer in this range
    "date 0..14"                  a date, in days from today (negative: in the past)
    [true, false]                 yes or no

ACT is what the shop may do to an item.

    verbs      2 to 4 of them, ["cancel", "call off", "drop"]: "Could you ... my hire?". No verb belongs to two acts.
    done       its participle: "cancelled". "The hire may not be ... if ..."
    object     what it is done to: "{item}", or "the address of {item}". {item} becomes "the hire" in rules, "my hire
               H12345" or "my hire of the Heron" in the customer's mouth, "hire H12345" in the agent's.
    needs      {"status": ["booked"]}: the words that a field of the item must have; otherwise the system refuses. No
               condition tests such a field.
    asks       {name: ASK}, or left out: what only the customer knows, each an argument of the tool
    effect     [["set", FIELD, VALUE], ["add", FIELD, VALUE], ...]. FIELD is one of the item, or "customer.debt",
               "catalogue.free", which no condition then tests; "add" is for integers and dates (days). VALUE is a
               value, or "$days", what the customer asked for. An act changes something in any case.
    amount     {"name": "refund", "of": "price", "words": ["refund", "money back"], "questions": ["How much do I get
               back?", ...]}, or left out. A share of an integer field of the item, decided by the rules: the tool gets
               it as an argument and writes it into the item. "words" are what the agent may call it; at least 2
               questions.

ASK is {"values": [...], "say": ..., "question": "By how many days?", "words": ["days", "how long"]}. "values" are at
least 3 words or integers. "say" is a text with {}, which follows verb and object ("move my hire by {} days"), or a list
with a sentence of the customer for each value, without "it" for things not said before ("I am ill."). "question" is how
the agent asks for it, "words" are the words in such questions, small letters, the most telling first.

CONDITION is {"on": FIELD, "test": TEST, "values": [...], "say": "the hire starts in fewer than {n} days", "term": "the
hire is a short-notice hire"}.

    on         "customer.debt", "item.start", "catalogue.kind", "ask.reason" (what the customer says, for acts that ask
               for it), or "day.cancel_hire" (how often this was done in this conversation)
    test       "is", ">", "<", "days_before >", "days_before <" (days from today until a date), "days_since >",
               "days_since <" (days from a date until today), or "count >=" (for day.)
    values     what the field is compared with; the domain is such that each can hold and can fail. For "is" it may be
               left out if "say" is an object.
    say        a whole clause that can follow "if", names its subject ("the hire", "the member", never "it") and says
               exactly the test: {n} is the value. No value is 1 if a plural follows {n}. Or an object with a clause for
               each value: {"desk": "the hire was booked at the desk", ...}, with "true" and "false" for yes or no.
    term       another clause for the same, which the book then defines ("... means that ..."); at most one condition in
               four has one. May be left out.
    acts       the acts whose rules may have it, if not all

DEVICE is what the customer can look at and act on.

    noun       "lock"
    fields     as FIELDS, words and yes or no only
    works      {field: value, ...}: the device works if all of these are so
    wishes     at least 3 sentences: ["The lock does not open.", ...]
    reads      {name: {"field": a field, "words": ["light", "lamp"], "question": "What does the light do?", "say":
               {value: "The light is green.", ...}}}, one for each field
    does       {name: {"verbs": ["plug in", "connect"], "object": "the cable", "done": "plugged in", "effect": {field:
               value, ...}, "say": "I have plugged the cable in.", "final": false}}; each field of works is set by one
               of them; final are those that lose something

`phrases.json` beside them has the sentences that all domains share: lists of frames whose slots in braces are filled
in. A list may grow, its slots stay; of five or more the last tenth (at least one) is in no train task. Slots: {do} is a
verb with its object and what was asked for ("move my hire H12345 by 3 days"), {c} a clause, {r} a rule's number, {x} a
value, {n} an integer.

Everything is simple English in small letters except sentences; no text has quotation marks or brackets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent_envs.datasets.helpdesk.generated.conditions import Condition, Field, Value
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


class Amount(NamedTuple):
    """A share of an integer of the item, which the rules set."""

    name: str
    of: str
    words: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """What the shop may do to an item."""

    name: str
    verbs: tuple[str, ...]
    done: str
    object: str
    needs: Mapping[str, tuple[str, ...]]
    asks: tuple[Ask, ...]
    effect: tuple[tuple[str, str, Value], ...]
    amount: Amount | None


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
    said: Mapping[str, str]
    """What the customer says when an act is done."""
    final: tuple[str, ...]
    """The acts that lose something."""

    def remedy(self, field: str) -> Act:
        """Return the act that sets a field right and loses nothing."""
        wanted = ("set", field, self.works[field])
        return next(act for name, act in self.acts.items() if wanted in act.effect and name not in self.final)


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A whole domain; see the module."""

    name: str
    shop: str
    names: tuple[str, ...]
    customer: Kind
    item: Kind
    catalogue: Kind | None
    label: str
    labels: tuple[str, ...]
    described: str
    acts: Mapping[str, Act]
    conditions: tuple[Condition, ...]
    outside: tuple[str, ...]
    device: Device | None
    unseen: bool
    """Whether only the split "new" has it."""

    def fields(self, scope: str) -> Mapping[str, Field]:
        """Return the fields of a scope, none of a catalogue that is not there."""
        kind = {"customer": self.customer, "item": self.item, "catalogue": self.catalogue}.get(scope)
        return kind.fields if kind else {}

    def conditions_of(self, act: Act) -> list[Condition]:
        """Return what the rules about an act may depend on."""
        if act.name in self.acts:
            return [found for found in self.conditions if act.name in found.acts]
        return [found for found in self.conditions if found.scope == "customer" and len(found.acts) == len(self.acts)]

    def act(self, name: str) -> Act | None:
        """Return the act of a name, also one on the device; None if there is none."""
        return self.acts.get(name) or (self.device.acts.get(name) if self.device else None)
