"""`agentr1 prepare gsm8k`: puts the released rows where `data="official"` finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_envs.datasets.data_dir import data_dir
from agent_envs.datasets.download import compare_released
from agent_envs.datasets.files import fetch_splits, find_local_splits, replaced_folder, write_jsonl
from agent_envs.datasets.gsm8k.rows import SUFFIXES, parse_row
from agent_envs.errors import DataError
from agent_envs.tasks import read_rows

OFFICIAL_SPLITS = ("train", "test", "validation")


def prepare_gsm8k(from_path: str | None = None, out: Path | None = None) -> Path:
    """Write the GSM8K rows to a folder, one jsonl per split, replacing an earlier copy in one step."""
    target = data_dir() / "gsm8k" if out is None else out
    if from_path is not None:
        splits = _local_splits(from_path)
    else:
        splits = {
            split: [(row, f"split {split}, row {number}") for number, row in enumerate(rows, start=1)]
            for split, rows in fetch_splits("gsm8k", "main").items()
        }
    with replaced_folder(target) as folder:
        for split, rows in splits.items():
            tasks = (parse_row(row, where, "") for row, where in rows)
            write_jsonl(folder / f"{split}.jsonl", ({"question": t.question, "answer": t.solution} for t in tasks))
    return target


def _local_splits(path: str) -> dict[str, list[tuple[Any, str]]]:
    files = find_local_splits(path, task="GSM8K", suffixes=SUFFIXES)
    official = [split for split in files if split in OFFICIAL_SPLITS]  # the release has other formats beside them
    compare_released("gsm8k", [file for split in official or files for file in files[split]])
    splits = {split: [pair for file in files[split] for pair in read_rows(file)] for split in official or files}
    for split, rows in splits.items():
        if not rows:
            raise DataError(f"there are no rows in {', '.join(map(str, files[split]))}")
    return splits
