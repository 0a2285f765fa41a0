"""The domain files: all load, what can be said of them reads well, and a fault is named with its place."""

import copy
import itertools
import json
import re
from importlib import resources

import pytest

from agent_envs.datasets.helpdesk.generated.domain import PACKAGE, PHRASES
from agent_envs.datasets.helpdesk.generated.domain_files import domain_names, load_domain, parse_domain
from agent_envs.envs.helpdesk.tools import desk_tools
from agent_envs.errors import DataError

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
        yield from (*device.wishes, *device.said.values())
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
        for text in (
            function["description"],
            *(p["description"] for p in function["parameters"]["properties"].values()),
        ):
            assert not ODD.search(text) and text[0].isupper(), text


def test_there_are_seen_and_unseen_domains_and_enough_frames():
    unseen = [name for name in domain_names() if load_domain(name).unseen]
    assert len(unseen) == 8 and len(domain_names()) == 32
    assert all(len(set(PHRASES[key])) == len(PHRASES[key]) for key in PHRASES if key not in ("general", "agent"))


FAULTS = {
    ("item", "described"): ("my hire", "item.described: expected a text with"),
    ("item", "fields", "days"): ([9, 1], "item.fields.days: expected words, two integers"),
    ("acts", "cancel_hire", "object"): ("the hire", "acts.cancel_hire.object: expected a text with"),
    ("acts", "cancel_hire", "effect"): ([["set", "colour", 1]], "acts.cancel_hire.effect: expected"),
    ("acts", "move_hire", "effect"): ([["add", "start", "$hours"]], "hours is none of the asks"),
    ("acts", "move_hire", "amount", "of"): ("channel", "amount.of: expected an integer field"),
    ("acts", "move_hire", "asks", "reason", "say"): (["I am ill."], "asks.reason.say: expected"),
    ("conditions", 0, "on"): ("customer.size", "conditions\\[0\\].on: expected a field"),
    ("conditions", 0, "test"): ("about", "conditions\\[0\\]: expected acts of this domain and one of the tests"),
    ("conditions", 0, "values"): ([99], "conditions\\[0\\].values: a test of .* always or never"),
    ("conditions", 5, "values"): ([1], "conditions\\[5\\].values: 1 before a plural"),
    ("names",): (["One"], "expected at least 6 different texts under 'names'"),
    ("shops",): ("x", "unknown keys"),
}


@pytest.mark.parametrize("place", FAULTS, ids=lambda place: ".".join(map(str, place)))
def test_a_fault_is_named_with_its_place(place):
    value, message = FAULTS[place]
    broken = copy.deepcopy(raw())
    entry = broken
    for key in place[:-1]:
        entry = entry[key]
    entry[place[-1]] = value
    with pytest.raises(DataError, match=message):
        parse_domain(broken, "bicycle_hire")
