"""The domain files: all are of the form that is described, and what can be said of them reads well."""

import itertools
import json
import re
from importlib import resources

import pytest

from agent_envs.datasets.helpdesk.generated.domain import PACKAGE, PHRASES, domain_names, load_domain, value_key
from agent_envs.envs.helpdesk.tools import desk_tools

ODD = re.compile(
    r"\b(\w+) \1\b|\ba [aeio]|\ban [bcdfgjklmnpqrstvwyz]|[{}\"()]|  | [.,?]|\b1 \w+s\b|\bits? (?:is|was|has)\b$", re.I
)
"""A word twice, the wrong article, a slot left open, and the like."""


def raw(name="bicycle_hire"):
    return json.loads(resources.files(PACKAGE).joinpath(f"domains/{name}.json").read_text(encoding="utf-8"))


def spoken(domain):
    """Yield every sentence that can be made about a domain, with one value for each slot."""
    for act in domain.acts.values():
        thing = act.object.replace("{item}", f"the {domain.item.noun}")
        slots = {"object": thing, "Object": thing.capitalize(), "done": act.done, "r": "2.7"}
        for condition in domain.conditions_of(act):
            clauses = [condition.clause(value) for value in condition.values] + [condition.term] * bool(condition.term)
            for frame, clause in itertools.product((*PHRASES["bar"], *PHRASES["exception"]), clauses):
                yield frame.format(verb=act.verbs[0], c=clause, **slots)
        for ask, value in [(one, value) for one in act.asks for value in one.values]:
            said = ask.say.format(value) if isinstance(ask.say, str) else ask.say[ask.values.index(value)]
            mine = act.object.replace("{item}", domain.described.replace("{label}", domain.labels[0]))
            yield f"Could you {act.verbs[-1]} {mine} {said}?" if isinstance(ask.say, str) else said
        if act.amount:
            yield from act.amount.questions
            for frame in PHRASES["amount"]:
                yield frame.format(amount=act.amount.name, of=act.amount.of.replace("_", " "), a=10, b=0, c="x is y")
    yield from domain.outside
    if device := domain.device:
        yield from (*device.wishes, *(act.say for act in device.acts.values()))
        for read in device.reads.values():
            yield from (read.question, *read.say.values())
        for act, frame in itertools.product(device.acts.values(), (*PHRASES["agent"]["press"], *PHRASES["really"])):
            yield frame.format(do=f"{act.verbs[0]} {act.object}")


@pytest.mark.parametrize("name", domain_names())
def test_every_sentence_of_a_domain_reads_well(name):
    domain = load_domain(name)
    for sentence in spoken(domain):
        assert not ODD.search(sentence), sentence
        assert sentence[0].isupper() and sentence[-1] in ".?", sentence


@pytest.mark.parametrize("name", domain_names())
def test_a_domain_can_be_heard_without_doubt(name):
    domain = load_domain(name)
    verbs = [verb for act in domain.acts.values() for verb in act.verbs]
    assert len(set(verbs)) == len(verbs)
    assert not [pair for pair in itertools.permutations(domain.labels, 2) if pair[0].lower() in pair[1].lower()]
    terms = [(condition.term, condition.field, condition.test) for condition in domain.conditions if condition.term]
    assert len({term for term, _, _ in terms}) == len({*terms})
    for act in domain.acts.values():
        clauses = [condition.clause(value) for condition in domain.conditions_of(act) for value in condition.values]
        assert len(set(clauses)) == len(clauses)  # each can be read back
        scopes = [condition.scope for condition in domain.conditions_of(act)]
        assert "customer" in scopes and "item" in scopes and "ask" in scopes


@pytest.mark.parametrize("name", domain_names())
def test_what_tools_say_of_themselves_reads_well(name):
    for spec in desk_tools(load_domain(name)).specs:
        function = spec["function"]
        arguments = function["parameters"]["properties"].values()
        for text in (function["description"], *(argument["description"] for argument in arguments)):
            assert not ODD.search(text) and text[0].isupper(), text


def test_there_are_seen_and_unseen_domains_and_enough_frames():
    unseen = [name for name in domain_names() if load_domain(name).unseen]
    assert len(unseen) == 8 and len(domain_names()) == 32
    assert all(len(set(PHRASES[key])) == len(PHRASES[key]) for key in PHRASES if key not in ("general", "agent"))


