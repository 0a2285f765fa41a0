"""Reading the files of domains; `domain.py` says what they hold, and tests whether each does."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

from agent_envs.datasets.helpdesk.generated.conditions import Condition, Field, value_key
from agent_envs.datasets.helpdesk.generated.domain import PACKAGE, Act, Amount, Ask, Device, Domain, Kind, Read

_FOLDER = resources.files(PACKAGE).joinpath("domains")


@functools.cache
def domain_names() -> tuple[str, ...]:
    """Return the names of the domains that are shipped, in order."""
    return tuple(sorted(file.name[:-5] for file in _FOLDER.iterdir() if file.name.endswith(".json")))


@functools.cache
def load_domain(name: str) -> Domain:
    """Return a domain that is shipped."""
    raw = json.loads(_FOLDER.joinpath(f"{name}.json").read_text(encoding="utf-8"))
    kinds = {key: _kind(raw[key]) for key in ("customer", "item", "catalogue") if key in raw}
    acts = {key: _act(key, act) for key, act in raw["acts"].items()}
    item = raw["item"]
    return Domain(
        name,
        raw["shop"],
        tuple(raw["names"]),
        kinds["customer"],
        kinds["item"],
        kinds.get("catalogue"),
        item["label"],
        tuple(item["labels"]),
        item["described"],
        acts,
        tuple(found for entry in raw["conditions"] for found in _conditions(entry, kinds, acts)),
        tuple(raw["outside"]),
        _device(raw["device"]) if "device" in raw else None,
        raw.get("unseen", False),
    )


def _kind(raw: Any) -> Kind:
    return Kind(raw["noun"], raw["plural"], raw.get("id", ""), _fields(raw["fields"]))


def _fields(raw: Mapping[str, Any]) -> dict[str, Field]:
    fields = {}
    for name, values in raw.items():
        if isinstance(values, str):
            low, high = values.removeprefix("date ").split("..")
            fields[name] = Field(name, "date", (int(low), int(high)))
        else:
            kind = {str: "words", int: "number", bool: "flag"}[type(values[0])]
            fields[name] = Field(name, kind, tuple(values))
    return fields


def _act(name: str, raw: Any) -> Act:
    amount = raw.get("amount")
    if amount is not None:
        amount = Amount(amount["name"], amount["of"], tuple(amount["words"]), tuple(amount["questions"]))
    asks = []
    for key, ask in raw.get("asks", {}).items():
        say = ask["say"] if isinstance(ask["say"], str) else tuple(ask["say"])
        asks.append(Ask(key, tuple(ask["values"]), say, ask["question"], tuple(ask["words"])))
    needs = {field: tuple(words) for field, words in raw.get("needs", {}).items()}
    effect = tuple(map(tuple, raw["effect"]))
    return Act(name, tuple(raw["verbs"]), raw["done"], raw["object"], needs, tuple(asks), effect, amount)


def _device(raw: Any) -> Device:
    does = raw["does"]
    acts = {}
    for name, act in does.items():
        effect = [["set", field, value] for field, value in act["effect"].items()]
        acts[name] = _act(name, {**act, "effect": effect})
    reads = {
        name: Read(read["field"], tuple(read["words"]), read["question"], read["say"])
        for name, read in raw["reads"].items()
    }
    said = {name: act["say"] for name, act in does.items()}
    final = tuple(name for name, act in does.items() if act.get("final"))
    fields = _fields(raw["fields"])
    return Device(raw["noun"], fields, raw["works"], tuple(raw["wishes"]), reads, acts, said, final)


def _conditions(raw: Any, kinds: Mapping[str, Kind], acts: Mapping[str, Act]) -> list[Condition]:
    """Return a condition, or one for each act that asks what it tests: each has values of its own."""
    scope, _, name = raw["on"].partition(".")
    only = tuple(raw.get("acts", acts))
    fields = [(only, Field(name, "number", (0, 9)))] if scope == "day" else []
    if scope == "ask":
        asks = [(act, ask) for act in only for ask in acts[act].asks if ask.name == name]
        fields = [((act,), Field(name, "words", ask.values)) for act, ask in asks]
    elif scope in kinds:
        fields = [(only, kinds[scope].fields[name])]
    say, values = raw["say"], raw.get("values", ())
    if isinstance(say, dict):
        keys = {value_key(value): value for _, field in fields for value in field.values}
        values = [keys[key] for key in say]
    found = [
        Condition(scope, name, raw["test"], tuple(values), say, raw.get("term", ""), of_acts, field)
        for of_acts, field in fields
    ]
    kept = [replace(one, values=tuple(value for value in values if one.decides(value))) for one in found]
    return [one for one in kept if one.values]
