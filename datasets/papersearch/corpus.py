"""The corpora that paper search is played on, indexed once per process or once on disk, and shared by all environments.

Small ones are indexed in less than a second and live with the process. Larger ones are written to
`data_dir() / "indexes"`, once for each state of their source, and opened from there by every process.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from agent_envs.datasets.data_dir import data_dir, user_path
from agent_envs.datasets.papersearch.generated.literature import Literature, literature
from agent_envs.datasets.papersearch.paper_files import paper_rows, paper_source_files
from agent_envs.datasets.papersearch.rows import TASK
from agent_envs.errors import BackendError, ConfigError
from agent_envs.retrieval.papers.local import LocalPapers
from agent_envs.retrieval.papers.paper import PaperRow
from agent_envs.tasks import FileStamp, file_stamps

__all__ = ["corpus_papers", "data_papers", "generated_papers"]

PAPERS_IN_MEMORY = 20_000
BYTES_IN_MEMORY = 32 << 20
_LONGEST_WAIT = 3600.0  # seconds for another process that builds the same corpus
_lock = threading.Lock()


def generated_papers(world: Literature) -> LocalPapers:
    """The papers of a generated literature, to search and expand."""
    with _lock:
        return _generated(world.split, world.papers, world.hidden)


@functools.lru_cache(maxsize=8)
def _generated(split: str, papers: int, hidden: float) -> LocalPapers:
    world = literature(split, papers, hidden)
    return _opened(world.name, world.rows, small=papers <= PAPERS_IN_MEMORY)


def corpus_papers(corpus: str | os.PathLike[str]) -> LocalPapers:
    """The papers of a papers.jsonl (.gz too), of unarXive's papers or of the answers of query rows, of a folder of any
    of them, or of a folder that `LocalPapers.build` made.

    Raises:
        DataError: Nothing is there, or it cannot be used.
    """
    path = user_path(corpus)
    manifest = path / "index.json"
    with _lock:
        return _corpus(file_stamps([manifest] if manifest.is_file() else paper_source_files(path)))


def data_papers(data: str) -> LocalPapers:
    """The papers that real queries are searched in, where no corpus is given: what `agentr1 prepare papersearch` built,
    or what lies in the same folder as the queries: files of papers (beside a single file `papers.jsonl` and a folder
    `papers`), and the papers that answer them.

    Args:
        data: "official" or a path, as for `query_rows`.

    Raises:
        DataError: There is none.
    """
    path = data_dir() / TASK if data == "official" else user_path(data)
    folder = path if path.is_dir() else path.parent
    if (folder / "index" / "index.json").is_file():
        return corpus_papers(folder / "index")
    if path.is_dir():
        return corpus_papers(path)
    beside = [folder / name for name in ("papers.jsonl", "papers.jsonl.gz", "papers") if (folder / name).exists()]
    files = dict.fromkeys(file for source in (*beside, path) for file in paper_source_files(source))
    with _lock:
        return _corpus(file_stamps(list(files)))


@functools.lru_cache(maxsize=8)
def _corpus(stamps: tuple[FileStamp, ...]) -> LocalPapers:
    files = [Path(name) for name, _, _ in stamps]
    if files[0].name == "index.json":
        return LocalPapers(files[0].parent)
    digest = hashlib.blake2b(repr(stamps).encode(), digest_size=12).hexdigest()
    small = sum(size for _, _, size in stamps) <= BYTES_IN_MEMORY
    return _opened(f"papers-{digest}", lambda: paper_rows(files), small=small)


def _opened(name: str, rows: Callable[[], Iterable[PaperRow]], *, small: bool) -> LocalPapers:
    """The corpus of that name, built where it is not there yet; on disk it appears whole or not at all."""
    if small:
        return LocalPapers.build(rows())
    folder = data_dir() / "indexes" / name
    until = time.monotonic() + _LONGEST_WAIT
    while not folder.exists():
        try:
            return LocalPapers.build(rows(), folder, progress=True)
        except ConfigError:
            if not folder.exists():  # otherwise another process was faster
                raise
        except BackendError:  # another process is building it
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
    return LocalPapers(folder)
