"""Opens catalogs: each is converted once into a store, which all environments and processes share.

Stores are kept with the other indexes, never next to the data; their names change with the sources.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from agent_envs.datasets.indexes import cached_index, stamps_digest
from agent_envs.datasets.paths import data_name, official_dir, user_path
from agent_envs.datasets.webshop.generated.shop import GeneratedShop
from agent_envs.datasets.webshop.products import Product, product_from_row, released_text
from agent_envs.datasets.webshop.released_files import ReleasedFiles, find_released, read_products
from agent_envs.datasets.webshop.store import VERSION, ProductStore, write_store
from agent_envs.errors import BackendError, ConfigError, DataError
from agent_envs.per_process import PerProcess
from agent_envs.retrieval import BM25Retriever
from agent_envs.retrieval.okapi import Okapi
from agent_envs.retrieval.storage import new_folder
from agent_envs.tasks import file_stamps

_stores: PerProcess[ProductStore] = PerProcess()

_LARGE = 64 << 20  # bytes of sources from which a progress bar is shown
_SHOP = 1  # the version of the generated shop


def open_catalog(data: str | os.PathLike[str] = "generated", *, products: int | None = None) -> ProductStore:
    """Open a catalog, once per process, converting it first if necessary; `products` is the generated one's size."""
    data = data_name(data)
    if data == "generated":
        shop = GeneratedShop() if products is None else GeneratedShop(products)
        reopen = functools.partial(open_catalog, data, products=shop.products)
        name = f"generated-{_SHOP}-{shop.products}"
        return _stores.get(name, lambda: _from_cache(shop, name, reopen))
    if products is not None:
        raise ConfigError(f"products only applies to data='generated', not to {data!r}")
    path, reopen = _path(data), functools.partial(open_catalog, data)
    if (path / "index.json").is_file():
        prepared = file_stamps([path / "index.json"])
        try:
            return _stores.get(prepared, lambda: ProductStore(path, reopen))
        except DataError as e:
            again = "agentr1 prepare webshop converts it again"
            raise DataError(f"the catalog in {path} is incomplete ({e}): {again}") from e
    files = find_released(path)
    stamps = file_stamps(files.paths)
    return _stores.get(stamps, lambda: _from_cache(files, stamps_digest(stamps), reopen))


@functools.lru_cache(maxsize=8)
def released_search(catalog: ProductStore, site: str) -> Callable[[str, int], list[str]]:
    """Return the search of one of Agent-R1's shops, from a query and a number to the ids of products, best first."""

    def rows() -> Iterator[dict[str, str]]:
        return ({"id": product.asin, "contents": released_text(product)} for product in catalog.products())

    if site == "agentr1-small":
        okapi = Okapi(row["contents"] for row in rows())
        asins = [product.asin for product in catalog.products()]

        def search(query: str, most: int) -> list[str]:
            scores = okapi.scores(query)
            best = np.argsort(-scores, kind="stable")[:most].tolist()
            return [asins[place] for place in best if scores[place] > 0 or place == best[0]]  # one at least

        return search
    try:
        name = f"webshop-agentr1-{stamps_digest(file_stamps([catalog.folder / 'index.json']))}"
        build = lambda folder: BM25Retriever.build(rows(), folder)  # noqa: E731
        index = cached_index(name, build, functools.partial(BM25Retriever, verify=False))
    except (OSError, ConfigError, DataError, BackendError):  # nothing can be written: build it for this process alone
        index = BM25Retriever.build(rows())
    return lambda query, most: [asin for asin, _ in index.search(query, most)]


def check_catalog(data: str, get: str = "") -> None:
    """Check that the files of a catalog exist, without opening it; a DataError names the missing one, or says `get`."""
    if data != "generated" and not ((path := _path(data, get)) / "index.json").is_file():
        find_released(path)


def _path(data: str, get: str = "") -> Path:
    return official_dir("webshop", get) if data == "official" else user_path(data)


def _from_cache(source: GeneratedShop | ReleasedFiles, name: str, reopen: Callable[[], ProductStore]) -> ProductStore:
    def build(folder: Path) -> ProductStore:
        convert(source, folder)
        return ProductStore(folder, reopen)

    try:
        return cached_index(f"webshop-{VERSION}-{name}", build, lambda folder: ProductStore(folder, reopen))
    except (OSError, ConfigError, BackendError):  # the cache cannot be written: build it for this process alone
        with tempfile.TemporaryDirectory(prefix="agent_envs-webshop-") as temporary:
            return build(Path(temporary, "store"))


def convert(source: GeneratedShop | ReleasedFiles, folder: Path, *, overwrite: bool = False) -> None:
    """Write the store of a source, which appears at `folder` only when it is complete.

    `overwrite` replaces an existing store. The progress of large catalogs is shown.
    """
    size = 2_000 * len(source) if isinstance(source, GeneratedShop) else source.size
    shown = size >= _LARGE
    try:
        with (
            new_folder(folder, overwrite=overwrite) as partial,
            tqdm(desc="products", total=size, unit="B", unit_scale=True, disable=not shown, leave=False) as bar,
        ):
            rows = _generated(source, bar) if isinstance(source, GeneratedShop) else read_products(source, bar.update)
            write_store(partial, rows, size, progress=shown)
    except sqlite3.OperationalError as e:  # the disk is full
        raise BackendError(f"{folder} cannot be written: {e}") from e


def _generated(shop: GeneratedShop, bar: Any) -> Iterator[Product]:
    for item in shop:
        if (product := product_from_row(item.product, item.attributes, item.instructions)) is not None:
            yield product
        bar.update(2_000)
