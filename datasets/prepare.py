"""The tasks that `agentr1 prepare TASK` knows."""

from __future__ import annotations

import functools
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_envs.checks import choice
from agent_envs.datasets.alfworld.prepare import RELEASES, prepare_alfworld
from agent_envs.datasets.alfworld.rows import RELEASED_GAMES, alfworld_games
from agent_envs.datasets.download import RELEASED, compare_released, download, released_files
from agent_envs.datasets.fields import VERL_SOURCES, verl_row
from agent_envs.datasets.files import fetch_splits, find_local_splits, replaced_folder, write_jsonl
from agent_envs.datasets.gsm8k.rows import SUFFIXES, parse_row
from agent_envs.datasets.papersearch.paper_files import is_one_object, paper_rows, paper_source_files
from agent_envs.datasets.papersearch.rows import SUFFIXES as PAPER_SUFFIXES
from agent_envs.datasets.papersearch.rows import PaperTask, is_query, query_row, query_rows
from agent_envs.datasets.paths import expanded, user_path
from agent_envs.datasets.qa.corpus import passages_of
from agent_envs.datasets.qa.rows import DATASETS, QARow, QATask, has_answer, qa_rows, read_qa, read_row
from agent_envs.datasets.qa.rows import SUFFIXES as QA_SUFFIXES
from agent_envs.datasets.scienceworld import science_rows
from agent_envs.datasets.webshop.catalog import convert
from agent_envs.datasets.webshop.goals import read_released_goals
from agent_envs.datasets.webshop.products import Product
from agent_envs.datasets.webshop.released_files import find_released
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import data_dir, table
from agent_envs.retrieval import BM25Retriever, read_corpus
from agent_envs.retrieval.papers.local import LocalPapers
from agent_envs.retrieval.papers.paper import read_papers, write_papers
from agent_envs.tasks import is_verl_row, read_rows

_log = logging.getLogger(__name__)

_GSM8K_SPLITS = ("train", "test", "validation")
LINKS = ", ".join(f"{name} ({about['page']})" for name, about in released_files("webshop").items())
_MANUAL = f"Download the released files {LINKS} into one folder, then run: agentr1 prepare webshop --from FOLDER"


def prepare_gsm8k(from_path: str | None, target: Path) -> None:
    """Write the GSM8K rows to a folder, one jsonl per split."""
    splits: dict[str, list[tuple[Any, str]]] = {}
    if from_path is None:
        for split, rows in fetch_splits("gsm8k").items():
            splits[split] = [(row, f"split {split}, row {number}") for number, row in enumerate(rows, start=1)]
    else:
        files = find_local_splits(from_path, task="GSM8K", suffixes=SUFFIXES)
        released = {split: paths for split, paths in files.items() if split in _GSM8K_SPLITS}
        for split, paths in (released or files).items():  # the release has other formats beside them
            compare_released("gsm8k", paths)
            splits[split] = [pair for path in paths for pair in read_rows(path)]
            if not splits[split]:
                raise DataError(f"there are no rows in {', '.join(map(str, paths))}")
    with replaced_folder(target) as folder:
        for split, pairs in splits.items():
            tasks = (parse_row(row, where, "") for row, where in pairs)
            write_jsonl(folder / f"{split}.jsonl", ({"question": t.question, "answer": t.solution} for t in tasks))


def prepare_webshop(from_path: str | None, target: Path) -> None:
    """Convert the released catalog into the store that environments open."""
    if from_path is None:
        folder = data_dir() / "webshop-released"
        for name in released_files("webshop"):
            download("webshop", name, folder, manual=_MANUAL)
        files = find_released(folder)
    else:
        files = find_released(user_path(from_path))
        compare_released("webshop", files.paths)
    convert(files, target, overwrite=True)


def prepare_papers(from_path: str | None, target: Path) -> None:
    """Write queries and papers to a folder, replacing an earlier copy in one step.

    The folder has `SPLIT.jsonl` for each split, `papers.jsonl` with all papers that the files describe, and `index/` to
    search and expand them.
    """
    with replaced_folder(target) as folder:
        source = folder / ".fetched" if from_path is None else user_path(from_path)
        if from_path is None:
            source.mkdir()
            for split, rows in fetch_splits("papersearch").items():
                write_jsonl(source / f"{split}.jsonl", rows)
        for split, tasks in _local_queries(source).items():
            rows = (
                {"id": t.query_id, "query": t.query, "titles": t.titles, "ids": t.ids, "date": t.date} for t in tasks
            )
            write_jsonl(folder / f"{split}.jsonl", rows)
        write_papers(paper_rows(paper_source_files(source)), folder / "papers.jsonl")
        LocalPapers.build(read_papers(folder / "papers.jsonl"), folder / "index")
        if from_path is None:
            shutil.rmtree(source)


