"""Opens catalogs: each is converted once into a store, which all environments and processes map into memory.

Products are records found by their offset, in the files of the BM25 index that a store needs anyway; columns of numbers
are in files of their own. A page shows ten products by id, each of which costs one lookup and one small JSON array
(about 15 microseconds). SQLite would need a cache per process and a lock per read, Arrow is an extra package and reads
columns where a page needs rows. Opening a store maps files and reads nothing: 1.18 million products open as fast as a
thousand, and processes share the memory.

Stores are built in the cache folder, never next to the data. Their name is a hash of the sources and of the code that
cleans them, so that a change of either makes a new store, which replaces the old one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from agent_envs.datasets import generated_tasks
from agent_envs.datasets.data_dir import data_dir, data_name, official_dir, user_path
from agent_envs.datasets.webshop.generated.shop import DEFAULT_PRODUCTS, GeneratedShop
from agent_envs.datasets.webshop.products import Product, product_from_row, released_text
from agent_envs.datasets.webshop.released_files import ReleasedFiles, find_released, read_products
from agent_envs.datasets.webshop.store import VERSION, ProductStore, write_store
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import FileLock, read_text
from agent_envs.per_process import PerProcess
from agent_envs.retrieval import BM25Retriever
from agent_envs.retrieval.okapi import OkapiRetriever
from agent_envs.retrieval.storage import new_folder

_stores: PerProcess[ProductStore] = PerProcess()

_LARGE = 64 << 20  # bytes of sources from which a progress bar is shown
_CACHE = "webshop-stores"


def open_catalog(
    data: str | os.PathLike[str] = "generated",
    *,
    products: int | None = None,
    goals: int | None = None,
    seed: int = 0,
) -> ProductStore:
    """Open a catalog, once per process, converting it first if necessary."""
    data = data_name(data)
    if data == "generated":
        shop = GeneratedShop(DEFAULT_PRODUCTS if products is None else products, goals, seed)
        reopen = functools.partial(open_catalog, data, products=shop.products, goals=shop.goals, seed=shop.seed)
        return _stores.get((shop.products, shop.goals, shop.seed), lambda: _from_cache(shop, reopen))
    if products is not None or goals is not None or seed:
        raise ConfigError(f"products, goals and seed only apply to data='generated', not to {data!r}")
    path = official_dir("webshop") if data == "official" else user_path(data)
    if _is_store(path):
        index = path / "index.json"
        return _stores.get((str(path.resolve()), index.stat().st_mtime_ns), lambda: _prepared(path, data))
    files = find_released(path)
    stamps = [(str(p.resolve()), s.st_mtime_ns, s.st_size) for p in files.paths for s in (p.stat(),)]
    return _stores.get(tuple(stamps), lambda: _from_cache(files, functools.partial(open_catalog, data)))


@functools.lru_cache(maxsize=8)
def released_search(catalog: ProductStore, site: str) -> Callable[[str, int], list[str]]:
    """Return the search of one of Agent-R1's shops, from a query and a number to the ids of products, best first.

    The full shop's index is built once, beside the store.
    """
    folder = catalog.folder / "agentr1"
    rows = ({"id": product.asin, "contents": released_text(product)} for product in catalog.products())
    if site == "agentr1-small":
        okapi = OkapiRetriever(rows)
        asins = [product.asin for product in catalog.products()]

        def search(query: str, most: int) -> list[str]:
            scores = okapi.scores(query)
            best = np.argsort(-scores, kind="stable")[:most].tolist()
            return [asins[place] for place in best if scores[place] > 0 or place == best[0]]  # one at least

        return search
    try:
        with FileLock(catalog.folder.with_suffix(".agentr1.lock")):
            try:
                index = BM25Retriever(folder, verify=False)
            except (ConfigError, DataError):  # missing or damaged
                shutil.rmtree(folder, ignore_errors=True)
                index = BM25Retriever.build(rows, folder)
    except OSError:  # nothing can be written there: build it for this process alone
        index = BM25Retriever.build(rows)
    return lambda query, most: [asin for asin, _ in index.search(query, most)]


def check_catalog(data: str) -> None:
    """Check that the files of a catalog exist, without opening it; a DataError names the missing one."""
    if data != "generated":
        path = official_dir("webshop") if data == "official" else user_path(data)
        if not _is_store(path):
            find_released(path)


def _is_store(path: Path) -> bool:
    try:
        return (path / "index.json").is_file()
    except (OSError, ValueError):
        return False


def _prepared(path: Path, data: str) -> ProductStore:
    try:
        return ProductStore(path, functools.partial(open_catalog, data))
    except DataError as e:
        raise DataError(
            f"the catalog in {path} is incomplete ({e}); convert it again with: agentr1 prepare webshop"
        ) from e


def _from_cache(source: GeneratedShop | ReleasedFiles, reopen: Callable[[], ProductStore]) -> ProductStore:
    """Return the store of a source from the cache folder, built there if it is missing or damaged."""
    about, name = _identity(source)
    folder = data_dir() / _CACHE / name
    try:
        return ProductStore(folder, reopen)
    except DataError:
        pass
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            try:
                return ProductStore(folder, reopen)  # another process was faster
            except DataError:
                shutil.rmtree(folder, ignore_errors=True)
            convert(source, folder)
            _remove_others(folder, about)
            return ProductStore(folder, reopen)
    except (OSError, ConfigError):  # the cache cannot be written: build it for this process alone
        with tempfile.TemporaryDirectory(prefix="agent_envs-webshop-") as temporary:
            folder = Path(temporary, "store")
            convert(source, folder)
            return ProductStore(folder, reopen)


def _remove_others(folder: Path, about: dict[str, Any]) -> None:
    """Remove outdated stores of the same source, and the remains of conversions that were killed."""
    for partial in folder.parent.glob("*.partial"):
        with suppress(BlockingIOError), FileLock(partial.with_suffix(".lock"), wait=False):  # nobody is building it
            shutil.rmtree(partial, ignore_errors=True)
    for other in folder.parent.glob("*/index.json"):
        if other.parent.suffix == ".partial":  # still being built
            continue
        try:
            same = json.loads(read_text(other)).get("about") == about
        except (OSError, ValueError):
            continue
        if same and other.parent != folder:
            shutil.rmtree(other.parent, ignore_errors=True)


_CODE = ("goals.py", "products.py", "released_files.py", "store.py")


@functools.cache
def _code(generated: bool) -> str:
    """Return a digest of the code, and the tables it reads, that a store depends on."""
    folder = Path(__file__).parent
    paths = [folder / name for name in _CODE]
    if generated:
        tables = folder.glob("generated/*.json")
        paths += [Path(generated_tasks.__file__), *sorted(folder.glob("generated/*.py")), *sorted(tables)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _identity(source: GeneratedShop | ReleasedFiles) -> tuple[dict[str, Any], str]:
    """Return a store's source, for its manifest, and its name, a hash of source, contents and code."""
    if isinstance(source, GeneratedShop):
        about: dict[str, Any] = {"generated": [source.products, source.goals, source.seed]}
        contents: list[Any] = []
    else:
        about = {"files": [str(path.resolve()) for path in source.paths]}
        contents = source.fingerprint()
    identity = json.dumps([VERSION, about, contents, _code(isinstance(source, GeneratedShop))])
    return about, hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def convert(
    source: GeneratedShop | ReleasedFiles, folder: Path, *, overwrite: bool = False, progress: bool | None = None
) -> None:
    """Write the store of a source, which appears at `folder` only when it is complete.

    `overwrite` replaces an existing store; `progress=None` shows the progress of large catalogs.
    """
    if isinstance(source, GeneratedShop):
        size = 2_000 * len(source)
        bar_of: dict[str, Any] = {"total": len(source), "unit": " products"}
    else:
        size = source.size
        bar_of = {"total": size, "unit": "B"}
    shown = size >= _LARGE if progress is None else progress
    with (
        new_folder(folder, overwrite=overwrite) as partial,
        tqdm(desc="products", unit_scale=True, disable=not shown, leave=False, **bar_of) as bar,
    ):
        rows = _generated(source, bar) if isinstance(source, GeneratedShop) else read_products(source, bar.update)
        write_store(partial, rows, size, _identity(source)[0], progress=shown)


def _generated(shop: GeneratedShop, bar: Any) -> Iterator[Product]:
    for item in shop:
        product = product_from_row(item.product, item.attributes, item.instructions)
        if product is not None:
            yield product
        bar.update()
