"""GSM8K tasks: real rows in every layout, what is said of broken ones, prepare, and the generated world.

1. jsonl, parquet, folders and the hub's layout give the same rows.
2. Every broken row is named by file and line.
3. `prepare` replaces a folder in one step and leaves nothing behind when it fails.
4. Generated tasks replay to their answers, and no split shares a problem.
"""

import hashlib
import json

import pytest

from agent_envs.datasets.gsm8k.generated.problems import GeneratedGSM8K
from agent_envs.datasets.gsm8k.rows import gsm8k_rows
from agent_envs.datasets.paths import data_dir as prepared_dir
from agent_envs.datasets.prepare import prepare
from agent_envs.envs.gsm8k.reward import judge
from agent_envs.errors import ConfigError, DataError, TaskIndexError
from agent_envs.tools.calculator import evaluate
from tests.helpers import write_rows

ROWS = [
    {"question": f"What is {n}+1?", "answer": f"It is {n}+1=<<{n}+1={n + 1}>>{n + 1}.\n#### {n + 1:,}"}
    for n in range(998, 1003)
]


# -- real rows ------------------------------------------------------------------------------------------------------


def test_a_file_is_the_split_all(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", ROWS)
    rows = gsm8k_rows(str(path))
    assert (rows.name, rows.split, len(rows)) == (str(path), "all", 5)
    assert [task.answer for task in rows] == ["999", "1000", "1001", "1002", "1003"]
    assert rows[1].task_id == "gsm8k/all/1"
    assert rows[1].solution.endswith("#### 1,000")
    assert gsm8k_rows(str(path), "all")[4] is rows[4]  # read once
    with pytest.raises(TaskIndexError, match="tasks 0 to 4, got index 5"):
        rows[5]


def test_every_layout_gives_the_same_rows(tmp_path):
    parquet = write_rows(tmp_path / "one.parquet", ROWS)
    write_rows(tmp_path / "folder" / "train.jsonl", ROWS)
    write_rows(tmp_path / "folder" / "test.parquet", ROWS[:2])
    write_rows(tmp_path / "hub" / "main" / "train-00000-of-00002.parquet", ROWS[:3])
    write_rows(tmp_path / "hub" / "main" / "train-00001-of-00002.parquet", ROWS[3:])
    write_rows(tmp_path / "hub" / "main" / "test-00000-of-00001.parquet", ROWS[:2])
    write_rows(tmp_path / "subfolders" / "valid_train" / "part.jsonl", ROWS)
    questions = [row["question"] for row in ROWS]
    assert [t.question for t in gsm8k_rows(str(parquet))] == questions
    for folder, split in (("folder", "train"), ("hub", "train"), ("hub/main", "train"), ("subfolders", "valid_train")):
        rows = gsm8k_rows(str(tmp_path / folder), split)
        assert [t.question for t in rows] == questions, folder
        assert rows.split == split
    assert len(gsm8k_rows(str(tmp_path / "hub"), "test")) == len(gsm8k_rows(str(tmp_path / "folder"), "test")) == 2


def test_a_changed_file_is_read_again(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", ROWS)
    assert len(gsm8k_rows(str(path))) == 5
    write_rows(path, ROWS[:2])
    assert len(gsm8k_rows(str(path))) == 2


GOOD = json.dumps(ROWS[0])
BROKEN = [
    ("{oops", "line 2: not valid JSON"),
    ("[1, 2]", "line 2: expected an object with 'question' and 'answer', got list"),
    ('{"question": "a"}', "line 2: expected text under 'answer', got None"),
    ('{"question": "", "answer": "#### 1"}', "line 2: expected text under 'question', got ''"),
    ('{"question": "a", "answer": 5}', "line 2: expected text under 'answer', got 5"),
    ('{"question": "a", "answer": "It is 5."}', "line 2: the answer does not end with '#### N'"),
    ('{"question": "a", "answer": "#### five"}', "line 2: there is no number after '####'"),
    (f'{{"question": "a", "answer": "#### 1", "id": {"9" * 4400}}}', "line 2: not valid JSON"),  # int's own limit
]


@pytest.mark.parametrize(("line", "says"), BROKEN)
def test_a_broken_row_is_named(tmp_path, line, says):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{GOOD}\n{line}\n{GOOD}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        gsm8k_rows(str(path))
    assert f"{path}, {says}" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_other_broken_data_is_named(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xe9"}\n')
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "rows.csv").write_text("question,answer\n")
    (tmp_path / "nothing").mkdir()
    write_rows(tmp_path / "folder" / "train.jsonl", ROWS)
    for name, says in [
        ("empty.jsonl", "no rows"),
        ("latin.jsonl", "line 1: not UTF-8"),
        ("rows.csv", "expected a .jsonl or .parquet file"),
        ("nothing", "has no split file"),
        ("missing.jsonl", "there is no file or folder"),
    ]:
        with pytest.raises(DataError, match=says):
            gsm8k_rows(str(tmp_path / name))
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"bad\.parquet: not a readable parquet file"):
        gsm8k_rows(str(tmp_path / "bad.parquet"))
    with pytest.raises(ConfigError, match="no split 'trian'. Did you mean 'train'"):
        gsm8k_rows(str(tmp_path / "folder"), "trian")
    with pytest.raises(ConfigError, match="single file, whose split is 'all', and 'train' by its name"):
        gsm8k_rows(str(tmp_path / "folder" / "train.jsonl"), "test")


def test_a_split_in_two_files_is_refused(tmp_path):
    write_rows(tmp_path / "train.jsonl", ROWS)
    write_rows(tmp_path / "train.parquet", ROWS)
    with pytest.raises(DataError, match=r"'train' twice, as train\.jsonl and train\.parquet"):
        gsm8k_rows(str(tmp_path))
    (tmp_path / "train.parquet").unlink()
    write_rows(tmp_path / "train" / "part.jsonl", ROWS)
    with pytest.raises(DataError, match=r"twice, as train/part\.jsonl and train\.jsonl"):
        prepare("gsm8k", str(tmp_path), tmp_path / "out")


def test_shards_in_folders_of_subjects(tmp_path):
    for name in ("algebra/test-00000-of-00001", "algebra/train-00000-of-00002", "algebra/train-00001-of-00002",
                 "geometry/test-00000-of-00001", "geometry/train-00000-of-00001"):  # fmt: skip
        write_rows(tmp_path / f"{name}.jsonl", ROWS)
    assert len(gsm8k_rows(str(tmp_path))) == 3 * len(ROWS)
    assert len(gsm8k_rows(str(tmp_path), "test")) == 2 * len(ROWS)
    write_rows(tmp_path / "test.jsonl", ROWS)
    with pytest.raises(DataError, match="the split 'test' twice"):
        gsm8k_rows(str(tmp_path))


def test_unusable_paths_are_named(tmp_path):
    write_rows(tmp_path / "folder" / "test.jsonl", ROWS)
    (tmp_path / "folder" / "train.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(DataError, match=r"train\.jsonl cannot be read \(broken symbolic link\)"):
        gsm8k_rows(str(tmp_path / "folder"))
    assert len(gsm8k_rows(str(tmp_path / "folder"), "test")) == 5
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    with pytest.raises(DataError, match=r"there is no file or folder|is not a usable path"):
        gsm8k_rows(str(tmp_path / "loop.jsonl"))
    with pytest.raises(DataError, match="did you mean 'official'"):
        gsm8k_rows("offical")
    for data in ("", b"rows.jsonl"):  # others: tests/envs/test_wrong_arguments.py
        with pytest.raises(ConfigError, match="data must be 'generated', 'official' or a path, got"):
            gsm8k_rows(data)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"split must be a string, got \['train'\]"):
        gsm8k_rows(tmp_path / "folder", ["train"])  # type: ignore[arg-type]


# -- prepare --------------------------------------------------------------------------------------------------------


def test_prepare_then_official(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "prepared"))
    assert prepared_dir() == tmp_path / "prepared"
    with pytest.raises(DataError, match="agentr1 prepare gsm8k"):
        gsm8k_rows("official")
    target = prepare("gsm8k", str(write_rows(tmp_path / "train_2000.jsonl", ROWS)))
    assert target == tmp_path / "prepared" / "gsm8k"
    rows = gsm8k_rows("official")
    assert (rows.name, rows.split, len(rows)) == ("official", "train", 5)
    assert rows[1].solution == ROWS[1]["answer"]
    write_rows(tmp_path / "folder" / "train.jsonl", ROWS[:3])
    write_rows(tmp_path / "folder" / "test.jsonl", ROWS[:1])
    prepare("gsm8k", str(tmp_path / "folder"))  # in the place of the first
    assert len(gsm8k_rows("official")) == 3
    assert len(gsm8k_rows("official", "test")) == 1
    assert [p.name for p in (tmp_path / "prepared").iterdir()] == ["gsm8k"]