def _local_queries(source: Path) -> dict[str, list[PaperTask]]:
    """Return the queries of the files at a path by split, leaving out files of papers."""
    splits = {}
    for split, paths in find_local_splits(str(source), task="papersearch", suffixes=PAPER_SUFFIXES).items():
        files = [path for path in paths if not is_one_object(path)]
        first = next((row for path in files for row, _ in read_rows(path)), None)
        if is_query(first):
            splits[split] = [query_row(row, where).task for path in files for row, where in read_rows(path)]
    if not splits:
        raise DataError(f"there are no queries at {source}: expected rows with a 'question' and an 'answer'")
    return splits


def prepare_qa(dataset: str, from_path: str | None, target: Path) -> None:
    """Write a data set to a folder, replacing an earlier copy in one step.

    The folder has `SPLIT.jsonl` for each split, `passages.jsonl` with the paragraphs of all of them and its index in
    `index/`. Rows without an answer, as in the released test files, are skipped.
    """
    splits: dict[str, Iterable[QARow]]
    if from_path is None:
        splits = {
            split: (read_row(row, f"split {split}, row {n}") for n, row in enumerate(rows, start=1) if has_answer(row))
            for split, rows in fetch_splits(dataset).items()
        }
    else:
        local = find_local_splits(from_path, task=dataset, suffixes=QA_SUFFIXES)
        compare_released(dataset, (file for files in local.values() for file in files))
        splits = {split: read_qa(files, answered_only=True) for split, files in local.items()}
    tasks: dict[str, list[QATask]] = {name: [] for name in splits}

    def noted() -> Iterator[QARow]:
        """Yield all rows, adding their questions to `tasks`."""
        for split, rows in splits.items():
            for row in rows:
                tasks[split].append(row.task)
                yield row

    with replaced_folder(target) as folder:
        write_jsonl(folder / "passages.jsonl", passages_of(noted()))
        if not any(tasks.values()):
            raise DataError(f"no row of {from_path or RELEASED[dataset]['hub']} has an answer")
        BM25Retriever.build(read_corpus(folder / "passages.jsonl"), folder / "index")
        for split, answered in tasks.items():
            if answered:
                write_jsonl(folder / f"{split}.jsonl", map(_question_row, answered))


def _question_row(task: QATask) -> dict[str, Any]:
    row = {"id": task.question_id, "question": task.question, "answers": task.answers, "supporting": task.supporting}
    return {**row, "type": task.question_type, "level": task.level, "hops": task.hops}


PREPARERS: dict[str, Callable[[str | None, Path], object]] = {
    "alfworld": prepare_alfworld,
    "gsm8k": prepare_gsm8k,
    "papersearch": prepare_papers,
    "webshop": prepare_webshop,
    **{name: functools.partial(prepare_qa, name) for name in DATASETS},
}
"""Each task's function: (path to take the data from or None, folder to write, whose earlier contents it replaces)."""

SOURCES: dict[str, str] = {
    "alfworld": RELEASES,
    "webshop": LINKS,
    **{name: f"https://huggingface.co/datasets/{about['hub']}" for name, about in RELEASED.items() if "hub" in about},
}
"""Where each task's data is released."""

FROM = ("huggingface", "modelscope")
"""What `--source` takes."""

_MODELSCOPE = "https://modelscope.cn/datasets/Melmaphother/Agent-R1-data"
_ANY = Product("", "", "", "", "", "", (), (), "", {}, (), "")  # stands for what a catalogue has of a goal's product
_RELEASED: dict[str, tuple[tuple[str, ...], Callable[[str], object]]] = {
    "alfworld": (("alfworld",), lambda rows: alfworld_games(rows, "all")),
    "papersearch": (("pasa",), query_rows),
    "webshop": (("webshop_full", "webshop"), lambda rows: read_released_goals([Path(rows)], lambda asin: _ANY)),
    "scienceworld": (("scienceworld",), science_rows),
    **{name: (("hotpotqa", "corpus/hotpotqa"), functools.partial(qa_rows, name)) for name in DATASETS},
}
"""Each task's folders in Agent-R1's data release, and what reads its rows: all that can be read without other data."""


