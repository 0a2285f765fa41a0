"""What a text says to a customer: word lists and the values of the world, no model.

    "I'll need your name and your code word."        asks for name and code
    "Moving it costs 17 euros. Shall I go ahead?"    tells 17 euros; an offer to move
    "I am sorry, rule 2.1 does not allow that."      refuses

Whoever mishears loses turns and nothing else: letters settle, and a yes says what it agrees to.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from agent_envs.datasets.helpdesk.generated.conditions import Value
from agent_envs.datasets.helpdesk.generated.domain import Act, Ask, Domain
from agent_envs.envs.helpdesk.phrases import LONGEST, TABLES, WH, WORD, Phrases, has, indexed, plain, sentences, signs

_CUES = indexed(TABLES["cues"])
_ITEM = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s")
_DIGITS = re.compile(r"(?<!\d)\d{5}(?!\d)")
_MONEY = re.compile(
    r"(?:€|\beur(?:os?)?\b)\s?(\d{1,9})(?:[.,]00?)?(?!\d|[.,]\d)"
    r"|(?<![\d.,])(\d{1,9})(?:[.,]00?)?(?:\s?€|\s(?:euros?|eur)\b)"
)
_EACH = re.compile(r"\W*(?:a|an|per|each) (?:night|day|week|month|year|hour|piece|person)\b")
_UNTRUE = re.compile(r"(?:\bnot|n't|\binstead of|\brather than) (?:€ ?)?\d{1,9}(?: ?€| euros?\b)?")
_BARRED = re.compile(
    r"(?:\b(?:not|no|never|unable|nothing|nobody)|n't)\b(?:\W+\w+){0,6}?\W+"
    r"(?:allowed|able|possible|permitted|available|authori[sz]ed|eligible|entitled|left)\b"
    r"|\b(?:nothing|no more) (?:\w+ ){0,2}(?:i|we) can do\b"
    r"|n't\W+(?:since|because|as)\b|n't\W*$|^nope\b|^(?:so )?no\W+sorry\b|(?<!yes or )(?<!yes/)\bno\W*$"
)
_NOT = re.compile(r"(?:\bnot|n't|\bnever)\W+(?:\w+\W+){0,2}$")


class Heard(NamedTuple):
    """What was heard."""

    asks: tuple[str, ...] = ()
    """Facts asked for: "name", "code", "number", "wish", or what an act asks."""
    offer: str = ""
    """The sentences of an offer, in small letters; "" if none was made."""
    reports: bool = False
    refuses: bool = False
    doubts: bool = False

    def names(self) -> str:
        """Return what was heard in short, "" for nothing."""
        named = [name for name, heard in zip(("offer", "report", "refuse", "doubt"), self[1:], strict=True) if heard]
        return " ".join([f"ask:{','.join(self.asks)}"] * bool(self.asks) + named)


@functools.lru_cache(maxsize=64)
def _acts_named(domain: Domain) -> Phrases:
    """Return the phrases by which each act is mentioned."""
    mentions = {}
    for act in domain.acts.values():
        mentions[act.name] = [act.done]
        for verb in act.verbs:
            head, _, particle = verb.partition(" ")
            stem = head.removesuffix("e")
            double = stem + stem[-1]
            forms = (head, f"{stem}ing", f"{double}ing", f"{stem}ed", f"{double}ed")
            mentions[act.name] += [f"{form} {particle}".strip() for form in forms]
    return indexed(mentions)


@functools.lru_cache(maxsize=512)
def _heard_of(domain: Domain, act: Act | None) -> tuple[Phrases, tuple[str, ...]]:
    """Return the phrases that count only while an act is wanted, and the facts that can be asked for."""
    facts: dict[str, tuple[str, ...]] = dict(TABLES["facts"])
    facts["number"] += (f"{domain.item.noun} no.", f"which {domain.item.noun}", f"which {domain.label}")
    asks = act.asks if act else ()
    for ask in asks:
        also = [other for word in ask.words for other in TABLES["also"].get(word, ())]
        facts[ask.name] = (*ask.words, ask.name.replace("_", " "), f"number of {ask.name}", *also)
    phrases = {f"?{fact}": words for fact, words in facts.items()}
    phrases["report"] = tuple(f"{be} {done.done}" for done in domain.acts.values() for be in ("is", "are"))
    phrases["doubt"] = (f"no {domain.item.noun}",)
    known = {word for words in facts.values() for phrase in words for word in phrase.split()}
    for ask in asks:
        said = [set(WORD.findall(text.lower())) for text in ask.say] if isinstance(ask.say, tuple) else []
        for place, value in enumerate(ask.values):
            own = sorted(said[place].difference(known, *said[:place], *said[place + 1 :])) if said else []
            sign = f"{'#' if isinstance(value, int) else '='}{ask.name}={value}"
            phrases[sign] = (str(value), *(word for word in own if len(word) > 4))
    return indexed(phrases), tuple(facts)


def hear(text: str, domain: Domain, act: Act | None, values: Mapping[str, str]) -> Heard:
    """Return what a text says.

    Args:
        text: The text.
        domain: The domain.
        act: What the customer wants now; its facts can be asked for.
        values: The values of the facts: a fact whose value stands in the same sentence is not asked for.

    >>> from agent_envs.datasets.helpdesk.generated.domain import load_domain
    >>> hear("Name and code word, please.", load_domain("bicycle_hire"), None, {}).asks
    ('name', 'code')
    """
    asks: dict[str, None] = {}
    offer = before = ""
    reports = refuses = doubts = inherited = able = False
    phrases, facts = _heard_of(domain, act)
    said = [(sentence, signs(sentence, _CUES, _acts_named(domain), phrases)) for sentence in sentences(text)]
    stated = _counted(sign for _, cues in said for sign in cues)
    for sentence, cues in said:
        question, named = "?" in sentence, [cues[name] for name in domain.acts if name in cues]
        acted, first = bool(named), min(named, default=(0, 0))[0]
        negated = "refuse" in cues
        if not negated and any(word in sentence for word in ("no", "n't", "never", "unable")):
            negated = _BARRED.search(sentence) is not None and not sentence.startswith("if ")
            negated |= acted and _NOT.search(sentence[:first]) is not None
        wh = WH.match(sentence) is not None
        asking = question or wh or "asking" in cues
        inherited = (asking and sentence.endswith(":")) or (inherited and _ITEM.match(sentence) is not None)
        sure, inviting = question and "sure" in cues, "inviting" in cues
        cued = inviting or (question and (acted or not cues.keys().isdisjoint(("sure", "offering", "weak"))))
        asked = []
        counts = _counted(sign for sign in cues if question and (sign[0] == "=" or " or " in sentence))
        if asking or inherited or len(sentence) < 20:
            asked = [fact for fact in facts if f"?{fact}" in cues]
            if question:  # to choose from, or whether it is so
                sole = not (asked or cued or wh or "close" in cues) and all(count == 1 for count in counts.values())
                asked += [fact for fact, count in counts.items() if count > 1 or sole]
            if wh and "which" in cues and not asked:
                asked = [fact for fact, count in stated.items() if count > 1] or ["number"] * ("which one" in sentence)
            if wh and "why" in sentence[:8]:
                asked = [fact for fact in asked if cues.get(f"?{fact}", (9, 9))[0] < 8] or asked
            if "details" in cues and "inviting" not in cues:
                asked += ["name", "code"]
            told = [fact for fact in asked if fact in values and counts[fact] < 2 and has(sentence, values[fact])]
            asked = [fact for fact in asked if fact not in told and (fact != "wish" or len(asked) == 1)]
            if not (asking or inherited) and len(sentence.split()) > 3:  # fewer words ask without a verb: "name, code"
                asked = []
        short = question and able and (len(sentence.split()) < 5 or "that" in cues)
        if not wh and not negated and (sure or ((cued or short) and not asked and "close" not in cues)):
            offer = f"{offer} {sentence}" if acted else f"{offer} {before} {sentence}"
        elif "doubt" in cues:
            doubts = True
        elif negated and not question:
            refuses = True
        elif not question and not asked and "later" not in cues:
            near = acted and "been" in cues and 0 <= first - cues["been"][1] < 25
            reports = reports or near or "report" in cues
        asks.update(dict.fromkeys(asked))
        able = able if question else not negated and ("able" in cues or "€" in sentence)
        before = sentence if acted and not negated else before
    return Heard(tuple(asks), offer.strip(), reports, refuses, doubts)


def _counted(signs: Iterable[str]) -> Counter[str]:
    """Return of how many values of each fact there are signs."""
    return Counter(fact[1:].partition("=")[0] for fact in dict.fromkeys(signs) if fact[0] in "=#")


def contradicts(
    offer: str, domain: Domain, act: Act, item: str, wanted: Mapping[str, Value], labels: Mapping[str, str]
) -> bool:
    """Return whether an offer says something else than what is wanted, and does not also say that.

    Args:
        offer: The sentences of the offer, in small letters.
        domain: The domain.
        act: What is wanted.
        item: The number of the item.
        wanted: What is asked for.
        labels: The label of each of the customer's items.
    """
    offer = plain(offer)
    numbers = set(_DIGITS.findall(offer))
    said_and_right: list[tuple[Collection[Value], Value]] = [
        (signs(offer, _acts_named(domain)), act.name),
        (numbers, item[-5:]),
        ([] if numbers else [number for number, label in labels.items() if has(offer, label)], item),
        *((_values_said(offer, ask), wanted[ask.name]) for ask in act.asks),
    ]
    return any(said and right not in said for said, right in said_and_right)


def _values_said(offer: str, ask: Ask) -> list[Value]:
    """Return the values in an offer of what follows verb and object."""
    if not isinstance(ask.say, str):
        return []
    if not isinstance(ask.values[0], int):
        return [value for value in ask.values if has(offer, str(value))]
    unit = "|".join(map(re.escape, ask.say.partition("{}")[2].split()[:1]))
    return [int(number) for number in re.findall(rf"(?<!\w)(\d{{1,9}}) {unit}(?!\w)", offer)] if unit else []


def amounts_in(text: str, words: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Return the amounts of money in a text, and those that follow one of some words in its sentence.

    >>> amounts_in("It costs 86 euros now; the charge is €17.", ("charge",))
    ([86, 17], [17])
    """
    text = _UNTRUE.sub("", plain(text[:LONGEST]))
    money = [(int(found[1] or found[2]), _EACH.match(text, found.end())) for found in _MONEY.finditer(text)]
    money = [pair for pair in money if not pair[1]] or money  # "180 euros, 90 a night"
    sums = [amount for amount, _ in money]
    named = [int(number or 0) for number in _following(words).findall(text)]
    named = [amount for amount in named if not amount or not sums or amount in sums]  # "an extra 2 lessons: 26 euros"
    return list(dict.fromkeys([*sums, *named])), list(dict.fromkeys(named))


@functools.lru_cache(maxsize=512)
def _following(words: tuple[str, ...]) -> re.Pattern[str]:
    named = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    return re.compile(
        rf"\bno (?:{named})(?!\w| waiver)|\bfree of charge\b|(?:won't|does not|doesn't|will not) cost\b"
        r"|\bcosts? (?:you )?nothing\b"
        rf"|(?<!\w)(?:{named})(?!\w)[^\d.?!\n]{{0,30}}?(?<![\d.])(\d{{1,9}})(?![\d%]|\s%|[.,]\d)"
    )