def test_a_failed_prepare_leaves_what_was_there(tmp_path):
    out = tmp_path / "data" / "gsm8k"
    prepare("gsm8k", str(write_rows(tmp_path / "gsm8k_test.jsonl", ROWS)), out)
    assert len(gsm8k_rows(str(out), "test")) == 5  # the file's name says the split
    (tmp_path / "broken.jsonl").write_text(GOOD + "\n{}\n")
    with pytest.raises(DataError, match=r"broken\.jsonl, line 2"):
        prepare("gsm8k", str(tmp_path / "broken.jsonl"), out)
    with pytest.raises(DataError, match="there is no file or folder"):
        prepare("gsm8k", str(tmp_path / "missing"), out)
    assert len(gsm8k_rows(str(out), "test")) == 5
    assert [p.name for p in out.parent.iterdir()] == ["gsm8k"]


def test_prepare_takes_the_released_repository(tmp_path):
    """https://github.com/openai/grade-school-math has other formats beside the two splits."""
    data = tmp_path / "clone" / "grade_school_math" / "data"
    for name in ("train", "test", "train_socratic", "test_socratic"):
        write_rows(data / f"{name}.jsonl", ROWS[:2] if "test" in name else ROWS)
    (data / "example_model_solutions.jsonl").write_text('{"question": "a", "ground_truth": "#### 1"}\n')
    for source in (data, data.parent):
        out = prepare("gsm8k", str(source), tmp_path / "out")
        assert sorted(p.name for p in out.iterdir()) == ["test.jsonl", "train.jsonl"]
        assert (len(gsm8k_rows(str(out))), len(gsm8k_rows(str(out), "test"))) == (5, 2)


