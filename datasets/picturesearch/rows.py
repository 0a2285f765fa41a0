r"""Released questions about large pictures, by the path of their files.

V*Bench (Wu and Xie 2023, https://huggingface.co/datasets/craigwu/vstar_bench): test_questions.jsonl beside the folders
of its pictures.

    {"image": "direct_attributes/sa_4690.jpg", "text": "What is ...?\n(A) rubber\n(B) cotton\nAnswer with ...",
     "category": "direct_attributes", "label": "A", "question_id": 0}

HR-Bench (Wang et al. 2024, https://huggingface.co/datasets/DreamMr/HR-Bench): a .parquet, whose last column holds the
picture in base64.

    index  question  answer  category  A  B  C  D  cycle_category  image
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_envs.datasets.fields import as_object, text_field
from agent_envs.datasets.files import find_files, read_tasks
from agent_envs.datasets.paths import data_name
from agent_envs.datasets.picturesearch.generated.sheet import PictureTask
from agent_envs.errors import DataError, needs_extra
from agent_envs.files import open_data
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import LARGEST_FILE, read_picture
from agent_envs.tasks import ListedTasks, file_stamps, read_rows

SUFFIXES = (".jsonl", ".parquet")
LEAST = 8
"""Pixels of a side, of a picture and of a part of it that is shown."""
_THIN = 64  # a thinner picture has no pixel on its short side where it is shown small
_FORMATS = ("PNG", "JPEG")
_OPTION = re.compile(r"^\(([A-Z])\)[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLUMNS = ("question", "answer", "category", "A", "B", "C", "D")


class RowPictures(ListedTasks[PictureTask]):
    """Questions of files."""

    def content(self, index: int) -> PictureTask:
        """Return a task without the place of its picture, which differs from machine to machine."""
        return self[index]._replace(picture=("", ""))


def picture_rows(data: str, split: str = "train") -> RowPictures:
    """Return the questions of a split; `data` and `split` are those of `find_files`. Pictures are read when shown."""
    name = data_name(data)
    files, split = find_files(name, split, task="picturesearch", suffixes=SUFFIXES)
    return RowPictures(read_tasks(file_stamps(files), _questions, f"picturesearch/{split}"), name, split)


def _questions(path: Path) -> Iterator[PictureTask]:
    return _vstar(path) if path.suffix == ".jsonl" else _hr_bench(path)


def released_picture(task: PictureTask) -> Picture:
    """Return the picture of a released row."""
    picture = _released(task)
    short, long = sorted((picture.width, picture.height))
    if short < LEAST or long > _THIN * short:
        raise DataError(
            f"{task.picture[0]}, the picture of {task.task_id}: {picture.width} x {picture.height} pixels; at least "
            f"{LEAST} a side are needed, and at most {_THIN} times as many on one side as on the other"
        )
    return picture


def _released(task: PictureTask) -> Picture:
    name, place = task.picture
    path = Path(name)
    if not place:
        try:
            with open_data(path) as file:
                data = file.read(LARGEST_FILE + 1)
            if len(data) > LARGEST_FILE:
                raise DataError(f"{path}: a picture of more than {LARGEST_FILE} bytes")
            return read_picture(data, str(path), formats=_FORMATS)
        except OSError as e:
            raise DataError(f"{path} cannot be read: {e.strerror or e}") from e
    where = f"{path}, the picture of {task.task_id}"
    column = _table(path, ["image"]).column("image")
    encoded = column[int(place)].as_py() if int(place) < len(column) else None
    if not isinstance(encoded, str):
        raise DataError(f"{where}: expected a picture in base64")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as e:
        raise DataError(f"{where}: expected base64: {e}") from e
    return read_picture(data, where, formats=_FORMATS)


def _vstar(path: Path) -> Iterator[PictureTask]:
    for row, where in read_rows(path):
        fields = as_object(row, "an object with 'image', 'text', 'category' and 'label'", where)
        text, label = text_field(fields, "text", where), text_field(fields, "label", where).strip()
        options = _OPTION.findall(text)
        letters = "".join(letter for letter, _ in options)
        if not options or not _LETTERS.startswith(letters) or label not in letters or len(label) != 1:
            raise DataError(f"{where}: expected options (A), (B), ... in the text and one of their letters as label")
        family, texts = text_field(fields, "category", where), tuple(option for _, option in options)
        image = text_field(fields, "image", where)
        leads_out = Path(image).is_absolute() or ".." in Path(image).parts
        if "\0" in image or len(image) > 1000 or leads_out or "\\" in image:
            raise DataError(f"{where}: expected the path of a picture in the folder of the file, got {image[:80]!r}")
        picture = path.parent / image
        if not picture.is_file():
            raise DataError(f"{where}: there is no picture {image[:80]!r} beside {path.name}")
        yield PictureTask("", text, (label,), None, family=family, options=texts, picture=(str(picture), ""))


def _hr_bench(path: Path) -> Iterator[PictureTask]:
    for number, fields in enumerate(_table(path, list(_COLUMNS)).to_pylist()):
        where, options = f"{path}, row {number + 1}", {letter: fields.get(letter) for letter in "ABCD"}
        filled = {letter: str(text) for letter, text in options.items() if text is not None and str(text).strip()}
        answer = text_field(fields, "answer", where).strip()
        if answer not in filled or "".join(filled) not in _LETTERS:
            expected = f"expected one of the options {', '.join(filled) or '(none)'}"
            raise DataError(f"{where}: {expected}, got {answer[:80]!r}")
        listed = "\n".join(f"({letter}) {option}" for letter, option in filled.items())
        question = f"{text_field(fields, 'question', where)}\n{listed}\nAnswer with the letter of the right option."
        family, picture = text_field(fields, "category", where), (str(path), str(number))
        texts = tuple(filled.values())
        yield PictureTask("", question, (answer,), None, family=family, options=texts, picture=picture)


def _table(path: Path, columns: list[str]) -> Any:
    with needs_extra("data"):
        import pyarrow
        import pyarrow.parquet
    try:
        return pyarrow.parquet.read_table(path, columns=columns, memory_map=True)
    except (pyarrow.ArrowException, OSError, KeyError) as e:
        raise DataError(f"{path}: not a readable parquet file with the columns {', '.join(columns)} ({e})") from e
