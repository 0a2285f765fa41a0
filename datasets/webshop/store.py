"""The store that a catalog of products is converted to in one pass, and read from by mapping its files into memory.

index.json                  format, version, counts, source, size and SHA-256 of the other files
search/                     the BM25 index; its rows are the products, each a JSON array of a `Product`'s fields
prices                      float64, the price of each product
human.*, synthetic.*        the goals: numbers of products, which of a product's goals, price ceilings
where.json, where.numbers   products by category, query and attribute
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import json
import os
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.datasets.webshop.goals import (
    ANY_PRICE,
    DRAW_SEED,
    MOST_GOALS,
    draw_ceiling,
    draw_price,
    human_goal,
    human_goal_numbers,
    shuffle_goals,
    synthetic_goal,
    synthetic_goal_count,
)
from agent_envs.datasets.webshop.products import Goal, HumanInstruction, Product, search_text
from agent_envs.errors import ConfigError
from agent_envs.files import replacing
from agent_envs.retrieval import BM25Retriever
from agent_envs.retrieval.storage import (
    DocumentStore,
    map_array,
    offsets_of,
    read_manifest,
    write_array,
    write_manifest,
)

FORMAT = "agent_envs.webshop"
VERSION = 1

_K1, _B = 0.9, 0.4  # pyserini's, and the original's
_PROCESSES_FROM = 16 << 20  # bytes of sources; below this, starting processes takes longer than indexing

_FIELDS = tuple(field.name for field in dataclasses.fields(Product))
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_CACHED_PRODUCTS = 2_048
_CACHED_SEARCHES = 512
_LONGEST_CACHED = 1_000  # characters of a query
_SAVE_ORDER_FROM = 1 << 18  # goals; fewer are shuffled each time


class ProductStore:
    """A converted catalog: immutable, and shared by all environments of a process.

    Args:
        folder: What `convert` wrote.
        reopen: How to open it where it is unpickled; None opens the same folder.
    """

    def __init__(self, folder: Path, reopen: Callable[[], ProductStore] | None = None) -> None:
        manifest = read_manifest(folder, FORMAT, VERSION, verify=False)
        self.folder = folder
        self.human = bool(manifest["with_human_instructions"])
        """Whether any product has a human instruction."""
        self._reopen = reopen
        self._index = BM25Retriever(folder / "search", verify=False)
        self._rows = DocumentStore(folder / "search")
        self._prices = map_array(folder / "prices", "<f8")
        self._where_numbers = map_array(folder / "where.numbers", "<i4")
        self._where_raw = map_array(folder / "where.json", "u1")
        self._where: dict[str, dict[str, tuple[int, int]]] | None = None
        self._goals = {human: StoredGoals(self, human) for human in (True, False)}
        self._products: dict[int, Product] = {}
        self._cached_search = functools.lru_cache(_CACHED_SEARCHES)(self._search)

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._rows)

    def __deepcopy__(self, memo: object) -> ProductStore:
        return self  # immutable, so copies of an environment share it

    def __reduce__(self) -> tuple[Callable[..., ProductStore], tuple[Any, ...]]:
        return self._reopen or functools.partial(ProductStore, self.folder.resolve()), ()

    def number(self, asin: str) -> int | None:
        """Return the position of a product in the catalog, or None."""
        try:
            return self._rows.number(asin)
        except ConfigError:
            return None

    def product(self, asin: str) -> Product | None:
        """Return the product with this id, or None."""
        number = self.number(asin)
        return None if number is None else self.product_at(number)

    def product_at(self, number: int) -> Product:
        """Return the product at a position of the catalog, cached."""
        product = self._products.get(number)
        if product is None:
            if len(self._products) >= _CACHED_PRODUCTS:
                self._products.clear()
            product = self._products[number] = decode_product(self._rows.raw(number))
        return product

    def products(self) -> Iterator[Product]:
        """Yield all products in the catalog's order."""
        return (decode_product(self._rows.raw(number)) for number in range(len(self)))

    def price(self, asin: str) -> float:
        """Return what the product costs; ConfigError if there is no such product."""
        return float(self._prices[self._rows.number(asin)])

    def goals(self, human: bool) -> StoredGoals:
        """Return all goals in their shuffled order: what people asked for, or synthetic ones."""
        return self._goals[human]

    def search(self, query: str, k: int) -> tuple[str, ...]:
        """Return the ids of the best k products for a query."""
        return self._cached_search(query, k) if len(query) <= _LONGEST_CACHED else self._search(query, k)

    def where(self, key: str, value: str) -> list[str]:
        """Ids of the products whose "category", "query" or "attribute" is `value`, in the file's order."""
        if self._where is None:
            self._where = json.loads(self._where_raw.tobytes())
        begin, end = self._where[key].get(value, (0, 0))
        return self._rows.ids(self._where_numbers[begin:end].tolist())

    def _search(self, query: str, k: int) -> tuple[str, ...]:
        return tuple(asin for asin, _ in self._index.search(query, k))


