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
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from agent_envs.datasets.helpdesk.generated.domain import Act, Ask, Domain
from agent_envs.datasets.helpdesk.generated.rules import Value
from agent_envs.envs.helpdesk.phrases import PATTERNS, TABLES, Phrases, has, indexed, plain, says, sentences, signs

_CUES = indexed(TABLES["cues"])


class Heard(NamedTuple):
    """What was heard."""

    asks: tuple[str, ...] = ()
    """Facts asked for: "name", "code", "number", "wish", or what an act asks."""
    offer: str = ""
    """The sentences of an offer, in small letters; "" if none was made."""
    reports: bool = False
    refuses: bool = False
    doubts: bool = False
    confirms: tuple[str, ...] = ()
    """Facts that a question has right: "Is your name Cleo Hart?"."""

    def names(self) -> str:
        """Return what was heard in short, "" for nothing."""
        kinds = ("offer", "report", "refuse", "doubt", "confirm")
        named = [name for name, heard in zip(kinds, self[1:], strict=True) if heard]
        return " ".join([f"ask:{','.join(self.asks)}"] * bool(self.asks) + named)


@functools.lru_cache(maxsize=64)
def acts_named(domain: Domain) -> Phrases:
    """Return the phrases by which each act is mentioned."""
    mentions = {}
    for act in domain.acts.values():
        mentions[act.name] = [act.done]
        for verb in (*act.verbs, *(also for own in act.verbs for also in TABLES["verbs"].get(own, ()))):
            head, _, particle = verb.partition(" ")
            stem = head.removesuffix("e")
            forms = (head, *(f"{form}{end}" for form in (stem, stem + stem[-1]) for end in ("ing", "ed")))
            mentions[act.name] += [f"{form} {particle}".strip() for form in forms]
    return indexed(mentions)


@functools.lru_cache(maxsize=512)
def _heard_of(domain: Domain, act: Act | None) -> tuple[Phrases, tuple[str, ...]]:
    """Return the phrases that count only while an act is wanted, and the facts that can be asked for."""
    asks = act.asks if act else ()
    nouns = {"item": domain.item.noun, "label": domain.label, "customer": domain.customer.noun}
    facts = {fact: tuple(word.format(**nouns) for word in words) for fact, words in TABLES["facts"].items()}
    phrases: dict[str, Iterable[str]] = {}
    for ask in asks:
        noun = ask.name.replace("_", " ").removeprefix("extra ")
        facts[ask.name] = (*ask.words, noun, *(f"number of {more}{noun}" for more in ("", "extra ", "additional ")))
        words = (ask.name, *ask.words)
        also = [other for word in words for other in TABLES["also"].get(word, ())]
        phrases[f"??{ask.name}"] = [*also, *(f"{word}s" for word in words)]
    phrases |= {f"?{fact}": words for fact, words in facts.items()} | {"?": TABLES["no facts"]}
    phrases["report"] = tuple(f"{be} {done.done}" for done in domain.acts.values() for be in ("is", "are"))
    phrases["doubt"] = (f"no {domain.item.noun}",)
    known = {*TABLES["common"], *(word for words in facts.values() for phrase in words for word in phrase.split())}
    for ask in asks:
        said = [set(re.findall(r"\w+", text.lower())) for text in ask.say] if isinstance(ask.say, tuple) else []
        for place, value in enumerate(ask.values):
            own = sorted(said[place].difference(known, *said[:place], *said[place + 1 :])) if said else []
            sign = f"{'#' if isinstance(value, int) else '='}{ask.name}={value}"
            phrases[sign] = (str(value), f"{value}s", *(word for word in own if len(word) > 4))
    return indexed(phrases), tuple(facts)


