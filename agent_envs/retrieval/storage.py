"""The folder of an index: built aside and moved into place, checksummed, and opened by mapping its files read-only.

    index.json          format, version, settings, and the size and SHA-256 of every other file
    documents.bin       the rows as JSON, concatenated; documents.offsets says where each begins
    ids.bin             the external ids likewise; ids.order lists documents by id, ids.rank is its inverse

Numbers are little-endian. Offsets are 64-bit; there is one more offset than there are items.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import mmap
import os
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.checks import shown
from agent_envs.errors import BackendBusyError, BackendError, ConfigError, DataError
from agent_envs.files import FileLock, move_folder, open_data, read_object, read_text
from agent_envs.retrieval.corpus import row_contents, row_id

MANIFEST = "index.json"
_SMALL_FILE = 1 << 18


class FileWriter(AbstractContextManager["FileWriter", None]):
    """Writes a file and its checksum. Of an existing file the first `keep` bytes stay."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        self.size = keep
        if keep:
            os.truncate(path, keep)
        self._hash = _hash_of(path) if keep else hashlib.sha256()
        self._file = path.open("ab" if keep else "wb")

    def write(self, data: bytes | np.ndarray) -> None:
        """Append bytes, or the bytes of an array."""
        raw = data.tobytes() if isinstance(data, np.ndarray) else data
        self._file.write(raw)
        self._hash.update(raw)
        self.size += len(raw)

    def flush(self) -> None:
        """Pass written data on to the operating system."""
        self._file.flush()

    def close(self) -> dict[str, Any]:
        """Close the file; return its entry for the manifest."""
        self._file.close()
        return {"bytes": self.size, "sha256": self._hash.hexdigest()}

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _hash_of(path: Path) -> hashlib._Hash:
    with open_data(path) as file:
        return hashlib.file_digest(file, "sha256")


