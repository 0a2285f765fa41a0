"""The generated shop: invented products in the released raw format, and what shoppers ask for.

Products come in families of four that share a brand, a title and most of what is said about them: one has another
attribute, one another value of an option, one another attribute again, and their prices differ. Every product and its
instructions are a function of the seed and its number alone, so that a catalogue of any size is read in any order.
An instruction names attributes and options of its own product, which is therefore always worth the full reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_envs.datasets.draws import Draws, stream
from agent_envs.datasets.webshop.generated.vocabulary import (
    ADJECTIVES,
    BRAND_ENDS,
    BRAND_STARTS,
    OPTION_VALUES,
    Kind,
    kinds,
)
from agent_envs.datasets.webshop.generated.wording import (
    instruction,
    is_plural,
    shown_value,
    synthetic_instruction,
    with_article,
)
from agent_envs.errors import ConfigError

__all__ = ["DEFAULT_GOALS", "DEFAULT_PRODUCTS", "GeneratedItem", "GeneratedShop"]

DEFAULT_PRODUCTS = 1_000
DEFAULT_GOALS = 10_000

_FAMILY = 4
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ASINS = 36**8
_ASIN_STEP = 1_679_616_137_311 % _ASINS  # shares no factor with 36, so that every number has an asin of its own
_GOAL_TRIES = 8


@dataclass(frozen=True, slots=True)
class GeneratedItem:
    """One product as the three released files have it."""

    product: dict[str, Any]
    """Its row of items_shuffle.json."""
    attributes: dict[str, Any]
    """Its entry of items_ins_v2.json."""
    instructions: list[dict[str, Any]]
    """Its entry of items_human_ins.json; empty where it has none."""


@dataclass(frozen=True, slots=True)
class _Family:
    """What the four have in common."""

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
    """A catalogue of invented products.

    >>> shop = GeneratedShop(1000)
    >>> shop.item(7).product["asin"] == GeneratedShop(2000).item(7).product["asin"]
    True

    Args:
        products: How many.
        goals: How many instructions by shoppers, spread evenly over the products; a few less where wordings coincide.
        seed: Another seed, another catalogue.

    Raises:
        ConfigError: A number that is not positive or too large.
    """

    def __init__(self, products: int = DEFAULT_PRODUCTS, goals: int | None = None, seed: int = 0) -> None:
        for name, value in (("products", products), ("goals", DEFAULT_GOALS if goals is None else goals)):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100_000_000:
                raise ConfigError(f"{name} must be a whole number from 1 to 100,000,000, got {value!r}")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ConfigError(f"seed must be a whole number, got {seed!r}")
        self.products = products
        self.goals = min(DEFAULT_GOALS, 10 * products) if goals is None else goals
        self.seed = seed
        self._latest: tuple[int, _Family] | None = None

    def __len__(self) -> int:
        return self.products

    def __iter__(self) -> Iterator[GeneratedItem]:
        """All products in order, none of whose instructions occurs twice."""
        seen: set[str] = set()
        for number in range(self.products):
            item = self.item(number)
            new = [said for said in item.instructions if said["instruction"] not in seen]
            seen.update(said["instruction"] for said in new)
            yield item if len(new) == len(item.instructions) else replace(item, instructions=new)

    def item(self, number: int) -> GeneratedItem:
        """The product of a number from 0."""
        family_number, member = divmod(number, _FAMILY)
        if self._latest is None or self._latest[0] != family_number:
            self._latest = family_number, _family(stream(f"webshop/{self.seed}/family/{family_number}"))
        family = self._latest[1]
        draws = stream(f"webshop/{self.seed}/product/{number}")
        attributes, options, told, chosen = _varied(family, member, draws)
        asin = _asin(number, self.seed)
        product = _product(family, asin, attributes, options, told, draws)
        plain = [attribute.lstrip("+>") for attribute in attributes]
        some = _some(attributes, draws, draws.between(1, 3))
        entry = {
            "attributes": plain,
            "instruction": synthetic_instruction(family.kind.query, some),
            "instruction_attributes": [attribute.lstrip("+>") for attribute in some],
        }
        first, last = number * self.goals // self.products, (number + 1) * self.goals // self.products
        said: dict[str, dict[str, Any]] = {}
        for _ in range(_GOAL_TRIES * (last - first)):
            if len(said) == last - first:
                break
            goal = _goal(draws.pick((family.noun, family.kind.query)), attributes, options, told, chosen, draws)
            said.setdefault(goal["instruction"], {"asin": asin, "attributes": plain, **goal})
        return GeneratedItem(product, entry, list(said.values()))


def _asin(number: int, seed: int) -> str:
    rest, digits = (number * _ASIN_STEP + 7_919 * seed + 1_234_567_891) % _ASINS, ""
    for _ in range(8):
        rest, digit = divmod(rest, 36)
        digits += _DIGITS[digit]
    return "B0" + digits


def _some(values: Sequence[str], draws: Draws, count: int) -> list[str]:
    """So many of the values, in any order."""
    rest = list(values)
    return [rest.pop(draws.between(0, len(rest) - 1)) for _ in range(min(count, len(rest)))]


def _family(draws: Draws) -> _Family:
    kind = draws.pick(kinds())
    pool = _some(kind.attributes, draws, len(kind.attributes))
    count = draws.between(4, 6)
    options = []
    if draws.between(1, 20) > 1:
        for name, values in kind.options:
            listed = OPTION_VALUES[values]
            taken = set(_some(listed, draws, draws.between(3, 9)))
            offered = tuple(value for value in listed if value in taken)
            options.append((name, offered, tuple(value for value in listed if value not in taken)))
    low, high = kind.dollars
    return _Family(
        kind=kind,
        brand=draws.pick(BRAND_STARTS) + draws.pick(BRAND_ENDS),
        adjective=draws.pick(ADJECTIVES),
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


def _varied(family: _Family, member: int, draws: Draws) -> tuple[tuple[str, ...], _Options, str, dict[str, str]]:
    """Attributes and options of one of the four, the attribute and the option value that it alone has."""
    attributes = list(family.attributes)
    options = {name: offered for name, offered, _ in family.options}
    told, chosen = "", {}
    if member in (1, 3):
        told = family.spare[min(member // 2, len(family.spare) - 1)]
        attributes[draws.between(0, len(attributes) - 1)] = told
    elif member == 2:
        free = [(name, rest) for name, _, rest in family.options if rest]
        if free:
            name, rest = draws.pick(free)
            place = draws.between(0, len(options[name]) - 1)
            chosen[name] = draws.pick(rest)
            options[name] = (*options[name][:place], chosen[name], *options[name][place + 1 :])
        else:
            told = family.spare[-1]
            attributes[-1] = told
    return tuple(attributes), options, told, chosen


def _product(
    family: _Family, asin: str, attributes: Sequence[str], options: _Options, told: str, draws: Draws
) -> dict[str, Any]:
    plain = [attribute.lstrip("+>") for attribute in attributes]
    noun, brand = family.noun, family.brand
    cents = family.cents * draws.between(90, 115) // 100
    if family.unpriced:
        pricing = ""
    elif family.ranged:
        pricing = f"${cents / 100:.2f} to ${cents * draws.between(110, 160) / 10000:.2f}"
    else:
        pricing = f"${cents / 100:.2f}"
    bullets = [_bullet(attribute, noun, draws) for attribute in sorted(attributes, key=lambda a: a != told)]
    if draws.between(1, 3) > 1:
        bullets.append(f"Made for {family.occasion}, and a good gift. ")
    image = f"https://images.example/{asin}"
    customization = {
        name.title(): [
            {
                "is_selected": place == 0,
                "value": value.title() if "mah" not in value and '"' not in value else value,
                "price_string": "",
                "price": 0,
                "image": f"{image}-{place}.jpg" if name == "color" else None,
            }
            for place, value in enumerate(values)
        ]
        for name, values in options.items()
    }
    return {
        "name": _title(family, plain),
        "brand": f"Visit the {brand} Store",
        "full_description": _description(family, plain, draws),
        "pricing": pricing,
        "images": [f"{image}.jpg"],
        "product_category": family.kind.path,
        "average_rating": family.rating / 10,
        "small_description": bullets,
        "customization_options": customization or None,
        "asin": asin,
        "category": family.kind.department,
        "query": family.kind.query,
        "page": draws.between(1, 400),
    }


def _title(family: _Family, plain: Sequence[str]) -> str:
    """A title; where it calls the product by another name, it says the usual one too, as sellers do."""
    noun = family.noun.title()
    first, second, third, fourth = (attribute.title() for attribute in plain[:4])
    start = f"{family.brand} {family.adjective}"
    title = (
        f"{start} {noun}, {first}, {second}, {third}, {fourth}",
        f"{start} {noun} - {first} - {second} - {third} for {family.occasion.title()}",
        f"{start} {first} {noun} for {family.occasion.title()}, {second}, {third} & {fourth}",
        f"{family.brand} {noun} ({first}, {second}, {third})",
        f"{start} {noun} | {first} | {second} | {third}",
        f"{first} {noun} by {family.brand}, {second}, {third}, {fourth}, {family.adjective} Choice",
    )[family.title]
    query = family.kind.query
    return title if set(query.split()) <= set(family.noun.split()) else f"{title}, {query.title()}"


def _description(family: _Family, plain: Sequence[str], draws: Draws) -> str:
    noun, brand, query = family.noun, family.brand, family.kind.query
    listed = ", ".join(plain[:-1]) + " and " + plain[-1]
    if draws.between(1, 20) == 1:
        return ""
    one = with_article(query)
    be, stand, it = ("are", "stand", "them") if is_plural(noun) else ("is", "stands", "it")
    return draws.pick(
        (
            f"The {brand} {noun} {be} what you want for {family.occasion}. {listed.capitalize()}: {one}.",
            f"{brand} makes {'all' if is_plural(query) else 'every'} {query} with care. At a glance: {listed}. "
            f"Ideal for {family.occasion}.",
            f"Looking for {one}? Our {noun} {stand} for {listed}. People take {it} along for {family.occasion}.",
            f"{noun.capitalize()} from {brand} ({query}): {listed}.",
        )
    )


def _bullet(attribute: str, noun: str, draws: Draws) -> str:
    plain, head = attribute.lstrip("+>"), attribute.lstrip("+>").capitalize()
    one, many = with_article(noun), is_plural(noun)
    if attribute[0] == "+":
        comes = "come" if many else "comes"
        forms = (f"{head}: {comes} with {plain}, as {one} should. ", f"{head.upper()} - you will notice it at once. ")
    elif attribute[0] == ">":
        suits = "suit" if many else "suits"
        forms = (f"Made for {plain}: tried and liked by many. ", f"{head.upper()} - {one} that {suits} it. ")
    else:
        this = f"these {noun} are" if many else f"this {noun} is"
        forms = (f"{head}: {this} {plain}. ", f"{head.upper()} - {plain} from the first day on. ")
    return draws.pick(forms)


def _goal(
    noun: str, attributes: Sequence[str], options: _Options, told: str, chosen: dict[str, str], draws: Draws
) -> dict[str, Any]:
    """What a shopper says who wants this product, more often than not for what it alone has."""
    wanted = _some(attributes, draws, draws.pick((1, 2, 2, 3, 3)))
    if told and told not in wanted and draws.between(1, 10) <= 7:
        wanted[-1] = told
    picked: dict[str, str] = {}
    for name, values in options.items():
        if draws.between(1, 20) <= 19:
            picked[name] = chosen[name] if name in chosen and draws.between(1, 10) <= 6 else draws.pick(values)
    picked = {name: shown_value(value) for name, value in picked.items()}
    return {
        "instruction": instruction(noun, wanted, picked, draws),
        "options": [f"{name}: {value}" for name, value in picked.items()],
        "instruction_attributes": [attribute.lstrip("+>") for attribute in wanted],
        "instruction_options": list(picked.values()),
    }
