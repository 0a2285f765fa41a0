"""`agentr1 prepare webshop`: downloads the released catalog and converts it into the store that environments open."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path

from tqdm import tqdm

from agent_envs.datasets.data_dir import data_dir, user_path
from agent_envs.datasets.webshop.catalog import convert
from agent_envs.datasets.webshop.released_files import find_released
from agent_envs.errors import DataError
from agent_envs.files import replacing

__all__ = ["LINKS", "RELEASED", "prepare_webshop"]

RELEASED = {
    "items_shuffle.json": "1A2whVgOO0euk5O13n2iYDM0bQRkkRduB",
    "items_ins_v2.json": "1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi",
    "items_human_ins.json": "14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
}
"""Names of the released files, and their ids on Google Drive as in the original's setup.sh."""

LINKS = ", ".join(f"{name} (https://drive.google.com/uc?id={file_id})" for name, file_id in RELEASED.items())

_URL = "https://drive.usercontent.google.com/download?id={}&export=download&confirm=t"
_CHUNK = 1 << 20
_TIMEOUT = 60


def prepare_webshop(from_path: str | None = None, out: Path | None = None) -> Path:
    """Convert the released catalog into the store that `data="official"` opens, replacing an earlier one.

    Args:
        from_path: A folder with items_shuffle*.json, items_ins_v2*.json and items_human_ins.json, or the path of the
            products' file in it; None downloads them, about 5 GB, into `data_dir() / "webshop-released"`.
        out: The store's folder; None is `data_dir() / "webshop"`.

    Raises:
        DataError: The files cannot be downloaded, or one of them is missing or invalid.
        ConfigError: The folder exists and holds something else.
    """
    target = data_dir() / "webshop" if out is None else out
    if from_path is None:
        source = data_dir() / "webshop-released"
        for name, file_id in RELEASED.items():
            if not (source / name).is_file():
                _fetch(name, file_id, source / name)
    else:
        source = user_path(from_path)
    convert(find_released(source), target, overwrite=True)
    return target


def _fetch(name: str, file_id: str, path: Path) -> None:
    """Download one file, which appears only when it is complete."""
    try:
        with urllib.request.urlopen(_URL.format(file_id), timeout=_TIMEOUT) as response, replacing(path) as partial:
            length = response.headers.get("Content-Length")
            if "text/html" in (response.headers.get("Content-Type") or ""):
                raise OSError("Google Drive sent a web page; it may have a download limit for the file")
            with (
                partial.open("wb") as file,
                tqdm(total=int(length) if length else None, desc=name, unit="B", unit_scale=True, leave=False) as bar,
            ):
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
                if length and file.tell() != int(length):
                    raise OSError(f"only {file.tell()} of {length} bytes arrived")
    except (OSError, ValueError, http.client.HTTPException) as e:
        reason = e.reason if isinstance(e, urllib.error.URLError) else e
        raise DataError(
            f"could not download WebShop's {name} ({reason}). Download the released files {LINKS} into one folder, "
            "then run: agentr1 prepare webshop --from FOLDER"
        ) from e
