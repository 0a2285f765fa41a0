"""The tutorials are run as a reader would: blocks in order, in an empty folder, with the output that they show.

A block of Python that begins with a file's name is written to that file, "continued" appends to it. Every other block
of Python or bash is run; a block of text behind it is what it prints, where "..." stands for anything. Without verl the
blocks that train are left out.
"""

import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_BLOCK = re.compile(r"^```(python|bash|text|json)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (?P<name>[\w.]+\.py)(?P<more>, continued)?\n")
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# Runs what it is told and answers what that printed, one JSON text a line.
_PYTHON = """
import contextlib, io, json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(json.loads(line), "the page", "exec"), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""


class _Session:
    """A folder in which blocks are run: those of Python by one interpreter, those of bash one by one."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        programs = folder / ".bin"
        programs.mkdir()
        agentr1 = f"import sys; sys.path[:0] = [{str(root)!r}]; from agent_envs.cli.main import main; sys.exit(main())"
        for name, options in (("agentr1", f'-P -c "{agentr1}"'), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "PYTHONPATH": str(root), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
        self.python: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """An interpreter that knows nothing yet."""
        self.end()
        env = {**self.env, "PYTHONPATH": f"{self.folder}{os.pathsep}{self.root}"}
        command = [sys.executable, "-W", "error", "-c", _PYTHON]
        pipe = subprocess.PIPE
        self.python = subprocess.Popen(command, cwd=self.folder, env=env, stdin=pipe, stdout=pipe, text=True)

    def end(self) -> None:
        """Let the interpreter go."""
        if self.python is not None:
            self.python.communicate(timeout=60)
            self.python = None

    def run(self, language: str, code: str) -> str:
        """What a block prints."""
        if language == "python":
            assert self.python is not None and self.python.stdin is not None and self.python.stdout is not None
            self.python.stdin.write(json.dumps(code) + "\n")
            self.python.stdin.flush()
            answer = self.python.stdout.readline()
            assert answer, f"{code}\nfailed"
            return str(json.loads(answer))
        command = ["bash", "-e", "-c", code]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
        return done.stdout


def _follow(page: str, session: _Session, *, train: bool) -> int:
    blocks = _BLOCK.findall(page)
    checked = 0
    for place, (language, code) in enumerate(blocks):
        if language not in ("python", "bash"):
            continue
        file = _FILE.match(code)
        if file:
            with (session.folder / file["name"]).open("a" if file["more"] else "w", encoding="utf-8") as written:
                written.write(("\n\n" + code[file.end() :]) if file["more"] else code[file.end() :])
            continue
        follows = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
        if not train and "agentr1 train" in code:
            checked += follows[0] == "text"
            continue
        printed = session.run(language, code)
        if follows[0] == "text":
            checked += 1
            same = doctest.OutputChecker().check_output(follows[1], printed, _LOOSE)
            assert same, f"{code}\nprints\n{printed}\nand the page shows\n{follows[1]}"
        else:
            assert not printed, f"{code}\nprints\n{printed}\nand the page shows nothing"
    return checked


@pytest.fixture(scope="module")
def session(tmp_path_factory, root):
    session = _Session(tmp_path_factory.mktemp("tutorial"), root)
    yield session
    session.end()


TUTORIALS = {
    "tutorial_first_task": 7,
    "tutorial_tools_and_rewards": 4,
    "tutorial_own_corpus": 2,
    "tutorial_code": 2,
    "tutorial_pictures": 2,
    "tutorial_planner": 1,
    "tutorial_cheated_reward": 2,
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), TUTORIALS.items())
def test_a_tutorial_does_what_it_says(root, session, name, least):
    """The second goes on in the folder of the first."""
    session.begin()
    train = importlib.util.find_spec("verl") is not None
    assert _follow((root / "docs" / f"{name}.md").read_text(encoding="utf-8"), session, train=train) >= least
    if not train:
        pytest.skip("agentr1 train needs verl; the other blocks were run")


@pytest.mark.slow
def test_the_tutorials_files_have_the_form_of_this_project(root, session):
    pytest.importorskip("ruff")
    names = ["guess.py", "guess_tools.py", "test_guess.py", "my_rewards.py", "measurements.py", "triage.py"]
    names += ["harbour.py", "planning.py"]
    for name in names:
        assert (session.folder / name).is_file(), "the tutorials were not followed"
    command = [sys.executable, "-m", "ruff", "format", "--no-cache", "--check", "--line-length", "120", *names]
    done = subprocess.run(command, cwd=session.folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
