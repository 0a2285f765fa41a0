"""What a text tells a customer to do with a device, and what it asks to look at."""

from __future__ import annotations

import re

from agent_envs.datasets.helpdesk.generated.domain import Device
from agent_envs.envs.helpdesk.phrases import PATTERNS, TABLES, has, indexed, says, sentences, signs

_CUES = indexed(TABLES["device"])


def told_and_asked(text: str, device: Device) -> tuple[list[str], list[str]]:
    """Return the acts that a text tells somebody to do, and what it asks somebody to look at, in order."""
    acts, reads = list[str](), list[str]()
    words_of = {read.field: read.words for read in device.reads.values()}
    spoken: dict[str, tuple[str, list[str], set[str]]] = {}  # of several modes the whole name counts
    for name, act in device.acts.items():
        noun, verbs = act.object.lower().removeprefix("the "), {*act.verbs}
        which, _, kind = noun.rpartition(" ")
        things = [noun if kind == "mode" else kind]
        if not act.final:  # what loses something is done at its own words only
            things += [word for _, field, _ in act.effect for word in words_of.get(field, ())]
            verbs |= {verb for group in TABLES["same"] if not verbs.isdisjoint(group) for verb in group}
        spoken[name] = which, things, verbs
    last, looking, seen = "", False, list[str]()
    for sentence in sentences(text):
        cues = signs(sentence, _CUES)
        looking = "?" in sentence or says("wh", sentence) or (looking and says("item", sentence))
        looking |= "look" in cues and "not told" not in cues
        for whole in PATTERNS["part"].split(sentence):
            part = PATTERNS["pronoun"].sub(last or "it", PATTERNS["aside"].sub("", whole))
            own = signs(part, _CUES)
            button, aim = ("".join(PATTERNS[name].findall(part)[:1]) for name in ("button", "aim"))
            told = ("polite" in own or not (says("statement", part) or "would" in own)) and not says("looking", part)
            told = told and ("polite" in cues or "?" not in part) and "not told" not in own
            done: dict[str, tuple[int, int]] = {}  # where the verb is, and how far behind it the thing
            mentioned: dict[int, str] = {}
            for name, (which, things, verbs) in spoken.items():
                if button and told and {button, f"un{button}"} & {*device.acts[name].verbs}:
                    done[name] = (-1, 0)
                to = [f"to {aim}"] * (aim == which != "")
                if named := [thing for thing in (*things, *to) if _named(part, thing)]:
                    mentioned[part.find(named[0])] = named[0]
                    places = [place for thing in named for verb in verbs for place in _places(verb, thing, part)]
                    if told and places:
                        done[name] = min(places, key=lambda place: place[1])
            nearest = {verb: min(far for other, far in done.values() if other == verb) for verb, _ in done.values()}
            last = mentioned[min(mentioned)] if mentioned else last
            acts += [name for name, (verb, far) in done.items() if far == nearest[verb]]
            words = ((name, word) for name, read in device.reads.items() for word in read.words)
            shown = {name: word for name, word in words if _named(whole, word)}
            parts = [word for word in shown.values() if any(f"{other} {word}" in whole for other in shown.values())]
            looked = [name for name, word in shown.items() if word not in parts]  # no light of "the wireless light"
            seen = looked or seen
            if looking and not done and (looked or ("?" in sentence and says("referring", whole))):
                reads += seen
    return list(dict.fromkeys(acts)), list(dict.fromkeys(reads))


def _named(part: str, thing: str) -> bool:
    """Return whether a thing, one or several, stands in a part of a sentence."""
    return thing in part and (has(part, thing) or has(part, f"{thing}s"))


def _places(verb: str, thing: str, part: str) -> list[tuple[int, int]]:
    """Return where the words of a verb occur, the first in any form, and how far behind that a thing is named."""
    head, *rest = verb.split()
    places = [[found.start() for found in re.finditer(rf"\b{word}(?:to)?\b", part)] for word in rest]
    last = min((max(starts, default=-1) for starts in places), default=len(part))
    stem = head.removesuffix("e")
    heads = [found.start() for found in re.finditer(rf"\b{stem}{stem[-1]}?(?:e|s|es|ed|ing)?\b", part)]
    return [(start, (part.find(thing) - start) % len(part)) for start in heads if start < last]
