"""Pipes, devices, links to themselves and packed bombs in place of a folder's files: each command says so at once."""

import gzip
import os
import signal
from pathlib import Path

import pytest

from agent_envs.cli.main import main
from agent_envs.errors import DataError
from agent_envs.files import JSONLines, open_data, read_text
from agent_envs.tasks import read_rows
from tests.attacks.commands import EVAL

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture(autouse=True)
def _limit():
    signal.alarm(60)  # what hangs ends the tests
    yield
    signal.alarm(0)


def _put(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path.name if kind == "itself" else kind)


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "itself"])
@pytest.mark.parametrize("name", ["episodes.jsonl", "run.json", "panel.json", "summary.json", "metrics.jsonl"])
def test_a_file_that_is_none(name, kind, played, run, tmp_path, capsys):
    _put(run / name, kind)
    for command in (
        ["view", str(run), "--out", str(tmp_path / "a.html"), "--force"],
        ["score", str(run), "--out", str(tmp_path / "a.jsonl"), "--force", "--quiet"],
        ["compare", str(played), str(run)],
        ["eval", "--panel", str(run), "--policy", "expert", "--quiet"],
        [*EVAL, str(run)],
    ):
        assert main(command) in (0, 1, 2)
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "itself"])
def test_readers_of_data(kind, tmp_path):
    path = tmp_path / "rows.jsonl"
    _put(path, kind)
    _put(tmp_path / "rows.parquet", kind)
    for read in (open_data, read_text):
        with pytest.raises(OSError, match="regular file|symbolic links"):
            read(path)
    for rows in (read_rows(path), read_rows(tmp_path / "rows.parquet"), JSONLines(path)):
        with pytest.raises(DataError, match="cannot be read"):
            list(rows)
    with pytest.raises(OSError, match="regular file|symbolic links"):
        JSONLines(path).append({})


@pytest.mark.parametrize(
    "line", [b'{"steps": [' + b"[]," * (8 << 20) + b"0]}\n", (b'{"a": "' + b"x" * 1000 + b'"}\n') * (20 << 10)]
)
def test_a_packed_file_that_grows_without_measure(line, tmp_path):
    path = tmp_path / "episodes.jsonl.gz"
    path.write_bytes(gzip.compress(line, 6))
    with pytest.raises(DataError, match="unpacks to more than 100 times its size"):
        for _ in JSONLines(path):
            pass


@pytest.mark.parametrize("rows, text", [(1 << 15, "x" * 1000), (1 << 21, "x" * 8)])
def test_a_parquet_file_that_grows_without_measure(rows, text, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.repeat(0, rows), [text]).cast(pyarrow.string())
    parquet.write_table(pyarrow.table({"question": column}), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="unpacks to far more than the file's size"):
        for _ in read_rows(path):
            pass


def test_a_text_that_is_too_long(tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xef\xbb\xbf{}\r\n")
    assert read_text(tmp_path / "run.json") == "{}\n"
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_text(tmp_path / "run.json", 3)
