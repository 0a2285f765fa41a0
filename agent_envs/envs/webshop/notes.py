"""What a shopper knows of an episode: its pages, read back from the transcript in either mode."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_RESULTS = re.compile(r"Page (\d+) \(Total results: \d+\)")
_AMOUNT = re.compile(r"\$([\d.]+)")
_SUB_PAGES = ("description", "features", "reviews", "attributes")
_MARKUP = re.compile(r"\[(?:clicked )?button\] | \[(?:clicked )?button_\]")


@dataclass(slots=True)
class Seen:
    """What the pages have shown about a product."""

    title: str
    prices: tuple[float, float]
    """The lowest and the highest price shown."""
    page: int
    """The page of results that listed it."""
    place: int
    """The number of products listed before it."""
    search: int
    """The number of the last search that found it."""
    texts: list[str] = field(default_factory=list)
    """The texts of its sub-pages."""
    offers: list[str] = field(default_factory=list)
    """The names and values of its options."""
    opened: int = 0
    """How often it was opened."""
    views: set[str] = field(default_factory=set)
    """The sub-pages that were opened."""


@dataclass(slots=True)
class ShopperNotes:
    """What a transcript has shown."""

    seen: dict[str, Seen] = field(default_factory=dict)
    """The products shown, by id."""
    queries: list[str] = field(default_factory=list)
    """The search queries."""
    view: str = "start"
    """The open page: "start", "results", "item", "sub" or "done"."""
    page: int = 0
    """The last open page of results."""
    pages: int = 0
    """The furthest page of results so far."""
    asin: str = ""
    """The id of the open product."""
    clicks: list[str] = field(default_factory=list)
    """The clicks since it was opened."""
    steps: int = 0
    """The number of actions so far."""

    def here(self) -> list[tuple[str, Seen]]:
        """Return the products of the last search that were shown."""
        return [(asin, seen) for asin, seen in self.seen.items() if seen.search == len(self.queries)]


def read_transcript(transcript: Sequence[str]) -> ShopperNotes:
    """Return what a transcript, observations and actions in turn, has shown.

    >>> notes = read_transcript(["WebShop [SEP] Search", "search[lamp]",
    ...     "Back to Search [SEP] Page 1 (Total results: 1) [SEP] Next > [SEP] B1 [SEP] A lamp [SEP] $5.0 to $9.0"])
    >>> notes.view, notes.queries, notes.seen["B1"].title, notes.seen["B1"].prices
    ('results', ['lamp'], 'A lamp', (5.0, 9.0))
    """
    notes = ShopperNotes(steps=len(transcript) // 2)
    for observation, action in zip(transcript[::2], ["", *transcript[1::2]], strict=False):
        apart = observation.split(" [SEP] ") if " [SEP] " in observation else None  # else a text a line, with marks
        lines = apart or [_MARKUP.sub("", line) for line in observation.split("\n") if line.strip()]
        _read(notes, action, [line.strip() for line in lines])
    return notes


def _read(notes: ShopperNotes, action: str, tokens: list[str]) -> None:
    clicked = action[6:-1].lower() if action.startswith("click[") else ""
    if results := next((match for token in tokens[:6] if (match := _RESULTS.fullmatch(token))), None):
        if action.startswith("search["):
            notes.pages = 0
            notes.queries.append(action[7:-1])
        notes.view, notes.page = "results", int(results[1])
        notes.pages = max(notes.pages, notes.page)
        notes.asin, notes.clicks = "", []
        _read_results(notes, tokens[tokens.index(results[0]) + 1 :])
    elif tokens and tokens[0].startswith("Thank you"):
        notes.view = "done"
    elif tokens and tokens[0] == "WebShop":
        notes.view, notes.asin, notes.clicks = "start", "", []
    elif notes.view == "results":
        notes.asin = next((asin for asin in notes.seen if asin.lower() == clicked), clicked)
        notes.view, notes.clicks = "item", []
        if (seen := notes.seen.get(notes.asin)) is not None:
            seen.opened += 1
            begin = tokens.index("< Prev") + 1 if "< Prev" in tokens else 0
            seen.offers = tokens[begin : tokens.index(seen.title, begin) if seen.title in tokens[begin:] else begin]
    elif clicked in _SUB_PAGES and notes.view == "item":
        notes.view, view = "sub", clicked.title()
        seen = notes.seen.get(notes.asin)
        if seen is not None and view not in seen.views:
            seen.views.add(view)
            seen.texts += tokens[4:]
    elif notes.view == "item":
        notes.clicks.append(clicked)
    elif clicked == "< prev":
        notes.view = "item"


def _read_results(notes: ShopperNotes, tokens: list[str]) -> None:
    """Read the products of a page of results: id, title, price."""
    begun: list[str] = []
    for token in tokens:
        if not begun and token in ("Next >", "< Prev"):
            continue
        begun.append(token)
        if len(begun) > 1 and token.startswith("$") and _AMOUNT.match(token):
            amounts = [float(amount) for amount in _AMOUNT.findall(token)]
            asin, title, prices = begun[0], " ".join(begun[1:-1]), (min(amounts), max(amounts))
            seen = notes.seen.setdefault(asin, Seen(title, prices, 0, 0, 0))
            if seen.search != len(notes.queries):
                place = sum(other.search == len(notes.queries) for other in notes.seen.values())
                seen.page, seen.place, seen.search = notes.page, place, len(notes.queries)
            begun = []
