"""WebShop's site: which page an action leads to, and what stands on it, as the original's text environment.

Follows web_agent_site/envs/web_agent_text_env.py of princeton-nlp/WebShop (its simulated server and browser) and the
texts of its page templates. The original makes HTML and reads it back; a page here is the list of texts it would read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent_envs.datasets.webshop.products import Catalog, Product

__all__ = ["BASE_URL", "SUB_PAGES", "Page", "Session", "Site", "Text", "parse_action"]

BASE_URL = "http://127.0.0.1:3000"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
PER_PAGE, FOUND = 10, 50
_BUY, _NEXT, _BACK, _HOME = "buy now", "next >", "< prev", "back to search"
_SPACES = " \n\t\f\r"
_JSON_IN_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "'": "\\u0027"})


class Text(NamedTuple):
    """A text of a page and what it is: "text", "button", "option" or "product"."""

    kind: str
    text: str


@dataclass(slots=True)
class Session:
    """What a visitor has done; all that changes in an episode."""

    name: str
    """The number of the goal, in the addresses."""
    instruction: str
    """The goal's words, on every page."""
    view: str = "search"
    """The page: "search", "results", "item", one of SUB_PAGES, or "done"."""
    url: str = ""
    """Its address."""
    query: str = ""
    """What was searched for last, lower case."""
    page: int = 0
    """The page of results."""
    found: Sequence[str] = ()
    """The products found, best first."""
    asin: str = ""
    """The product looked at."""
    visited: set[str] = field(default_factory=set)
    """Products looked at since the start page."""
    options: dict[str, str] = field(default_factory=dict)
    """Values chosen, by option name."""
    reward: float = 0.0
    """What the purchase was worth."""
    reward_info: dict[str, Any] = field(default_factory=dict)
    """Its parts."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as read."""

    texts: tuple[Text, ...]
    """Its texts in order."""
    clickables: Mapping[str, str]
    """What can be clicked, lower case, in the original's order: "" for a button, "=" for a product, "." and an option's
    name for one of its values."""
    search_bar: bool
    """Whether it is the start page."""


def parse_action(action: str) -> tuple[str, str]:
    """Name and lower-cased argument of an action; no argument where it has another form.

    >>> parse_action("search[Floor Lamp]"), parse_action("search[]"), parse_action("search[a[b]]")
    (('search', 'floor lamp'), ('search[]', ''), ('search[a', 'b]'))
    """
    # What re.match(r"(.+)\[(.+)\]", action) finds, in linear time.
    line = action.partition("\n")[0]
    end = line.rfind("]")
    begin = line.rfind("[", 1, end - 1) if end > 0 else -1
    return (line[:begin], line[begin + 1 : end].lower()) if begin > 0 else (action, "")


