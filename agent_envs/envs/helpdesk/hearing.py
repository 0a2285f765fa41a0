"""What a text says to a customer: word lists and the values of the world, no model.

    "I'll need your name and your code word."        asks for name and code
    "Moving it costs 17 euros. Shall I go ahead?"    tells 17 euros; an offer to move
    "I am sorry, rule 2.1 does not allow that."      refuses

Whoever mishears loses turns and nothing else: letters settle, and a yes says what it agrees to.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent_envs.datasets.helpdesk.generated.conditions import Value
from agent_envs.datasets.helpdesk.generated.domain import Act, Ask, Device, Domain
from agent_envs.files import table

CUES: Mapping[str, tuple[str, ...]] = table(__package__, "hearing.json")
LONGEST = 4000
"""Only so many characters of a text are heard."""
_NUMBERS = {word: number for number, word in enumerate(CUES["numbers"])}
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_ITEM = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s")
_DIGITS = re.compile(r"(?<!\d)\d{5}(?!\d)")
_MONEY = re.compile(
    r"(?:€|\beur(?:os?)?\b)\s?(\d{1,9})(?:\.00?)?(?!\d|\.\d)|(?<![\d.])(\d{1,9})(?:\.00?)?(?:\s?€|\s(?:euros?|eur)\b)"
)
_POLITE = re.compile(r"\b(?:could|can|would|will) you\b|\bplease\b|\bi (?:need|want|would like|'d like) you to\b")
_TOLD = re.compile(r"\b(?:do not|don't|never|must not|may not|cannot|can't|not allowed|forbids|has been|have been)\b")
_OWN = re.compile(r"^(?:i|we|it|that|you|the|your|is|are|was|does|do|did|has|have|so)\b")
_LOOK = re.compile(r"\b(?:look|check|see|read|tell|say|says|show|shows|describe|what|which|how|where|is|are|does|do)\b")
_YES = re.compile(r"^\W*(?:yes|yeah|sure|go ahead|please do|i am sure|do it|correct|right)\b")
_WORD = re.compile(r"\w+")
_WH = re.compile(rf"\W*(?:{'|'.join(sorted(map(re.escape, CUES['wh']), key=len, reverse=True))})\b")
_FACTS: Mapping[str, tuple[str, ...]] = CUES["facts"]  # type: ignore[assignment]
_Phrases = Mapping[str, Sequence[tuple[str, str]]]
"""Phrases by their first word, each with what it is a sign of."""


def _by_first_word(signs: Mapping[str, Iterable[str]]) -> _Phrases:
    phrases: dict[str, list[tuple[str, str]]] = {}
    for sign, words in signs.items():
        for word in dict.fromkeys(words):
            if first := _WORD.search(word.lower()):
                phrases.setdefault(first[0], []).append((word.lower(), sign))
    return phrases


def _signs(sentence: str, phrases: _Phrases) -> set[str]:
    """Return what the phrases in a sentence are signs of."""
    found = set()
    for word in _WORD.finditer(sentence):
        for phrase, sign in phrases.get(word[0], ()):
            if sentence.startswith(phrase, word.start()):
                end = word.start() + len(phrase)
                if end == len(sentence) or not (sentence[end].isalnum() and phrase[-1].isalnum()):
                    found.add(sign)
    return found


class Heard(NamedTuple):
    """What was heard."""

    asks: tuple[str, ...] = ()
    """Facts asked for: "name", "code", "number", "wish", or what an act asks."""
    offer: str = ""
    """The sentences of an offer, in small letters; "" if none was made."""
    reports: bool = False
    refuses: bool = False
    doubts: bool = False
    closes: bool = False

    def names(self) -> str:
        """Return what was heard in short, "" for nothing."""
        flags = {"offer": self.offer, "report": self.reports, "refuse": self.refuses, "doubt": self.doubts}
        named = [name for name, heard in flags.items() if heard]
        return " ".join([f"ask:{','.join(self.asks)}"] * bool(self.asks) + named)


@functools.lru_cache(maxsize=64)
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


@functools.lru_cache(maxsize=512)
def _heard_of(domain: Domain, act: Act | None) -> tuple[_Phrases, tuple[str, ...]]:
    """Return all phrases that count while an act is wanted, and the facts that can be asked for."""
    facts: dict[str, tuple[str, ...]] = dict(_FACTS)
    facts["number"] += ("which one", f"which {domain.item.noun}", f"which {domain.label}")
    for ask in act.asks if act else ():
        more = ("how come",) if "why" in ask.words else ()
        facts[ask.name] = (*ask.words, ask.name.replace("_", " "), *more)
    signs = {key: words for key, words in CUES.items() if key not in ("facts", "numbers", "wh")}
    signs |= {f"?{fact}": words for fact, words in facts.items()}
    signs |= {"act": tuple(word for words in _mentions(domain).values() for word in words)}
    return _by_first_word(signs), tuple(facts)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text in small letters."""
    for sentence in _SENTENCE.split(text.lower().replace("’", "'")):
        if sentence := sentence.strip(" \t*_>"):
            yield sentence


