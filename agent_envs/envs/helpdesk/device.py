"""What a customer is told to do to a device, and what it is asked to look at."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from agent_envs.datasets.helpdesk.generated.domain import Act, Device
from agent_envs.envs.helpdesk.hearing import LONGEST, sentences

_POLITE = re.compile(r"\b(?:could|can|would|will) you\b|\bplease\b|\bi (?:need|want|would like|'d like) you to\b")
_TOLD = re.compile(r"\b(?:do not|don't|never|must not|may not|cannot|can't|not allowed|forbids|has been|have been)\b")
_OWN = re.compile(r"^(?:i|we|it|that|you|the|your|is|are|was|does|do|did|has|have|so)\b")
_LOOK = re.compile(r"\b(?:look|check|see|read|tell|say|says|show|shows|describe|what|which|how|where|is|are|does|do)\b")
_YES = re.compile(r"^\W*(?:yes|yeah|sure|go ahead|please do|i am sure|do it|correct|right)\b")


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
