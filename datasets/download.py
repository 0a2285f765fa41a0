"""Released files: downloading them, resumed where it stopped, and comparing files with the released ones.

What is known of the released files is in `released.json`: by data set its splits, the hub's repository, its revision
and configuration, and the file of each split where it has no splits of its own; and for each file its SHA-256 (several
where mirrors rewrote it), its size in bytes and where it is downloaded from.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from agent_envs.errors import DataError
from agent_envs.files import FileLock, table

_log = logging.getLogger(__name__)

_CHUNK = 1 << 20
_TIMEOUT = 60  # seconds without a byte
_ATTEMPTS = 5  # each goes on where the last one stopped; only those without a byte count


RELEASED: Mapping[str, Any] = table(__package__, "released.json")


def released_files(task: str) -> dict[str, Mapping[str, Any]]:
    """Return what is known of a data set's released files: by name `sha256`, and `bytes` and `url` where known."""
    return RELEASED[task].get("files", {})


def compare_released(task: str, paths: Iterable[Path]) -> None:
    """Warn of files that have the name of a released one and other contents."""
    known = released_files(task)
    for path in paths:
        expected = known.get(path.name, {}).get("sha256", ())
        if expected and (found := _sha256(path)) not in expected:
            _log.warning(
                "%s is not the released file of this name: its SHA-256 is %s, expected %s. If this is not on purpose, "
                "download it again: results on other data are not comparable with published ones",
                path, found, " or ".join(expected),
            )  # fmt: skip


def download(task: str, name: str, folder: Path, *, manual: str) -> Path:
    """Download a released file into a folder, unless it is there already, and return its path.

    An interrupted download is resumed by the next call. The file appears when its size and its SHA-256 are as released.
    """
    about = released_files(task)[name]
    path, partial = folder / name, folder / f"{name}.partial"
    try:
        with FileLock(folder / f"{name}.lock"):
            if not path.is_file():
                _download(about, name, partial)
                size, expected = partial.stat().st_size, about.get("sha256", ())
                problem = f"it has {size} bytes, expected {about['bytes']}" if size != about["bytes"] else ""
                if not problem and expected and (found := _sha256(partial)) not in expected:
                    problem = f"its SHA-256 is {found}, expected {' or '.join(expected)}"
                if problem:
                    partial.unlink()
                    raise ValueError(f"what arrived is not the released file: {problem}")
                partial.replace(path)
    except (OSError, ValueError, http.client.HTTPException) as e:
        refused = isinstance(e, urllib.error.HTTPError)
        reason = e.reason if isinstance(e, urllib.error.URLError) and not refused else e
        raise DataError(f"could not download {name} ({reason}). {manual}") from e
    (folder / f"{name}.lock").unlink(missing_ok=True)
    return path


def _download(about: Mapping[str, Any], name: str, partial: Path) -> None:
    failures = 0
    while (have := partial.stat().st_size if partial.exists() else 0) < about["bytes"]:
        problem: Exception | None = None
        try:
            _append(about, name, partial, have)
        except (OSError, http.client.HTTPException) as e:
            if isinstance(e, urllib.error.HTTPError):
                e.close()
            if type(e) is OSError or (isinstance(e, urllib.error.HTTPError) and e.code < 500):
                raise
            problem = e
        failures = 0 if partial.exists() and partial.stat().st_size > have else failures + 1
        if failures == _ATTEMPTS:
            raise problem or OSError(f"the server sent {have} of {about['bytes']} bytes and no more")


def _append(about: Mapping[str, Any], name: str, partial: Path, have: int) -> None:
    """Ask for the bytes of a file from `have` on, and write them; a server that sends all of it starts it over."""
    request = urllib.request.Request(about["url"], headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
        if "text/html" in (response.headers.get("Content-Type") or ""):
            raise OSError("the server sent a web page; it may limit downloads of the file")
        resumed = response.status == http.client.PARTIAL_CONTENT
        begin = have if resumed else 0
        bar = tqdm(initial=begin, total=about["bytes"], desc=name, unit="B", unit_scale=True, leave=False)
        with partial.open("ab" if resumed else "wb") as file, bar:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
                if file.tell() > about["bytes"]:
                    break


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