def _own_checksum(manifest: dict[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write `index.json`, which turns the folder into an index."""
    manifest = {**manifest, "checksum": _own_checksum(manifest)}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def read_manifest(folder: Path, form: str, version: int, *, verify: bool = True) -> dict[str, Any]:
    """Check an index and return its manifest.

    With `verify` the SHA-256 of every file is compared (about a second per GB), and not only its size.

    Raises:
        DataError: There is no index, it has another format or version, or a file is missing, cut short or changed.
    """
    try:
        manifest = json.loads(read_text(folder / MANIFEST))
        if not isinstance(manifest, dict):
            raise ValueError(f"{MANIFEST} is not an object")
        written = manifest.get("format"), manifest.get("version")
        if written != (form, version):
            raise ValueError(
                f"expected the format {form!r}, version {version!r}, got {written[0]!r}, version {written[1]!r}"
            )
        if manifest["checksum"] != _own_checksum(manifest):
            raise ValueError(f"{MANIFEST} was changed: its checksum does not match")
        for name, entry in manifest["files"].items():
            path = folder / Path(name).name
            if path.stat().st_size != entry["bytes"]:
                raise ValueError(f"{name} has {path.stat().st_size} bytes, expected {shown(entry['bytes'])}")
            if verify and _hash_of(path).hexdigest() != entry["sha256"]:
                raise ValueError(f"{name} was changed: its checksum does not match")
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError) as e:
        raise DataError(f"{folder} cannot be read as an index: {e}; build it again with: agentr1 index") from e
    return manifest


def _is_index(folder: Path) -> bool:
    """Return whether a folder has the manifest of an index, of any format and version."""
    with suppress(DataError):
        return {"format", "version", "files", "checksum"} <= read_object(folder / MANIFEST).keys()
    return False


@contextmanager
def new_folder(path: Path | None, *, overwrite: bool = False, resume: bool = False) -> Iterator[Path]:
    """Yield a folder to build an index in, and move it to `path` at the end of the block.

    The folder is `PATH.partial`, which is locked against other builds. After an error it is removed, unless `resume`.
    Without a path it is a temporary folder that is always removed: map its files within the block.

    Raises:
        ConfigError: `path` exists, and either `overwrite` is false or `path` is not an index.
        BackendBusyError: Another process is building there.
        BackendError: The disk is full, or fails otherwise.
    """
    if path is None:
        with tempfile.TemporaryDirectory(prefix="agent_envs-index-") as name:
            yield Path(name)
        return
    partial = path.with_name(path.name + ".partial")
    try:
        if path.exists() or path.is_symlink():
            if not overwrite:
                raise ConfigError(f"{path} already exists; choose another folder, or set overwrite")
            if not _is_index(path):
                raise ConfigError(f"{path} is not an index, so it is not overwritten")
        partial.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"an index cannot be written to {shown(str(path))}: {e.strerror}") from e
    try:
        lock = FileLock(partial / "lock", wait=False)
    except BlockingIOError as e:
        raise BackendBusyError(f"another process is building in {partial}") from e
    try:
        with lock:
            for entry in () if resume else partial.iterdir():
                if entry.name != "lock":
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            try:
                yield partial
            except BaseException:
                if not resume:
                    shutil.rmtree(partial, ignore_errors=True)
                raise
            (partial / "lock").unlink()
            move_folder(partial, path)
    except OSError as e:
        raise BackendError(f"the index cannot be written to {path}: {e.strerror or e}") from e


def _map(path: Path) -> mmap.mmap | bytes:
    """Return the bytes of a file, mapped unless it is small: mappings count towards the limit of open files."""
    with open_data(path) as file:
        if os.fstat(file.fileno()).st_size <= _SMALL_FILE:
            return file.read()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def map_array(path: Path, dtype: str) -> np.ndarray:
    """Map a file as a read-only array."""
    return np.frombuffer(_map(path), dtype)


class Blob:
    """The byte strings in `NAME.bin`, by number; `NAME.offsets` says where each begins."""

    def __init__(self, folder: Path, name: str) -> None:
        self._bytes = _map(folder / f"{name}.bin")
        self._offsets = map_array(folder / f"{name}.offsets", "<i8").data

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> bytes:
        return self._bytes[self._offsets[number] : self._offsets[number + 1]]

    def find(self, wanted: bytes, order: Sequence[int] | None = None) -> int:
        """Return the number of a byte string, or -1. `order` lists the numbers sorted; without it they are sorted."""
        numbers = range(len(self)) if order is None else order
        at = bisect_left(numbers, wanted, key=self.__getitem__)
        return numbers[at] if at < len(numbers) and self[numbers[at]] == wanted else -1


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Return where each of some consecutive pieces begins, and where the last one ends, as int64."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def write_array(folder: Path, name: str, values: np.ndarray) -> dict[str, dict[str, Any]]:
    """Write an array to a file; return its entry for the manifest."""
    with FileWriter(folder / name) as writer:
        writer.write(values)
        return {name: writer.close()}


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class RowWriter:
    """Writes the files of a `DocumentStore`, whose existing files stay up to the given sizes."""

    def __init__(self, folder: Path, sizes: Mapping[str, int] | None = None) -> None:
        names = ("documents.bin", "documents.offsets", "ids.bin", "ids.offsets")
        self._folder = folder
        self._writers = {name: FileWriter(folder / name, (sizes or {}).get(name, 0)) for name in names}
        if not sizes:
            for name in ("documents.offsets", "ids.offsets"):
                self._writers[name].write(np.zeros(1, "<i8"))
        self.count = self._writers["ids.offsets"].size // 8 - 1
        """The number of rows."""
        self._waiting: dict[str, list[bytes]] = {"ids": [], "documents": []}

    def add(self, row: Any, raw: bytes | None = None, where: str = "") -> str:
        """Add a row, with the JSON that it was read from, if it is known; return its contents, which are indexed.

        Raises DataError, which names the row, if it has no id or text or cannot be written as JSON.
        """
        where = where or f"document {self.count}"
        doc_id, contents = row_id(row, where, self.count), row_contents(row, where)
        try:
            encoded = _encode(row).encode("utf-8", "surrogatepass") if raw is None else raw
        except (TypeError, ValueError, RecursionError) as e:
            raise DataError(f"{where}: the row cannot be written as JSON ({e})") from e
        self._waiting["ids"].append(doc_id.encode("utf-8", "surrogatepass"))
        self._waiting["documents"].append(encoded)
        self.count += 1
        return contents

    def flush(self) -> dict[str, int]:
        """Pass what was added on to the operating system; return the sizes of the files."""
        for name, items in self._waiting.items():
            data, offsets = self._writers[f"{name}.bin"], self._writers[f"{name}.offsets"]
            offsets.write((data.size + np.cumsum(np.fromiter(map(len, items), np.int64, len(items)))).astype("<i8"))
            data.write(b"".join(items))
            items.clear()
        for writer in self._writers.values():
            writer.flush()
        return {name: writer.size for name, writer in self._writers.items()}

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()

    def finish(self) -> dict[str, dict[str, Any]]:
        """Close the files; return their entries for the manifest. DataError if there are no rows, or an id is twice."""
        if not self.count:
            raise DataError("there are no documents to index")
        self.flush()
        files = {name: writer.close() for name, writer in self._writers.items()}
        return files | _write_id_order(self._folder)


def _write_id_order(folder: Path) -> dict[str, dict[str, Any]]:
    """Sort the written ids as strings; return the new files' entries for the manifest. DataError if an id is twice."""
    offsets = np.fromfile(folder / "ids.offsets", "<i8")
    raw = np.fromfile(folder / "ids.bin", np.uint8)
    lengths = np.diff(offsets)
    width = int(lengths.max())
    if width <= 64 and not (raw == 0).any():
        # [documents, bytes], padded with zeros, which sort first
        padded = np.zeros((len(lengths), width), np.uint8)
        padded[np.arange(width) < lengths[:, None]] = raw
        ids = padded.view(f"S{width}").ravel()
    else:
        data = raw.tobytes()
        ids = np.array([data[a:b] for a, b in itertools.pairwise(offsets.tolist())], object)
    order = np.argsort(ids, kind="stable")
    same = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if len(same):
        first, second = order[same[0]], order[same[0] + 1]
        twice = bytes(ids[first]).decode("utf-8", "surrogatepass")
        raise DataError(f"the id {twice!r} occurs twice: in documents {first} and {second} (counted from 0)")
    rank = np.empty(len(order), "<i4")
    rank[order] = np.arange(len(order))
    return write_array(folder, "ids.order", order.astype("<i4")) | write_array(folder, "ids.rank", rank)


class DocumentStore:
    """The rows of a corpus on disk, by number and by external id."""

    def __init__(self, folder: Path) -> None:
        self._documents = Blob(folder, "documents")
        self._ids = Blob(folder, "ids")
        self._order = map_array(folder / "ids.order", "<i4").data

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """Return the external ids of documents."""
        return [self._ids[number].decode("utf-8", "surrogatepass") for number in numbers]

    def number(self, doc_id: str) -> int:
        """Return the number of a document. Raises ConfigError if none has this id."""
        number = self._ids.find(str(doc_id).encode("utf-8", "surrogatepass"), self._order)
        if number < 0:
            raise ConfigError(f"no document has the id {doc_id!r}")
        return number

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id, as it was indexed."""
        return self.row(self.number(doc_id))

    def row(self, number: int) -> dict[str, Any]:
        """Return the row of a document by its number."""
        row: dict[str, Any] = json.loads(self.raw(number))
        return row

    def raw(self, number: int) -> bytes:
        """Return the JSON of a document's row, as it was indexed."""
        return self._documents[number]