class Site:
    """The pages of a catalogue. Holds nothing of an episode.

    Args:
        catalog: The products.
        buy: Tells what a purchase is worth, and why.
        show_attributes: Whether item pages have the original's button Attributes.
    """

    def __init__(
        self,
        catalog: Catalog,
        buy: Callable[[Session, Product], tuple[float, dict[str, Any]]],
        *,
        show_attributes: bool = False,
    ) -> None:
        self.catalog = catalog
        self._buy = buy
        self._buttons = SUB_PAGES if show_attributes else SUB_PAGES[:-1]

    # -- what actions do ------------------------------------------------------------------------------------------

    def start(self, name: str, instruction: str) -> Session:
        """A new visitor."""
        session = Session(name, instruction)
        self._home(session)
        return session

    def search(self, session: Session, query: str, sample: Callable[[int], Iterable[int]]) -> bool:
        """Search; False where the query is one of the original's commands and lacks what it needs.

        Args:
            session: The visitor.
            query: In lower case.
            sample: Draws numbers of products for the command `<r>`.
        """
        words = query.split(" ")
        rest = " ".join(words[1:]).strip()
        if words[0] == "<r>":
            found: Sequence[str] = [self.catalog.product_at(number).asin for number in sample(FOUND)]
        elif words[0] == "<a>":
            found = self.catalog.where("attribute", rest)
        elif words[0] == "<c>":
            if len(words) < 2:
                return False
            found = self.catalog.where("category", words[1].strip())
        elif words[0] == "<q>":
            found = self.catalog.where("query", rest)
        else:
            found = self.catalog.search(query, FOUND)
        session.query = query
        session.found = found
        self._results(session, 1)
        return True

    def click(self, session: Session, name: str, page: Page) -> bool:
        """Click on something of the page; whether it was a purchase, which ends the episode."""
        at = _page_name(session.url)
        if name == _BUY:
            self._done(session)
            return True
        if name == _HOME:
            self._home(session)
        elif name == _NEXT and at == "search_results":
            self._results(session, session.page + 1)
        elif name == _BACK and at == "search_results":
            self._results(session, session.page - 1)
        elif name == _BACK and at == "item_page":
            self._results(session, session.page)
        elif name in _SUB_PAGE_OF:
            self._sub_page(session, _SUB_PAGE_OF[name])
        else:
            kind = page.clickables[name]
            if kind == "=":
                session.asin = next(t.text for t in page.texts if t.kind == "product" and t.text.lower() == name)
                session.visited.add(session.asin)
            elif kind.startswith("."):
                session.options[kind[1:].lower()] = name
            self._item(session)
        return False

    def _home(self, session: Session) -> None:
        session.view, session.url = "search", f"{BASE_URL}/{session.name}"
        session.query, session.page, session.found, session.asin = "", 0, (), ""
        session.visited, session.options = set(), {}

    def _results(self, session: Session, page: int) -> None:
        session.view, session.page, session.asin, session.options = "results", page, "", {}
        session.url = f"{BASE_URL}/search_results/{session.name}/{_in_url(session.query)}/{page}"

    def _item(self, session: Session) -> None:
        session.view = "item"
        options = json.dumps(session.options)
        where = f"{session.name}/{session.asin}/{_in_url(session.query)}/{session.page}"
        session.url = f"{BASE_URL}/item_page/{where}/{options}"

    def _sub_page(self, session: Session, view: str) -> None:
        session.view = view
        where = f"{session.name}/{session.asin}/{_in_url(session.query)}/{session.page}"
        session.url = f"{BASE_URL}/item_sub_page/{where}/{view}/{session.options}"

    def _done(self, session: Session) -> None:
        session.view, session.url = "done", f"{BASE_URL}/done/{session.name}/{session.asin}/{session.options}"
        session.reward, session.reward_info = self._buy(session, self._product(session.asin))

    # -- what pages show ------------------------------------------------------------------------------------------

    def page(self, session: Session) -> Page:
        """The page a visitor sees."""
        texts = [Text(kind, read) for kind, text in self._texts(session) if (read := _as_read(text))]
        clickables = {text.lower(): "" for kind, text in texts if kind == "button"}
        clickables.update((text.lower(), "=") for kind, text in texts if kind == "product")
        if session.view == "item":
            for option, values in self._product(session.asin).options.items():
                clickables.update(dict.fromkeys(values, "." + option))
        return Page(tuple(texts), clickables, session.view == "search")

    def _texts(self, session: Session) -> Iterable[tuple[str, str]]:
        if session.view == "search":
            yield from (("text", "WebShop"), ("text", "Instruction: "), ("text", session.instruction))
            yield "button", "Search"
            return
        if session.view == "done":
            yield from (("text", text) for text in _receipt(session))
            return
        yield from (("text", "Instruction:"), ("text", session.instruction), ("button", "Back to Search"))
        if session.view == "results":
            yield from self._results_texts(session)
            return
        yield "button", "< Prev"
        product = self._product(session.asin)
        if session.view == "item":
            for option, values in product.options.items():
                yield "text", option
                yield from (("option", value) for value in values)
            yield from (("text", product.title), ("text", f"Price: {product.price_tag}"), ("text", "Rating: N.A."))
            yield from (("button", button) for button in self._buttons)
            yield "button", "Buy Now"
        elif session.view == "Description":
            yield "text", product.description
        elif session.view == "Features":
            yield from (("text", " " + bullet) for bullet in product.bullets)
        elif session.view == "Attributes":
            yield from (("text", " " + attribute) for attribute in product.attributes)
            yield from (("text", product.category), ("text", product.query), ("text", product.product_category))

    def _results_texts(self, session: Session) -> Iterable[tuple[str, str]]:
        yield "text", f"Page {session.page} (Total results: {len(session.found)})"
        if session.page > 1:
            yield "button", "< Prev"
        yield "button", "Next >"
        for asin in session.found[(session.page - 1) * PER_PAGE : session.page * PER_PAGE]:
            product = self._product(asin)
            yield from (("product", asin), ("text", product.title), ("text", product.price_tag))

    def _product(self, asin: str) -> Product:
        product = self.catalog.product(asin)
        if product is None:
            raise KeyError(asin)
        return product


_SUB_PAGE_OF = {view.lower(): view for view in SUB_PAGES}


def _page_name(url: str) -> str:
    """What the original takes an address for; a query that contains one of the names deceives it."""
    return next((name for name in ("search_results", "item_page", "item_sub_page", "done") if name in url), "")


def _in_url(query: str) -> str:
    return query.replace(" ", "+")


def _as_read(text: str) -> str:
    """A text as the original's HTML parser returns it; white space alone is a space, or with a line break nothing.

    >>> _as_read(" a "), _as_read("  "), _as_read(" \\n ")
    (' a ', ' ', '')
    """
    if text.strip(_SPACES):
        return text
    return "" if "\n" in text or not text else " "


def _receipt(session: Session) -> Iterable[str]:
    """The texts of the last page, in which the original leaves most fields empty."""
    options = json.dumps(session.options, sort_keys=True).translate(_JSON_IN_HTML)
    yield from ("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)")
    yield from ("Purchased", "asin", session.asin, "options", options, "attrs", "None", "category", "None")
    yield from ("query", "None", "product category", "None")
    yield from ("Target", "asin", "options", "attrs", "price upper", "instuction text", "category")
    yield from ("product category", "query", "Goal ", "None")
    yield from ("Reward", "Your score (min 0.0, max 1.0)", str(session.reward), "Reward Details ", "None")