def prepare(
    task: str, from_path: str | None = None, out: str | Path | None = None, *, source: str | None = None
) -> Path:
    """Put a task's official data where `data="official"` finds it, and return the folder written.

    Args:
        task: The task's name, like "gsm8k".
        from_path: Files to take the data from; None fetches them.
        out: The folder to write instead of the one in `data_dir()`.
        source: "modelscope" for Agent-R1's data release in `from_path`: its rows are checked, and its own folder is
            returned, for `data=` (of the small WebShop for `goals=`); nothing is copied but packed games. "huggingface"
            for the data set on the hub. None for the original, wherever it is.

    Raises:
        ConfigError: There is no such task, or its data is not there.
        DataError: The data cannot be fetched, read or written.
    """
    if source is not None:
        choice("--source", source, FROM)
    if task == "scienceworld" and source != "modelscope":
        raise ConfigError(f"{task} needs no files: data='generated' has the released tasks; leave out agentr1 prepare")
    choice("task", task, {**PREPARERS, **(_RELEASED if source == "modelscope" else {})})
    if source == "huggingface" and "huggingface.co" not in SOURCES[task]:
        raise ConfigError(f"{task} is not on Hugging Face but at {SOURCES[task]}; leave out --source")
    if source == "modelscope":
        folder = _release_folder(task, from_path)
        if task != "alfworld" or (folder / RELEASED_GAMES).is_dir():
            if out is not None:
                raise ConfigError(f"{task} of the data release is read where it is, {folder}: leave out --out")
            return folder
        from_path = str(folder)
    elif from_path is not None and task in ("papersearch", *DATASETS):
        path = user_path(from_path)
        for file in [path] if path.suffix == ".parquet" else path.glob("*.parquet"):
            if is_verl_row(next(read_rows(file), (None, ""))[0]):
                raise ConfigError(f"{file} is of Agent-R1's data release: add --source modelscope")
    target = data_dir() / task if out is None else expanded(out)
    PREPARERS[task](from_path, target)
    there = {path.stem for form in ("*.jsonl", "*.parquet", "json_2.1.1/*") for path in target.glob(form)}
    if missing := sorted({*RELEASED[task].get("splits", ())} - there):
        _log.warning("%s has no split %s, as all of the released data has", target, " and no split ".join(missing))
    return target


def _release_folder(task: str, from_path: str | None) -> Path:
    """Return a task's folder of the data release, every row of which has been read."""
    if task not in _RELEASED:
        raise ConfigError(f"Agent-R1's data release is read for {', '.join(_RELEASED)}; for {task}, leave out --source")
    if from_path is None:
        raise ConfigError(f"download {_MODELSCOPE}, and pass its folder: --source modelscope --from FOLDER")
    release, (names, read), begin = user_path(from_path), _RELEASED[task], VERL_SOURCES[task]
    folders = [each for each in (*(release / name for name in names), release) if [*each.glob("*.parquet")]]
    if not folders:
        raise DataError(f"{from_path}: expected the release, or its folder {names[0]}/ with files SPLIT.parquet")
    folder, files = folders[0], sorted(folders[0].glob("*.parquet"))
    rows = [(file.stem, row.get("data_source")) for file in files for row, at in read_rows(file) if verl_row(row, at)]
    counts, sources = Counter(name for name, _ in rows), {str(source) for _, source in rows}
    if not any(name.startswith(begin) for name in sources):
        raise DataError(f"{folder} has no rows of {task}, whose data_source is {begin!r}: got {sorted(sources)!r:.200}")
    shop = "webshop_full" if "webshop_full_train" in sources else task
    known = table(__package__, "release_rows.json")["counts"][shop]
    if partly := [f"{name} {counts[name]} of {n}" for name, n in known.items() if counts[name] != n]:
        _log.warning("%s is not the whole release, but has of its rows: %s", folder, ", ".join(partly))
    if task != "alfworld" or (folder / RELEASED_GAMES).is_dir():  # else they are read when the games are unpacked
        for file in [file for file in files if file.stem.startswith(begin)] or files:
            read(str(file))
    return folder
