"""WebShop's site: the page that each action leads to, and the texts on it.

Follows web_agent_site/envs/web_agent_text_env.py of princeton-nlp/WebShop (its simulated server and browser) and its
page templates. The original writes HTML and parses it again; a page here is the list of texts that it would find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_envs.datasets.webshop.products import Product

if TYPE_CHECKING:
    from agent_envs.datasets.webshop.store import ProductStore

BASE_URL = "http://127.0.0.1:3000"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
PER_PAGE, FOUND = 10, 50
_BUY, _NEXT, _BACK, _HOME = "buy now", "next >", "< prev", "back to search"
_SPACES = " \n\t\f\r"
_JSON_IN_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "'": "\\u0027"})


class Text(NamedTuple):
    """A text of a page and its kind: "text", "button", "option" or "product"."""

    kind: str
    text: str


@dataclass(slots=True)
class Visit:
    """One visit to the shop: everything that changes in an episode."""

    name: str
    """The goal's number, as in the addresses."""
    instruction: str
    """The goal's instruction, which is on every page."""
    view: str = "search"
    """The page: "search", "results", "item", one of SUB_PAGES, or "done"."""
    url: str = ""
    """The page's address."""
    query: str = ""
    """The last search query, in lower case."""
    page: int = 0
    """The page of results."""
    found: Sequence[str] = ()
    """The products found, best first."""
    asin: str = ""
    """The id of the open product."""
    visited: set[str] = field(default_factory=set)
    """The products opened since the start page."""
    options: dict[str, str] = field(default_factory=dict)
    """The chosen values by option name."""
    reward: float = 0.0
    """The official reward of the purchase."""
    reward_info: dict[str, Any] = field(default_factory=dict)
    """The parts of the reward."""


Buy = Callable[[Visit, Product], tuple[float, dict[str, Any]]]  # to the reward of a purchase, and its parts


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the shop."""

    texts: tuple[Text, ...]
    """Its texts in order."""
    clickables: Mapping[str, str]
    """What can be clicked, in lower case and the original's order, with its kind: "" for a button, "=" for a product,
    "." and an option's name for one of its values."""
    search_bar: bool
    """Whether it is the start page."""


def parse_action(action: str) -> tuple[str, str]:
    """Return the name and the lower-cased argument of an action; the argument is "" if it has another form.

    >>> parse_action("search[Floor Lamp]"), parse_action("search[]"), parse_action("search[a[b]]")
    (('search', 'floor lamp'), ('search[]', ''), ('search[a', 'b]'))
    """
    # The same as re.match(r"(.+)\[(.+)\]", action), in linear time.
    line = action.partition("\n")[0]
    end = line.rfind("]")
    begin = line.rfind("[", 1, end - 1) if end > 0 else -1
    return (line[:begin], line[begin + 1 : end].lower()) if begin > 0 else (action, "")


