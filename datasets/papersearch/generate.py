"""The generated literature as files: papers.jsonl, and queries in the layout of AutoScholarQuery.

papers.jsonl  {"id", "title", "abstract", "date", "citations": [id], "references": [id]}
train.jsonl   {"question", "answer": [title], "answer_arxiv_id": [id], "source_meta": {"published_time"}, "qid"}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from agent_envs.datasets.files import replaced_folder
from agent_envs.datasets.papersearch.generated.literature import literature
from agent_envs.datasets.papersearch.generated.queries import GeneratedQueries
from agent_envs.datasets.papersearch.task import PaperTask
from agent_envs.errors import ConfigError
from agent_envs.retrieval.papers.paper import write_papers

__all__ = ["generate_papersearch"]

T = TypeVar("T")


def generate_papersearch(
    out: Path,
    n: int = 1000,
    *,
    split: str = "train",
    size: int | str = 2000,
    hidden: float = 0.4,
    progress: bool = False,
) -> Path:
    """Write a generated literature and queries over it, streaming.

    Args:
        out: The folder to write; it appears whole or not at all.
        n: How many queries: the first of the split.
        split: "train", "validation" or "test".
        size: How many papers.
        hidden: Share of the papers on a topic that never name it.
        progress: Whether to show progress bars.

    Returns:
        The folder.

    Raises:
        ConfigError: No such split, or a number out of range.
        DataError: The folder holds something else or cannot be written.
    """
    papers = int(size) if isinstance(size, str) and size.isdecimal() else size
    tasks = GeneratedQueries(literature(split, papers, hidden))
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= len(tasks):
        raise ConfigError(f"n must be a whole number from 1 to {len(tasks)}, the queries of {split!r}, got {n!r}")
    with replaced_folder(out) as folder:
        write_papers(
            _shown(tasks.world.rows(), len(tasks.world), "papers", progress), folder / "papers" / "papers.jsonl"
        )
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for task in _shown(map(tasks.__getitem__, range(n)), n, "queries", progress):
                file.write(json.dumps(_row(task), ensure_ascii=False) + "\n")
    return out


def _row(task: PaperTask) -> dict[str, Any]:
    return {
        "question": task.query,
        "answer": list(task.titles),
        "answer_arxiv_id": list(task.ids),
        "source_meta": {"published_time": task.date.replace("-", "")},
        "qid": task.task_id,
    }


def _shown(items: Iterable[T], count: int, unit: str, progress: bool) -> Iterator[T]:
    from tqdm import tqdm

    return iter(tqdm(items, total=count, unit=f" {unit}", unit_scale=True, disable=not progress))
