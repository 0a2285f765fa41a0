"""Generated rule books and worlds.

1. Chains mean what the book says: tables of links that hold, and the rules that are struck out.
2. The prose is exact: a second reader, who knows the frames and clauses only, reaches the same verdicts and amounts.
3. Tasks: at least one row, a deciding rule from level 2 on, descriptions that fit one row, levels, digests.
4. Splits share no section; twins differ in one fact and in what is right; new domains are new.
5. Shortcuts do not pay: what each earns has a bound.
"""

import functools
import operator
import re
from types import SimpleNamespace

import pytest

from agent_envs.datasets.generated_tasks import stream
from agent_envs.datasets.helpdesk.generated.book import BUCKETS, LEVELS, Section, frames, section_class, signature
from agent_envs.datasets.helpdesk.generated.domain import PHRASES, Condition, Field, domain_names, load_domain
from agent_envs.datasets.helpdesk.generated.rules import Chain, Link
from agent_envs.datasets.helpdesk.generated.solving import WishFacts, amount_of
from agent_envs.datasets.helpdesk.generated.worlds import HelpDeskTasks
from agent_envs.errors import ConfigError

EVERY_LEVEL = range(1, 9)


@functools.cache
def tasks_of(split="train", level="1-8", count=100, domains="all"):
    tasks = HelpDeskTasks(split, level, domains)
    return [tasks.get(index) for index in range(count)]


def reached(task):
    """Yield every wish that comes up, with its section and facts."""
    domain, done = load_domain(task.domain), {}
    for request in task.requests:
        for wish in [wish for wish in request.wishes if wish.act in task.book.sections]:
            section = task.book.sections[wish.act]
            facts = WishFacts(domain, task.rows, task.customer, wish, dict(done))
            yield wish, section, facts
            if not section.reason(facts) and not request.trouble:
                done[wish.act] = done.get(wish.act, 0) + (not request.dropped)
                break


def flags(*chains):
    """Return a section of which link n holds if fact n is 1, and which link is which fact."""
    numbers = iter(range(99))
    made, first = [], 1
    for length in chains:
        conditions = [
            Condition("item", str(next(numbers)), "is", (1,), "x", "", (), Field("x", "flag", (0, 1)))
            for _ in range(length)
        ]
        made.append(Chain(first, tuple(Link(condition, 1) for condition in conditions)))
        first += length
    return Section(2, SimpleNamespace(amount=None), tuple(made), None)


MEANING = [  # lengths of chains, facts in order, the reason
    ((1,), "0", ""),
    ((1,), "1", "2.1"),
    ((2,), "11", ""),  # the exception
    ((2,), "01", ""),  # an exception alone says nothing
    ((3,), "111", "2.1"),  # the exception to it
    ((3,), "101", "2.1"),  # followed only as long as they hold
    ((4,), "1111", ""),
    ((2, 1), "101", "2.1"),  # two bars: the lowest
    ((2, 1), "111", "2.3"),
    ((1, 1), "00", ""),
]


@pytest.mark.parametrize(("chains", "facts", "reason"), MEANING)
def test_chains_bar_if_an_odd_number_of_links_holds(chains, facts, reason):
    section = flags(*chains)
    assert section.reason(lambda condition: int(facts[int(condition.field)])) == reason


def struck_out(section):
    """Return each rule with the section without it; what was an exception to it goes with it."""
    for place, chain in enumerate(section.chains):
        for length in range(len(chain.links)):
            cut = chain._replace(links=chain.links[:length])
            chains = (*section.chains[:place], cut, *section.chains[place + 1 :])
            yield f"{section.number}.{chain.first + length}", section._replace(chains=chains)


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_deciding_rules_are_those_whose_loss_changes_what_is_right(level):
    for task in tasks_of(level=level, count=120)[:12]:
        decide = set()
        for wish, section, facts in reached(task):
            reason = section.reason(facts)
            decide |= {rule for rule, cut in struck_out(section) if cut.reason(facts) != reason}
            if (
                not reason
                and section.share
                and any(d.item == wish.item and d.kind == "act" for d in task.solution.deeds)
            ):
                decide.add(f"share {section.number}")
        assert task.solution.deciding == len(decide)


def pattern(frame, **slots):
    escaped = re.escape(frame).replace(r"\{", "{").replace(r"\}", "}").replace(r"\ ", " ")
    return re.compile(re.sub(r"\{(\w+)\}", lambda found: slots.get(found[1].lower(), r"(?:.+)"), escaped))


