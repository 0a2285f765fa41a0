"""The generated shop: invented products in the released raw format, and what shoppers ask for.

Products come in groups of four that share a brand, a title and most of their description: three of them differ from the
first in one attribute or one value of an option, and prices differ too. Every product and its instructions are a
function of its number alone, so that products can be read in any order. An instruction names attributes
and options of its own product, which is therefore always worth the full reward.

`kinds.json` lists the kinds of products, `words.json` the other words. An attribute goes before the noun ("gluten free
crackers"), after "with" if it begins with +, after "for" if it begins with >.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agent_envs.checks import integer
from agent_envs.datasets.generated_tasks import Draws, stream
from agent_envs.datasets.webshop.generated import wording
from agent_envs.datasets.webshop.products import shown_value
from agent_envs.files import table

_GOALS, _LARGEST = 10_000, 100_000_000

_GROUP_SIZE = 4
_ASINS = 36**8
_ASIN_STEP = 1_679_616_137_311 % _ASINS  # coprime to 36, so that every number has an asin of its own
_GOAL_TRIES = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of product."""

    department: str
    """The released field `category`."""
    query: str
    """What it is searched by; the released field of this name."""
    path: str
    """Its place in the category tree, joined as released."""
    nouns: tuple[str, ...]
    """What titles and shoppers call it."""
    attributes: tuple[str, ...]
    """Its attributes; + and > say how they are phrased."""
    options: tuple[tuple[str, str], ...]
    """Names of options as shoppers see them, each with the list of `option_values` it takes values from."""
    dollars: tuple[int, int]
    occasions: tuple[str, ...]


_WORDS = table(__package__, "words.json")  # values of options are as released: pages show a slash as a bar
_KINDS = tuple(Kind(**fields) for fields in table(__package__, "kinds.json"))  # department by department


@dataclass(frozen=True, slots=True)
class GeneratedItem:
    """One product as the three released files have it."""

    product: dict[str, Any]
    """Its row of items_shuffle.json."""
    attributes: dict[str, Any]
    """Its entry of items_ins_v2.json."""
    instructions: list[dict[str, Any]]
    """Its entry of items_human_ins.json, empty if it has none."""


@dataclass(frozen=True, slots=True)
class _Group:
    """What the four products of a group have in common."""

    kind: Kind
    brand: str
    adjective: str
    noun: str
    occasion: str
    attributes: tuple[str, ...]
    spare: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
    cents: int
    ranged: bool
    unpriced: bool
    title: int
    rating: int


class GeneratedShop:
    """A catalog of so many invented products, with about 10,000 instructions, at most ten a product."""

    def __init__(self, products: int = 1_000) -> None:
        self.products = integer("products", products, minimum=1, maximum=_LARGEST)
        self.goals = min(_GOALS, 10 * self.products)

    def __len__(self) -> int:
        return self.products

    def __iter__(self) -> Iterator[GeneratedItem]:
        """Yield all products in order, with repeated instructions left out."""
        seen: set[str] = set()
        for number in range(self.products):
            item = self.item(number)
            new = [goal for goal in item.instructions if goal["instruction"] not in seen]
            seen.update(goal["instruction"] for goal in new)
            yield item if len(new) == len(item.instructions) else replace(item, instructions=new)

    def item(self, number: int) -> GeneratedItem:
        """Return the product of a number, counted from 0."""
        group_number, member = divmod(number, _GROUP_SIZE)
        group = _draw_group(group_number)
        draws = stream(f"webshop/0/product/{number}")
        attributes, options, own_attribute, own_values = _vary(group, member, draws)
        code = np.base_repr((number * _ASIN_STEP + 1_234_567_891) % _ASINS, 36)
        asin = f"B0{code.zfill(8)[::-1]}"
        product = _product(group, asin, attributes, options, own_attribute, draws)
        plain = [attribute.lstrip("+>") for attribute in attributes]
        some = _some(attributes, draws, draws.between(1, 3))
        entry = {
            "attributes": plain,
            "instruction": wording.synthetic_instruction(group.kind.query, some),
            "instruction_attributes": [attribute.lstrip("+>") for attribute in some],
        }
        first, last = number * self.goals // self.products, (number + 1) * self.goals // self.products
        goals: dict[str, dict[str, Any]] = {}
        for _ in range(_GOAL_TRIES * (last - first)):
            if len(goals) == last - first:
                break
            noun = draws.pick((group.noun, group.kind.query))
            goal = _goal(noun, attributes, options, own_attribute, own_values, draws)
            goals.setdefault(goal["instruction"], {"asin": asin, "attributes": plain, **goal})
        return GeneratedItem(product, entry, list(goals.values()))


