"""`agentr1 prepare papersearch`: queries by split, a corpus of all papers and its index."""

from __future__ import annotations

import shutil
from pathlib import Path

from agent_envs.datasets.files import fetch_splits, find_local_splits, replaced_folder, write_jsonl
from agent_envs.datasets.papersearch.paper_files import is_one_object, paper_rows, paper_source_files
from agent_envs.datasets.papersearch.rows import SUFFIXES, TASK, PaperTask, is_query, query_row
from agent_envs.datasets.paths import user_path
from agent_envs.errors import DataError
from agent_envs.retrieval.papers.local import LocalPapers
from agent_envs.retrieval.papers.paper import read_papers, write_papers
from agent_envs.tasks import read_rows

_FILES = {
    "train": "AutoScholarQuery/train.jsonl",
    "validation": "AutoScholarQuery/dev.jsonl",
    "test": "AutoScholarQuery/test.jsonl",
    "real": "RealScholarQuery/test.jsonl",
}


def prepare_papers(from_path: str | None, target: Path) -> None:
    """Write queries and papers to a folder, replacing an earlier copy in one step.

    The folder has `SPLIT.jsonl` for each split, `papers.jsonl` with all papers that the files describe, and `index/` to
    search and expand them.
    """
    with replaced_folder(target) as folder:
        source = folder / ".fetched" if from_path is None else user_path(from_path)
        if from_path is None:
            source.mkdir()
            for split, rows in fetch_splits(TASK, None, data_files=_FILES).items():
                write_jsonl(source / f"{split}.jsonl", rows)
        for split, tasks in _local_tasks(source).items():
            rows = (
                {"id": t.query_id, "query": t.query, "titles": t.titles, "ids": t.ids, "date": t.date} for t in tasks
            )
            write_jsonl(folder / f"{split}.jsonl", rows)
        write_papers(paper_rows(paper_source_files(source)), folder / "papers.jsonl")
        LocalPapers.build(read_papers(folder / "papers.jsonl"), folder / "index")
        if from_path is None:
            shutil.rmtree(source)


def _local_tasks(source: Path) -> dict[str, list[PaperTask]]:
    """Return the queries of the files at a path by split, leaving out files of papers."""
    splits = {}
    for split, paths in find_local_splits(str(source), task=TASK, suffixes=SUFFIXES).items():
        files = [path for path in paths if not is_one_object(path)]
        first = next((row for path in files for row, _ in read_rows(path)), None)
        if is_query(first):
            splits[split] = [query_row(row, where).task for path in files for row, where in read_rows(path)]
    if not splits:
        raise DataError(f"there are no queries at {source}: expected rows with a 'question' and an 'answer'")
    return splits
