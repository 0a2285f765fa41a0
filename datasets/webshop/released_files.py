"""Reads WebShop's released files product by product, in bounded memory.

    items_shuffle.json, items_shuffle_1000.json     an array of products; 5 GB for all 1.18 million
    items_ins_v2.json, items_ins_v2_1000.json       an object {asin: attributes and a synthetic instruction}
    items_human_ins.json                            an object {asin: [what people wrote]}
    products.sqlite                                 Agent-R1's data release: a table products (asin, product_json) of
                                                    rows as in the first, each with its `Attributes`

Neither object is in the order of the products: each is copied once into a temporary database.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.datasets.webshop.products import LONGEST_ASIN, Product, product_from_row
from agent_envs.errors import DataError
from agent_envs.json_stream import JSONStream

DATABASE = "products.sqlite"
_PRODUCTS, _ATTRIBUTES, _HUMAN = "items_shuffle", "items_ins_v2", "items_human_ins"


@dataclass(frozen=True, slots=True)
class ReleasedFiles:
    """The files of one catalog."""

    products: Path
    attributes: Path | None
    """items_ins_v2.json, None beside a database, which has them."""
    human: Path | None
    """items_human_ins.json, None if there is none."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of all files."""
        return tuple(path for path in (self.products, self.attributes, self.human) if path)

    @property
    def size(self) -> int:
        """Their total size in bytes."""
        return sum(path.stat().st_size for path in self.paths)


def find_released(path: Path) -> ReleasedFiles:
    """Find the files of a catalog by their folder, or by the products' file in it.

    In a folder with several products' files, `items_shuffle.json` is used; without it there may be only one.
    """
    if not path.exists():
        raise DataError(
            f"there is no file or folder {str(path)!r}; data must be 'generated', 'official', or the path of a folder "
            f"with {_PRODUCTS}.json (or {_PRODUCTS}_1000.json), {_ATTRIBUTES}.json and {_HUMAN}.json"
        )
    if (path / DATABASE).is_file():
        return ReleasedFiles(path / DATABASE, None, None)
    folder, products = (path.parent, path) if path.is_file() else (path, _choose(path, _PRODUCTS, ""))
    suffix = products.stem.removeprefix(_PRODUCTS) if products.stem.startswith(_PRODUCTS) else ""
    human = folder / f"{_HUMAN}.json"
    return ReleasedFiles(products, _choose(folder, _ATTRIBUTES, suffix), human if human.is_file() else None)


def _choose(folder: Path, stem: str, suffix: str) -> Path:
    for name in (f"{stem}{suffix}.json", f"{stem}.json"):
        if (folder / name).is_file():
            return folder / name
    try:
        others = sorted(file for file in folder.glob(f"{stem}*.json") if file.is_file())
    except OSError as e:
        raise DataError(f"the folder {folder} cannot be read: {e.strerror}") from e
    if not others:
        raise DataError(f"{folder} has no {stem}{suffix}.json, one of WebShop's released files: put it there")
    if len(others) > 1:
        names = ", ".join(file.name for file in others)
        raise DataError(f"{folder} has several candidates ({names}) and no {stem}.json: pass the path of one of them")
    return others[0]


def read_products(files: ReleasedFiles, read: Callable[[int], object] | None = None) -> Iterator[Product]:
    """Yield the products in the file's order, each asin once; `read` gets the number of bytes after each read."""
    seen: set[str] = set()
    empty = True
    with _lookup(files.attributes, read) as attributes, _lookup(files.human, read) as human:
        stream = JSONStream(files.products, read)
        for row in stream.rows() if files.attributes else _stored_rows(files.products):
            asin = row.get("asin") if isinstance(row, dict) else None
            entry = instructions = None
            if isinstance(asin, str):
                if asin in seen:
                    continue
                seen.add(asin)
                stored = {"attributes": row.get("Attributes") or []}
                entry, instructions = attributes(asin) if files.attributes else stored, human(asin)
            if instructions is not None and not isinstance(instructions, list):
                raise DataError(f"{files.human}: the entry of {asin!r} must be a list, got {instructions!r:.60}")
            if entry is not None and not isinstance(entry, dict):
                raise DataError(f"{files.attributes}: the entry of {asin!r} must be an object, got {entry!r:.60}")
            if (product := product_from_row(row, entry, instructions or (), where=stream.where)) is not None:
                empty = False
                yield product
    if empty:
        raise DataError(f"there are no products in {files.products}")


def _stored_rows(path: Path) -> Iterator[Any]:
    """Yield the rows of the data release's database."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as database:
            for (text,) in database.execute("SELECT product_json FROM products"):
                yield json.loads(text)
    except (sqlite3.Error, TypeError, ValueError, RecursionError) as e:
        raise DataError(f"{path} cannot be read: {e}") from e


@contextmanager
def _lookup(path: Path | None, read: Callable[[int], object] | None) -> Iterator[Callable[[str], Any]]:
    """Yield a function from the names of an object's members in a file to their values, None for others.

    They are in a temporary database on disk; of a name that occurs twice the last value counts.
    """
    with closing(sqlite3.connect("")) as database:
        database.execute("CREATE TABLE members (name BLOB PRIMARY KEY, value TEXT) WITHOUT ROWID")
        pairs = JSONStream(path, read).pairs() if path else ()
        short = ((_key(name), json.dumps(value)) for name, value in pairs if len(name) <= LONGEST_ASIN)
        database.executemany("INSERT OR REPLACE INTO members VALUES (?, ?)", short)

        def value_of(name: str) -> Any:
            row = database.execute("SELECT value FROM members WHERE name = ?", (_key(name),)).fetchone()
            return None if row is None else json.loads(row[0])

        yield value_of


def _key(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
