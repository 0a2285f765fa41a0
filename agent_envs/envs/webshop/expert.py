"""WebShop's expert, which searches, reads pages, chooses options and buys, from any point of an episode."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent_envs.envs.webshop.notes import Seen, ShopperNotes, read_transcript
from agent_envs.envs.webshop.site import Page
from agent_envs.envs.webshop.words import words as listed
from agent_envs.retrieval.analysis.analyzer import analyze

_STEPS = 15
_PAGES = 5  # of results
# What counts against a product: its rank, the same title on a product that was not right, a price that may be too high.
_CLOSE = 0.35  # of the instruction's content words
_PLACE, _TWIN, _RISK = 2.0, 8.0, 9.0
_CEILING = re.compile(r",? and price lower than ([\d.]+) dollars")
_WORD = re.compile(r"[^\W_]+(?:[.'][^\W_]+)*|\"")


def _stems(*texts: str) -> frozenset[str]:
    return frozenset(analyze(" ".join(texts)))


# Words of asking, which say nothing about the product.
_ASKING = _stems(*listed("asking"))
# Names of options: useful in a query, but a product without them may still be right.
_NAMES = _stems(*listed("option_names"))

# Words that only option values contain: a product that does not offer them need not be read any further.
_COLORS = _stems(*listed("plain_colors"))
_CUES = {
    "style": _stems("style version"),
    "scent": _stems("scent scented smells"),
    "color": _stems("color colored colour"),
    "flavor name": _stems("flavor flavored flavour"),
    "fit type": _stems("fit"),
}


def explore_action(page: Page, transcript: Sequence[str], instruction: str) -> str:
    """Return the next action of a shopper who knows only the instruction and the observations and actions so far."""
    notes = read_transcript(transcript)
    text = _CEILING.sub("", instruction).lower()
    ceilings = _CEILING.findall(instruction)
    ceiling = float(ceilings[-1].rstrip(".")) if ceilings else float("inf")
    wish = _Wish(text, _stems(text) - _ASKING - _NAMES, ceiling)
    if notes.view == "start" or not notes.queries:
        return f"search[{_query(text)}]" if notes.view == "start" else "click[Back to Search]"
    if notes.view == "sub":
        return _from_sub_page(notes, wish)
    if notes.view == "results":
        return _from_results(notes, wish)
    return _from_item(page, notes, wish)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the shopper wants."""

    text: str  # the instruction without the price
    terms: frozenset[str]  # its content words, stemmed
    ceiling: float  # the price limit


def _fresh(notes: ShopperNotes, wish: _Wish) -> list[str]:
    """Return the products that were shown but not opened, the most promising first."""
    titles = Counter(seen.title for seen in notes.seen.values() if seen.opened)
    fresh = [a for a, seen in notes.here() if not seen.opened and seen.prices[0] <= wish.ceiling]

    def promise(asin: str) -> float:
        seen = notes.seen[asin]
        hits = len(wish.terms & _stems(seen.title))
        return hits - _PLACE * seen.place - _TWIN * titles[seen.title] - _RISK * (seen.prices[1] > wish.ceiling)

    return sorted(fresh, key=promise, reverse=True)


def _from_results(notes: ShopperNotes, wish: _Wish) -> str:
    left = _STEPS - notes.steps
    fresh = [asin for asin in _fresh(notes, wish) if notes.seen[asin].page == notes.page]
    best = _best(notes, wish)
    if fresh and (not best or left >= (_cost(notes, wish, best) + 2 if _close(notes, wish, best) else 5)):
        return _click(fresh[0])
    if notes.page < _PAGES and notes.pages == notes.page and left > 8:
        return "click[Next >]"
    best = best or next(iter(_fresh(notes, wish)), "") or next((asin for asin, _ in notes.here()), "")
    if not best:
        return "click[Back to Search]"
    there = notes.seen[best].page
    return _click(best) if there == notes.page else "click[< Prev]" if there < notes.page else "click[Next >]"


def _lacks(seen: Seen, wish: _Wish) -> frozenset[str]:
    """Return the terms of the wish that neither a product's pages nor its option values contain."""
    values = [value for value in seen.offers if _standing(wish.text, value)]
    return wish.terms - _stems(seen.title, *seen.texts, *values)


def _close(notes: ShopperNotes, wish: _Wish, asin: str) -> bool:
    """Return whether a product lacks so few terms that the wish may just use other words."""
    return len(_lacks(notes.seen[asin], wish)) <= _CLOSE * len(wish.terms)


def _cost(notes: ShopperNotes, wish: _Wish, asin: str) -> int:
    """Return the number of steps from the results to its purchase: open it, choose options, buy."""
    return 2 + len(choose_options({value: [value] for value in notes.seen[asin].offers}, wish.text, loose=False))


