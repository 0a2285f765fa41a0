"""Converting a catalogue of products into a store: one pass over the products, whatever their number.

index.json              format, version, counts, where it came from, size and SHA-256 of the files beside it
search/                 the BM25 index; its rows are the products, one JSON array of a `Product`'s fields each
prices                  float64, what each product costs
human.*, synthetic.*    the goals: numbers of products, which of a product's goals, ceilings
where.json, where.numbers   products by category, query and attribute
"""

from __future__ import annotations

import json
import os
import random
from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.datasets.webshop.goals import (
    DRAW_SEED,
    MOST_GOALS,
    draw_ceiling,
    draw_prices,
    human_goal_numbers,
    shuffle_goals,
    synthetic_goal_count,
)
from agent_envs.datasets.webshop.products import HumanInstruction, Product, search_text
from agent_envs.retrieval.bm25.build import IndexBuilder
from agent_envs.retrieval.storage import offsets_of, write_array, write_manifest

__all__ = ["FORMAT", "VERSION", "decode_product", "encode_product", "write_store"]

FORMAT = "agent_envs.webshop"
VERSION = 1

_K1, _B = 0.9, 0.4  # pyserini's, and the original's
_PROCESSES_FROM = 16 << 20  # bytes of sources; below it helper processes would hardly have started

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_product(product: Product) -> bytes:
    """A product as the store keeps it."""
    fields = (
        product.asin,
        product.title,
        product.category,
        product.query,
        product.product_category,
        product.description,
        product.bullets,
        product.pricing,
        product.price_tag,
        product.options,
        product.option_images,
        product.attributes,
        product.image,
        product.instruction,
        product.instruction_attributes,
        [(asked.text, asked.attributes, asked.options) for asked in product.human],
    )
    return _encode(fields).encode("utf-8", "surrogatepass")


def decode_product(data: bytes) -> Product:
    """The product that `encode_product` wrote.

    >>> from agent_envs.datasets.webshop.products import product_from_row
    >>> product = product_from_row({"asin": "B1", "name": "Lamp"})
    >>> decode_product(encode_product(product)) == product
    True
    """
    (asin, title, category, query, path, description, bullets, pricing, tag, options, images, attributes, image,
     instruction, wanted, human) = json.loads(data)  # fmt: skip
    return Product(
        asin=asin,
        title=title,
        category=category,
        query=query,
        product_category=path,
        description=description,
        bullets=tuple(bullets),
        pricing=tuple(pricing),
        price_tag=tag,
        options={name: tuple(values) for name, values in options.items()},
        option_images=images,
        attributes=tuple(attributes),
        image=image,
        instruction=instruction,
        instruction_attributes=tuple(wanted),
        human=tuple(HumanInstruction(text, tuple(some), tuple(values)) for text, some, values in human),
    )


class _Notes:
    """What is kept of every product while they pass."""

    def __init__(self) -> None:
        self.rng = random.Random(DRAW_SEED)
        self.prices = array("d")
        self.where: dict[str, dict[str, array[int]]] = {"category": {}, "query": {}, "attribute": {}}
        self.human_numbers, self.human_items = array("i"), array("i")
        self.synthetic_numbers, self.synthetic_counts = array("i"), array("q")
        self.human_products = 0

    def rows(self, products: Iterable[Product]) -> Iterator[tuple[dict[str, str], bytes]]:
        """What is indexed of each product, and what is kept."""
        for number, product in enumerate(products):
            self._take(number, product)
            yield {"id": product.asin, "contents": search_text(product)}, encode_product(product)

    def _take(self, number: int, product: Product) -> None:
        self.prices.extend(draw_prices([(product.asin, product.pricing)], self.rng).values())
        values = [("category", product.category), ("query", product.query)]
        values += [("attribute", attribute) for attribute in dict.fromkeys(product.attributes)]
        for key, value in values:
            self.where[key].setdefault(value, array("i")).append(number)
        self.human_products += bool(product.human)
        for item in human_goal_numbers(product):
            self.human_numbers.append(number)
            self.human_items.append(item)
        count = synthetic_goal_count(product)
        if count is not None:
            self.synthetic_numbers.append(number)
            self.synthetic_counts.append(min(count, MOST_GOALS + 1))


def write_store(folder: Path, products: Iterable[Product], size: int, about: dict[str, Any], *, progress: bool) -> None:
    """Write a store.

    Args:
        folder: Where; it is there and empty.
        products: In the catalogue's order; read once.
        size: About how many bytes they come from.
        about: What the manifest says about where they come from.
        progress: Whether to show the progress of the merge at the end.

    Raises:
        DataError: There are no products, or what reading them raises.
    """
    notes = _Notes()
    search = folder / "search"
    search.mkdir()
    helpers = min(os.cpu_count() or 1, 4) if size >= _PROCESSES_FROM else 0
    with closing(IndexBuilder(search, _K1, _B, processes=helpers)) as builder:
        builder.add_all(notes.rows(products))
        builder.finish(progress=progress)
    files: dict[str, Any] = {}

    def save(name: str, values: Any, dtype: str) -> None:
        files.update(write_array(folder, name, np.asarray(values).astype(dtype)))

    prices = notes.prices
    save("prices", prices, "<f8")
    state = notes.rng.getstate()
    order = array("i", range(len(notes.human_numbers)))
    ceilings = array("d", (draw_ceiling(prices[number], notes.rng) for number in notes.human_numbers))
    shuffle_goals(order)
    places = np.frombuffer(order, np.int32) if order else np.empty(0, np.int32)
    save("human.numbers", np.asarray(notes.human_numbers, np.int32)[places], "<i4")
    save("human.items", np.asarray(notes.human_items, np.int32)[places], "<i4")
    save("human.ceilings", np.asarray(ceilings, np.float64)[places], "<f8")
    notes.rng.setstate(state)
    save("synthetic.numbers", notes.synthetic_numbers, "<i4")
    save("synthetic.offsets", offsets_of(np.asarray(notes.synthetic_counts, np.int64)), "<i8")
    save("synthetic.ceilings", [draw_ceiling(prices[n], notes.rng) for n in notes.synthetic_numbers], "<f8")

    where: dict[str, dict[str, tuple[int, int]]] = {}
    numbers = array("i")
    for key, lists in notes.where.items():
        where[key] = {}
        for value, found in lists.items():
            where[key][value] = len(numbers), len(numbers) + len(found)
            numbers.extend(found)
    save("where.numbers", numbers, "<i4")
    raw = np.frombuffer(_encode(where).encode("utf-8", "surrogatepass"), np.uint8)
    files.update(write_array(folder, "where.json", raw))
    write_manifest(
        folder,
        {
            "format": FORMAT,
            "version": VERSION,
            "products": len(prices),
            "with_human_instructions": notes.human_products,
            "about": about,
            "files": files,
        },
    )
