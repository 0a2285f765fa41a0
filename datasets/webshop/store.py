"""A catalogue as a store: converted once, mapped into memory by all environments and processes.

The layout is our own: records that an offset finds, in the files of the BM25 index that the store needs anyway, with
columns of numbers beside it. A page shows ten products by id, which is one lookup and one small JSON array each (about
15 microseconds). SQLite would answer as well, but has its own cache in every process and a lock on every read; Arrow
would have to be installed, and reads columns where a page wants rows. Opening a store maps files and reads nothing, so
that 1.18 million products open as fast as a thousand, and every process shares the pages that any has touched.

A store is built in the cache folder, never beside the data, under a name made of its sources and of the code that
cleans them: changed files or code make another store, and the one before is removed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from agent_envs.datasets import draws
from agent_envs.datasets.data_dir import data_dir, data_name, user_path
from agent_envs.datasets.webshop import build as webshop_build
from agent_envs.datasets.webshop import files as webshop_files
from agent_envs.datasets.webshop import goals as webshop_goals
from agent_envs.datasets.webshop import products as webshop_products
from agent_envs.datasets.webshop.build import VERSION, write_store
from agent_envs.datasets.webshop.catalog import Again, ProductStore
from agent_envs.datasets.webshop.files import ReleasedFiles, find_released, read_products
from agent_envs.datasets.webshop.generated.shop import DEFAULT_PRODUCTS, GeneratedShop
from agent_envs.datasets.webshop.products import Product, product_from_row
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import FileLock
from agent_envs.retrieval.storage import new_folder

__all__ = ["check_catalog", "convert", "open_catalog"]

_LARGE = 64 << 20  # bytes of sources from which on a progress bar is shown
_CACHE = "webshop-stores"


def open_catalog(
    data: str | os.PathLike[str] = "generated",
    *,
    products: int | None = None,
    goals: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> ProductStore:
    """A catalogue, converted if that has not been done, and opened once per process.

    Args:
        data: "generated", "official" (what `agentr1 prepare webshop` placed), the path of a folder with the released
            files, of the file of products with the others beside it, or of a store.
        products: How many products to generate, by default 1,000.
        goals: How many instructions to generate, by default 10,000 or ten for each product.
        seed: The seed of the generated catalogue.
        progress: Whether to show the progress of a conversion; None shows that of large ones.

    Raises:
        DataError: Files that are missing or broken; the message names them.
        ConfigError: Arguments of the generated catalogue with other data, or out of range.
    """
    data = data_name(data)
    if data == "generated":
        shop = GeneratedShop(DEFAULT_PRODUCTS if products is None else products, goals, seed)
        again: Again = _reopened, (data, shop.products, shop.goals, shop.seed)
        return _opened(again[1], lambda: _cached(shop, again, progress))
    if products is not None or goals is not None or seed:
        raise ConfigError(f"products, goals and seed are for data='generated', not for {data!r}")
    path = _official() if data == "official" else user_path(data)
    if _is_store(path):
        index = path / "index.json"
        return _opened((str(path.resolve()), index.stat().st_mtime_ns), lambda: _prepared(path, data))
    files = find_released(path)
    stamps = [(str(p.resolve()), s.st_mtime_ns, s.st_size) for p in files.paths for s in (p.stat(),)]
    return _opened(tuple(stamps), lambda: _cached(files, (_reopened, (data,)), progress))


def check_catalog(data: str) -> None:
    """Refuse the name of a catalogue that is not there, without opening any.

    Raises:
        DataError: Its files are missing; the message names them.
    """
    if data != "generated":
        path = _official() if data == "official" else user_path(data)
        if not _is_store(path):
            find_released(path)


_lock = threading.Lock()
_stores: dict[Any, ProductStore] = {}


def _opened(key: tuple[Any, ...], make: Callable[[], ProductStore]) -> ProductStore:
    with _lock:
        found = _stores.get((os.getpid(), key))
        if found is None:
            found = _stores[os.getpid(), key] = make()
        return found


def _reopened(data: str, products: int | None = None, goals: int | None = None, seed: int = 0) -> ProductStore:
    return open_catalog(data, products=products, goals=goals, seed=seed)


def _official() -> Path:
    folder = data_dir() / "webshop"
    if not folder.is_dir():
        raise DataError(f"the official data of 'webshop' is not at {folder}; fetch it with: agentr1 prepare webshop")
    return folder


def _is_store(path: Path) -> bool:
    try:
        return (path / "index.json").is_file()
    except (OSError, ValueError):
        return False


def _prepared(path: Path, data: str) -> ProductStore:
    try:
        return ProductStore(path, (_reopened, (data,)))
    except DataError as e:
        raise DataError(f"{path} is no whole catalogue ({e}); make it again with: agentr1 prepare webshop") from e


def _cached(source: GeneratedShop | ReleasedFiles, again: Again, progress: bool | None) -> ProductStore:
    """The store of a source from the cache folder, built there if it is missing or broken."""
    about, name = _identity(source)
    folder = data_dir() / _CACHE / name
    try:
        return ProductStore(folder, again)
    except DataError:
        pass
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            try:
                return ProductStore(folder, again)  # another process was faster
            except DataError:
                shutil.rmtree(folder, ignore_errors=True)
            convert(source, folder, progress=progress)
            _remove_others(folder, about)
            return ProductStore(folder, again)
    except (OSError, ConfigError):  # no cache folder to write to: for this process alone, gone when it ends
        with tempfile.TemporaryDirectory(prefix="agent_envs-webshop-") as temporary:
            place = Path(temporary, "store")
            convert(source, place, progress=progress)
            return ProductStore(place, again)


def _remove_others(folder: Path, about: dict[str, Any]) -> None:
    """Remove the stores of the same source that were made of other contents or by other code, and what is left of
    conversions that were killed."""
    for partial in folder.parent.glob("*.partial"):
        with suppress(BlockingIOError), FileLock(partial.with_suffix(".lock"), wait=False):  # nobody builds it
            shutil.rmtree(partial, ignore_errors=True)
    for other in folder.parent.glob("*/index.json"):
        if other.parent.suffix == ".partial":  # being built
            continue
        try:
            same = json.loads(other.read_text(encoding="utf-8")).get("about") == about
        except (OSError, ValueError):
            continue
        if same and other.parent != folder:
            shutil.rmtree(other.parent, ignore_errors=True)


_CODE = (draws, webshop_build, webshop_files, webshop_goals, webshop_products)


@functools.cache
def _code(generated: bool) -> str:
    """Return a digest of the code, and the tables it reads, that a store depends on."""
    paths = [Path(str(module.__file__)) for module in _CODE]
    if generated:
        paths += sorted(Path(__file__).with_name("generated").glob("*.[jp]*"))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _identity(source: GeneratedShop | ReleasedFiles) -> tuple[dict[str, Any], str]:
    """Where a store comes from, for its manifest, and its name, which also knows the contents and the code."""
    if isinstance(source, GeneratedShop):
        about: dict[str, Any] = {"generated": [source.products, source.goals, source.seed]}
        contents: list[Any] = []
    else:
        about = {"files": [str(path.resolve()) for path in source.paths]}
        contents = source.fingerprint()
    known = json.dumps([VERSION, about, contents, _code(isinstance(source, GeneratedShop))])
    return about, hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def convert(
    source: GeneratedShop | ReleasedFiles, folder: Path, *, overwrite: bool = False, progress: bool | None = None
) -> None:
    """Write the store of a source, which appears at `folder` when it is whole.

    Args:
        source: A generated catalogue or released files.
        folder: Where; it must not exist.
        overwrite: Whether a store that is there is replaced.
        progress: Whether to show the progress; None shows that of large catalogues.

    Raises:
        DataError: A broken file or product, or none at all.
        ConfigError: The folder exists or cannot be written.
        BackendError: Another process is writing there.
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
