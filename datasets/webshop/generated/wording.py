"""How shoppers of the generated shop say what they want: many wordings of the same wish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_envs.datasets.generated_tasks import Draws
from agent_envs.files import table

_WORDING = table(__package__, "wording.json")


def synthetic_instruction(query: str, attributes: Sequence[str]) -> str:
    """Return an instruction in the fixed form of the released files' synthetic ones."""
    before, with_, for_ = map(", ".join, _by_phrasing(attributes))
    parts = ["Find me", before, query, with_ and f"with {with_}", for_ and f"for {for_}"]
    return " ".join(filter(None, parts))


def instruction(noun: str, attributes: Sequence[str], options: Mapping[str, str], draws: Draws) -> str:
    """Return a wish in a shopper's words."""
    before, with_, for_ = _by_phrasing(attributes)
    phrases = [
        draws.pick(_WORDING["options"].get(name, _WORDING["other_options"])).format(value, a=with_article(value))
        for name, value in options.items()
    ]
    if len(phrases) > 1 and draws.between(0, 1):
        phrases.reverse()
    form = draws.between(0, 5)
    opener = draws.pick(_WORDING["openers"])
    if form <= 2:  # gluten free crackers with sea salt for cheese boards in size 8 count
        adjectives = _joined(before, draws)
        thing = _some(f"{adjectives} {noun}" if adjectives else noun, draws)
        if with_:
            thing += draws.pick((" with ", " that have " if is_plural(noun) else " that has ", " featuring "))
            thing += _joined(with_, draws)
        if for_:
            thing += draws.pick((" for ", " suitable for ", " good for ")) + _joined(for_, draws)
        joint = draws.pick((" ", ", "))
        return opener.format(joint.join([thing, *phrases]) if phrases else thing)
    if form == 3:  # crackers. they should be gluten free and should have sea salt
        start = opener.format(_some(noun, draws))
        asked = ("should be", before), ("should have", with_), ("should be good for", for_)
        wishes = [f"{verb} {_joined(some, draws)}" for verb, some in asked if some]
        rest = ", ".join(phrases)
        sentence = f"{'they' if is_plural(noun) else 'it'} {' and '.join(wishes)}"
        return f"{start}. {sentence}" + (f", {rest}" if rest else "")
    if form == 4:  # crackers in size 8 count that are gluten free
        thing = " ".join([_some(noun, draws), *phrases])
        asked = (f"that {'are' if is_plural(noun) else 'is'}", before), ("with", with_), ("for", for_)
        ends = [f"{word} {_joined(some, draws)}" for word, some in asked if some]
        return opener.format(" ".join([thing, *ends]))
    # something gluten free: crackers, in size 8 count
    lead = _joined([*before, *with_, *for_], draws)
    tail = draws.pick(("must have", "is a must", "is important to me", "matters most"))
    start = opener.format(" ".join([_some(noun, draws), *phrases]))
    return f"{start}, {tail} {lead}" if tail == "must have" else f"{start}, {lead} {tail}"


def _by_phrasing(attributes: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    before = [a for a in attributes if a[0] not in "+>"]
    return before, [a[1:] for a in attributes if a[0] == "+"], [a[1:] for a in attributes if a[0] == ">"]


def _joined(words: Sequence[str], draws: Draws) -> str:
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + draws.pick((" and ", ", ", ", and ")) + words[-1]


def is_plural(noun: str) -> bool:
    """Return whether a noun of the shop is plural: "mens socks", not "wine glass"."""
    return noun.endswith("s") and not noun.endswith("ss")


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article, if it is singular.

    >>> with_article("oat milk"), with_article("mens socks")
    ('an oat milk', 'mens socks')
    """
    if is_plural(noun):
        return noun
    vowel = noun.startswith(("a", "e", "i", "o", "ul", "un")) and not noun.startswith(("eu", "one ", "uni"))
    return f"{'an' if vowel else 'a'} {noun}"


def _some(thing: str, draws: Draws) -> str:
    return draws.pick((thing, f"some {thing}")) if is_plural(thing) else with_article(thing)
