"""What a shopper remembers: the pages of an episode, read back from its transcript in either mode."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Memory", "Seen", "remember"]

_RESULTS = re.compile(r"Page (\d+) \(Total results: \d+\)")
_AMOUNT = re.compile(r"\$([\d.]+)")
_SUB_PAGES = ("description", "features", "reviews", "attributes")
_MARKUP = re.compile(r"\[(?:clicked )?button\] | \[(?:clicked )?button_\]")


@dataclass(slots=True)
class Seen:
    """What the pages have shown of a product."""

    title: str
    prices: tuple[float, float]
    """The lowest and the highest one shown."""
    page: int
    """The page of results it stood on."""
    place: int
    """How many products were shown before it."""
    search: int
    """The number of the search that found it last."""
    texts: list[str] = field(default_factory=list)
    """Its sub-pages."""
    offers: list[str] = field(default_factory=list)
    """Names and values of its options."""
    opened: int = 0
    """How often it was opened."""
    views: set[str] = field(default_factory=set)
    """Which of them were opened."""


@dataclass(slots=True)
class Memory:
    """What a transcript tells."""

    seen: dict[str, Seen] = field(default_factory=dict)
    """Products shown, by id."""
    queries: list[str] = field(default_factory=list)
    """What was searched for."""
    view: str = "start"
    """The open page: "start", "results", "item", "sub" or "done"."""
    page: int = 0
    """The page of results that was open last."""
    pages: int = 0
    """The furthest page of results."""
    asin: str = ""
    """The product that is open."""
    clicks: list[str] = field(default_factory=list)
    """What was clicked since it was opened."""
    steps: int = 0
    """Actions so far."""

    def here(self) -> list[tuple[str, Seen]]:
        """What the last search found, as far as it was shown."""
        return [(asin, seen) for asin, seen in self.seen.items() if seen.search == len(self.queries)]


def remember(transcript: Sequence[str]) -> Memory:
    """What observations and actions in turns have shown.

    >>> memory = remember(["WebShop [SEP] Search", "search[lamp]",
    ...     "Back to Search [SEP] Page 1 (Total results: 1) [SEP] Next > [SEP] B1 [SEP] A lamp [SEP] $5.0 to $9.0"])
    >>> memory.view, memory.queries, memory.seen["B1"].title, memory.seen["B1"].prices
    ('results', ['lamp'], 'A lamp', (5.0, 9.0))
    """
    memory = Memory(steps=len(transcript) // 2)
    action = ""
    for position, text in enumerate(transcript):
        if position % 2:
            action = text
        else:
            _read(memory, action, _tokens(text))
    return memory


def _tokens(observation: str) -> list[str]:
    """The texts of a page, in either mode."""
    if " [SEP] " in observation:
        return [text.strip() for text in observation.split(" [SEP] ")]
    return [_MARKUP.sub("", line).strip() for line in observation.split("\n") if line.strip()]


def _read(memory: Memory, action: str, tokens: list[str]) -> None:
    clicked = action[6:-1].lower() if action.startswith("click[") else ""
    results = next((match for token in tokens[:6] if (match := _RESULTS.fullmatch(token))), None)
    if results:
        if action.startswith("search["):
            memory.pages = 0
            memory.queries.append(action[7:-1])
        memory.view, memory.page = "results", int(results[1])
        memory.pages = max(memory.pages, memory.page)
        memory.asin, memory.clicks = "", []
        _read_results(memory, tokens[tokens.index(results[0]) + 1 :])
    elif tokens and tokens[0].startswith("Thank you"):
        memory.view = "done"
    elif tokens and tokens[0] == "WebShop":
        memory.view, memory.asin, memory.clicks = "start", "", []
    elif memory.view == "results":
        memory.asin = next((asin for asin in memory.seen if asin.lower() == clicked), clicked)
        memory.view, memory.clicks = "item", []
        _note_item(memory, tokens)
    elif clicked in _SUB_PAGES and memory.view == "item":
        memory.view = "sub"
        _note(memory, clicked.title(), tokens[4:])
    elif memory.view == "item":
        memory.clicks.append(clicked)
    elif clicked == "< prev":
        memory.view = "item"


def _note(memory: Memory, view: str, texts: list[str]) -> None:
    seen = memory.seen.get(memory.asin)
    if seen is not None and view not in seen.views:
        seen.views.add(view)
        seen.texts += texts


def _note_item(memory: Memory, tokens: list[str]) -> None:
    seen = memory.seen.get(memory.asin)
    if seen is not None:
        seen.opened += 1
        begin = tokens.index("< Prev") + 1 if "< Prev" in tokens else 0
        seen.offers = tokens[begin : tokens.index(seen.title, begin) if seen.title in tokens[begin:] else begin]


def _read_results(memory: Memory, tokens: list[str]) -> None:
    """Products of a page of results: id, title, price."""
    begun: list[str] = []
    for token in tokens:
        if not begun and token in ("Next >", "< Prev"):
            continue
        begun.append(token)
        if len(begun) > 1 and token.startswith("$") and _AMOUNT.match(token):
            amounts = [float(amount) for amount in _AMOUNT.findall(token)]
            asin, title, prices = begun[0], " ".join(begun[1:-1]), (min(amounts), max(amounts))
            seen = memory.seen.setdefault(asin, Seen(title, prices, 0, 0, 0))
            if seen.search != len(memory.queries):
                place = sum(other.search == len(memory.queries) for other in memory.seen.values())
                seen.page, seen.place, seen.search = memory.page, place, len(memory.queries)
            begun = []