def hear(text: str, domain: Domain, act: Act | None, values: Mapping[str, str]) -> Heard:
    """Return what a text says to a customer who wants an act, whose facts can be asked for.

    A fact whose value, of `values`, stands in the same sentence is not asked for.

    >>> from agent_envs.datasets.helpdesk.generated.domain import load_domain
    >>> hear("Name and code word, please.", load_domain("bicycle_hire"), None, {}).asks
    ('name', 'code')
    """
    asks, confirms = list[str](), list[str]()
    offer, before, doubted = "", "", "number"
    reports = refuses = doubts = heading = able = False
    phrases, facts = _heard_of(domain, act)
    said = [(sentence, signs(sentence, _CUES, acts_named(domain), phrases)) for sentence in sentences(text)]
    for sentence, cues in said:
        question, named = "?" in sentence, [cues[name] for name in domain.acts if name in cues]
        acted, first = bool(named), min(named, default=(0, 0))[0]
        negated = "refuse" in cues
        if not negated and says("negative", sentence):
            negated = says("barred", sentence) and not sentence.startswith("if ")
            negated |= acted and says("not", sentence[:first])
        wh = PATTERNS["wh"].match(PATTERNS["item"].sub("", sentence)) is not None
        open_question = question and not says("factual", sentence)
        asking = question and not says("pause", sentence)
        asking |= wh and (heading or sentence[-1].isalnum() or says("direct", sentence))
        asking |= "asking" in cues and not says("needless", sentence)
        inherited = heading and says("item", sentence)
        inviting = "inviting" in cues or says("inviting", sentence) or says("if agreed", sentence)
        sure = question and "sure" in cues and not says("open wish", sentence)
        consenting = open_question and says("consent", sentence)
        of_you = question and not consenting and PATTERNS["of you"].match(sentence) is not None
        cued = inviting or sure or (question and "offering" in cues)
        stated = [fact for fact in values if question and has(sentence, values[fact])]
        cued |= open_question and ((acted and not of_you) or "weak" in cues or ("tag" in cues and not stated))
        asked, chosen = [], False
        if asking or inherited or (len(sentence) < 20 and len(sentence.split()) < 4):  # "name, code"
            counts = _counted(sign for sign in cues if (asking or inherited) and (sign[0] == "=" or " or " in sentence))
            asked = [fact for fact in facts if f"?{fact}" in cues]
            if (wh or not cued) and "details" not in cues and not {"name", "code", "number"} & {*asked}:
                asked += [fact for fact in facts if f"??{fact}" in cues and fact not in asked]
            if len(asked) > 1 and (aside := PATTERNS["purpose"].match(sentence)):  # "To find the right one, may I"
                later = signs(sentence[aside.end() :], phrases)
                asked = [fact for fact in asked if not {f"?{fact}", f"??{fact}"}.isdisjoint(later)] or asked
            asked = _one_of(asked, sentence, cues)
            if question:  # to choose from, or whether it is so
                sole = not (asked or cued or wh or "close" in cues) and all(count == 1 for count in counts.values())
                asked += [fact for fact, count in counts.items() if count > 1 or sole]
            if asking and "which" in cues and not asked:  # or "Any preference?"
                listed = _counted(sign for _, others in said for sign in others)
                choices = [fact for fact, count in listed.items() if count > 1]
                asked = choices or ["number"] * (wh and "which one" in sentence)
            if wh and "why" in sentence[:8]:
                asked = [fact for fact in asked if cues.get(f"?{fact}", (9, 9))[0] < 8] or asked
            if "details" in cues and not inviting and not {"name", "code"} & {*asked}:
                asked += ["name", "code"]
            if asking and not (asked or cued) and ((wh and question) or says("question word alone", sentence)):
                asked = _meant(sentence, act.asks if act else ())
            told = [fact for fact in values if counts[fact] < 2 and has(sentence, values[fact])]
            asked = [fact for fact in asked if fact not in told and (fact != "wish" or len(asked) == 1)]
            chosen = " or " in sentence and any(counts[fact] > 1 for fact in asked)
            offers = consenting and "offering" in cues and not wh and " or " not in sentence
            asked = [] if offers or (sure and says("alien", sentence)) else asked
            others = {*re.findall(r"\d+", sentence)}.difference(*(re.findall(r"\d+", values[fact]) for fact in stated))
            confirms += stated if not (asked or cued or wh or others) else []
        cued |= question and able and (consenting or (len(sentence.split()) < 5 and not of_you))
        idle = reports or asks or of_you or says("needless", sentence)
        cued |= bool(before) and not idle and says("reply", sentence)
        offered = not wh and not negated and ((sure and not chosen) or (cued and not asked and "close" not in cues))
        alien = offered and not acted and says("alien", sentence) and not says("going on", sentence)
        if offered and not alien and not says("quoted", sentence):
            offer = f"{offer} {sentence}" if acted else f"{offer} {before} {sentence}"
        elif "doubt" in cues or ("weak doubt" in cues and not (negated or acted)):
            of = {cues[f"?{fact}"]: fact for fact in ("name", "code", "number") if f"?{fact}" in cues}
            numbered = "number" in of or says("digits", sentence) or (not of and has(sentence, domain.item.noun))
            doubted = "number" if numbered else of[max(of)] if of else doubted
            doubts |= doubted == "number"
            asked += {doubted} - {"number"}
        elif negated and not (question or (inherited and asked)):
            refuses |= not says("not yet", sentence)
        elif not question and not asked and "later" not in cues:
            reports |= "report" in cues or (acted and "been" in cues and 0 <= first - cues["been"][1] < 25)
        asks += asked
        heading = asking or inherited
        able = able if question else not negated and ("able" in cues or "€" in sentence)
        before = sentence if acted and not negated else before
    return Heard(tuple(dict.fromkeys(asks)), offer.strip(), reports, refuses, doubts, tuple(dict.fromkeys(confirms)))


