"""What a text says to a customer: word lists and the values of the world, no model.

    "I'll need your name and your code word."        asks for name and code
    "Moving it costs 17 euros. Shall I go ahead?"    tells 17 euros; an offer to move
    "I am sorry, rule 2.1 does not allow that."      refuses

Whoever mishears loses turns and nothing else: letters settle, and a yes says what it agrees to.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent_envs.datasets.helpdesk.generated.conditions import Value
from agent_envs.datasets.helpdesk.generated.domain import Act, Ask, Device, Domain
from agent_envs.files import table

_TABLES: Mapping[str, Any] = table(__package__, "hearing.json")
LONGEST = 4000
"""Only so many characters of a text are heard."""
_SMALL, _TENS = _TABLES["numbers"], _TABLES["tens"]
_NUMBER = re.compile(
    rf"\b(?:(?:({'|'.join(_TENS)})(?:[- ]({'|'.join(_SMALL[1:10])}))?|({'|'.join(_SMALL[:1] + _SMALL[2:])}))\b"
    r"|(one)(?= (?:euro|day|week|month|year|hour|minute|night|lesson|session)\b))"
)
_AGAIN = re.compile(r"(?<!\d)(\d{1,9}) (?:\(\1\)|of (?:the|your) \d{1,9})(?!\d)")  # 65 (65) euros, 12 of the 38 euros
_QUESTION = rf"(?:(?:to|by|for|from|on|with|against|in|at) )?(?:{'|'.join(map(re.escape, _TABLES['wh']))})\b"
_WH = re.compile(rf"\W*(?:(?:and|so|or) )?(?!how about){_QUESTION}")
_SENTENCE = re.compile(
    rf"(?<=[.!?])\s+|\n+|;\s+|,? (?:[-–] )?but\s"
    rf"|,? and (?={_QUESTION}|(?:do|does|did|has|have|is|are|was|will|would|shall|should|can|could) \w)"
)
_PART = re.compile(r",? (?:and|then|after that,?) (?:then )?")
_ITEM = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s")
_DIGITS = re.compile(r"(?<!\d)\d{5}(?!\d)")
_COUNTED = re.compile(r"\d (?:more |extra |further |additional )?$")
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
_YES = re.compile(r"^\W*(?:yes|yeah|sure|go ahead|please do|i am sure|do it|correct|right)\b")
_OWN = re.compile(
    r"(?:(?:ok|okay|good|great|well|now|thanks)\W+)*"
    r"(?:i|we|it|that|you|the|your|is|are|was|does|do|did|has|have|so)\b"
)
_WORD = re.compile(r"\w+")
_Phrases = Mapping[str, Sequence[tuple[str, str]]]
"""Phrases by their first word, each with what it is a sign of."""


def plain(text: str) -> str:
    """Return a text in small letters, with digits for the words of numbers.

    >>> plain("Twenty-two euros for two weeks, please.")
    '22 euros for 2 weeks, please.'
    """

    def digits(found: re.Match[str]) -> str:
        tens, units, small, one = found.groups()
        return str((_TENS.index(tens) + 2) * 10 + _SMALL.index(units or "zero") if tens else _SMALL.index(small or one))

    return _AGAIN.sub(r"\1", _NUMBER.sub(digits, text.lower().replace("’", "'").replace("pls ", "please ")))


def _by_first_word(signs: Mapping[str, Iterable[str]]) -> _Phrases:
    phrases: dict[str, list[tuple[str, str]]] = {}
    for sign, words in signs.items():
        for word in dict.fromkeys(map(plain, words)):
            if first := _WORD.search(word):
                phrases.setdefault(first[0], []).append((word, sign))
    return phrases


def _signs(sentence: str, *tables: _Phrases) -> dict[str, tuple[int, int]]:
    """Return what the phrases in a sentence are signs of, with the place of the first."""
    found = []
    for word in _WORD.finditer(sentence):
        start = word.start()
        for phrase, sign in itertools.chain.from_iterable(phrases.get(word[0], ()) for phrases in tables):
            if sentence.startswith(phrase, start):
                end = start + len(phrase)
                if not (sentence[end : end + 1].isalnum() and phrase[-1].isalnum()):
                    found.append((start, end, sign))
    taken = [(start, end) for start, end, sign in found if sign[0] in "?="]
    return {
        sign: (start, end)
        for start, end, sign in reversed(found)
        if sign[0] != "?"  # a fact is asked for by no part of longer words, nor by "3 more days" or "days ago"
        or not (
            any(a <= start and end <= b and b - a > end - start for a, b in taken)
            or sentence.startswith(" ago", end)
            or _COUNTED.search(sentence[:start][-14:])
        )
    }


_CUES, _OF_DEVICES = _by_first_word(_TABLES["cues"]), _by_first_word(_TABLES["device"])


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


def _mentions(domain: Domain) -> dict[str, list[str]]:
    """Return the words by which each act is mentioned."""
    found = {}
    for act in domain.acts.values():
        words = [act.done]
        for verb in act.verbs:
            head, _, particle = verb.partition(" ")
            stem = head[:-1] if head.endswith("e") else head
            double = stem + stem[-1]
            for form in (head, stem + "ing", double + "ing", stem + "ed", double + "ed"):
                words.append(f"{form} {particle}".strip())
        found[act.name] = words
    return found


@functools.lru_cache(maxsize=64)
def _acts_named(domain: Domain) -> _Phrases:
    return _by_first_word(_mentions(domain))


@functools.lru_cache(maxsize=512)
def _heard_of(domain: Domain, act: Act | None) -> tuple[_Phrases, tuple[str, ...]]:
    """Return the phrases that count only while an act is wanted, and the facts that can be asked for."""
    facts: dict[str, tuple[str, ...]] = dict(_TABLES["facts"])
    facts["number"] += (f"{domain.item.noun} no.", f"which {domain.item.noun}", f"which {domain.label}")
    asks = act.asks if act else ()
    for ask in asks:
        also = [other for word in ask.words for other in _TABLES["also"].get(word, ())]
        facts[ask.name] = (*ask.words, ask.name.replace("_", " "), *also)
    signs = {f"?{fact}": words for fact, words in facts.items()}
    signs["report"] = tuple(f"{be} {done.done}" for done in domain.acts.values() for be in ("is", "are"))
    signs["doubt"] = (f"no {domain.item.noun}",)
    known = {word for words in facts.values() for phrase in words for word in phrase.split()}
    for ask in asks:
        said = [set(_WORD.findall(text.lower())) for text in ask.say] if isinstance(ask.say, tuple) else []
        for place, value in enumerate(ask.values):
            own = sorted(said[place].difference(known, *said[:place], *said[place + 1 :])) if said else []
            sign = f"{'#' if isinstance(value, int) else '='}{ask.name}={value}"
            signs[sign] = (str(value), *(word for word in own if len(word) > 4))
    return _by_first_word(signs), tuple(facts)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text, `plain`; what follows "but" is one of its own."""
    for sentence in _SENTENCE.split(plain(text[:LONGEST])):
        if sentence := sentence.replace("**", "").strip(" \t_>"):
            yield sentence


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
    said = [(sentence, _signs(sentence, _CUES, _acts_named(domain), phrases)) for sentence in sentences(text)]
    stated = _counted(sign for _, signs in said for sign in signs)
    for sentence, signs in said:
        question, named = "?" in sentence, [signs[name] for name in domain.acts if name in signs]
        acted, first = bool(named), min(named, default=(0, 0))[0]
        negated = "refuse" in signs
        if not negated and any(word in sentence for word in ("no", "n't", "never", "unable")):
            negated = _BARRED.search(sentence) is not None and not sentence.startswith("if ")
            negated |= acted and _NOT.search(sentence[:first]) is not None
        wh = _WH.match(sentence) is not None
        asking = question or wh or "asking" in signs
        inherited = (asking and sentence.endswith(":")) or (inherited and _ITEM.match(sentence) is not None)
        sure, inviting = question and "sure" in signs, "inviting" in signs
        cued = inviting or (question and (acted or not signs.keys().isdisjoint(("sure", "offering", "weak"))))
        found = []
        counts = _counted(sign for sign in signs if question and (sign[0] == "=" or " or " in sentence))
        if asking or inherited or len(sentence) < 20:
            found = [fact for fact in facts if f"?{fact}" in signs]
            if question:  # to choose from, or whether it is so
                sole = not (found or cued or wh or "close" in signs) and all(count == 1 for count in counts.values())
                found += [fact for fact, count in counts.items() if count > 1 or sole]
            if wh and "which" in signs and not found:
                found = [fact for fact, count in stated.items() if count > 1] or ["number"] * ("which one" in sentence)
            if wh and "why" in sentence[:8]:
                found = [fact for fact in found if signs.get(f"?{fact}", (9, 9))[0] < 8] or found
            if "details" in signs and "inviting" not in signs:
                found += ["name", "code"]
            told = [fact for fact in found if fact in values and counts[fact] < 2 and _has(sentence, values[fact])]
            found = [fact for fact in found if fact not in told and (fact != "wish" or len(found) == 1)]
            if not (asking or inherited) and len(sentence.split()) > 3:  # fewer words ask without a verb: "name, code"
                found = []
        short = question and able and (len(sentence.split()) < 5 or "that" in signs)
        if not wh and not negated and (sure or ((cued or short) and not found and "close" not in signs)):
            offer = f"{offer} {sentence}" if acted else f"{offer} {before} {sentence}"
        elif "doubt" in signs:
            doubts = True
        elif negated and not question:
            refuses = True
        elif not question and not found and "later" not in signs:
            near = acted and "been" in signs and 0 <= first - signs["been"][1] < 25
            reports = reports or near or "report" in signs
        asks.update(dict.fromkeys(found))
        able = able if question else not negated and ("able" in signs or "€" in sentence)
        before = sentence if acted and not negated else before
    return Heard(tuple(asks), offer.strip(), reports, refuses, doubts)


