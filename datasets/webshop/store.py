"""An open store of products: rows, goals and search, read from files that are mapped into memory."""

from __future__ import annotations

import bisect
import functools
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from agent_envs.datasets.webshop.goals import ANY_PRICE, human_goal, shuffle_goals, synthetic_goal
from agent_envs.datasets.webshop.products import Goal, Product
from agent_envs.datasets.webshop.store_writer import FORMAT, VERSION, decode_product
from agent_envs.errors import ConfigError
from agent_envs.files import replacing
from agent_envs.retrieval import BM25Retriever
from agent_envs.retrieval.storage import DocumentStore, map_array, read_manifest

Reopen = tuple[Callable[..., "ProductStore"], tuple[Any, ...]]
"""A function and its arguments that open a store again: what a pickle of it holds."""

_CACHED_PRODUCTS = 2_048
_CACHED_SEARCHES = 512
_LONGEST_CACHED = 1_000  # characters of a query
_SAVE_ORDER_FROM = 1 << 18  # goals; fewer are shuffled each time


class ProductStore:
    """A converted catalog, which implements `Catalog`.

    Args:
        folder: What `convert` wrote.
        reopen: How to open it where it is unpickled; None opens the same folder.
    """

    def __init__(self, folder: Path, reopen: Reopen | None = None) -> None:
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
        return self._reopen or (ProductStore, (self.folder.resolve(),))

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

    @overload
    def __getitem__(self, index: int) -> Goal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Goal]: ...
    def __getitem__(self, index: int | slice) -> Goal | list[Goal]:
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
