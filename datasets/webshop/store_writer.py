"""Converts a catalog of products into a store, in one pass over the products.

index.json                  format, version, counts, source, size and SHA-256 of the other files
search/                     the BM25 index; its rows are the products, each a JSON array of a `Product`'s fields
prices                      float64, the price of each product
human.*, synthetic.*        the goals: numbers of products, which of a product's goals, price ceilings
where.json, where.numbers   products by category, query and attribute
"""

from __future__ import annotations

import dataclasses
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

FORMAT = "agent_envs.webshop"
VERSION = 1

_K1, _B = 0.9, 0.4  # pyserini's, and the original's
_PROCESSES_FROM = 16 << 20  # bytes of sources; below this, starting processes takes longer than indexing

_FIELDS = tuple(field.name for field in dataclasses.fields(Product))
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_product(product: Product) -> bytes:
    """Return a product as the store keeps it."""
    return _encode([getattr(product, name) for name in _FIELDS]).encode("utf-8", "surrogatepass")


def decode_product(data: bytes) -> Product:
    """Return the product that `encode_product` wrote."""
    values = dict(zip(_FIELDS, json.loads(data), strict=True))
    for name in ("bullets", "pricing", "attributes", "instruction_attributes"):
        values[name] = tuple(values[name])
    values["options"] = {name: tuple(listed) for name, listed in values["options"].items()}
    values["human"] = tuple(HumanInstruction(text, tuple(a), tuple(o)) for text, a, o in values["human"])
    return Product(**values)


class _Columns:
    """The columns of numbers that are collected while the products are indexed."""

    def __init__(self) -> None:
        self.rng = random.Random(DRAW_SEED)
        self.prices = array("d")
        self.where: dict[str, dict[str, array[int]]] = {"category": {}, "query": {}, "attribute": {}}
        self.human_numbers, self.human_items = array("i"), array("i")
        self.synthetic_numbers, self.synthetic_counts = array("i"), array("q")
        self.human_products = 0

    def rows(self, products: Iterable[Product]) -> Iterator[tuple[dict[str, str], bytes]]:
        """Collect the columns, and yield what the index searches and stores of each product."""
        for number, product in enumerate(products):
            self._add(number, product)
            yield {"id": product.asin, "contents": search_text(product)}, encode_product(product)

    def _add(self, number: int, product: Product) -> None:
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
    """Write a store into an empty folder."""
    columns = _Columns()
    search = folder / "search"
    search.mkdir()
    processes = min(os.cpu_count() or 1, 4) if size >= _PROCESSES_FROM else 0
    with closing(IndexBuilder(search, _K1, _B, processes=processes)) as builder:
        builder.add_all(columns.rows(products))
        builder.finish(progress=progress)
    files: dict[str, Any] = {}

    def save(name: str, values: Any, dtype: str) -> None:
        files.update(write_array(folder, name, np.asarray(values).astype(dtype)))

    prices = columns.prices
    save("prices", prices, "<f8")
    state = columns.rng.getstate()
    order = array("i", range(len(columns.human_numbers)))
    ceilings = array("d", (draw_ceiling(prices[number], columns.rng) for number in columns.human_numbers))
    shuffle_goals(order)
    indices = np.frombuffer(order, np.int32) if order else np.empty(0, np.int32)
    save("human.numbers", np.asarray(columns.human_numbers, np.int32)[indices], "<i4")
    save("human.items", np.asarray(columns.human_items, np.int32)[indices], "<i4")
    save("human.ceilings", np.asarray(ceilings, np.float64)[indices], "<f8")
    columns.rng.setstate(state)
    save("synthetic.numbers", columns.synthetic_numbers, "<i4")
    save("synthetic.offsets", offsets_of(np.asarray(columns.synthetic_counts, np.int64)), "<i8")
    save("synthetic.ceilings", [draw_ceiling(prices[n], columns.rng) for n in columns.synthetic_numbers], "<f8")

    where: dict[str, dict[str, tuple[int, int]]] = {}
    numbers = array("i")
    for key, lists in columns.where.items():
        where[key] = {}
        for value, matches in lists.items():
            where[key][value] = len(numbers), len(numbers) + len(matches)
            numbers.extend(matches)
    save("where.numbers", numbers, "<i4")
    raw = np.frombuffer(_encode(where).encode("utf-8", "surrogatepass"), np.uint8)
    files.update(write_array(folder, "where.json", raw))
    manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, "products": len(prices)}
    manifest |= {"with_human_instructions": columns.human_products, "about": about, "files": files}
    write_manifest(folder, manifest)