class Site:
    """The pages of a shop. It holds no state of an episode."""

    layout: str | None = None
    """How pages are written as text, if not as the environment's mode says."""

    def __init__(self, catalog: ProductStore, buy: Buy, *, show_attributes: bool = False) -> None:
        self.catalog = catalog
        self._buy = buy
        self._buttons = SUB_PAGES if show_attributes else SUB_PAGES[:-1]

    def start(self, name: str, instruction: str) -> Visit:
        """Begin a visit."""
        return Visit(name, instruction, url=f"{BASE_URL}/{name}")

    def act(self, visit: Visit, action: str, page: Page, sample: Callable[[int], Iterable[int]]) -> tuple[bool, bool]:
        """Carry out an action on the open page; return whether it was possible, and whether it was a purchase."""
        name, argument = parse_action(action)
        if name == "search" and argument:
            return self.search(visit, argument, sample), False
        if name == "click" and argument != "search" and argument in page.clickables:
            return True, self.click(visit, argument, page)
        return False, False

    def search(self, visit: Visit, query: str, sample: Callable[[int], Iterable[int]]) -> bool:
        """Search for a query in lower case; return False if it is one of the original's commands without its argument.

        `sample` draws the numbers of products for the command `<r>`.
        """
        command, space, rest = query.partition(" ")
        if command == "<r>":
            products: Sequence[str] = [self.catalog.product_at(number).asin for number in sample(FOUND)]
        elif command in ("<a>", "<q>"):
            products = self.catalog.where("attribute" if command == "<a>" else "query", rest.strip())
        elif command == "<c>":
            if not space:
                return False
            products = self.catalog.where("category", rest.partition(" ")[0].strip())
        else:
            products = self.catalog.search(query, FOUND)
        visit.query, visit.found = query, products
        self._results(visit, 1)
        return True

    def click(self, visit: Visit, name: str, page: Page) -> bool:
        """Click on something on the page; return whether it was a purchase, which ends the episode."""
        # The page that the original takes the address for: a query that contains one of the names misleads it.
        names = ("search_results", "item_page", "item_sub_page", "done")
        at = next((each for each in names if each in visit.url), "")
        if name == _BUY:
            visit.view, visit.url = "done", f"{BASE_URL}/done/{visit.name}/{visit.asin}/{visit.options}"
            visit.reward, visit.reward_info = self._buy(visit, self._product(visit.asin))
            return True
        if name == _HOME:
            visit.view, visit.url = "search", f"{BASE_URL}/{visit.name}"
            visit.query, visit.page, visit.found, visit.asin = "", 0, (), ""
            visit.visited, visit.options = set(), {}
        elif name == _NEXT and at == "search_results":
            self._results(visit, visit.page + 1)
        elif name == _BACK and at == "search_results":
            self._results(visit, visit.page - 1)
        elif name == _BACK and at == "item_page":
            self._results(visit, visit.page)
        elif name in _SUB_PAGE_OF:
            visit.view = _SUB_PAGE_OF[name]
            visit.url = f"{BASE_URL}/item_sub_page/{_item_path(visit)}/{visit.view}/{visit.options}"
        else:
            kind = page.clickables[name]
            if kind == "=":
                visit.asin = next(t.text for t in page.texts if t.kind == "product" and t.text.lower() == name)
                visit.visited.add(visit.asin)
            elif kind.startswith("."):
                visit.options[kind[1:].lower()] = name
            visit.view, visit.url = "item", f"{BASE_URL}/item_page/{_item_path(visit)}/{json.dumps(visit.options)}"
        return False

    def _results(self, visit: Visit, page: int) -> None:
        visit.view, visit.page, visit.asin, visit.options = "results", page, "", {}
        visit.url = f"{BASE_URL}/search_results/{visit.name}/{visit.query.replace(' ', '+')}/{page}"

    def page(self, visit: Visit) -> Page:
        """Return the open page."""
        texts = [Text(kind, read) for kind, text in self._texts(visit) if (read := _as_read(text))]
        clickables = {text.lower(): "" for kind, text in texts if kind == "button"}
        clickables.update((text.lower(), "=") for kind, text in texts if kind == "product")
        if visit.view == "item":
            for option, values in self._product(visit.asin).options.items():
                clickables.update(dict.fromkeys(values, "." + option))
        return Page(tuple(texts), clickables, visit.view == "search")

    def _texts(self, visit: Visit) -> Iterable[tuple[str, str]]:
        if visit.view == "search":
            yield from (("text", text) for text in ("WebShop", "Instruction: ", visit.instruction))
            yield "button", "Search"
            return
        if visit.view == "done":
            yield from (("text", text) for text in _receipt(visit))
            return
        yield from (("text", "Instruction:"), ("text", visit.instruction), ("button", "Back to Search"))
        if visit.view == "results":
            yield "text", f"Page {visit.page} (Total results: {len(visit.found)})"
            if visit.page > 1:
                yield "button", "< Prev"
            yield "button", "Next >"
            for asin in visit.found[(visit.page - 1) * PER_PAGE : visit.page * PER_PAGE]:
                product = self._product(asin)
                yield from (("product", asin), ("text", product.title), ("text", product.price_tag))
            return
        yield "button", "< Prev"
        product = self._product(visit.asin)
        if visit.view == "item":
            for option, values in product.options.items():
                yield "text", option
                yield from (("option", value) for value in values)
            yield from (("text", product.title), ("text", f"Price: {product.price_tag}"), ("text", "Rating: N.A."))
            yield from (("button", button) for button in self._buttons)
            yield "button", "Buy Now"
        elif visit.view == "Description":
            yield "text", product.description
        elif visit.view == "Features":
            yield from (("text", " " + bullet) for bullet in product.bullets)
        elif visit.view == "Attributes":
            yield from (("text", " " + attribute) for attribute in product.attributes)
            yield from (("text", product.category), ("text", product.query), ("text", product.product_category))

    def _product(self, asin: str) -> Product:
        product = self.catalog.product(asin)
        if product is None:
            raise KeyError(asin)
        return product


_SUB_PAGE_OF = {view.lower(): view for view in SUB_PAGES}


def _item_path(visit: Visit) -> str:
    return f"{visit.name}/{visit.asin}/{visit.query.replace(' ', '+')}/{visit.page}"


def _as_read(text: str) -> str:
    """Return a text as the original's HTML parser reads it: white space alone is " ", or "" if it has a line break."""
    if text.strip(_SPACES):
        return text
    return "" if "\n" in text or not text else " "


def _receipt(visit: Visit) -> Iterable[str]:
    """Yield the texts of the last page, where the original leaves most fields empty."""
    options = json.dumps(visit.options, sort_keys=True).translate(_JSON_IN_HTML)
    yield from ("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)")
    yield from ("Purchased", "asin", visit.asin, "options", options, "attrs", "None", "category", "None")
    yield from ("query", "None", "product category", "None")
    yield from ("Target", "asin", "options", "attrs", "price upper", "instuction text", "category")
    yield from ("product category", "query", "Goal ", "None")
    yield from ("Reward", "Your score (min 0.0, max 1.0)", str(visit.reward), "Reward Details ", "None")
