"""Generated catalogues and literatures as files in the released layouts, for tests that read such files."""

from __future__ import annotations

import json
from pathlib import Path

from agent_envs.datasets.download import released_files
from agent_envs.datasets.files import write_jsonl
from agent_envs.datasets.papersearch.generated.queries import GeneratedQueries
from agent_envs.datasets.webshop.generated.shop import GeneratedShop
from agent_envs.retrieval.papers.paper import write_papers


def write_shop(folder: Path, n: int) -> Path:
    """Write a catalogue of `n` products as WebShop's three files."""
    items = [(item.product["asin"], item) for item in GeneratedShop(n)]
    attributes = {asin: item.attributes for asin, item in items}
    human = {asin: item.instructions for asin, item in items if item.instructions}
    folder.mkdir(parents=True, exist_ok=True)
    contents = ([item.product for _, item in items], attributes, human)
    for name, rows in zip(released_files("webshop"), contents, strict=True):
        (folder / name).write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return folder


def write_literature(folder: Path, n: int, split: str, size: int = 2000) -> Path:
    """Write a literature, and `n` queries over it in the layout of AutoScholarQuery."""
    tasks = GeneratedQueries(split, size)
    write_papers(tasks.world.rows(), folder / "papers" / "papers.jsonl")
    rows = (
        {
            "question": task.query, "answer": list(task.titles), "answer_arxiv_id": list(task.ids),
            "source_meta": {"published_time": task.date.replace("-", "")}, "qid": task.task_id,
        }
        for task in map(tasks.__getitem__, range(n))
    )  # fmt: skip
    write_jsonl(folder / f"{split}.jsonl", rows)
    return folder