def _counted(signs: Iterable[str]) -> Counter[str]:
    """Return of how many values of each fact there are signs."""
    return Counter(fact[1:].partition("=")[0] for fact in dict.fromkeys(signs) if fact[0] in "=#")


def _has(sentence: str, value: str) -> bool:
    """Return whether a value stands in a sentence, and not within a longer word or number."""
    value = plain(value)
    return value in sentence and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", sentence) is not None


def contradicts(
    offer: str, domain: Domain, act: Act, item: str, wanted: Mapping[str, Value], labels: Mapping[str, str]
) -> bool:
    """Return whether an offer says something else than what is wanted.

    Args:
        offer: The sentences of the offer, in small letters.
        domain: The domain.
        act: What is wanted.
        item: The number of the item.
        wanted: What is asked for.
        labels: The label of each of the customer's items.
    """
    offer = plain(offer)
    named = _signs(offer, _acts_named(domain))
    if named and act.name not in named:
        return True
    numbers = set(_DIGITS.findall(offer))
    if numbers and item[-5:] not in numbers:
        return True
    said = {found for found, label in labels.items() if _has(offer, label)}
    if said and item not in said and not numbers:
        return True
    return any(_says_other(offer, ask, wanted[ask.name]) for ask in act.asks if isinstance(ask.say, str))