class StoredGoals(Sequence[Goal]):
    """The goals of a store in their shuffled order, human or synthetic ones, each made when it is asked for."""

    def __init__(self, store: ProductStore, human: bool) -> None:
        folder = store.folder
        self._store, self._human = store, human
        kind = "human" if human else "synthetic"
        self._numbers = map_array(folder / f"{kind}.numbers", "<i4")
        self._ceilings = map_array(folder / f"{kind}.ceilings", "<f8")
        if human:
            self._items = map_array(folder / "human.items", "<i4")
            self._length = len(self._numbers)
        else:
            self._offsets = map_array(folder / "synthetic.offsets", "<i8")
            self._length = int(self._offsets[-1])
        self._order: Any = None

    def __len__(self) -> int:
        return self._length

    def products(self) -> list[int]:
        """Return the number of the product of each goal, or of each group of synthetic goals."""
        return self._numbers.tolist()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(f"there are goals 0 to {self._length - 1}, got {index}")
        index %= self._length
        if self._human:
            return self._make(human_goal, int(self._numbers[index]), int(self._items[index]), index)
        if self._order is None:
            self._order = self._shuffled()
        goal = int(self._order[index])
        entry = bisect.bisect_right(self._offsets, goal) - 1
        return self._make(synthetic_goal, int(self._numbers[entry]), goal - int(self._offsets[entry]), entry)

    def _make(self, make: Callable[[Product, int, float], Goal], number: int, item: int, ceiling: int) -> Goal:
        price = float(self._ceilings[ceiling])
        return make(self._store.product_at(number), item, ANY_PRICE if price == ANY_PRICE else price)

    def _shuffled(self) -> Any:
        """Return the shuffled numbers of the synthetic goals, saved in the store if there are many."""
        path, kind = self._store.folder / "synthetic.order", "i" if self._length < 1 << 31 else "q"
        dtype = f"<i{array(kind).itemsize}"
        if path.is_file() and path.stat().st_size == self._length * array(kind).itemsize:
            return map_array(path, dtype)
        order = array(kind, range(self._length))
        shuffle_goals(order)
        if self._length > _SAVE_ORDER_FROM:
            try:
                with replacing(path) as partial:
                    partial.write_bytes(order.tobytes())
                return map_array(path, dtype)
            except OSError:  # the folder is gone or read-only: keep the order in memory
                pass
        return order


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

    def rows(self, products: Iterable[Product]) -> Iterator[tuple[dict[str, str], bytes, str]]:
        """Collect the columns, and yield what the index searches and stores of each product."""
        for number, product in enumerate(products):
            self._add(number, product)
            yield {"id": product.asin, "contents": search_text(product)}, encode_product(product), ""

    def _add(self, number: int, product: Product) -> None:
        self.prices.append(draw_price(product.pricing, self.rng))
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
    from agent_envs.retrieval.bm25.build import IndexBuilder

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
