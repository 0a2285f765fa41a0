"""`agentr1 prepare webshop` converts the released catalogue, `agentr1 generate webshop` writes a generated one.

The released files are on Google Drive, under the ids that the original's setup.sh names.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from tqdm import tqdm

from agent_envs.datasets.data_dir import data_dir
from agent_envs.datasets.webshop.files import find_released
from agent_envs.datasets.webshop.generated.shop import GeneratedItem, GeneratedShop
from agent_envs.datasets.webshop.store import convert
from agent_envs.errors import DataError
from agent_envs.files import replacing

__all__ = ["RELEASED", "generate_webshop", "prepare_webshop"]

RELEASED = {
    "items_shuffle.json": "1A2whVgOO0euk5O13n2iYDM0bQRkkRduB",
    "items_ins_v2.json": "1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi",
    "items_human_ins.json": "14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
}
"""Names of the released files, and their ids on Google Drive."""

_URL = "https://drive.usercontent.google.com/download?id={}&export=download&confirm=t"
_CHUNK = 1 << 20
_TIMEOUT = 60


def prepare_webshop(from_path: str | None = None, out: Path | None = None) -> Path:
    """Convert the released catalogue into the store that `data="official"` opens; one that is there is replaced.

    Args:
        from_path: A folder with items_shuffle*.json, items_ins_v2*.json and items_human_ins.json, or the file of
            products beside the others; None downloads them, about 5 GB, into `data_dir() / "webshop-released"`.
        out: The store's folder; None is `data_dir() / "webshop"`.

    Returns:
        The store's folder.

    Raises:
        DataError: The files cannot be fetched, or one of them is missing or broken.
        ConfigError: The folder is there and holds something else.
    """
    target = data_dir() / "webshop" if out is None else out
    if from_path is None:
        source = data_dir() / "webshop-released"
        for name, file_id in RELEASED.items():
            if not (source / name).is_file():
                _fetch(name, file_id, source / name)
    else:
        source = Path(from_path)
    convert(find_released(source), target, overwrite=True)
    return target


def _fetch(name: str, file_id: str, path: Path) -> None:
    """Download one file; it appears when it is whole."""
    try:
        with urllib.request.urlopen(_URL.format(file_id), timeout=_TIMEOUT) as response, replacing(path) as partial:
            length = response.headers.get("Content-Length")
            if "text/html" in (response.headers.get("Content-Type") or ""):
                raise OSError("the answer is a page, as when too many have downloaded the file")
            with (
                partial.open("wb") as file,
                tqdm(total=int(length) if length else None, desc=name, unit="B", unit_scale=True, leave=False) as bar,
            ):
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
                if length and file.tell() != int(length):
                    raise OSError(f"{file.tell()} of {length} bytes came")
    except (OSError, ValueError, http.client.HTTPException) as e:
        reason = e.reason if isinstance(e, urllib.error.URLError) else e
        links = ", ".join(f"{n} (https://drive.google.com/uc?id={i})" for n, i in RELEASED.items())
        raise DataError(
            f"could not fetch WebShop's {name} ({reason}). Get the released files {links} into one folder, then: "
            f"agentr1 prepare webshop --from FOLDER"
        ) from e


def generate_webshop(out: Path, n: int = 1000, seed: int = 0, progress: bool = False) -> Path:
    """Write a generated catalogue as the three released files.

    Args:
        out: The folder to write.
        n: How many products.
        seed: 0 for the catalogue that `data="generated"` has with as many products.
        progress: Whether to show a progress bar.

    Returns:
        The folder.

    Raises:
        ConfigError: `n` or `seed` is out of range.
        DataError: The folder has files of these names, which are not overwritten, or cannot be written.
    """
    shop = GeneratedShop(n, seed=seed)
    there = [name for name in RELEASED if (out / name).exists()]
    if there:
        raise DataError(f"{out} has {', '.join(there)} already, which is not overwritten; name another folder")
    try:
        with ExitStack() as stack:
            parts = {name: stack.enter_context(replacing(out / name)) for name in RELEASED}
            files = [stack.enter_context(part.open("w", encoding="utf-8")) for part in parts.values()]
            _write(tqdm(shop, unit=" products", unit_scale=True, disable=not progress, leave=False), *files)
    except OSError as e:
        raise DataError(f"the catalogue cannot be written to {out}: {e.strerror or e}") from e
    return out


def _write(shop: Iterable[GeneratedItem], products: IO[str], attributes: IO[str], human: IO[str]) -> None:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    some: set[IO[str]] = set()

    def put(file: IO[str], first: str, text: str) -> None:
        file.write((",\n" if file in some else first) + text)
        some.add(file)

    for item in shop:
        asin = encode(item.product["asin"])
        put(products, "[", encode(item.product))
        put(attributes, "{", f"{asin}: {encode(item.attributes)}")
        if item.instructions:
            put(human, "{", f"{asin}: {encode(item.instructions)}")
    products.write("]\n")
    attributes.write("}\n")
    human.write("}\n" if human in some else "{}\n")
