"""`agentr1 prepare webshop`: downloads the released catalog and converts it into the store that environments open."""

from __future__ import annotations

from pathlib import Path

from agent_envs.datasets.download import compare_released, download, released_files
from agent_envs.datasets.paths import user_path
from agent_envs.datasets.webshop.catalog import convert
from agent_envs.datasets.webshop.released_files import find_released
from agent_envs.files import data_dir

LINKS = ", ".join(f"{name} ({about['page']})" for name, about in released_files("webshop").items())
_MANUAL = f"Download the released files {LINKS} into one folder, then run: agentr1 prepare webshop --from FOLDER"


def prepare_webshop(from_path: str | None = None, out: Path | None = None) -> Path:
    """Convert the released catalog into the store that `data="official"` opens, replacing an earlier one."""
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
