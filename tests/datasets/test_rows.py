"""Rows as they are written: on a line each or on several, in one file each, with answers as text or as numbers.

Behaviours pinned here:
1. The same rows are read however their JSON is laid out, and an error names the line where a broken row begins.
2. A folder of folders of one file per problem is a split, as MATH is released.
3. A whole number is the answer 27 whether it is written 27, 27.0 or "27"; what is no number is refused.
"""

import json
from decimal import Decimal

import pytest

from agent_envs import json_stream
from agent_envs.datasets.fields import answer_field
from agent_envs.datasets.mathcode.rows import math_rows
from agent_envs.datasets.tableqa.rows import table_rows
from agent_envs.errors import ConfigError, DataError
from agent_envs.tasks import read_rows

ROWS = [{"a": 1, "b": {"c": [1, 2.5]}}, {"a": "x\ny {"}, {"a": None}]
PRETTY = [json.dumps(row, indent=2) for row in ROWS]
MATH = {"problem": "What is $1+1$?", "level": "Level 1", "type": "Algebra", "solution": "It is $\\boxed{2}$."}


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
def test_the_layout_of_json_does_not_matter(name, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "_CHUNK", chunk)
    path = tmp_path / name
    lines = "\n".join(map(json.dumps, ROWS))
    for text, places in (
        (lines, ["line 1", "line 2", "line 3"]),
        (f"\ufeff\r\n{lines}\n\n", ["line 2", "line 3", "line 4"]),
        ("\n".join(PRETTY), ["line 1", "line 10", "line 13"]),
        (json.dumps(ROWS, indent=1), ["entry 1", "entry 2", "entry 3"]),
    ):
        path.write_text(text, encoding="utf-8", newline="")
        assert list(read_rows(path)) == [(row, f"{path}, {place}") for row, place in zip(ROWS, places, strict=True)]
    path.write_text(PRETTY[0])
    assert list(read_rows(path)) == [(ROWS[0], f"{path}, line 1")]
    for text in (PRETTY[0][:-1], PRETTY[1].replace('"a"', "a"), '{"a": 1,}', "{'a': 1}", "nope", "[" * 5000):
        path.write_text(f"{PRETTY[0]}\n\n{text}\n")
        with pytest.raises(DataError, match=r"rows\.jsonl?, line 11: not valid JSON") as caught:
            list(read_rows(path))
        assert len(str(caught.value)) < 600
    path.write_bytes(b'{"a": 1}\n{"a":\n"\xff"}\n')
    with pytest.raises(DataError, match="line 3: not UTF-8"):
        list(read_rows(path))


def test_maths_folders(tmp_path):
    for place in ("train/algebra/1", "train/algebra/10", "train/geometry/1", "test/algebra/7"):
        path = tmp_path / "MATH" / f"{place}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**MATH, "problem": place}, indent=4))
    root = tmp_path / "MATH"
    read = {split: [row.question for row in math_rows(root, split)] for split in ("train", "test")}
    assert read == {"train": ["train/algebra/1", "train/algebra/10", "train/geometry/1"], "test": ["test/algebra/7"]}
    assert len(math_rows(root / "train", "algebra")) == 2 and len(math_rows(root / "train" / "algebra" / "1.json")) == 1
    assert math_rows(root)[0].answer == "2"
    with pytest.raises(ConfigError, match="no split 'train'. There are: 'algebra', 'geometry'"):
        math_rows(root / "train")
    (root / "train" / "geometry" / "1.json").write_text("{")
    with pytest.raises(DataError, match=r"geometry/1\.json, line 1: not valid JSON"):
        math_rows(root)


def test_tabmwps_file_as_it_is_released(tmp_path):
    row = {"question": "How many?", "table": "Day | Number\nMonday | 5", "answer": 5.0, "unit": None, "choices": None}
    path = tmp_path / "problems_test1k.json"
    path.write_text(json.dumps({"16": row, "17": row}, indent=2))
    assert [task.answers for task in table_rows(path)] == [("5",), ("5",)]


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (27, "27"), (27.0, "27"), ("27", "27"), ("27.0", "27.0"), (1e3, "1000"), (-0.0, "0"), (0.5, "0.5"),
        (Decimal("2.50"), "2.50"), (Decimal("27.0"), "27"),
        (float("nan"), None), (float("inf"), None), (Decimal("nan"), None), (True, None), (None, None), ("", None),
        ([27], None),
    ],
)  # fmt: skip
def test_answers_may_be_numbers(value, answer):
    if answer is not None:
        assert answer_field({"answer": value}, "answer", "here") == answer
        return
    with pytest.raises(DataError, match="here: expected text under 'answer'"):
        answer_field({"answer": value}, "answer", "here")
