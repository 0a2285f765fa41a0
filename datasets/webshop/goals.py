"""WebShop's goals: human instructions, or combinations of attributes, options and a price ceiling.

Follows get_goals of princeton-nlp/WebShop's web_agent_site/engine/goal.py and the shuffle of its text environment. The
original draws prices of ranges and price ceilings from a generator without a seed; here one generator with a seed
draws all prices in the products' order and then all ceilings in the goals' order.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, MutableSequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from agent_envs.datasets.fields import as_list, as_object, text_field, verl_row
from agent_envs.datasets.webshop.products import Goal, Product
from agent_envs.errors import DataError
from agent_envs.files import read_object
from agent_envs.tasks import read_rows
from agent_envs.text import clean_text

DRAW_SEED = 0
"""The seed of drawn prices and ceilings."""
ANY_PRICE = 1_000_000
"""The price ceiling of goals without one."""
MOST_GOALS = 100_000_000
"""The most synthetic goals of a catalog: one product with many options can have more than can be shuffled in time."""
_SHUFFLE_SEED = 233
_STEP, _HIGHEST, _CHOICES = 10.0, 99, 4  # a ceiling is one of the next four multiples of 10, at most 990


def draw_price(pricing: tuple[float, ...], rng: random.Random) -> float:
    """Return a product's price, drawn from its range if it has one; `rng` draws the ceilings after all prices."""
    return rng.uniform(*pricing) if len(pricing) == 2 else pricing[0]


def shuffle_goals(goals: MutableSequence[Any]) -> None:
    """Shuffle goals, or their numbers, into the order in which splits are cut."""
    random.Random(_SHUFFLE_SEED).shuffle(goals)


def draw_ceiling(price: float, rng: random.Random) -> float:
    """Draw a ceiling above the price: the higher of two of the next four multiples of 10."""
    choices = [_STEP * n for n in range(1, _HIGHEST + 1) if _STEP * n > price][:_CHOICES]
    return max(rng.sample(choices, 2)) if len(choices) > 1 else ANY_PRICE


def _ceiling_words(ceiling: float) -> str:
    return "" if ceiling == ANY_PRICE else f", and price lower than {ceiling:.2f} dollars"


def human_goal(product: Product, number: int, ceiling: float) -> Goal:
    """Return the goal of one of the product's human instructions."""
    instruction = product.human[number]
    text = instruction.text.strip(".") + _ceiling_words(ceiling)
    return _goal(product, text, instruction.attributes, instruction.options, ceiling)


def human_goal_numbers(product: Product) -> list[int]:
    """Return which of the product's human instructions are goals: those that ask for attributes."""
    return [number for number, instruction in enumerate(product.human) if instruction.attributes]


def synthetic_goal(product: Product, number: int, ceiling: float) -> Goal:
    """Return one of the product's synthetic goals: all combinations of its options, the last one changing fastest."""
    options: dict[str, str] = {}
    for name in sorted(product.options, reverse=True):
        number, value = divmod(number, len(product.options[name]))
        options[name] = product.options[name][value]
    options = {name: options[name] for name in sorted(options)}
    wanted = ", and ".join(f"{name}: {value}" for name, value in options.items())
    text = f"{product.instruction}{' with ' + wanted if wanted else ''}{_ceiling_words(ceiling)}"
    return _goal(product, text, product.instruction_attributes, options, ceiling)


def synthetic_goal_count(product: Product) -> int | None:
    """Return how many synthetic goals a product has; None if it has no instruction to make them from.

    A product with an instruction and an option without values has 0, and still draws a ceiling.
    """
    if product.instruction is None or not product.instruction_attributes:
        return None
    return math.prod(map(len, product.options.values()))


def _goal(
    product: Product,
    instruction: str,
    attributes: tuple[str, ...],
    options: Mapping[str, str] | tuple[str, ...],
    ceiling: float,
) -> Goal:
    p = product
    return Goal(p.asin, p.title, p.category, p.query, p.product_category, instruction, attributes, options, ceiling)


def released_small_goals(products: Iterable[Product]) -> list[Goal]:
    """Return the goals of Agent-R1's small shop: all combinations of a product's options, the last changing fastest."""
    goals = []
    for product in products:
        if not (begin := " ".join((product.instruction or "").lower().split())):
            continue
        names = [" ".join(name.split()) for name in product.options]
        ceiling = round(min(product.pricing) * 1.5 + 1, 2)
        for values in itertools.product(*product.options.values()):
            options = {name: " ".join(value.split()) for name, value in zip(names, values, strict=True)}
            wanted = ", ".join(f"{name}: {value}" for name, value in options.items())
            text = f"{begin} with {wanted}" if wanted else begin
            goals.append(_goal(product, text, product.instruction_attributes, options, ceiling))
    shuffle_goals(goals)
    return goals


