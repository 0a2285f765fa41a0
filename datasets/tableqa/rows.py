r"""Released rows of questions over tables, by the path of their files.

WikiTableQuestions: a .tsv of examples beside the folder `csv`; answers are separated by `|`.

    id      utterance                                       context             targetValue
    nt-0    what was the last year where this team ...      csv/204-csv/590.csv 2004

TabMWP: a .json of examples by id, each with its table as text.

    {"1": {"question": "...", "table": "Day | Number\nMonday | 5", "answer": "5", "unit": null, "choices": null}}
"""

from __future__ import annotations

import csv
import functools
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_envs.datasets.fields import answer_field, as_object, as_texts, data_text, text_field
from agent_envs.datasets.files import find_files, read_tasks
from agent_envs.datasets.paths import data_name, official_dir, user_path
from agent_envs.datasets.tableqa.generated.tables import TableTask
from agent_envs.errors import ConfigError, DataError, did_you_mean
from agent_envs.tasks import ListedTasks, file_stamps, read_rows

_FILE = "table.csv"
_WIKI_FIELDS = ("id", "utterance", "context", "targetValue")


def table_rows(data: str | os.PathLike[str], split: str = "train") -> ListedTasks[TableTask]:
    """Return the questions of a split."""
    name = data_name(data)
    path = official_dir("tableqa") if name == "official" else user_path(name)
    examples = path / "data" if (path / "data").is_dir() and any((path / "data").glob("*.tsv")) else path
    if tables := sorted(examples.glob("*.tsv")) if examples.is_dir() else []:
        known = {file.stem: file for file in tables}
        chosen = {"train": "training", "test": "pristine-unseen-tables"}.get(split, split)
        if chosen not in known:
            raise ConfigError(f"{name} has no split {split!r}.{did_you_mean(split, sorted(known))}")
        return ListedTasks(read_tasks(file_stamps([known[chosen]]), _wiki, f"tableqa/{split}"), name, split)
    if path.suffix == ".tsv":
        if split not in ("train", "all"):
            raise ConfigError(f"{name} is a single file, whose only split is 'all', got split {split!r}")
        return ListedTasks(read_tasks(file_stamps([path]), _wiki, "tableqa/all"), name, "all")
    files, split = find_files(name, split, task="tableqa", suffixes=(".json", ".jsonl"))
    return ListedTasks(read_tasks(file_stamps(files), _tabmwp, f"tableqa/{split}"), name, split)


def _wiki(path: Path) -> Iterator[TableTask]:
    context = functools.lru_cache(maxsize=None)(_context)  # several questions share a table
    lines = data_text(path).splitlines()
    if not lines or tuple(lines[0].split("\t"))[:4] != _WIKI_FIELDS:
        raise DataError(f"{path}, line 1: expected the columns {', '.join(_WIKI_FIELDS)}")
    for number, line in enumerate(lines[1:], start=2):
        fields = [_unescaped(field) for field in line.split("\t")]
        where = f"{path}, line {number}"
        if len(fields) < 4 or not fields[1] or not fields[3]:
            raise DataError(f"{where}: expected four fields, got {line[:80]!r}")
        answers = tuple(part.replace("\\p", "|") for part in line.split("\t")[3].split("|"))
        try:
            files = ((_FILE, context(path, fields[2])),)
        except DataError as e:
            raise DataError(f"{where}: {e}") from e
        yield TableTask("", fields[1], tuple(map(_unescaped, answers)), files)


def _unescaped(field: str) -> str:
    return field.replace("\\n", "\n").replace("\\p", "|").replace("\\\\", "\\")


def _context(examples: Path, context: str) -> str:
    """Return the table of an example as a plain CSV; its path may not lead out of the data set."""
    parts = Path(context).parts
    if Path(context).is_absolute() or ".." in parts or not context.endswith(".csv"):
        raise DataError(f"expected the path of a table such as 'csv/204-csv/590.csv', got {context[:80]!r}")
    for base in (examples.parent, examples.parent.parent):
        if (base / context).is_file():
            text = data_text(base / context)
            try:
                return _plain_csv(csv.reader(io.StringIO(text), escapechar="\\", doublequote=False))
            except csv.Error as e:
                raise DataError(f"{base / context} is no table: {e}") from e
    raise DataError(f"there is no table {context[:80]!r} beside {examples}")


def _plain_csv(rows: Any) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _tabmwp(path: Path) -> Iterator[TableTask]:
    for row, where in read_rows(path):
        fields = as_object(row, "an object with questions by id, or one question", where)
        if "question" in fields:
            yield _tabmwp_task(fields, where)
            continue
        for key, entry in fields.items():
            inside = f"{where}, entry {key[:20]!r}"
            yield _tabmwp_task(as_object(entry, "an object with a question, a table and an answer", inside), inside)


def _tabmwp_task(fields: dict[str, Any], where: str) -> TableTask:
    question, text = text_field(fields, "question", where), text_field(fields, "table", where)
    if choices := fields.get("choices"):
        question = f"{question} Choose one of: {', '.join(as_texts(choices, 'choices', where))}."
    unit, title = (value if isinstance(value := fields.get(key), str) else "" for key in ("unit", "table_title"))
    question = f"{question} (unit: {unit})" if unit else question
    question = f"{title}\n{question}" if title else question
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.strip())
    answers = (answer_field(fields, "answer", where).strip(),)
    return TableTask("", question, answers, ((_FILE, _plain_csv(rows)),), unit=unit)
