"""`agentr1 prepare webshop`: downloads the released catalog and converts it into the store that environments open."""

from __future__ import annotations

from pathlib import Path

from agent_envs.datasets.data_dir import data_dir, user_path
from agent_envs.datasets.download import compare_released, download, released_files
from agent_envs.datasets.webshop.catalog import convert
from agent_envs.datasets.webshop.released_files import find_released

__all__ = ["LINKS", "prepare_webshop"]

LINKS = ", ".join(f"{name} ({about['page']})" for name, about in released_files("webshop").items())
_MANUAL = f"Download the released files {LINKS} into one folder, then run: agentr1 prepare webshop --from FOLDER"


def prepare_webshop(from_path: str | None = None, out: Path | None = None) -> Path:
    """Convert the released catalog into the store that `data="official"` opens, replacing an earlier one.

    Args:
        from_path: A folder with items_shuffle*.json, items_ins_v2*.json and items_human_ins.json, or the path of the
            products' file in it; None downloads them, about 5 GB, into `data_dir() / "webshop-released"`;
            an interrupted download is resumed by the next call.
        out: The store's folder; None is `data_dir() / "webshop"`.

    Raises:
        DataError: The files cannot be downloaded, or one of them is missing or invalid.
        ConfigError: The folder exists and holds something else.
    """
    target = data_dir() / "webshop" if out is None else out
    if from_path is None:
        folder = data_dir() / "webshop-released"
        for name in released_files("webshop"):
            download("webshop", name, folder, manual=_MANUAL)
        files = find_released(folder)
    else:
        files = find_released(user_path(from_path))
        compare_released("webshop", files.paths)
    convert(files, target, overwrite=True)
    return target
