"""What a text tells a customer to do to a device, and what it asks the customer to look at."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_envs.datasets.helpdesk.generated.domain import Device
from agent_envs.envs.helpdesk.phrases import PATTERNS, TABLES, WORD, has, indexed, says, sentences, signs

_CUES = indexed(TABLES["device"])


def told_and_asked(text: str, device: Device) -> tuple[list[str], list[str]]:
    """Return the acts that a text tells somebody to do, and what it asks somebody to look at, in order."""
    acts: dict[str, None] = {}
    reads: dict[str, None] = {}
    shown = {read.field: read.words for read in device.reads.values()}
    last, looking = "", False
    for sentence in sentences(text):
        cues = signs(sentence, _CUES)
        polite = "polite" in cues
        looking = "?" in sentence or ("look" in cues and "not told" not in cues) or (looking and says("item", sentence))
        for whole in PATTERNS["part"].split(sentence):
            part = re.sub(r"\b(?:it|them)\b", last or "it", PATTERNS["aside"].sub("", whole))
            words, own = WORD.findall(part), signs(part, _CUES)
            told = "polite" in own or not (says("statement", part) or "would" in own)
            told = told and (polite or "?" not in part) and "not told" not in own
            done: dict[str, None] = {}
            for name, act in device.acts.items():
                things, verbs = [act.object.split()[-1].lower()], {*act.verbs}
                if name not in device.final:  # what loses something is done at its own words only
                    things += [word for _, field, _ in act.effect for word in shown.get(field, ())]
                    verbs |= {verb for group in TABLES["same"] if not verbs.isdisjoint(group) for verb in group}
                if named := [thing for thing in things if has(part, thing)]:
                    last = named[0]
                    if told and any(_occurs(verb, words) for verb in verbs):
                        done[name] = None
            acts |= done
            for name, read in device.reads.items() if looking and not done else ():
                if any(has(whole, word) or has(whole, f"{word}s") for word in read.words):
                    reads[name] = None
    return list(acts), list(reads)


def _occurs(verb: str, words: Sequence[str]) -> bool:
    """Return whether the words of a verb occur, the first in any form."""
    head, *rest = verb.split()
    stem = head.removesuffix("e")
    return any(word.startswith(stem) for word in words) and all(w in words or f"{w}to" in words for w in rest)
