"""What a text tells a customer to do with a device, and what it asks to look at.

"Please press the cover on and tell me what the display shows."        told to press on, asked for the display
"""

from __future__ import annotations

import re

from agent_envs.datasets.helpdesk.generated.domain import Device
from agent_envs.envs.helpdesk.phrases import PATTERNS, TABLES, has, indexed, says, sentences, signs

_CUES = indexed(TABLES["device"])


def told_and_asked(text: str, device: Device) -> tuple[list[str], list[str]]:
    """Return the acts that a text tells somebody to do, and what it asks somebody to look at, in order."""
    acts: dict[str, None] = {}
    reads: dict[str, None] = {}
    shown = {read.field: read.words for read in device.reads.values()}
    last, looking = "", False
    for sentence in sentences(text):
        cues = signs(sentence, _CUES)
        looking = "?" in sentence or ("look" in cues and "not told" not in cues) or (looking and says("item", sentence))
        for whole in PATTERNS["part"].split(sentence):
            part = re.sub(r"\b(?:it|them)\b", last or "it", PATTERNS["aside"].sub("", whole))
            own, button = signs(part, _CUES), "".join(PATTERNS["button"].findall(part)[:1])
            told = ("polite" in own or not (says("statement", part) or "would" in own)) and not says("looking", part)
            told = told and ("polite" in cues or "?" not in part) and "not told" not in own
            done: dict[str, tuple[int, int]] = {}  # where the verb is, and how far behind it the thing
            mentioned: dict[int, str] = {}
            for name, act in device.acts.items():
                noun, verbs = act.object.lower().removeprefix("the "), {*act.verbs}
                which, _, kind = noun.rpartition(" ")
                things = [noun if kind == "mode" else kind]  # there are other modes
                things += [f"to {which}"] * (kind in ("mode", "setting", "input"))
                if name not in device.final:  # what loses something is done at its own words only
                    things += [word for _, field, _ in act.effect for word in shown.get(field, ())]
                    verbs |= {verb for group in TABLES["same"] if not verbs.isdisjoint(group) for verb in group}
                if button and told and {button, f"un{button}"} & {*act.verbs}:
                    done[name] = (-1, 0)
                if named := [thing for thing in things if has(part, thing) or has(part, f"{thing}s")]:
                    mentioned[part.find(named[0])] = named[0]
                    places = [place for thing in named for verb in verbs for place in _places(verb, thing, part)]
                    if told and places:
                        done[name] = min(places, key=lambda place: place[1])
            nearest = {verb: min(far for other, far in done.values() if other == verb) for verb, _ in done.values()}
            last = mentioned[min(mentioned)] if mentioned else last
            acts |= dict.fromkeys(name for name, (verb, far) in done.items() if far == nearest[verb])
            for name, read in device.reads.items() if looking and not done else ():
                if any(has(said, word) or has(said, f"{word}s") for word in read.words for said in (whole, part)):
                    reads[name] = None
    return list(acts), list(reads)


def _places(verb: str, thing: str, part: str) -> list[tuple[int, int]]:
    """Return where the words of a verb occur, the first in any form, and how far behind that a thing is named."""
    (head, *rest), words = verb.split(), re.findall(r"\w+", part)
    starts = [found.start() for found in re.finditer(rf"\b{head.removesuffix('e')}", part)]
    whole = all(word in words or f"{word}to" in words for word in rest)
    return [(start, (part.find(thing) - start) % len(part)) for start in starts if whole]
