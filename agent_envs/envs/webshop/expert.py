"""A shopper that reads: it searches, opens products, checks what is said about them, chooses options and buys.

`expert="explore"` acts on the instruction and on what the pages have shown so far, read back from the transcript, so
that it goes on sensibly from any point of an episode; `expert="oracle"` knows which product the goal was made from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent_envs.datasets.webshop.products import Goal, Product
from agent_envs.envs.webshop.memory import Memory, Seen, remember
from agent_envs.envs.webshop.site import Page
from agent_envs.retrieval.analysis.analyzer import analyze

__all__ = ["choose_options", "explore_action", "oracle_action", "stray_action"]

_STEPS = 15
_PAGES = 5  # of results
# What counts against a product: a place further down, one like it that was not right, a price that may be too high.
_CLOSE = 0.35  # of the words that say something
_PLACE, _TWIN, _RISK = 2.0, 8.0, 9.0
_CEILING = re.compile(r",? and price lower than ([\d.]+) dollars")
_WORD = re.compile(r"[^\W_]+(?:[.'][^\W_]+)*|\"")

# How people ask, which says nothing about what they want.
_ASKING = frozenset(
    analyze(
        "am i'm i'd i've we're looking look need needs want wants wanted would like buy buying find finding please "
        "help helps me my you your can could show get got searching search shopping shop ordering purchase hello "
        "order hi hey there after do does have has having had some any one ones must important importance matters "
        "most should good nice great suitable suits featuring feature features comes come make makes sister "
        "brother mother father mom dad wife husband friend daughter son who which where what when how it's them "
        "they its also need prefer preferably love interested item product something thing things price lower than "
        "less under dollars us about really very more than just so i in ok okay thanks thank too"
    )
)
# Names of options: worth searching for, but no proof of anything where they are missing.
_NAMES = frozenset(
    analyze("color colored colour size sized sizes style version flavor flavored scent scented smells fit type option")
)

# What only an option's value can be: a product that does not offer it need not be read on.
_COLORS = frozenset(
    analyze(
        "black white grey gray red blue yellow orange purple pink brown beige navy teal burgundy turquoise maroon "
        "charcoal lavender fuchsia magenta khaki mustard"
    )
)
_CUES = {
    "style": frozenset(analyze("style version")),
    "scent": frozenset(analyze("scent scented smells")),
    "color": frozenset(analyze("color colored colour")),
    "flavor name": frozenset(analyze("flavor flavored flavour")),
    "fit type": frozenset(analyze("fit")),
}


def explore_action(page: Page, transcript: Sequence[str], instruction: str) -> str:
    """The next action of a shopper who knows no more than what was shown.

    Args:
        page: The open page.
        transcript: Observations and actions in turns, from the first observation to the one of this page.
        instruction: What is to be bought.
    """
    memory = remember(transcript)
    text = _CEILING.sub("", instruction).lower()
    found = _CEILING.findall(instruction)
    ceiling = float(found[-1].rstrip(".")) if found else float("inf")
    wish = _Wish(text, frozenset(analyze(text)) - _ASKING - _NAMES, ceiling)
    if memory.view == "start" or not memory.queries:
        return f"search[{_query(text)}]" if memory.view == "start" else "click[Back to Search]"
    if memory.view == "sub":
        return _from_sub_page(memory, wish)
    if memory.view == "results":
        return _from_results(memory, wish)
    return _from_item(page, memory, wish)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is to be bought."""

    text: str
    """The instruction without the price."""
    terms: frozenset[str]
    """Its words that say something, stemmed."""
    ceiling: float
    """What it may cost at most."""


def _fresh(memory: Memory, wish: _Wish) -> list[str]:
    """Products that were shown and not opened, the most promising first."""
    titles = Counter(seen.title for seen in memory.seen.values() if seen.opened)
    fresh = [a for a, seen in memory.here() if not seen.opened and seen.prices[0] <= wish.ceiling]

    def promise(asin: str) -> float:
        seen = memory.seen[asin]
        hits = len(wish.terms & set(analyze(seen.title)))
        return hits - _PLACE * seen.place - _TWIN * titles[seen.title] - _RISK * (seen.prices[1] > wish.ceiling)

    return sorted(fresh, key=promise, reverse=True)