SLOTS = {"c": "(?P<c>.+?)", "r": r"(?P<r>\d+\.\d+)", "a": r"(?P<a>\d+)", "b": r"(?P<b>\d+)", "term": "(?P<term>.+?)"}
FRAMES = {key: [pattern(frame, **SLOTS) for frame in PHRASES[key]] for key in ("term", "amount", "exception", "bar")}


def read(book, domain):
    """Return the rules of a printed book: of each section, what each rule is, with the test of its clause."""
    lines = [line.split(" ", 1) for line in book.text.splitlines() if line and not line.startswith("1.")]
    rules, terms = {}, {}
    for number, sentence in lines:
        kind, found = next((k, f) for k, ps in FRAMES.items() for p in ps if (f := p.fullmatch(sentence)))
        if kind == "term":
            terms[found["term"].lower()] = found["c"].lower()
        else:
            rules[tuple(map(int, number.split(".")))] = kind, found.groupdict()
    sections = {}
    for act, section in book.sections.items():
        clauses = {c.clause(v).lower(): (c, v) for c in domain.conditions_of(domain.act(act)) for v in c.values}
        sections[act] = {
            number: (kind, clauses[terms.get(groups["c"].lower(), groups["c"].lower())], groups)
            for number, (kind, groups) in sorted(rules.items())
            if number[0] == section.number
        }
    return sections


def verdict(rules, facts):
    """Return the reason by the rules as they were read: a rule counts if its condition holds and no rule undoes it."""

    def counts(number):
        _, (condition, value), _ = rules[number]
        undone = any(
            kind == "exception" and tuple(map(int, groups["r"].split("."))) == number and counts(other)
            for other, (kind, _, groups) in rules.items()
        )
        return condition.holds(facts(condition), value) and not undone

    barring = [number for number, (kind, *_) in rules.items() if kind == "bar" and counts(number)]
    return "{}.{}".format(*min(barring)) if barring else ""


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_the_prose_reads_back_to_the_same_verdicts_and_amounts(level):
    amounts = terms = 0
    for task in tasks_of("test", level, 40):
        domain = load_domain(task.domain)
        books = read(task.book, domain)
        sentences = [line.partition(" ")[2] for line in task.book.text.splitlines()]
        terms += any(form.fullmatch(sentence) for form in FRAMES["term"] for sentence in sentences)
        for wish, section, facts in reached(task):
            rules = books[wish.act]
            assert verdict(rules, facts) == section.reason(facts)
            for kind, (condition, value), groups in rules.values():
                if kind == "amount":
                    percent = int(groups["a" if condition.holds(facts(condition), value) else "b"])
                    item = task.rows["item"][wish.item]
                    assert item[section.act.amount.of] * percent // 100 == amount_of(section, item, facts)
                    amounts += 1
    assert amounts > 0 or level < 4
    assert (terms > 0) is (level > 4)


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_every_task_needs_rows_and_names_things_without_doubt(level):
    rules = LEVELS[level]
    for task in tasks_of(level=level, count=120):
        domain = load_domain(task.domain)
        assert task.solution.deeds and (task.solution.deciding or level == 1)
        numbers = [key[-5:] for scope in ("customer", "item") for key in task.rows[scope]]
        assert len(set(numbers)) == len(numbers)
        mine = [row[domain.label] for row in task.rows["item"].values() if row[domain.customer.noun] == task.customer]
        assert len(set(mine)) == len(mine)
        assert rules.requests <= len(task.requests) <= rules.requests + (level >= 4) + bool(rules.devices)
        assert not {request.misread for request in task.requests} & set(task.rows["item"])
        for wish, section, _ in reached(task):
            row = task.rows["item"].get(wish.item, {})
            assert all(row[field] in words for field, words in section.act.needs.items())
            assert wish.act in task.book.sections and wish.asks.keys() == {ask.name for ask in section.act.asks}


def test_what_a_customer_wants_and_says_fits_together():
    lasting = 0
    for task in tasks_of(level="3-8", count=600):
        domain = load_domain(task.domain)
        said = {}
        for request in task.requests:
            acts = [] if request.trouble else [wish.act for wish in request.wishes]
            assert not any(one in acts and other in acts for one, other in domain.at_odds)
            for wish in request.wishes:
                for name in domain.lasting:
                    if name in wish.asks:
                        lasting += name in said
                        assert wish.asks[name] == said.setdefault(name, wish.asks[name])
    assert lasting