def _says_other(offer: str, ask: Ask, value: Value) -> bool:
    """Return whether an offer has another value than the one that is wanted, and not that one."""
    if isinstance(value, int):
        after = str(ask.say).partition("{}")[2].split()
        if not after:
            return False
        found = {int(word) for word in re.findall(rf"(?<!\w)(\d{{1,9}}) {re.escape(after[0])}(?!\w)", offer)}
        return bool(found) and value not in found
    others = {other for other in ask.values if _has(offer, str(other))}
    return bool(others) and value not in others


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


def told_to_press(text: str, device: Device) -> list[str]:
    """Return the acts that a text tells somebody to do, in order."""
    found: dict[str, None] = {}
    shown = {read.field: read.words for read in device.reads.values()}
    last = ""
    for sentence in sentences(text):
        polite = "polite" in _signs(sentence, _OF_DEVICES)
        for part in _PART.split(sentence):
            part = re.sub(r"\b(?:it|them)\b", last or "it", part)
            words, signs = _WORD.findall(part), _signs(part, _OF_DEVICES)
            told = "polite" in signs or not (_OWN.match(part) or "would" in signs)
            told = told and (polite or "?" not in part) and "not told" not in signs
            for name, act in device.acts.items():
                things, verbs = [act.object.split()[-1].lower()], {*act.verbs}
                if name not in device.final:  # what loses something is done at its own words only
                    things += [word for _, field, _ in act.effect for word in shown.get(field, ())]
                    verbs |= {verb for group in _TABLES["same"] if not verbs.isdisjoint(group) for verb in group}
                if named := [thing for thing in things if _has(part, thing)]:
                    last = named[0]
                    if told and any(_occurs(verb, words) for verb in verbs):
                        found[name] = None
    return list(found)


def _occurs(verb: str, words: Sequence[str]) -> bool:
    """Return whether the words of a verb occur, the first in any form."""
    head, *rest = verb.split()
    stem = head.removesuffix("e")
    return any(word.startswith(stem) for word in words) and all(w in words or f"{w}to" in words for w in rest)


def asked_to_see(text: str, device: Device) -> list[str]:
    """Return what a text asks somebody to look at."""
    found: dict[str, None] = {}
    for sentence in sentences(text):
        signs = _signs(sentence, _OF_DEVICES)
        if "?" in sentence or ("look" in signs and "not told" not in signs):
            for name, read in device.reads.items():
                if any(_has(sentence, word) or _has(sentence, f"{word}s") for word in read.words):
                    found[name] = None
    return list(found)


def agrees(text: str) -> bool:
    """Return whether a text says yes."""
    return _YES.match(text[:LONGEST].lower()) is not None