def _some(values: Sequence[str], draws: Draws, count: int) -> list[str]:
    """Draw `count` of the values."""
    rest = list(values)
    return [rest.pop(draws.between(0, len(rest) - 1)) for _ in range(min(count, len(rest)))]


@functools.lru_cache(maxsize=16)
def _draw_group(number: int) -> _Group:
    draws = stream(f"webshop/0/family/{number}")
    kind = draws.pick(_KINDS)
    pool = _some(kind.attributes, draws, len(kind.attributes))
    count = draws.between(4, 6)
    options = []
    if draws.between(1, 20) > 1:
        for name, values in kind.options:
            listed = _WORDS["option_values"][values]
            drawn = set(_some(listed, draws, draws.between(3, 9)))
            offered = tuple(value for value in listed if value in drawn)
            options.append((name, offered, tuple(value for value in listed if value not in drawn)))
    low, high = kind.dollars
    return _Group(
        kind=kind,
        brand=draws.pick(_WORDS["brand_starts"]) + draws.pick(_WORDS["brand_ends"]),
        adjective=draws.pick(_WORDS["adjectives"]),
        noun=draws.pick(kind.nouns),
        occasion=draws.pick(kind.occasions),
        attributes=tuple(pool[:count]),
        spare=tuple(pool[count:]),
        options=tuple(options),
        cents=draws.between(100 * low, 100 * high),
        ranged=draws.between(1, 7) == 1,
        unpriced=draws.between(1, 25) == 1,
        title=draws.between(0, 5),
        rating=draws.between(31, 50),
    )


_Options = dict[str, tuple[str, ...]]