def _from_results(memory: Memory, wish: _Wish) -> str:
    left = _STEPS - memory.steps
    fresh = [asin for asin in _fresh(memory, wish) if memory.seen[asin].page == memory.page]
    best = _best(memory, wish)
    if fresh and (not best or left >= (_cost(memory, wish, best) + 2 if _close(memory, wish, best) else 5)):
        return _click(fresh[0])
    if memory.page < _PAGES and memory.pages == memory.page and left > 8:
        return "click[Next >]"
    best = best or next(iter(_fresh(memory, wish)), "") or next((asin for asin, _ in memory.here()), "")
    if not best:
        return "click[Back to Search]"
    there = memory.seen[best].page
    return _click(best) if there == memory.page else "click[< Prev]" if there < memory.page else "click[Next >]"


def _lacks(seen: Seen, wish: _Wish) -> frozenset[str]:
    """What of the wish was not seen of a product, the values it offers included."""
    values = [value for value in seen.offers if _standing(wish.text, value)]
    return wish.terms - set(analyze(" ".join([seen.title, *seen.texts, *values])))


def _close(memory: Memory, wish: _Wish, asin: str) -> bool:
    """Whether a product lacks so little that the wish may only have been put in other words."""
    return len(_lacks(memory.seen[asin], wish)) <= _CLOSE * len(wish.terms)


def _cost(memory: Memory, wish: _Wish, asin: str) -> int:
    """Steps from the results to its purchase: open it, choose, buy."""
    return 2 + len(choose_options({value: [value] for value in memory.seen[asin].offers}, wish.text, loose=False))


def _from_sub_page(memory: Memory, wish: _Wish) -> str:
    seen = memory.seen.get(memory.asin)
    if seen is not None and seen.opened == 1 and "Features" in seen.views and seen.page == 1 and len(seen.texts) > 2:
        cost = _cost(memory, wish, memory.asin)
        least = cost + 3 if _close(memory, wish, memory.asin) else min(cost, 5) + 2
        if _lacks(seen, wish) and _STEPS - memory.steps >= least and _fresh(memory, wish):
            return f"search[{_query(wish.text)}]"  # back to the results in one step
    return "click[< Prev]"


def _from_item(page: Page, memory: Memory, wish: _Wish) -> str:
    options = _options(page)
    choice = choose_options(options, wish.text)
    chosen = _chosen(memory, options)
    buy = [_click(value) for name, value in choice.items() if chosen.get(name) != value] + ["click[Buy Now]"]
    seen = memory.seen.get(memory.asin)
    if seen is None or seen.opened > 1:
        return buy[0]
    # Values that are not chosen do not speak for the product.
    missing = wish.terms - set(analyze(" ".join([seen.title, *seen.texts, *choice.values()])))
    if not missing and seen.prices[0] <= wish.ceiling:
        return buy[0]
    left = _STEPS - memory.steps - len(buy)
    fresh = _fresh(memory, wish)
    shown = memory.seen.values()
    values = {term for other in shown for term in analyze(" ".join(other.offers))}
    values -= {term for other in shown for term in analyze(" ".join([other.title, *other.texts]))}
    if not missing & (values | _COLORS):
        if "Features" not in seen.views and left > 1:
            return "click[Features]"
        if "Description" not in seen.views and left > (9 if fresh and len(seen.texts) > 2 else 1):
            return "click[Description]"
    best = _best(memory, wish) or memory.asin  # after a search of its own, none of that search was opened
    back = 1 + _cost(memory, wish, best)  # steps to the purchase of the best one, from here
    if _close(memory, wish, best):
        go_on = len(buy) + left >= back + (2 if best == memory.asin else 0) and (bool(fresh) or best != memory.asin)
    else:
        go_on = (bool(fresh) and left > 1) or (memory.pages < 2 and left > 5)
    return "click[< Prev]" if go_on else buy[0]


def _click(text: str) -> str:
    return f"click[{text}]"


def _best(memory: Memory, wish: _Wish) -> str:
    """The opened product that fits best, "" where none was opened."""

    def fit(asin: str) -> tuple[bool, int, int]:
        seen = memory.seen[asin]
        offered = [value for value in seen.offers if _standing(wish.text, value)]
        told = set(analyze(" ".join([seen.title, *seen.texts, *offered])))
        return seen.prices[0] <= wish.ceiling, len(wish.terms & told), -seen.place

    return max((asin for asin, seen in memory.here() if seen.opened), key=fit, default="")


def _query(wish: str) -> str:
    """The words of a wish that say something."""
    words = [word for word in _WORD.findall(wish) if not set(analyze(word)) <= _ASKING]
    return " ".join(words) or wish.strip() or "anything"