def _from_sub_page(notes: ShopperNotes, wish: _Wish) -> str:
    seen = notes.seen.get(notes.asin)
    if seen is not None and seen.opened == 1 and "Features" in seen.views and seen.page == 1 and len(seen.texts) > 2:
        cost = _cost(notes, wish, notes.asin)
        least = cost + 3 if _close(notes, wish, notes.asin) else min(cost, 5) + 2
        if _lacks(seen, wish) and _STEPS - notes.steps >= least and _fresh(notes, wish):
            return f"search[{_query(wish.text)}]"  # back to the results in one step
    return "click[< Prev]"


def _from_item(page: Page, notes: ShopperNotes, wish: _Wish) -> str:
    kinds = {value: kind[1:] for value, kind in page.clickables.items() if kind[:1] == "." and "[" not in value}
    options: dict[str, list[str]] = {}
    for value, kind in kinds.items():
        options.setdefault(kind, []).append(value)
    chosen = {kinds[click]: click for click in notes.clicks if click in kinds}
    choice = choose_options(options, wish.text)
    buy = [_click(value) for name, value in choice.items() if chosen.get(name) != value] + ["click[Buy Now]"]
    seen = notes.seen.get(notes.asin)
    if seen is None or seen.opened > 1:
        return buy[0]
    # Option values that are not chosen do not count.
    missing = wish.terms - _stems(seen.title, *seen.texts, *choice.values())
    if not missing and seen.prices[0] <= wish.ceiling:
        return buy[0]
    left = _STEPS - notes.steps - len(buy)
    fresh = _fresh(notes, wish)
    shown = notes.seen.values()
    values = _stems(*(offer for other in shown for offer in other.offers))
    values -= _stems(*(text for other in shown for text in (other.title, *other.texts)))
    if not missing & (values | _COLORS):
        if "Features" not in seen.views and left > 1:
            return "click[Features]"
        if "Description" not in seen.views and left > (9 if fresh and len(seen.texts) > 2 else 1):
            return "click[Description]"
    best = _best(notes, wish) or notes.asin  # a later search may have found it, and opened none of its products
    back = 1 + _cost(notes, wish, best)  # steps from here to the purchase of the best product
    if _close(notes, wish, best):
        go_on = len(buy) + left >= back + (2 if best == notes.asin else 0) and (bool(fresh) or best != notes.asin)
    else:
        go_on = (bool(fresh) and left > 1) or (notes.pages < 2 and left > 5)
    return "click[< Prev]" if go_on else buy[0]


def _click(text: str) -> str:
    return f"click[{text}]"


def _best(notes: ShopperNotes, wish: _Wish) -> str:
    """Return the opened product that fits best, or "" if none was opened."""

    def fit(asin: str) -> tuple[bool, int, int]:
        seen = notes.seen[asin]
        return seen.prices[0] <= wish.ceiling, -len(_lacks(seen, wish)), -seen.place

    return max((asin for asin, seen in notes.here() if seen.opened), key=fit, default="")


def _query(wish: str) -> str:
    """Return the content words of a wish."""
    words = [word for word in _WORD.findall(wish) if not _stems(word) <= _ASKING]
    return " ".join(words) or wish.strip() or "anything"


def choose_options(options: Mapping[str, Sequence[str]], wish: str, *, loose: bool = True) -> dict[str, str]:
    """Return the option values that a wish asks for; longer readings of the same words win.

    >>> choose_options({"color": ["green", "olive green"], "size": ["6", "6.5"]}, "socks in olive green, size 6.5")
    {'color': 'olive green', 'size': '6.5'}
    """
    words = _WORD.findall(wish)
    taken = [False] * len(words)
    readings = []
    for name, values in options.items():
        cues = _CUES.get(name) or _stems(name)
        for value in values:
            parts = _WORD.findall(value)
            for at in range(len(words) - len(parts) + 1) if parts else ():
                end = at + len(parts)
                if words[at:end] == parts:
                    near = cues & _stems(*words[max(at - 3, 0) : at], *words[end : end + 2])
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
    """Return whether the wish contains the value by itself, not as a part of, say, "x-large" or "6.5"."""
    return re.search(rf"(?<![\w.\-]){re.escape(value)}(?![\w\-]|\.\d)", wish) is not None


def stray_action(page: Page, right: str, rng: np.random.Generator) -> str:
    """Return a well-formed mistake: another product or value, a needless page, or a purchase too soon."""
    if page.search_bar and right.startswith("search["):
        words = right.removeprefix("search[").removesuffix("]").split()
        return f"search[{' '.join([word for word in words if rng.random() < 0.5] or words[:1])}]"
    others = [text for text in page.clickables if f"click[{text}]".lower() != right.lower() and "[" not in text]
    return f"click[{others[int(rng.integers(len(others)))]}]" if others else right