KEYS = {"shop", "names", "customer", "item", "catalogue", "acts", "conditions", "outside", "device", "unseen"}
KEYS |= {"at_odds", "lasting"}
TESTS = {"is", ">", "<", "days_before >", "days_before <", "days_since >", "days_since <", "count >="}


@pytest.mark.parametrize("name", domain_names())
def test_a_file_is_of_the_form_that_is_described(name):
    """`domains/README.md` describes the form: how many of each there are, and what refers to what."""
    file, domain = raw(name), load_domain(name)
    assert file.keys() <= KEYS and "{name}" in domain.shop and "{label}" in domain.described
    assert domain.label == domain.catalogue.noun
    for texts, least in ((domain.names, 6), (domain.labels, 20), (domain.outside, 4)):
        assert len(set(texts)) == len(texts) >= least
    for scope in ("customer", "item", "catalogue"):
        for field in domain.fields(scope).values():
            assert len({*field.values}) == len(field.values) >= 2 and len({*map(type, field.values)}) == 1
            assert field.kind == "words" or (len(field.values) == 2 and field.values[0] != field.values[1])
            assert field.kind not in ("number", "date") or field.values[0] < field.values[1]
    tested = {(found.scope, found.field) for found in domain.conditions}
    assert all(len({*pair} & domain.acts.keys()) == 2 for pair in domain.at_odds)
    assert {*domain.lasting} <= {ask.name for act in domain.acts.values() for ask in act.asks}
    assert 4 <= len(domain.acts) <= 7
    for field in {field for act in domain.acts.values() for field in act.needs}:
        assert set.intersection(*({*act.needs[field]} for act in domain.acts.values() if field in act.needs))
    for act in domain.acts.values():
        assert len({(found.scope, found.field) for found in domain.conditions_of(act)}) >= 12
        assert len({*act.verbs}) == len(act.verbs) >= 2 and "{item}" in act.object
        asks = {ask.name for ask in act.asks}
        for field, words in act.needs.items():
            assert {*words} <= {*domain.item.fields[field].values} and ("item", field) not in tested
        for kind, field, value in act.effect:
            assert kind in ("set", "add") and field in domain.item.fields
            assert not str(value).startswith("$") or value[1:] in asks
        for ask in act.asks:
            assert len({*ask.values}) == len(ask.values) >= 3
            assert "{}" in ask.say if isinstance(ask.say, str) else len({*ask.say}) == len(ask.values)
        if act.amount:
            assert domain.item.fields[act.amount.of].kind == "number" and len(act.amount.questions) >= 2


@pytest.mark.parametrize("name", domain_names())
def test_conditions_can_hold_and_fail_and_no_plural_follows_one(name):
    file, domain = raw(name), load_domain(name)
    for entry in file["conditions"]:
        scope, _, field = entry["on"].partition(".")
        kept = [found for found in domain.conditions if (found.scope, found.field, found.test, found.say) ==
                (scope, field, entry["test"], entry["say"])]  # fmt: skip
        values = entry["say"].keys() if isinstance(entry["say"], dict) else entry["values"]
        assert {*map(str, values)} <= {str(v).lower() if v is True or v is False else str(v)
                                       for found in kept for v in found.values}, entry["on"]  # fmt: skip
        assert entry["test"] in TESTS and entry.keys() <= {"on", "test", "values", "say", "term"}
        assert 1 not in entry.get("values", ()) or not re.search(r"\{n\} \w+s\b", entry["say"]), entry["say"]


@pytest.mark.parametrize("name", [name for name in domain_names() if load_domain(name).device])
def test_a_device_shows_what_is_wrong_and_can_be_set_right_without_a_loss(name):
    device = load_domain(name).device
    assert len(device.wishes) >= 3 and {read.field for read in device.reads.values()} == device.fields.keys()
    for read in device.reads.values():
        assert read.say.keys() == {value_key(value) for value in device.fields[read.field].values}
    for act in device.acts.values():
        assert all(value in device.fields[field].values for _, field, value in act.effect)
        assert all(value != device.fields[field].values[0] or field in device.works for _, field, value in act.effect)
    for field in device.works:
        assert not device.remedy(field).final
