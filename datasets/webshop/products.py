"""WebShop's products and goals as pages, search and reward need them.

    {"asin": "B06Y3VLDFB", "name": "Vhomes Lights Reclaimed Wood Console Table ...", "category": "garden",
     "query": "console tables", "product_category": "Home & Kitchen › Furniture › ...", "pricing": "$877.8",
     "full_description": "...", "small_description": ["Finish/Frame ..."], "images": ["https://..."],
     "customization_options": {"Color": [{"value": "Black/White", "image": null}]}}

Rows are cleaned as in load_products of princeton-nlp/WebShop's web_agent_site/engine/engine.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from agent_envs.errors import DataError
from agent_envs.text import clean_text

DEFAULT_PRICE = 100.0
NO_ATTRIBUTES = ("DUMMY_ATTR",)
LONGEST_ASIN = 10
_NOT_NUMBER = re.compile(r"[^\d.]")


class HumanInstruction(NamedTuple):
    """What a person wrote for a product, and the attributes and options it asks for (a row of items_human_ins.json)."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """A product, cleaned as the original cleans it."""

    asin: str
    """Its id, at most 10 characters."""
    title: str
    category: str
    """One of a few words such as "garden"."""
    query: str
    """The query it was found with, in lower case."""
    product_category: str
    """Levels of a category tree, joined by " › "."""
    description: str
    """The Description page."""
    bullets: tuple[str, ...]
    """The Features page."""
    pricing: tuple[float, ...]
    """One price, or the two ends of a range, in dollars."""
    price_tag: str
    """The price as shown: "$34.0" or "$16.99 to $26.99"."""
    options: Mapping[str, tuple[str, ...]]
    """Values by option name, all lower case, in the row's order."""
    attributes: tuple[str, ...]
    """The attributes that the reward compares with a goal's."""
    image: str
    """The address of its picture, "" if it has none."""
    instruction: str | None = None
    """Beginning of a synthetic instruction, None if no goal is made of the product."""
    instruction_attributes: tuple[str, ...] = ()
    """The attributes that the synthetic instruction asks for."""
    human: tuple[HumanInstruction, ...] = ()
    """What people asked for."""
    brand: str = ""
    """What Agent-R1's shop searches too."""
    rating: tuple[str, str] = ("", "")
    """What Agent-R1's shop shows of its reviews: their average and number."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What to buy."""

    asin: str
    """The product that the goal was made from."""
    name: str
    category: str
    query: str
    product_category: str
    """Its place in the category tree."""
    instruction: str
    """The instruction that the policy sees."""
    attributes: tuple[str, ...]
    options: Mapping[str, str] | tuple[str, ...]
    """Options wanted: by name in synthetic goals, values only in human ones."""
    price_upper: float
    """The highest price allowed, 1,000,000 if any price will do."""
    weight: float = field(default=1, compare=False)
    """As goals of a file have it. Nothing here reads it, but the digests of panels are over it too."""


def parse_prices(pricing: object) -> tuple[tuple[float, ...], str]:
    """Return the price or the ends of its range, and the text that shows it. Without a price it is 100.

    >>> parse_prices("$1,016.99 to $26.99")
    ((1016.99, 26.99), '$1016.99 to $26.99')
    >>> parse_prices("")
    ((100.0,), '$100.0')
    """
    prices = []
    for text in str(pricing or "").split("$")[1:]:
        try:
            prices.append(float(Decimal(_NOT_NUMBER.sub("", text))))
        except InvalidOperation:  # "$" with no number, or with two dots
            continue
    if not prices:
        prices = [DEFAULT_PRICE]
    prices = prices[:2]
    return tuple(prices), " to ".join(f"${price}" for price in prices)


