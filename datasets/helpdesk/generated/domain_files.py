"""Reading the files of domains, with checks that name the entry at fault; `domain.py` says what they hold."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

from agent_envs.datasets.fields import as_list, as_object, as_texts, text_field
from agent_envs.datasets.helpdesk.generated.conditions import Condition, Field, Value, value_key
from agent_envs.datasets.helpdesk.generated.domain import PACKAGE, Act, Amount, Ask, Device, Domain, Kind, Read
from agent_envs.errors import DataError

TESTS = ("is", ">", "<", "days_before >", "days_before <", "days_since >", "days_since <", "count >=")
_DATE = re.compile(r"date (-?\d+)\.\.(-?\d+)")
_PLURAL = re.compile(r"\{n\} \w+s\b")
_KEYS = {"shop", "names", "customer", "item", "catalogue", "acts", "conditions", "outside", "device", "unseen"}


@functools.cache
def domain_names() -> tuple[str, ...]:
    """Return the names of the domains that are shipped, in order."""
    folder = resources.files(PACKAGE).joinpath("domains")
    return tuple(sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".json")))


@functools.cache
def load_domain(name: str) -> Domain:
    """Return a domain that is shipped."""
    file = resources.files(PACKAGE).joinpath("domains").joinpath(f"{name}.json")
    return parse_domain(json.loads(file.read_text(encoding="utf-8")), name)


def parse_domain(raw: Any, name: str) -> Domain:
    """Return a domain from the object of its file.

    Raises:
        DataError: Something is missing or does not fit; the message names the entry.
    """
    raw = as_object(raw, "an object with the keys of a domain", name)
    unknown = raw.keys() - _KEYS
    if unknown:
        raise DataError(f"{name}: unknown keys {sorted(unknown)}")
    item = as_object(raw.get("item"), "an object under 'item'", name)
    kinds = {key: _kind(raw[key], f"{name}, {key}") for key in ("customer", "item", "catalogue") if raw.get(key)}
    acts = {
        key: _act(key, act, kinds, f"{name}, acts.{key}") for key, act in as_object(raw["acts"], "acts", name).items()
    }
    domain = Domain(
        name,
        text_field(raw, "shop", name),
        _texts(raw, "names", name, 6),
        kinds["customer"],
        kinds["item"],
        kinds.get("catalogue"),
        text_field(item, "label", f"{name}, item"),
        _texts(item, "labels", f"{name}, item", 20),
        text_field(item, "described", f"{name}, item"),
        acts,
        tuple(
            condition
            for place, entry in enumerate(as_list(raw.get("conditions"), "conditions", name))
            for condition in _conditions(entry, kinds, acts, f"{name}, conditions[{place}]")
        ),
        _texts(raw, "outside", name, 4),
        _device(raw["device"], f"{name}, device") if raw.get("device") else None,
        raw.get("unseen") is True,
    )
    if "{label}" not in domain.described:
        raise DataError(f"{name}, item.described: expected a text with {{label}}, got {domain.described!r}")
    changed = {field for act in acts.values() for _, field, _ in act.effect if "." in field}
    needed = {f"item.{field}" for act in acts.values() for field in act.needs}
    for found in domain.conditions:
        if f"{found.scope}.{found.field}" in changed | needed:
            raise DataError(f"{name}, conditions: {found.scope}.{found.field} is changed or needed by an act")
    for act in acts.values():
        if len({(found.scope, found.field) for found in domain.conditions_of(act)}) < 12:
            raise DataError(f"{name}, conditions: expected at least 12 different fields for {act.name}")
    return domain


def _texts(raw: Mapping[str, Any], key: str, where: str, least: int) -> tuple[str, ...]:
    texts = tuple(as_texts(raw.get(key), key, where))
    if len(texts) < least or len(set(texts)) < len(texts):
        raise DataError(f"{where}: expected at least {least} different texts under {key!r}, got {len(set(texts))}")
    return texts


def _kind(raw: Any, where: str) -> Kind:
    raw = as_object(raw, "an object with 'noun', 'plural' and 'fields'", where)
    fields = as_object(raw.get("fields"), "an object under 'fields'", where)
    parsed = {name: _field(name, value, f"{where}.fields.{name}") for name, value in fields.items()}
    return Kind(text_field(raw, "noun", where), text_field(raw, "plural", where), str(raw.get("id", "")), parsed)


def _field(name: str, raw: Any, where: str) -> Field:
    if isinstance(raw, str) and (found := _DATE.fullmatch(raw)) and int(found[1]) < int(found[2]):
        return Field(name, "date", (int(found[1]), int(found[2])))
    values = tuple(as_list(raw, name, where))
    if all(type(value) is int for value in values) and len(values) == 2 and values[0] < values[1]:
        return Field(name, "number", values)
    if len(values) == 2 and all(isinstance(value, bool) for value in values):
        return Field(name, "flag", values)
    if len(set(values)) < max(2, len(values)) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{where}: expected words, two integers, 'date 0..9' or [true, false], got {raw!r:.60}")
    return Field(name, "words", values)


def _act(name: str, raw: Any, kinds: Mapping[str, Kind], where: str) -> Act:
    raw = as_object(raw, "an object with the keys of an act", where)
    asks = as_object(raw.get("asks", {}), "an object under 'asks'", where)
    amount = raw.get("amount")
    if amount is not None:
        words, questions = (
            _texts(amount, "words", f"{where}.amount", 1),
            _texts(amount, "questions", f"{where}.amount", 2),
        )
        amount = Amount(text_field(amount, "name", where), text_field(amount, "of", where), words, questions)
        of = kinds["item"].fields.get(amount.of)
        if of is None or of.kind != "number":
            raise DataError(f"{where}.amount.of: expected an integer field of the item, got {amount.of!r}")
    effect = tuple(tuple(as_list(entry, "effect", where)) for entry in as_list(raw.get("effect"), "effect", where))
    for entry in effect:
        scope, _, field = entry[1].rpartition(".")
        if entry[0] not in ("set", "add") or field not in kinds[scope or "item"].fields:
            raise DataError(f"{where}.effect: expected ['set' or 'add', a field, a value], got {list(entry)!r}")
        if str(entry[2]).startswith("$") and entry[2][1:] not in asks:
            raise DataError(f"{where}.effect: {entry[2]} is none of the asks {list(asks)}")
    needs = {key: tuple(values) for key, values in as_object(raw.get("needs", {}), "needs", where).items()}
    parsed = tuple(_ask(key, ask, f"{where}.asks.{key}") for key, ask in asks.items())
    text = text_field(raw, "object", where)
    if "{item}" not in text:
        raise DataError(f"{where}.object: expected a text with {{item}}, got {text!r}")
    return Act(
        name, _texts(raw, "verbs", where, 2), text_field(raw, "done", where), text, needs, parsed, effect, amount
    )


def _ask(name: str, raw: Any, where: str) -> Ask:
    raw = as_object(raw, "an object with 'values', 'say', 'question' and 'words'", where)
    values, say = tuple(as_list(raw.get("values"), "values", where)), raw.get("say")
    if not (isinstance(say, str) and "{}" in say) and len(as_texts(say, "say", where)) != len(values):
        raise DataError(f"{where}.say: expected a text with {{}} or a sentence for each value, got {say!r:.60}")
    said = say if isinstance(say, str) else tuple(say)
    return Ask(name, values, said, text_field(raw, "question", where), _texts(raw, "words", where, 1))


def _device(raw: Any, where: str) -> Device:
    raw = as_object(raw, "an object with the keys of a device", where)
    fields = {name: _field(name, value, f"{where}.fields.{name}") for name, value in raw["fields"].items()}
    acts, said = {}, {}
    for name, act in as_object(raw.get("does"), "an object under 'does'", where).items():
        at = f"{where}.does.{name}"
        effect = tuple(("set", field, value) for field, value in act["effect"].items())
        if any(field not in fields or value not in fields[field].values for _, field, value in effect):
            raise DataError(f"{at}.effect: expected values of the fields {list(fields)}, got {act['effect']}")
        said[name] = text_field(act, "say", at)
        verbs = _texts(act, "verbs", at, 1)
        acts[name] = Act(name, verbs, text_field(act, "done", at), text_field(act, "object", at), {}, (), effect, None)
    reads = {
        name: Read(read["field"], _texts(read, "words", where, 1), text_field(read, "question", where), read["say"])
        for name, read in as_object(raw.get("reads"), "an object under 'reads'", where).items()
    }
    for name, read in reads.items():
        if read.field not in fields or read.say.keys() != {value_key(value) for value in fields[read.field].values}:
            raise DataError(f"{where}.reads.{name}.say: expected a sentence for each value of the field {read.field!r}")
    final = tuple(name for name, act in raw["does"].items() if act.get("final"))
    device = Device(
        text_field(raw, "noun", where), fields, raw["works"], _texts(raw, "wishes", where, 3), reads, acts, said, final
    )
    for field, value in device.works.items():
        if not any(("set", field, value) in act.effect for name, act in acts.items() if name not in final):
            raise DataError(f"{where}.does: nothing sets {field} to {value!r} without losing something")
    return device


def _conditions(raw: Any, kinds: Mapping[str, Kind], acts: Mapping[str, Act], where: str) -> list[Condition]:
    """Return a condition, or one for each act that asks what it tests: each has values of its own."""
    raw = as_object(raw, "an object with 'on', 'test' and 'say'", where)
    scope, _, name = text_field(raw, "on", where).partition(".")
    test, term, only = text_field(raw, "test", where), str(raw.get("term", "")), tuple(raw.get("acts", acts))
    if not set(only) <= acts.keys() or test not in TESTS:
        raise DataError(
            f"{where}: expected acts of this domain and one of the tests {', '.join(TESTS)}, got {raw!r:.80}"
        )
    fields: list[tuple[tuple[str, ...], Field]] = []
    if scope == "ask":
        asks = [(act, ask) for act in only for ask in acts[act].asks if ask.name == name]
        fields = [((act,), Field(name, "words", ask.values)) for act, ask in asks]
    elif scope == "day" and name in acts:
        fields = [(only, Field(name, "number", (0, 9)))]
    elif scope in kinds and name in kinds[scope].fields:
        fields = [(only, kinds[scope].fields[name])]
    if not fields:
        raise DataError(f"{where}.on: expected a field, got {raw['on']!r}")
    say, given = _said(raw, fields, where)
    found = [Condition(scope, name, test, given, say, term, of_acts, field) for of_acts, field in fields]
    kept = [replace(one, values=tuple(value for value in given if _decides(one, value))) for one in found]
    if any(not any(value in one.values for one in kept) for value in given):
        raise DataError(f"{where}.values: a test of {given!r} holds always or never")
    return [one for one in kept if one.values]


def _said(
    raw: Mapping[str, Any], fields: list[tuple[tuple[str, ...], Field]], where: str
) -> tuple[Any, tuple[Any, ...]]:
    """Return the words of a condition and its values."""
    say = raw.get("say")
    if isinstance(say, dict):
        keys = {value_key(value): value for _, field in fields for value in field.values}
        if not say.keys() <= keys.keys():
            raise DataError(f"{where}.say: expected values of {raw['on']}, got {sorted(say.keys() - keys.keys())}")
        return say, tuple(keys[key] for key in say)
    values = tuple(as_list(raw.get("values"), "values", where))
    if 1 in values and _PLURAL.search(text_field(raw, "say", where)):
        raise DataError(f"{where}.values: 1 before a plural in {say!r}")
    return say, values


def _decides(condition: Condition, value: Value) -> bool:
    """Return whether a test with a value can hold and can fail."""
    field = condition.options
    if condition.scope == "day":
        return True
    ranged = field.kind in ("number", "date")
    ends = range(int(field.values[0]), int(field.values[1]) + 1) if ranged else field.values
    return len({condition.holds(actual, value) for actual in ends}) == 2
