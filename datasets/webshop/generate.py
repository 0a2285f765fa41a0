"""`agentr1 generate webshop`: a generated catalog as the three released files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from tqdm import tqdm

from agent_envs.datasets.webshop.generated.shop import GeneratedItem, GeneratedShop
from agent_envs.datasets.webshop.released_files import RELEASED_NAMES
from agent_envs.errors import DataError
from agent_envs.files import replacing


def generate_webshop(out: Path, n: int = 1000, seed: int = 0, progress: bool = False) -> Path:
    """Write a generated catalog of `n` products as the three released files."""
    shop = GeneratedShop(n, seed=seed)
    existing = [name for name in RELEASED_NAMES if (out / name).exists()]
    if existing:
        raise DataError(f"{out} already has {', '.join(existing)}: choose another folder")
    try:
        with ExitStack() as stack:
            parts = {name: stack.enter_context(replacing(out / name)) for name in RELEASED_NAMES}
            files = [stack.enter_context(part.open("w", encoding="utf-8")) for part in parts.values()]
            _write(tqdm(shop, unit=" products", unit_scale=True, disable=not progress, leave=False), *files)
    except OSError as e:
        raise DataError(f"the catalog cannot be written to {out}: {e.strerror or e}") from e
    return out


def _write(shop: Iterable[GeneratedItem], products: IO[str], attributes: IO[str], human: IO[str]) -> None:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    started: set[IO[str]] = set()

    def put(file: IO[str], first: str, text: str) -> None:
        file.write((",\n" if file in started else first) + text)
        started.add(file)

    for item in shop:
        asin = encode(item.product["asin"])
        put(products, "[", encode(item.product))
        put(attributes, "{", f"{asin}: {encode(item.attributes)}")
        if item.instructions:
            put(human, "{", f"{asin}: {encode(item.instructions)}")
    products.write("]\n")
    attributes.write("}\n")
    human.write("}\n" if human in started else "{}\n")
