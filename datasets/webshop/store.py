"""The store that a catalog of products is converted to in one pass, and opened by any number of processes.

index.json        format, version, counts
search/           the BM25 index; its rows are the products, each a JSON array of a `Product`'s fields
catalog.sqlite    prices; goals with their price ceilings, human ones in their shuffled order; products by category,
                  query and attribute
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import random
import sqlite3
import threading
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from agent_envs.datasets.webshop.goals import (
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
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import replacing
from agent_envs.per_process import PerProcess
from agent_envs.retrieval import BM25Retriever
from agent_envs.retrieval.storage import DocumentStore, map_array, read_manifest, write_manifest

FORMAT = "agent_envs.webshop"
VERSION = 3

_CATALOG = "catalog.sqlite"
_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE prices (product INTEGER PRIMARY KEY, price REAL);
CREATE TABLE goals (human, first, product, item, ceiling, PRIMARY KEY (human, first)) WITHOUT ROWID;
CREATE TABLE listed (kind, value, product);
"""  # `first` is the place of a human goal, and of the first of a product's synthetic ones
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
        self._databases: PerProcess[tuple[threading.Lock, sqlite3.Connection]] = PerProcess()
        self._catalog = map_array(folder / _CATALOG, "u1")  # for forks, if the folder is a temporary one
        self._goals = {human: StoredGoals(self, human, manifest["goals"][not human]) for human in (True, False)}
        self.product_at = functools.lru_cache(_CACHED_PRODUCTS)(self._product_at)
        """Returns the product at a position of the catalog."""
        self._cached_search = functools.lru_cache(_CACHED_SEARCHES)(self._search)
        try:
            self.select("SELECT price FROM prices LIMIT 1")  # opened now: the folder may be a temporary one
        except sqlite3.DatabaseError as e:
            raise DataError(f"{folder / _CATALOG} cannot be read: {e}") from e

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._rows)

    def __deepcopy__(self, memo: object) -> ProductStore:
        return self  # immutable, so copies of an environment share it

    def __reduce__(self) -> tuple[Callable[..., ProductStore], tuple[Any, ...]]:
        return self._reopen or functools.partial(ProductStore, self.folder.resolve()), ()

    def select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that an SQL query finds in the database."""
        lock, database = self._databases.get(None, self._connect)
        with lock:  # from Python 3.12 on, threads that share a connection can get each other's rows
            return database.execute(query, values).fetchall()

    def _connect(self) -> tuple[threading.Lock, sqlite3.Connection]:
        there = (path := (self.folder / _CATALOG).absolute()).exists()
        address = f"{path.as_uri()}?mode=ro&immutable=1" if there else ":memory:"
        database = sqlite3.connect(address, uri=True, check_same_thread=False)
        weakref.finalize(self, database.close).atexit = False  # a fork need not close it
        if not there:
            database.deserialize(self._catalog.tobytes())
        return threading.Lock(), database

    def product(self, asin: str) -> Product | None:
        """Return the product with this id, or None."""
        try:
            return self.product_at(self._rows.number(asin))
        except ConfigError:
            return None

    def products(self) -> Iterator[Product]:
        """Yield all products in the catalog's order."""
        return map(self._product_at, range(len(self)))

    def price(self, asin: str) -> float:
        """Return what the product costs; ConfigError if there is no such product."""
        return float(self.select("SELECT price FROM prices WHERE product = ?", self._rows.number(asin))[0][0])

    def goals(self, human: bool) -> StoredGoals:
        """Return all goals in their shuffled order: what people asked for, or synthetic ones."""
        return self._goals[human]

    def search(self, query: str, k: int) -> tuple[str, ...]:
        """Return the ids of the best k products for a query."""
        return self._cached_search(query, k) if len(query) <= _LONGEST_CACHED else self._search(query, k)

    def where(self, key: str, value: str) -> list[str]:
        """Ids of the products whose "category", "query" or "attribute" is `value`, in the file's order."""
        rows = self.select("SELECT product FROM listed WHERE kind = ? AND value = ? ORDER BY product", key, value)
        return self._rows.ids([number for (number,) in rows])

    def _product_at(self, number: int) -> Product:
        values = dict(zip(_FIELDS, json.loads(self._rows.raw(number)), strict=True))
        for name in ("bullets", "pricing", "attributes", "instruction_attributes", "rating"):
            values[name] = tuple(values[name])
        values["options"] = {name: tuple(listed) for name, listed in values["options"].items()}
        values["human"] = tuple(HumanInstruction(text, tuple(a), tuple(o)) for text, a, o in values["human"])
        return Product(**values)

    def _search(self, query: str, k: int) -> tuple[str, ...]:
        return tuple(asin for asin, _ in self._index.search(query, k))