def released_full_goals(products: Iterable[Product]) -> list[Goal]:
    """Return the goals of Agent-R1's full shop: those of people; one generator draws all ceilings, then the order."""
    rng = random.Random(_SHUFFLE_SEED)
    goals = []
    for product in products:
        for number in human_goal_numbers(product):
            goal = human_goal(product, number, draw_ceiling(min(product.pricing), rng))
            goals.append(replace(goal, options=tuple(option.lower() for option in goal.options)))
    rng.shuffle(goals)
    return goals


def read_prices(path: str | Path) -> dict[str, float]:
    """Read drawn prices from a JSON object {asin: price}; a DataError says what is wrong with it."""
    prices: dict[str, float] = read_object(Path(path).expanduser(), "an object {asin: price}")
    for asin, price in prices.items():
        if not _is_number(price):
            raise DataError(f"{path}: the price of {asin!r} must be a number, got {price!r:.80}")
    return prices


def read_goals(path: str | Path) -> list[Goal]:
    """Read goals from a .jsonl or .json file, in its order.

    {"asin", "name", "category", "query", "product_category", "instruction_text", "attributes", "goal_options",
     "price_upper", "weight"}
    """
    path = Path(path).expanduser()
    goals = [_read_goal(row, where) for row, where in read_rows(path)]
    if not goals:
        raise DataError(f"{path} has no goals")
    return goals


def read_released_goals(
    files: Iterable[Path], product: Callable[[str], Product | None]
) -> tuple[dict[int, Goal], dict[str, list[int]]]:
    """Read the goals of Agent-R1's data release, whose rows are those of a split each.

    Args:
        files: A SPLIT.parquet for each split.
        product: Returns the product of an ASIN: what rows leave out is taken from it.

    Returns:
        The goals by their `goal_index`, and the numbers of each split's, in the order of its rows.

    Raises:
        DataError: A row is no goal, or its product is not in the catalogue; two rows have one number.
    """
    goals: dict[int, Goal] = {}
    splits: dict[str, list[int]] = {}
    for file in files:
        for row, where in read_rows(file):
            released = verl_row(row, where, "webshop")
            wanted = as_object(released.ground_truth, "an object under 'ground_truth'", where)
            asin, number = text_field(wanted, "asin", where), released.extra.get("goal_index")
            if type(number) is not int or number < 0 or number in goals:
                raise DataError(f"{where}: expected a 'goal_index' of its own, got {number!r:.40}")
            sold = product(asin)
            if sold is None:
                raise DataError(
                    f"{where}: the catalogue has no product {asin!r:.40}; data= must be the one of these rows"
                )
            listed = as_list(wanted.get("goal_options") or [], "goal_options", where)
            pairs = [as_object(each, "options of 'name' and 'value'", where) for each in listed]
            names = [str(each.get("name") or "") for each in pairs]
            values = [each.get("value") for each in pairs]
            options = dict(zip(names, values, strict=True)) if all(names) else values
            of_product = {"name": sold.title, "query": sold.query, "product_category": sold.product_category}
            goal = {**wanted, **of_product, "category": sold.category, "goal_options": options}
            goals[number] = _read_goal({**goal, "instruction_text": wanted.get("instruction")}, where)
            splits.setdefault(file.stem, []).append(number)
    return goals, {"all": sorted(goals), **splits}


def _read_goal(row: Any, where: str) -> Goal:
    if not isinstance(row, dict):
        raise DataError(f"{where}: a goal is an object, got {type(row).__name__}")
    row = {"instruction_text": row.get("instruction"), **row}
    for key in ("asin", "name", "query", "product_category", "instruction_text"):
        if not isinstance(row.get(key), str):
            raise DataError(f"{where}: a goal needs {key!r}, a string; got {row.get(key)!r:.80}")
    options, attributes, ceiling = row.get("goal_options"), row.get("attributes"), row.get("price_upper")
    if not isinstance(attributes, list) or not attributes or not all(isinstance(a, str) for a in attributes):
        raise DataError(f"{where}: a goal needs 'attributes', a list of strings; got {attributes!r:.80}")
    if not isinstance(options, (list, dict)) or not all(
        isinstance(o, str) for o in (options.values() if isinstance(options, dict) else options)
    ):
        raise DataError(f"{where}: 'goal_options' must be a list of strings or an object; got {options!r:.80}")
    if not _is_number(ceiling):
        raise DataError(f"{where}: 'price_upper' must be a number, got {ceiling!r:.80}")
    same = {key: row[key] for key in ("asin", "name", "query", "product_category", "price_upper")}
    return Goal(
        **same,
        category=str(row.get("category", "")),
        instruction=clean_text(row["instruction_text"]),
        attributes=tuple(attributes),
        options=options if isinstance(options, dict) else tuple(options),
        weight=weight if _is_number(weight := row.get("weight", 1)) else 1,
    )


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number that a float can hold."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]