def _vary(group: _Group, member: int, draws: Draws) -> tuple[tuple[str, ...], _Options, str, dict[str, str]]:
    """Return the attributes and options of one product of a group, and the attribute or option value it alone has."""
    attributes = list(group.attributes)
    options = {name: offered for name, offered, _ in group.options}
    own_attribute, own_values = "", {}
    if member in (1, 3):
        own_attribute = group.spare[min(member // 2, len(group.spare) - 1)]
        attributes[draws.between(0, len(attributes) - 1)] = own_attribute
    elif member == 2:
        if unused := [(name, rest) for name, _, rest in group.options if rest]:
            name, rest = draws.pick(unused)
            index = draws.between(0, len(options[name]) - 1)
            own_values[name] = draws.pick(rest)
            options[name] = (*options[name][:index], own_values[name], *options[name][index + 1 :])
        else:
            own_attribute = attributes[-1] = group.spare[-1]
    return tuple(attributes), options, own_attribute, own_values


def _product(
    group: _Group, asin: str, attributes: Sequence[str], options: _Options, own_attribute: str, draws: Draws
) -> dict[str, Any]:
    plain = [attribute.lstrip("+>") for attribute in attributes]
    noun, brand = group.noun, group.brand
    cents = group.cents * draws.between(90, 115) // 100
    if group.unpriced:
        pricing = ""
    elif group.ranged:
        pricing = f"${cents / 100:.2f} to ${cents * draws.between(110, 160) / 10000:.2f}"
    else:
        pricing = f"${cents / 100:.2f}"
    bullets = [_bullet(attribute, noun, draws) for attribute in sorted(attributes, key=lambda a: a != own_attribute)]
    if draws.between(1, 3) > 1:
        bullets.append(f"Made for {group.occasion}, and a good gift. ")
    image = f"https://images.example/{asin}"
    customization = {
        name.title(): [
            {
                "is_selected": index == 0,
                "value": value.title() if "mah" not in value and '"' not in value else value,
                "price_string": "",
                "price": 0,
                "image": f"{image}-{index}.jpg" if name == "color" else None,
            }
            for index, value in enumerate(values)
        ]
        for name, values in options.items()
    }
    return {
        "name": _title(group, plain),
        "brand": f"Visit the {brand} Store",
        "full_description": _description(group, plain, draws),
        "pricing": pricing,
        "images": [f"{image}.jpg"],
        "product_category": group.kind.path,
        "average_rating": group.rating / 10,
        "small_description": bullets,
        "customization_options": customization or None,
        "asin": asin,
        "category": group.kind.department,
        "query": group.kind.query,
        "page": draws.between(1, 400),
    }


def _title(group: _Group, plain: Sequence[str]) -> str:
    """Return a title; like a seller's, it adds the usual name of the product if it uses another one."""
    fields = dict(zip(("first", "second", "third", "fourth"), (attribute.title() for attribute in plain), strict=False))
    fields |= {"start": f"{group.brand} {group.adjective}", "brand": group.brand, "adjective": group.adjective}
    fields |= {"noun": group.noun.title(), "occasion": group.occasion.title()}
    title: str = _WORDS["titles"][group.title].format_map(fields)
    query = group.kind.query
    return title if set(query.split()) <= set(group.noun.split()) else f"{title}, {query.title()}"


def _description(group: _Group, plain: Sequence[str], draws: Draws) -> str:
    noun, query = group.noun, group.kind.query
    listed = ", ".join(plain[:-1]) + " and " + plain[-1]
    if draws.between(1, 20) == 1:
        return ""
    be, stand, it = ("are", "stand", "them") if wording.is_plural(noun) else ("is", "stands", "it")
    return draws.pick(_WORDS["descriptions"]).format(
        brand=group.brand,
        occasion=group.occasion,
        query=query,
        one=wording.with_article(query),
        noun=noun,
        be=be,
        stand=stand,
        it=it,
        every="all" if wording.is_plural(query) else "every",
        listed=listed,
        Listed=listed.capitalize(),
        Noun=noun.capitalize(),
    )


def _bullet(attribute: str, noun: str, draws: Draws) -> str:
    plain, many = attribute.lstrip("+>"), wording.is_plural(noun)
    text: str = draws.pick(_WORDS["bullets"][attribute[0] if attribute[0] in "+>" else ""])
    comes, suits, this = ("come", "suit", "these") if many else ("comes", "suits", "this")
    this = f"{this} {noun} {'are' if many else 'is'}"
    head, one = plain.capitalize(), wording.with_article(noun)
    return text.format(plain=plain, head=head, HEAD=head.upper(), one=one, comes=comes, suits=suits, this=this)


def _goal(
    noun: str,
    attributes: Sequence[str],
    options: _Options,
    own_attribute: str,
    own_values: dict[str, str],
    draws: Draws,
) -> dict[str, Any]:
    """Return what a shopper asks for who wants this product, usually for what it alone has."""
    wanted = _some(attributes, draws, draws.pick((1, 2, 2, 3, 3)))
    if own_attribute and own_attribute not in wanted and draws.between(1, 10) <= 7:
        wanted[-1] = own_attribute
    picked: dict[str, str] = {}
    for name, values in options.items():
        if draws.between(1, 20) <= 19:
            own = name in own_values and draws.between(1, 10) <= 6
            picked[name] = own_values[name] if own else draws.pick(values)
    picked = {name: shown_value(value) for name, value in picked.items()}
    return {
        "instruction": wording.instruction(noun, wanted, picked, draws),
        "options": [f"{name}: {value}" for name, value in picked.items()],
        "instruction_attributes": [attribute.lstrip("+>") for attribute in wanted],
        "instruction_options": list(picked.values()),
    }