class StoredGoals(Sequence[Goal]):
    """The goals of a store in their shuffled order, human or synthetic ones, each made when it is asked for."""

    def __init__(self, store: ProductStore, human: bool, length: int) -> None:
        self._store, self._human, self._length = store, human, length

    def __len__(self) -> int:
        return self._length

    def products(self) -> list[int]:
        """Return the number of the product of each human goal."""
        return [number for number, _, _ in self._rows]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(f"there are goals 0 to {self._length - 1}, got {index}")
        if self._human:
            number, item, ceiling = self._rows[index]
            return human_goal(self._store.product_at(number), item, ceiling)
        place = int(self._order[index])
        query = "SELECT first, product, ceiling FROM goals WHERE human = 0 AND first <= ? ORDER BY first DESC LIMIT 1"
        ((first, number, ceiling),) = self._store.select(query, place)
        return synthetic_goal(self._store.product_at(number), place - first, ceiling)

    @functools.cached_property
    def _rows(self) -> list[tuple[Any, ...]]:
        """The human goals: product, which of its instructions, and ceiling."""
        return self._store.select("SELECT product, item, ceiling FROM goals WHERE human = 1 ORDER BY first")

    @functools.cached_property
    def _order(self) -> Any:
        """The shuffled numbers of the synthetic goals, saved in the store if there are many."""
        path = self._store.folder / "synthetic.order"
        if path.is_file() and path.stat().st_size == 4 * self._length:
            return map_array(path, "<i4")
        order = array("i", range(self._length))  # at most MOST_GOALS
        shuffle_goals(order)
        if self._length > _SAVE_ORDER_FROM:
            with suppress(OSError):  # the folder is gone or read-only: keep the order in memory
                with replacing(path) as partial:
                    partial.write_bytes(order.tobytes())
                return map_array(path, "<i4")
        return order


def write_store(folder: Path, products: Iterable[Product], size: int, *, progress: bool) -> None:
    """Write a store into an empty folder; `size` is that of the sources in bytes."""
    from agent_envs.retrieval.bm25.build import IndexBuilder

    rng = random.Random(DRAW_SEED)
    prices, human, counted = array("d"), list[tuple[int, int]](), array("q")  # counted: product and count in turn
    with_instructions = 0
    database = sqlite3.connect(folder / _CATALOG)
    database.executescript(_TABLES)

    def rows() -> Iterator[tuple[dict[str, str], bytes, str]]:
        """Yield what the index searches and stores of each product, and note the rest."""
        nonlocal with_instructions
        for number, product in enumerate(products):
            prices.append(draw_price(product.pricing, rng))
            listed = [("category", product.category), ("query", product.query)]
            listed += [("attribute", attribute) for attribute in dict.fromkeys(product.attributes)]
            database.executemany("INSERT INTO listed VALUES (?, ?, ?)", [(*pair, number) for pair in listed])
            with_instructions += bool(product.human)
            human.extend((number, item) for item in human_goal_numbers(product))
            if (count := synthetic_goal_count(product)) is not None:
                counted.extend((number, min(count, MOST_GOALS + 1)))
            row = _encode([getattr(product, name) for name in _FIELDS]).encode("utf-8", "surrogatepass")
            yield {"id": product.asin, "contents": search_text(product)}, row, ""

    def synthetic() -> Iterator[tuple[int, int, int, int, float]]:
        first = 0
        for number, count in zip(counted[::2], counted[1::2], strict=True):
            ceiling = draw_ceiling(prices[number], rng)
            if count:
                yield 0, first, number, 0, ceiling
            first += count

    with closing(database):
        (folder / "search").mkdir()
        processes = min(os.cpu_count() or 1, 4) if size >= _PROCESSES_FROM else 0
        with closing(IndexBuilder(folder / "search", _K1, _B, processes=processes)) as builder:
            builder.add_all(rows())
            builder.finish(progress=progress)
        state = rng.getstate()
        goals = [(number, item, draw_ceiling(prices[number], rng)) for number, item in human]
        shuffle_goals(goals)
        rng.setstate(state)
        insert = "INSERT INTO goals VALUES (?, ?, ?, ?, ?)"
        database.executemany(insert, ((1, place, *goal) for place, goal in enumerate(goals)))
        database.executemany(insert, synthetic())
        database.executemany("INSERT INTO prices VALUES (?, ?)", enumerate(prices))
        database.execute("CREATE INDEX listed_values ON listed (kind, value, product)")
        database.commit()
    manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, "products": len(prices)}
    manifest |= {"with_human_instructions": with_instructions, "goals": [len(goals), sum(counted[1::2])]}
    write_manifest(folder, {**manifest, "files": {_CATALOG: {"bytes": (folder / _CATALOG).stat().st_size}}})
