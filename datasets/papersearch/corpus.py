"""The corpora of paper search: each is opened once per process and shared by all its environments.

Small corpora are indexed in memory in less than a second. Larger ones are indexed on disk, once for each state of their
source.
"""

from __future__ import annotations

import os
from pathlib import Path

from agent_envs.datasets.indexes import BYTES_IN_MEMORY, opened, shared_index, stamps_digest
from agent_envs.datasets.papersearch.generated.literature import Literature
from agent_envs.datasets.papersearch.paper_files import paper_rows, paper_source_files
from agent_envs.datasets.papersearch.rows import TASK
from agent_envs.datasets.paths import user_path
from agent_envs.files import data_dir
from agent_envs.retrieval.papers.local import LocalPapers
from agent_envs.tasks import FileStamp, file_stamps

PAPERS_IN_MEMORY = 20_000


def generated_papers(world: Literature) -> LocalPapers:
    """Return the papers of a generated literature, to search and expand."""
    small = world.papers <= PAPERS_IN_MEMORY
    return shared_index(world.name, world.rows, LocalPapers.build, LocalPapers, small=small)


def corpus_papers(corpus: str | os.PathLike[str]) -> LocalPapers:
    """Return the papers of a file, or of a folder of such files or one that `LocalPapers.build` wrote.

    A file is a papers.jsonl (.gz too), has papers of unarXive, or queries, whose answers are taken.
    """
    path = user_path(corpus)
    manifest = path / "index.json"
    return _corpus(file_stamps([manifest] if manifest.is_file() else paper_source_files(path)))


def data_papers(data: str) -> LocalPapers:
    """Return the papers to search for real queries if no corpus is named; `data` is that of `query_rows`.

    They are what `agentr1 prepare papersearch` built, or else what is in the queries' folder: files of papers (next to
    a single file: `papers.jsonl` and the folder `papers`) and the papers that answer the queries.
    """
    path = data_dir() / TASK if data == "official" else user_path(data)
    folder = path if path.is_dir() else path.parent
    if (folder / "index" / "index.json").is_file():
        return corpus_papers(folder / "index")
    if path.is_dir():
        return corpus_papers(path)
    beside = [folder / name for name in ("papers.jsonl", "papers.jsonl.gz", "papers") if (folder / name).exists()]
    files = dict.fromkeys(file for source in (*beside, path) for file in paper_source_files(source))
    return _corpus(file_stamps(list(files)))


def _corpus(stamps: tuple[FileStamp, ...]) -> LocalPapers:
    files = [Path(name) for name, _, _ in stamps]
    if files[0].name == "index.json":
        return opened.get(stamps, lambda: LocalPapers(files[0].parent))
    name, small = f"papers-{stamps_digest(stamps)}", sum(size for _, _, size in stamps) <= BYTES_IN_MEMORY
    return shared_index(name, lambda: paper_rows(files), LocalPapers.build, LocalPapers, small=small)
