"""`agentr1 prepare gsm8k`: puts the released rows where `data="official"` finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_envs.datasets.download import compare_released
from agent_envs.datasets.files import fetch_splits, find_local_splits, replaced_folder, write_jsonl
from agent_envs.datasets.gsm8k.rows import SUFFIXES, parse_row
from agent_envs.errors import DataError
from agent_envs.files import data_dir
from agent_envs.tasks import read_rows

OFFICIAL_SPLITS = ("train", "test", "validation")


def prepare_gsm8k(from_path: str | None = None, out: Path | None = None) -> Path:
    """Write the GSM8K rows to a folder, one jsonl per split, replacing an earlier copy in one step."""
    target = data_dir() / "gsm8k" if out is None else out
    splits: dict[str, list[tuple[Any, str]]] = {}
    if from_path is None:
        for split, rows in fetch_splits("gsm8k", "main").items():
            splits[split] = [(row, f"split {split}, row {number}") for number, row in enumerate(rows, start=1)]
    else:
        files = find_local_splits(from_path, task="GSM8K", suffixes=SUFFIXES)
        released = {split: paths for split, paths in files.items() if split in OFFICIAL_SPLITS}
        for split, paths in (released or files).items():  # the release has other formats beside them
            compare_released("gsm8k", paths)
            splits[split] = [pair for path in paths for pair in read_rows(path)]
            if not splits[split]:
                raise DataError(f"there are no rows in {', '.join(map(str, paths))}")
    with replaced_folder(target) as folder:
        for split, pairs in splits.items():
            tasks = (parse_row(row, where, "") for row, where in pairs)
            write_jsonl(folder / f"{split}.jsonl", ({"question": t.question, "answer": t.solution} for t in tasks))
    return target
