"""WebShop's reward: how well a purchase meets a goal, from 0 to 1, as get_reward of the original's goal.py computes it.

score = r_type x (attributes matched + options matched + price ok) / (goal attributes + goal options + 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_envs.datasets.webshop.products import Goal, Product
from agent_envs.envs.webshop.fuzzy import alike
from agent_envs.envs.webshop.nouns import Tagger
from agent_envs.envs.webshop.words import words

REWARDS = ("official", "agentr1")
SUCCESS = 0.999  # the least score of a purchase that counts as success
_RIGHT, _INVALID = 10.0, -0.1  # reward="agentr1"


def step_reward(name: str, score: float, *, valid: bool) -> float:
    """Return the reward, one of REWARDS by name, of an action with an official score (0 before the purchase).

    >>> step_reward("agentr1", 1.0, valid=True), step_reward("agentr1", 0.5, valid=True)
    (10.0, 0.0)
    """
    return score if name == "official" else _RIGHT * (score >= SUCCESS) + _INVALID * (not valid)


def basic_color(option: Any, colors: str = "colors") -> Any:
    """Return the first of the basic colours that an option contains, or the option; `colors` names their list."""
    return next((color for color in words(colors) if color in option), option)


def purchase_reward(
    product: Product, goal: Goal, price: float, options: Mapping[str, str], tagger: Tagger, text: str = ""
) -> tuple[float, dict[str, Any]]:
    """Return the official reward for a purchase with the chosen values by option name, and the parts of the reward.

    The parts are r_type, r_att, r_option, r_price with their weights, query_match, category_match, title_score.
    r_option is missing if the goal has no options, r_price if its price limit is not above 0. With `text`, the score is
    Agent-R1's: an attribute that it contains counts too, and fewer colours are basic.
    """
    kind = _type_reward(product, goal, tagger)
    attributes = sum(name.lower() in text or _has_attribute(product, name) for name in goal.attributes)
    basic = "released_colors" if text else "colors"
    colors = [basic_color(value, basic) for value in options.values()]
    # The original compares the choice with a pair of name and value, written as "('color', 'wine red')".
    wanted: Iterable[Any] = goal.options.items() if isinstance(goal.options, Mapping) else goal.options
    chosen = sum(
        any(alike(color, asked) for color in colors) for asked in (basic_color(each, basic) for each in wanted)
    )
    cheap = price <= goal.price_upper if goal.price_upper > 0 else None
    asked = len(goal.attributes) + len(goal.options) + 1
    info = {**kind, "r_att": attributes / max(1, len(goal.attributes)), "w_att": len(goal.attributes) / asked}
    if goal.options:
        info["r_option"] = chosen / len(goal.options)
        info["w_option"] = len(goal.options) / asked
    if cheap is not None:
        info["r_price"] = cheap
        info["w_price"] = 1 / asked
    return (attributes + chosen + bool(cheap)) / asked * kind["r_type"], info


def _type_reward(product: Product, goal: Goal, tagger: Tagger) -> dict[str, Any]:
    query_match = product.query == goal.query
    levels = _levels(product.product_category) & _levels(goal.product_category)
    category_match = len(levels) >= 2
    wanted = tagger(goal.name)
    shared = len(set(wanted) & set(tagger(product.title)))
    title_score = shared / len(wanted) if wanted else 0.2
    r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    if title_score < 0.1:
        r_type = 0.1 if title_score else 0.0
    matches = {"query_match": query_match, "category_match": category_match, "title_score": title_score}
    return {"r_type": r_type, **matches}


def _levels(product_category: str) -> set[str]:
    return {level.strip() for level in product_category.split("›")}


def _has_attribute(product: Product, wanted: str) -> bool:
    return any(alike(attribute, wanted) for attribute in product.attributes) or any(
        wanted in text.lower() for text in (product.title, " ".join(product.bullets), product.description)
    )
