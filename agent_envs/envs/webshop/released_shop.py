"""The shop of Agent-R1's data release: its own pages, its own scores, and every product open from everywhere.

Follows the environment service of https://github.com/AgentR1/CAPO (August 2026): its pages' fields and limits, actions,
search and scores. The sentences on the pages are this project's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from agent_envs.datasets.webshop.products import DEFAULT_PRICE, Goal, Product, released_text
from agent_envs.envs.webshop.site import PER_PAGE, Buy, Page, Site, Text, Visit
from agent_envs.prompts.templates import shortened

if TYPE_CHECKING:
    from agent_envs.datasets.webshop.store import ProductStore

SITES = ("official", "agentr1", "agentr1-small")
FOUND = {"agentr1": 50, "agentr1-small": 10}
"""Most products that a search finds, by site."""

_ACTION = re.compile(r"(search|click)\[(.+)\]", re.IGNORECASE | re.DOTALL)
_SUB_PAGES = ("Description", "Features", "Reviews")
_TITLE, _TITLE_IN_RESULTS, _BULLET, _SUMMARY_BULLET, _SUMMARY, _DESCRIPTION = 260, 180, 260, 220, 260, 2000
_BULLETS, _SUMMARY_BULLETS, _VALUES = 10, 3, 30
_SHARES = {"asin": 0.35, "attributes": 0.3, "options": 0.25, "price": 0.1}


class ReleasedShop(Site):
    """The pages of the release's shop.

    Args:
        catalog: The products.
        buy: Scores a purchase.
        find: Returns the ids of products for a query and a number, best first.
        most: How many products a search finds at most.
    """

    layout = "lines"

    def __init__(self, catalog: ProductStore, buy: Buy, find: Callable[[str, int], list[str]], most: int) -> None:
        super().__init__(catalog, buy)
        self._find, self._most = find, most

    def start(self, name: str, instruction: str) -> Visit:
        return Visit(name, instruction)

    def act(self, visit: Visit, action: str, page: Page, sample: Callable[[int], Iterable[int]]) -> tuple[bool, bool]:
        read = _ACTION.fullmatch(action.strip())
        argument = _normal(read[2]) if read else ""
        if read is None or not argument:
            return False, False
        if read[1].lower() == "search":
            visit.view, visit.query, visit.page, visit.asin = "results", argument, 0, ""
            visit.found = self._find(argument, self._most)
            return True, False
        if argument == "buy now":
            visit.view = "done"
            if visit.asin:
                visit.reward, visit.reward_info = self._buy(visit, self._product(visit.asin))
            return True, True
        return self._clicked(visit, argument), False

    def _clicked(self, visit: Visit, name: str) -> bool:
        """Click on anything but Buy Now; return whether that is possible."""
        sub_page = next((view for view in _SUB_PAGES if view.lower() == name), "")
        if name == "back to search":  # the product stays, so that it can be bought from here
            visit.view = "results" if visit.query else "search"
        elif name == "back to item" and visit.asin:
            visit.view = "item"
        elif name in ("next >", "< prev") and visit.view == "results":
            visit.page = visit.page + 1 if name == "next >" else max(0, visit.page - 1)
        elif asin := next((each for each in (name.upper(), name) if self.catalog.product(each)), None):
            visit.view, visit.asin, visit.options = "item", asin, {}
        elif not visit.asin:
            return False
        elif sub_page:
            visit.view = sub_page
        else:
            options = _options(self._product(visit.asin))
            option = next((option for option in reversed(options) if name in options[option]), None)
            if option is None:
                return False
            visit.view, visit.options[option] = "item", name
        return True

    def page(self, visit: Visit) -> Page:
        lines = ["Thank you, your purchase is complete."] if visit.view == "done" else [*self._lines(visit)]
        clickables = [] if visit.view == "done" else [*self._controls(visit)]
        if clickables and visit.view != "results":
            lines.append(f"You can click: {', '.join(clickables)}")
        return Page(tuple(Text("text", line) for line in lines), dict.fromkeys(clickables, ""), visit.view != "done")

    def _lines(self, visit: Visit) -> Iterator[str]:
        """Yield the lines of a page, without its controls."""
        headings = {"search": "WebShop", "results": "Search Results", "item": "Product"}
        yield headings.get(visit.view, visit.view)
        yield f"Instruction: {visit.instruction}"
        if visit.view == "search":
            yield "Begin with a search: search[words]"
        elif visit.view == "results":
            yield f"Query: {visit.query}"
            yield f"Page: {visit.page + 1}"
            yield "No. ASIN | name | price | found under" if visit.found else "No products were found."
            for number, asin in enumerate(self._shown(visit), start=visit.page * PER_PAGE + 1):
                product = self._product(asin)
                name = _cut(product.title, _TITLE_IN_RESULTS)
                yield f"[{number}] {asin} | {name} | {_price_tag(product)} | {product.query or product.category}"
            yield from ["Open a product with click[ASIN]."] * bool(visit.found)
        else:
            yield from self._product_lines(visit, self._product(visit.asin))

    def _product_lines(self, visit: Visit, product: Product) -> Iterator[str]:
        yield f"ASIN: {product.asin}"
        yield f"Title: {_cut(product.title, _TITLE)}"
        if visit.view == "Description":
            yield _cut(product.description, _DESCRIPTION)
        elif visit.view == "Features":
            yield from (f"- {_cut(bullet, _BULLET)}" for bullet in product.bullets[:_BULLETS])
        elif visit.view == "Reviews":
            average, number = product.rating
            yield from (f"Average rating: {average or 'N.A.'}", f"Number of reviews: {number or 'N.A.'}")
        if visit.view != "item":
            return
        bullets = [_cut(bullet, _SUMMARY_BULLET) for bullet in product.bullets[:_SUMMARY_BULLETS]]
        yield f"Price: {_price_tag(product)}"
        yield f"Category: {product.product_category or product.category}"
        yield f"Summary: {'; '.join(bullets) or _cut(product.description, _SUMMARY)}"
        options = _options(product)
        yield "Options:" if options else "Options: none"
        for option, values in options.items():
            more = f", and {len(values) - _VALUES} more" if len(values) > _VALUES else ""
            chosen = visit.options.get(option, "not selected")
            yield f"- {option} (selected: {chosen}): {', '.join(values[:_VALUES])}{more}"

    def _controls(self, visit: Visit) -> Iterator[str]:
        """Yield what is listed as clickable."""
        if visit.view == "results":
            yield from self._shown(visit)
            yield from ["< Prev"] * bool(visit.page)
            yield from ["Next >"] * (len(visit.found) > (visit.page + 1) * PER_PAGE)
        elif visit.view == "item":
            yield from _SUB_PAGES
            yield from (value for values in _options(self._product(visit.asin)).values() for value in values)
        elif visit.view in _SUB_PAGES:
            yield "Back to Item"
        if visit.view not in ("search", "results"):
            yield from ("Back to Search", "Buy Now")

    def _shown(self, visit: Visit) -> Sequence[str]:
        return visit.found[visit.page * PER_PAGE : (visit.page + 1) * PER_PAGE]

    def expert_action(self, visit: Visit, goal: Goal) -> str:
        """Return the next action of a shopper who knows the product from which the goal was made."""
        if visit.view == "search":
            return f"search[{goal.query or goal.name}]"
        if visit.asin != goal.asin:
            return f"click[{goal.asin}]"
        wanted = goal.options.values() if isinstance(goal.options, dict) else goal.options
        for option, values in _options(self._product(goal.asin)).items():
            for value in values:
                if value in map(_normal, wanted) and visit.options.get(option) != value:
                    return f"click[{value}]"
        return "click[Buy Now]"


def small_score(product: Product, goal: Goal, visit: Visit) -> tuple[float, dict[str, Any]]:
    """Return the score of a purchase in the small shop, from 0 to 1, halved for another product than the goal's.

    score = 0.35 product + 0.3 share of the attributes in its text + 0.25 share of the options + 0.1 price
    """
    text, chosen = released_text(product), {_normal(name): _normal(value) for name, value in visit.options.items()}
    wanted = {_normal(n): _normal(v) for n, v in goal.options.items()} if isinstance(goal.options, dict) else {}
    parts = {
        "asin": float(product.asin == goal.asin),
        "attributes": _share([_normal(attribute) in text for attribute in goal.attributes]),
        "options": _share([chosen.get(name) == value for name, value in wanted.items()]),
        "price": float(min(product.pricing) <= goal.price_upper),
    }
    score = sum(share * parts[part] for part, share in _SHARES.items())
    return round(score if parts["asin"] else score / 2, 6), parts


def _share(hits: Sequence[bool]) -> float:
    """Return the share of hits; 1 of none."""
    return sum(hits) / len(hits) if hits else 1.0


def _cut(text: str, longest: int) -> str:
    return shortened(" ".join(text.split()), longest)


def _normal(text: str) -> str:
    return " ".join(text.split()).lower()


def _options(product: Product) -> dict[str, list[str]]:
    """Return the values of a product by option, blanks joined."""
    return {_normal(name): [*map(_normal, values)] for name, values in product.options.items()}


def _price_tag(product: Product) -> str:
    return product.price_tag if product.pricing != (DEFAULT_PRICE,) else f"${DEFAULT_PRICE:.2f}"