def test_prepare_replaces_only_prepared_data(tmp_path):
    source = str(write_rows(tmp_path / "train.jsonl", ROWS))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    for out, says in [
        ("file", "is a file"),
        ("folder", "holds something other than prepared data"),
        ("file/below", "cannot be written to"),
        ("/proc/nowhere/gsm8k", "cannot be written to"),
        ("x" * 5000, "cannot be written to .*: File name too long"),
    ]:
        with pytest.raises(DataError, match=says):
            prepare("gsm8k", source, tmp_path / out)
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "thesis.txt").read_text() == "mine"
    assert prepare("gsm8k", source, tmp_path / "empty") == tmp_path / "empty"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "folder", "train.jsonl"]


def test_online_rows_are_written(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", minversion="2.0")
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, revision: {"train": ROWS, "test": ROWS[:2]})
    out = prepare("gsm8k", None, tmp_path / "gsm8k")
    assert len(gsm8k_rows(str(out))) == 5
    assert len(gsm8k_rows(str(out), "test")) == 2


# -- the generated world --------------------------------------------------------------------------------------------

LEVELS = [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("level", LEVELS)
def test_generated_tasks_are_true(level):
    tasks = GeneratedGSM8K("train", level)
    for index in range(100):
        task = tasks[index]
        assert len(task.operations) == task.level == level
        used: set[int] = set()
        for position, operation in enumerate(task.operations):
            for side in (operation.left, operation.right):
                if side.made_by is not None:
                    assert side.made_by < position
                    assert side.value == task.operations[side.made_by].result
                    used.add(side.made_by)
            assert evaluate(operation.expression) == str(operation.result)
            assert operation.result > 0
            assert f"<<{operation.expression}={operation.result}>>{operation.result}" in task.solution
        assert used == set(range(level - 1))  # every step is needed
        assert task.answer == str(task.operations[-1].result)
        assert task.solution.endswith(f"\n#### {task.answer}")
        assert judge(task.solution, task.answer).reward == 1.0
        assert judge(f"#### {int(task.answer) + 1}", task.answer).reward == 0.0
        assert int(task.answer) < 10_000
        assert task.question.endswith("?")
        assert "{" not in task.question + task.solution


def test_no_split_shares_a_problem():
    for split in ("train", "validation", "test"):
        for level in ("1-8", 1, 2):
            tasks = GeneratedGSM8K(split, level)
            for index in range(100):
                bucket = hashlib.sha256(tasks[index].key.encode()).digest()[0] % 10
                assert {0: "validation", 1: "test"}.get(bucket, "train") == split  # so a problem is of one split


def test_sizes_and_ranges():
    assert [len(GeneratedGSM8K(split)) for split in ("train", "validation", "test")] == [100_000, 1_000, 1_000]
    assert GeneratedGSM8K("train")[99_999].task_id == "gsm8k-generated/train/1-8/99999"
    assert {GeneratedGSM8K("test")[index].level for index in range(100)} == set(LEVELS)
    assert {GeneratedGSM8K("test", "2-3")[index].level for index in range(100)} == {2, 3}
    for index in (1000, -1):
        with pytest.raises(TaskIndexError, match=f"tasks 0 to 999, got index {index}"):
            GeneratedGSM8K("test")[index]
    assert GeneratedGSM8K.shared("test", [2, 3]) is GeneratedGSM8K.shared("test", "2-3")
    assert GeneratedGSM8K.shared("test", 2) is GeneratedGSM8K.shared("test", "2")


@pytest.mark.parametrize(
    "level", [0, 9, "0-3", "3-1", "easy", True, 1.5, "1-", "", None, [1], [2, 1], [1, 2, 3], [True, 2], {}]
)
def test_a_wrong_level_is_refused(level):
    with pytest.raises(ConfigError, match="from 1 to 8"):
        GeneratedGSM8K("train", level)  # type: ignore[arg-type]