def product_from_row(
    row: Any, attributes: Mapping[str, Any] | None = None, human: Iterable[Any] = (), *, where: str = "a product"
) -> Product | None:
    """Return the product of a raw row, or None if the original skips the row for its invalid asin."""
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object with asin and name, got {type(row).__name__}")
    asin = row.get("asin")
    if not isinstance(asin, str) or not asin:
        raise DataError(f"{where}: a product needs an 'asin', a string; got {asin!r:.80}")
    if asin == "nan" or len(asin) > LONGEST_ASIN:
        return None
    where = f"{where} ({asin})"
    if not isinstance(row.get("name"), str):
        raise DataError(f"{where}: a product needs a 'name', a string; got {row.get('name')!r:.80}")
    pricing, price_tag = parse_prices(row.get("pricing"))
    entry = attributes if isinstance(attributes, Mapping) else {}
    pictures = row.get("images")
    instruction = entry.get("instruction")
    return Product(
        asin=asin,
        title=_text(row["name"]),
        category=_text(row.get("category")),
        query=_text(row.get("query")).lower().strip(),
        product_category=_text(row.get("product_category")),
        description=_text(row.get("full_description")),
        bullets=_texts(row.get("small_description")),
        pricing=pricing,
        price_tag=price_tag,
        options=_options(row.get("customization_options"), where),
        attributes=_texts(entry["attributes"]) if "attributes" in entry else NO_ATTRIBUTES,
        image=_text(pictures[0]) if isinstance(pictures, list) and pictures else "",
        instruction=_text(instruction) if isinstance(instruction, str) else None,
        instruction_attributes=_texts(entry.get("instruction_attributes")),
        human=tuple(_human(item, where) for item in human),
        brand=_text(row.get("brand")),
        rating=(_text(row.get("average_rating")), _text(row.get("total_reviews"))),
    )


def search_text(product: Product) -> str:
    """Return the text of a product that search indexes: title, description, first bullet and options."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return f"{product.title} {product.description} {next(iter(product.bullets), '')} {options}".lower()


def released_text(product: Product) -> str:
    """Return the text of a product that Agent-R1's shop indexes and compares attributes with, in lower case."""
    attributes = () if product.attributes == NO_ATTRIBUTES else product.attributes
    named = (text for name, values in product.options.items() for text in (name, *values))
    about = (product.title, product.brand, product.product_category, product.category, product.query)
    return " ".join(" ".join((*about, product.description, *product.bullets, *attributes, *named)).lower().split())


def shown_value(value: str) -> str:
    """Return an option's value as the shop's pages show it: "Black/White" as "black | white"."""
    return value.strip().replace("/", " | ").lower()


def _options(raw: Any, where: str) -> dict[str, tuple[str, ...]]:
    options: dict[str, tuple[str, ...]] = {}
    if not raw:
        return options
    if not isinstance(raw, Mapping):
        raise DataError(f"{where}: 'customization_options' must be an object of lists, got {type(raw).__name__}")
    for name, contents in raw.items():
        if contents is None:
            continue
        values = []
        for content in contents if isinstance(contents, list) else [contents]:
            value = content.get("value") if isinstance(content, Mapping) else None
            if not isinstance(value, str):
                raise DataError(f"{where}: every option of {name!r} needs a 'value', a string; got {content!r:.80}")
            values.append(shown_value(_text(value)))
        options[_text(name).lower()] = tuple(values)
    return options


def _human(item: Any, where: str) -> HumanInstruction:
    if not isinstance(item, Mapping) or not isinstance(item.get("instruction"), str):
        raise DataError(f"{where}: a human instruction is an object with 'instruction', a string; got {item!r:.80}")
    return HumanInstruction(
        _text(item["instruction"]), _texts(item.get("instruction_attributes")), _texts(item.get("instruction_options"))
    )


def _text(value: Any) -> str:
    """Return a field as clean text, so that what pages show is exactly what can be clicked."""
    return clean_text(value if isinstance(value, str) else "" if value is None else str(value))


def _texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list; a single value counts as a list of one."""
    if value is None:
        return ()
    return tuple(map(_text, value)) if isinstance(value, (list, tuple)) else (_text(value),)