def _options(page: Page) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for value, kind in page.clickables.items():
        if kind.startswith(".") and "[" not in value:
            options.setdefault(kind[1:], []).append(value)
    return options


def _chosen(memory: Memory, options: Mapping[str, Sequence[str]]) -> dict[str, str]:
    names = {value: name for name, values in options.items() for value in values}
    return {names[click]: click for click in memory.clicks if click in names}


def choose_options(options: Mapping[str, Sequence[str]], wish: str, *, loose: bool = True) -> dict[str, str]:
    """The values that a wish asks for; of two readings of the same words the longer one.

    >>> choose_options({"color": ["green", "olive green"], "size": ["6", "6.5"]}, "socks in olive green, size 6.5")
    {'color': 'olive green', 'size': '6.5'}
    """
    words = _WORD.findall(wish)
    taken = [False] * len(words)
    readings = []
    for name, values in options.items():
        cues = _CUES.get(name, frozenset(analyze(name)))
        for value in values:
            parts = _WORD.findall(value)
            for at in range(len(words) - len(parts) + 1) if parts else ():
                end = at + len(parts)
                if words[at:end] == parts:
                    near = cues & set(analyze(" ".join([*words[max(at - 3, 0) : at], *words[end : end + 2]])))
                    cue = 2 if near or f"{name}: {value}" in wish else words[at - 1 : at] in (["in"], ["the"])
                    readings.append((cue, len(parts), _standing(wish, value), len(value), -at, name, value))
    chosen: dict[str, str] = {}
    for _, length, _, _, at, name, value in sorted(readings, reverse=True):
        if name not in chosen and not any(taken[-at : -at + length]):
            chosen[name] = value
            taken[-at : -at + length] = [True] * length
    for name, values in options.items() if loose else ():
        if name not in chosen:
            apart = [v for v in values if (some := set(_WORD.findall(v))) and some <= set(words) - {"and", "of"}]
            if apart:
                chosen[name] = max(apart, key=len)
    return {name: chosen[name] for name in options if name in chosen}


def _standing(wish: str, value: str) -> bool:
    """Whether the value stands in the wish as it is, not as a part of "x-large" or "6.5"."""
    return re.search(rf"(?<![\w.\-]){re.escape(value)}(?![\w\-]|\.\d)", wish) is not None


def oracle_action(page: Page, transcript: Sequence[str], goal: Goal, product: Product) -> str:
    """The next action of a shopper who knows which product the goal was made from.

    Args:
        page: The open page.
        transcript: Observations and actions in turns.
        goal: What is to be bought.
        product: The goal's product.
    """
    memory = remember(transcript)
    queries = [
        product.title,
        f"{product.title} {product.description} {' '.join(product.bullets[:1])} {' '.join(goal.attributes)}",
    ]
    if memory.view == "start" or not memory.queries:
        return f"search[{queries[0]}]" if memory.view == "start" else "click[Back to Search]"
    if memory.view == "results":
        if product.asin.lower() in page.clickables:
            return f"click[{product.asin}]"
        if memory.page < _PAGES and "next >" in page.clickables:
            return "click[Next >]"
        return f"search[{queries[len(memory.queries) % 2]}]"
    if memory.view == "sub" or memory.asin.lower() != product.asin.lower():
        return "click[< Prev]"
    options = _options(page)
    if isinstance(goal.options, Mapping):
        wanted = dict(goal.options)
    else:
        wanted = {}
        for value in goal.options:
            name = next((n for n, values in options.items() if value in values and n not in wanted), None)
            if name is not None:
                wanted[name] = value
    chosen = _chosen(memory, options)
    for name, value in wanted.items():
        if chosen.get(name) != value and value in options.get(name, ()):
            return _click(value)
    return "click[Buy Now]"


def stray_action(page: Page, right: str, rng: np.random.Generator) -> str:
    """A well-formed action that errs: another product, another value, a page that was not needed, a purchase too soon.

    Args:
        page: The open page.
        right: What the expert would do.
        rng: Source of the error.
    """
    if page.search_bar:
        words = right.removeprefix("search[").removesuffix("]").split()
        kept = [word for word in words if rng.random() < 0.5] or words[:1]
        return f"search[{' '.join(kept)}]"
    others = [text for text in page.clickables if f"click[{text}]".lower() != right.lower() and "[" not in text]
    return f"click[{others[int(rng.integers(len(others)))]}]" if others else right