def test_levels_grow_in_rules_that_decide():
    middles = []
    for level in EVERY_LEVEL:
        deciding = sorted(task.solution.deciding for task in tasks_of(level=level, count=120))
        middles.append(deciding[60])
    assert middles == sorted(middles) and middles[3] >= 3 and middles[5] >= 5, middles


def test_no_section_is_in_two_splits():
    seen = {split: set() for split in ("train", "validation", "test")}
    for split, found in seen.items():
        for task in tasks_of(split, "1-8", 80):
            for section in task.book.sections.values():
                assert section_class(section) in BUCKETS[split]
                found.add(f"{task.domain} {signature(section)}")
    assert not seen["train"] & seen["validation"] and not seen["train"] & seen["test"]
    assert set(frames("bar", "train")) < set(frames("bar", "test"))


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_twins_differ_in_one_fact_and_in_what_is_right(level):
    tasks = tasks_of("twins", level, 40)
    for one, other in zip(tasks[::2], tasks[1::2], strict=True):
        assert one.solution.deeds != other.solution.deeds
        same = operator.attrgetter("book.text", "shop", "customer", "today")
        assert same(one) == same(other)
        cells = [
            (scope, key, name)
            for scope, rows in one.rows.items()
            for key, row in rows.items()
            for name in row
            if row[name] != other.rows[scope][key][name]
        ]
        wishes = zip(
            (w for r in one.requests for w in r.wishes), (w for r in other.requests for w in r.wishes), strict=True
        )
        asks = [name for a, b in wishes for name in a.asks if a.asks[name] != b.asks[name]]
        assert len(cells) + len(asks) == 1


def test_new_domains_are_in_no_other_split_and_a_name_of_them_is_refused_there():
    assert {task.domain for task in tasks_of("new", 1, 60)} == {n for n in domain_names() if load_domain(n).unseen}
    assert not any(load_domain(task.domain).unseen for task in tasks_of("train", 1, 100))
    with pytest.raises(ConfigError, match="domains must be one of"):
        HelpDeskTasks("train", 1, "ferry")


def without(*scopes):
    """Return the verdict of somebody who takes conditions of some scopes as failed."""

    def judge(section, facts):
        def count(chain):
            holding = (c.scope not in scopes and c.holds(facts(c), v) for c, v in chain.links)
            return next((n for n, holds in enumerate(holding) if not holds), len(chain.links))

        return next((f"{section.number}.{c.first}" for c in section.chains if count(c) % 2), "")

    return judge


SHORTCUTS = {  # what is judged by, and the most it may solve at levels 1 to 8
    "refuses with the first rule": (lambda s, f: f"{s.number}.1", (0.20, 0.18, 0.12, 0.06, 0.05, 0.03, 0.02, 0.02)),
    "allows all": (lambda s, f: "", (0.60, 0.58, 0.43, 0.24, 0.20, 0.12, 0.07, 0.04)),
    "reads bars only": (
        lambda s, f: s._replace(chains=tuple(c._replace(links=c.links[:1]) for c in s.chains)).reason(f),
        (1.0, 0.34, 0.30, 0.18, 0.15, 0.08, 0.06, 0.04),
    ),
    "asks nothing": (without("ask"), (1.0, 1.0, 0.40, 0.20, 0.20, 0.14, 0.14, 0.12)),
    "ignores the customer's row": (without("customer"), (0.88, 0.60, 0.54, 0.42, 0.36, 0.22, 0.16, 0.10)),
    "ignores the item's row": (without("item"), (0.88, 0.60, 0.54, 0.42, 0.36, 0.22, 0.16, 0.10)),
}


@pytest.mark.parametrize("name", SHORTCUTS)
@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_a_shortcut_does_not_pay(name, level):
    judge, bounds = SHORTCUTS[name]
    tasks = tasks_of(level=level, count=120)
    solved = sum(all(judge(s, f) == s.reason(f) for _, s, f in reached(task)) for task in tasks) / len(tasks)
    assert solved <= bounds[level - 1]


def test_values_are_drawn_so_that_a_test_holds_or_fails():
    draws = stream("helpdesk/values")
    for name in domain_names():
        for condition in load_domain(name).conditions:
            for value in condition.values if condition.scope != "day" else ():
                for holds in (True, False):
                    assert condition.holds(condition.draw(draws, value, holds), value) is holds
