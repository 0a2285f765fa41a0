"""Files that processes share and kills do not break.

1. A forked child that inherits the lock's file does not hold the lock once the parent has released it.
2. Where there is no fcntl (Windows), files are locked and written through msvcrt, with the same results.
"""

import contextlib
import os
import subprocess
import sys

import pytest

from agent_envs import files
from agent_envs.errors import DataError
from agent_envs.files import FileLock, JSONLines, move_folder


@pytest.mark.parametrize("line", ["[1]", "3", "null", "{", "[" * 100_000])
def test_a_line_that_is_no_object_is_named(tmp_path, line):
    rows = JSONLines(tmp_path / "rows.jsonl")
    rows.path.write_text(f'{{"a": 1}}\n\n{line}\n{{"a": 2}}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl, line 3: (not valid JSON|expected a JSON object, got)"):
        list(rows)
    with pytest.raises(DataError, match=r"the line at byte 0"):
        rows.path.write_text(f"{line}\n")
        list(rows.after())


def test_rows_after_an_offset(tmp_path):
    rows = JSONLines(tmp_path / "rows.jsonl")
    rows.append({"a": 1})
    ((end, row),) = rows.after()
    assert (end, row) == (rows.path.stat().st_size, {"a": 1})
    with rows.path.open("a") as file:
        file.write('{"a": ')
    assert list(rows.after(end)) == [] and list(rows) == [{"a": 1}]
    with rows.path.open("a") as file:
        file.write("2}\n")
    assert [row for _, row in rows.after(end)] == [{"a": 2}]


def test_replacing_rows_leaves_the_old_ones_after_an_error(tmp_path):
    rows = JSONLines(tmp_path / "rows.jsonl")
    rows.append({"a": 1})
    with pytest.raises(TypeError):
        rows.replace([{"a": 2}, {"a": object()}])
    assert list(rows) == [{"a": 1}] and [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    rows.replace({"a": n} for n in (2, 3))
    assert list(rows) == [{"a": 2}, {"a": 3}]


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    read, write = os.pipe()
    with FileLock(tmp_path / "lock"):
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)  # until the parent closes its end
            os._exit(0)
    FileLock(tmp_path / "lock", wait=False).close()
    os.close(write)
    os.waitpid(child, 0)
    os.close(read)


def test_a_folder_that_cannot_be_moved_changes_nothing(tmp_path):
    target = tmp_path / "data"
    target.mkdir()
    (target / "rows.jsonl").write_text("old")
    with pytest.raises(FileNotFoundError):
        move_folder(tmp_path / "missing", target)
    assert (target / "rows.jsonl").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(("exchanges", "renames"), [(True, 0), (False, 0), (False, 1)])
def test_a_kill_while_a_folder_is_replaced(tmp_path, monkeypatch, exchanges, renames):
    target, new = tmp_path / "data", tmp_path / "new"
    for folder in (target, new):
        folder.mkdir()
        (folder / "rows.jsonl").write_text(folder.name)
    with monkeypatch.context() as patched:
        if not exchanges:
            patched.setattr(files, "_exchange", lambda *folders: False)
        done: list[object] = []

        def replace(*paths, rename=os.replace):
            if len(done) == renames:
                raise KeyboardInterrupt  # as a kill
            done.append(rename(*paths))

        patched.setattr(os, "replace", replace)
        with contextlib.nullcontext() if exchanges else pytest.raises(KeyboardInterrupt):
            move_folder(new, target)
    assert target.exists() == (renames == 0)
    if not exchanges:  # what is left is the old one, at once or when the next call has put it back
        with pytest.raises(FileNotFoundError):
            move_folder(tmp_path / "missing", target)
    assert (target / "rows.jsonl").read_text() == ("new" if exchanges else "data")


_WINDOWS = """
import fcntl, os, sys, types
import gymnasium, subprocess  # which look at once which platform this is

def locking(file, mode, count):  # as Windows does it: at the file's position, and failing where it is locked
    assert os.lseek(file, 0, os.SEEK_CUR) > 1 << 30 and count == 1
    fcntl.flock(file, fcntl.LOCK_UN if mode == 0 else fcntl.LOCK_EX | fcntl.LOCK_NB)

sys.modules["fcntl"] = None
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_UNLCK=0, LK_NBLCK=2)
for name in ("fork", "register_at_fork", "pread", "pwrite", "O_CLOEXEC"):
    delattr(os, name)

from agent_envs.files import FileLock, JSONLines, move_folder
from concurrent.futures import ThreadPoolExecutor

rows = JSONLines(sys.argv[1])
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda n: rows.append({"n": n}), range(40)))
assert sorted(row["n"] for row in rows) == [*range(40)]
with FileLock(rows.path):
    try:
        FileLock(rows.path, wait=False)
    except BlockingIOError:
        print("locked")
FileLock(rows.path, wait=False).close()
"""


def test_without_fcntl(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _WINDOWS, tmp_path / "rows.jsonl"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "locked\n", "")
