"""`agentr1 generate papersearch`: a generated literature, and queries over it in the layout of AutoScholarQuery.

papers.jsonl  {"id", "title", "abstract", "date", "citations": [id], "references": [id]}
train.jsonl   {"question", "answer": [title], "answer_arxiv_id": [id], "source_meta": {"published_time"}, "qid"}
"""

from __future__ import annotations

import functools
from pathlib import Path

from tqdm import tqdm

from agent_envs.checks import integer
from agent_envs.datasets.files import replaced_folder, write_jsonl
from agent_envs.datasets.papersearch.generated.queries import GeneratedQueries
from agent_envs.retrieval.papers.paper import write_papers


def generate_papersearch(
    out: Path,
    n: int = 1000,
    *,
    split: str = "train",
    size: int | str = 2000,
    hidden: float = 0.4,
    progress: bool = False,
) -> Path:
    """Write a generated literature and the first n queries over it, in bounded memory."""
    tasks = GeneratedQueries(split, int(size) if str(size).isdecimal() else size, hidden)  # type: ignore[arg-type]
    n = integer("n", n, minimum=1, maximum=len(tasks))
    with replaced_folder(out) as folder:
        bar = functools.partial(tqdm, unit_scale=True, disable=not progress)
        papers = bar(tasks.world.rows(), total=len(tasks.world), unit=" papers")
        write_papers(papers, folder / "papers" / "papers.jsonl")
        rows = (
            {
                "question": task.query,
                "answer": list(task.titles),
                "answer_arxiv_id": list(task.ids),
                "source_meta": {"published_time": task.date.replace("-", "")},
                "qid": task.task_id,
            }
            for task in bar(map(tasks.__getitem__, range(n)), total=n, unit=" queries")
        )
        write_jsonl(folder / f"{split}.jsonl", rows)
    return out
