"""`agentr1 new-task`: what it writes works at once.

Behaviours pinned here:
1. Both variants pass their own tests, the contract among them, in the folder as written, and ruff has nothing to say.
2. `agentr1 train --dry-run` takes the id.
3. Nothing is overwritten, a failed write leaves nothing, and a name that cannot be a package's is refused.
4. Its types hold.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_envs.cli import new_task
from tests.helpers import own_package


def _run(folder: Path, *command: str) -> str:
    pytest.importorskip(command[0])
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder, env=own_package(folder), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("variant", [(), ("--tools", "--namespace", "Lab")])
def test_the_task_passes_its_own_tests(tmp_path, monkeypatch, agentr1, variant):
    monkeypatch.chdir(tmp_path)
    env_id = f"night_shop:{'Lab' if variant else 'Me'}/NightShop-v0"
    assert env_id in agentr1("new-task", "night_shop", *variant)
    folder = tmp_path / "night_shop"
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == {
        ".gitignore", "README.md", "docs/night_shop.md", "night_shop/__init__.py", "night_shop/dataset.py",
        "night_shop/env.py", "pyproject.toml", "tests/test_night_shop.py",
    }  # fmt: skip
    for page in folder.rglob("*.md"):
        for label, target in re.findall(r"\[([^]]+)\]\(([^)]+)\)", page.read_text()):
            assert label == target and (page.parent / target).is_file()
    assert " passed" in _run(folder, "pytest", "-q", "-p", "no:cacheprovider")
    _run(folder, "ruff", "check", "--no-cache", ".")
    _run(folder, "ruff", "format", "--no-cache", "--check", ".")
    assert not list(tmp_path.glob(".*")), "nothing temporary is left"
    if variant:  # which files there are makes no difference to the trainer
        pytest.importorskip("verl")
        monkeypatch.syspath_prepend(folder)
        assert env_id in agentr1("train", "--env", env_id, "--dry-run")
        for name in [name for name in sys.modules if name.startswith("night_shop")]:
            del sys.modules[name]


def test_names_on_both_sides_of_the_alphabet_keep_the_form(tmp_path):
    for name, tools in itertools.product(("aaa", "zoo_keeper_2"), (True, False)):
        for path, text in new_task.render(name, f"Me/{name}-v0", tools=tools).items():
            file = tmp_path / f"{name}-{tools}" / path
            file.parent.mkdir(exist_ok=True, parents=True)
            file.write_text(text)
            assert "$" not in text
    _run(tmp_path, "ruff", "check", "--no-cache", ".")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MyTask", "did you mean 'my_task'"),
        ("../evil", "lower-case"),
        ("a b", "did you mean 'a_b'"),
        ("_x", "did you mean 'x'"),
        ("été", "lower-case"),
        ("9lives", "lower-case"),
        ("x" * 41, "at most 40"),
        ("class", "used by Python"),
        ("json", "used by Python"),
        ("tests", "used by"),
        ("numpy", "is already installed"),
    ],
)
def test_names_that_are_refused(tmp_path, monkeypatch, agentr1, name, message):
    monkeypatch.chdir(tmp_path)
    assert message in agentr1("new-task", "--", name, status=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--namespace", "AgentR1"], "--namespace"),
        (["--namespace", "a/b"], "--namespace"),
        (["--out", "there"], "nothing is overwritten"),
        (["--out", "file/below"], "cannot be written"),
    ],
)
def test_bad_options_leave_nothing(tmp_path, monkeypatch, agentr1, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert message in agentr1("new-task", "night_shop", *options, status=2)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine.txt", "there"]


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch, agentr1):
    def fail(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(new_task, "write_text", fail)
    assert "No space left" in agentr1("new-task", "night_shop", "--out", tmp_path / "new" / "shop", status=2)
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.slow
def test_the_types_hold(tmp_path, monkeypatch, agentr1):
    monkeypatch.chdir(tmp_path)
    agentr1("new-task", "night_shop")
    agentr1("new-task", "tool_shop", "--tools")
    packages = [str(Path(task, task)) for task in ("night_shop", "tool_shop")]
    _run(tmp_path, "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *packages)