def _meant(sentence: str, asks: Sequence[Ask]) -> list[str]:
    """Return the fact that is asked for by the question word alone: "How many do you want?"."""
    kinds = [PATTERNS["question word"].search(text) for text in (sentence, *(ask.question.lower() for ask in asks))]
    kind = kinds[0].lastgroup if kinds[0] and not says("elsewhere", sentence) else None
    meant = [ask.name for ask, other in zip(asks, kinds[1:], strict=True) if other and other.lastgroup == kind]
    return meant if len(meant) == 1 else []


def _one_of(asked: list[str], sentence: str, cues: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the facts without those that one question only mentions: "the helpers" in "How do the helpers get in?"."""
    own = {fact: cues.get(f"?{fact}") or cues[f"??{fact}"] for fact in asked if fact not in TABLES["facts"]}

    def mentioned(fact: str) -> tuple[bool, int]:
        start, end = own[fact]
        return says("function word", sentence[start:end]) or says("definite", sentence[:start]), start

    several = len(own) < 2 or says("several", sentence)
    return asked if several else [fact for fact in asked if fact not in own or fact == min(own, key=mentioned)]


def _counted(signs: Iterable[str]) -> Counter[str]:
    """Return of how many values of each fact there are signs."""
    return Counter([fact[1:].partition("=")[0] for fact in dict.fromkeys(signs) if fact[0] in "=#"])


def contradicts(
    offer: str, domain: Domain, act: Act, item: str, wanted: Mapping[str, Value], labels: Mapping[str, str]
) -> bool:
    """Return whether an offer says another thing than what is wanted of an item, one of `labels`, and not also that."""
    offer, fee = plain(offer), " ".join(act.object.split()[1:-2]) if "waive" in act.verbs else ""  # "unlocking fee"
    numbers = set(PATTERNS["digits"].findall(offer))
    said_and_right: list[tuple[Collection[Value], Value]] = [
        ([] if fee and has(offer, fee) else signs(offer, acts_named(domain)), act.name),
        (numbers, item[-5:]),
        ([] if numbers else [number for number, label in labels.items() if has(offer, label)], item),
        *((_values_said(offer, ask), wanted[ask.name]) for ask in act.asks),
    ]
    others = {number[-5:] for number in labels} - {item[-5:]}
    return (
        any(said and right not in said for said, right in said_and_right)
        or not others.isdisjoint(numbers)
        or says("forward", offer)
        or (" or " in offer and any(len({*_values_said(offer, ask)}) > 1 for ask in act.asks))
    )


def _values_said(offer: str, ask: Ask) -> list[Value]:
    """Return the values in an offer of what follows verb and object; "not by 5 days" says none."""
    if not isinstance(ask.say, str):
        return []
    if not isinstance(ask.values[0], int):
        others = {*TABLES["people"]}.difference(map(str, ask.values)) if "my {}" in ask.say else ()
        words, aside = (*ask.values, *(f"your {person}" for person in others)), TABLES["not this"]
        return [value for value in words if has(re.sub(aside + re.escape(str(value)), "", offer), str(value))]
    unit = "".join(ask.say.partition("{}")[2].split()[:1]).removesuffix("s")
    said: list[Value] = []
    for found in PATTERNS["count"].finditer(PATTERNS["set aside"].sub("", offer)):
        count, word = int(found[1]) if found[1].isdigit() else 1, found[2].removesuffix("s")
        if word == unit:
            said.append(count)
        elif found.string.endswith("by ", 0, found.start()) and {word, unit} <= TABLES["days"].keys():
            said.append(count * TABLES["days"][word] // TABLES["days"][unit])
    return said