def hear(text: str, domain: Domain, act: Act | None, values: Mapping[str, str]) -> Heard:
    """Return what a text says.

    Args:
        text: The text.
        domain: The domain.
        act: What the customer wants now; its facts can be asked for.
        values: The values of the facts: a fact whose value stands in the same sentence is not asked for.

    >>> from agent_envs.datasets.helpdesk.generated.domain_files import load_domain
    >>> hear("Name and code word, please.", load_domain("bicycle_hire"), None, {}).asks
    ('name', 'code')
    """
    asks: dict[str, None] = {}
    offer = before = ""
    reports = refuses = doubts = closes = inherited = False
    phrases, facts = _heard_of(domain, act)
    for sentence in sentences(text[:LONGEST]):
        signs = _signs(sentence, phrases)
        question, acted, negated = "?" in sentence, "act" in signs, "refuse" in signs
        wh = _WH.match(sentence) is not None
        asking = question or wh or "asking" in signs
        inherited = (asking and sentence.endswith(":")) or (inherited and _ITEM.match(sentence) is not None)
        found = []
        if asking or inherited or len(sentence) < 20:
            found = [fact for fact in facts if f"?{fact}" in signs]
            for ask in act.asks if act and question else ():
                if sum(_has(sentence, value) for value in ask.values if isinstance(value, str)) > 1:  # to choose from
                    found.append(ask.name)
            if "details" in signs and "inviting" not in signs:
                found += ["name", "code"]
            found = [fact for fact in found if not _stands(fact, sentence, act, values)]
            if not (asking or inherited) and len(sentence.split()) > 3:  # fewer words ask without a verb: "name, code"
                found = []
        sure, inviting = question and "sure" in signs, "inviting" in signs
        offering = inviting or (question and not signs.isdisjoint({"offering", "act", "weak"}))
        if not wh and not negated and (sure or (offering and not found and "close" not in signs)):
            offer = f"{offer} {sentence}" if acted else f"{offer} {before} {sentence}"
        elif "doubt" in signs:
            doubts = True
        elif negated and not question:
            refuses = True
        elif not question and not found and "report" in signs:
            reports = True
        asks.update(dict.fromkeys(found))
        closes = closes or "close" in signs
        before = sentence if acted else before
    return Heard(tuple(asks), offer.strip(), reports, refuses, doubts, closes)


def _stands(fact: str, sentence: str, act: Act | None, values: Mapping[str, str]) -> bool:
    """Return whether the value of a fact stands in a sentence, and no other that it could be."""
    if fact not in values or not _has(sentence, values[fact]):
        return False
    others = [str(value) for ask in (act.asks if act else ()) if ask.name == fact for value in ask.values]
    return not any(_has(sentence, other) for other in others if other != values[fact])


def _has(sentence: str, value: str) -> bool:
    """Return whether a value stands in a sentence, and not within a longer word or number."""
    value = value.lower()
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
    named = _signs(offer, _by_first_word(_mentions(domain)))
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
        said = re.findall(rf"(?<!\w)(\d+|[a-z]+) {re.escape(after[0])}(?!\w)", offer)
        found = {_NUMBERS.get(word, int(word) if word.isdecimal() and len(word) < 10 else -1) for word in said} - {-1}
        return bool(found) and value not in found
    others = {other for other in ask.values if _has(offer, str(other))}
    return bool(others) and value not in others


def amounts_in(text: str, words: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Return the amounts of money in a text, and those that follow one of some words in its sentence.

    >>> amounts_in("It costs 86 euros now; the charge is €17.", ("charge",))
    ([86, 17], [17])
    """
    text = text[:LONGEST].lower()
    money = [int(found[1] or found[2]) for found in _MONEY.finditer(text)]
    named = [int(number) for number in _following(words).findall(text)]
    return list(dict.fromkeys([*money, *named])), list(dict.fromkeys(named))


@functools.lru_cache(maxsize=512)
def _following(words: tuple[str, ...]) -> re.Pattern[str]:
    named = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{named})(?!\w)[^\d.?!\n]{{0,30}}?(?<![\d.])(\d{{1,9}})(?![\d%]|\s%|\.\d)")


@functools.lru_cache(maxsize=64)
def _presses(device: Device) -> Mapping[str, tuple[re.Pattern[str], ...]]:
    """Return, for each act, patterns of which one must occur for each word of a verb with the object."""
    return {name: tuple(_both(verb, act) for verb in act.verbs) for name, act in device.acts.items()}


def _both(verb: str, act: Act) -> re.Pattern[str]:
    head, _, rest = verb.partition(" ")
    stem = head[:-1] if head.endswith("e") else head
    words = [rf"\b{re.escape(stem)}\w*", *(rf"\b{re.escape(word)}\b" for word in rest.split())]
    words.append(rf"\b{re.escape(act.object.split()[-1].lower())}\b")
    return re.compile("".join(f"(?=.{{0,300}}?{word})" for word in words))


@functools.lru_cache(maxsize=64)
def _views(device: Device) -> Mapping[str, re.Pattern[str]]:
    return {
        name: re.compile("|".join(rf"\b{re.escape(word.lower())}s?\b" for word in read.words))
        for name, read in device.reads.items()
    }


def told_to_press(text: str, device: Device) -> list[str]:
    """Return the acts that a text tells somebody to do, in order."""
    found: dict[str, None] = {}
    for sentence in sentences(text[:LONGEST]):
        for part in re.split(r",? (?:and|then) (?:then )?|; ", sentence):
            if _TOLD.search(part) or (_OWN.match(part) and not _POLITE.search(part)):
                continue
            if "?" in part and not _POLITE.search(part):
                continue
            found.update((name, None) for name, forms in _presses(device).items() if any(f.match(part) for f in forms))
    return list(found)


def asked_to_see(text: str, device: Device) -> list[str]:
    """Return what a text asks somebody to look at."""
    found: dict[str, None] = {}
    for sentence in sentences(text[:LONGEST]):
        if "?" in sentence or (_LOOK.search(sentence) and not _TOLD.search(sentence)):
            found.update((name, None) for name, words in _views(device).items() if words.search(sentence))
    return list(found)


def agrees(text: str) -> bool:
    """Return whether a text says yes."""
    return _YES.match(text[:LONGEST].lower()) is not None
