"""Names, keys and values of folders from anybody, and texts of servers, do not act on the terminal.

Every command runs with escapes wherever a folder can hold them: what is printed has none, whichever message it is in.
"""

import functools
import io
import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_envs.cli.main import main
from agent_envs.errors import BackendError, run_command
from agent_envs.text import TerminalCode
from tests.attacks.commands import EVAL

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\r"


@pytest.fixture
def run(played, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    shutil.copytree(played, "other")
    return Path(shutil.copytree(played, ESCAPES))


def _clean(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert "31m\r" not in text and text.replace("\n", "").replace("\r", "").isprintable(), (
        text
    )  # bars return to the left
    return text


SPOILT: dict[str, tuple[str, dict[str, Any]]] = {
    "a setting": ("run.json", {ESCAPES: ESCAPES}),
    "an argument": ("run.json", {"env_kwargs": {ESCAPES: 1}}),
    "a value": ("run.json", {"env_kwargs": {"level": ESCAPES}}),
    "a wrapper": ("run.json", {"wrappers": [f"FormatReward(weight='{ESCAPES}')"]}),
    "a wrapper's name": ("run.json", {"wrappers": [ESCAPES]}),
    "an environment": ("run.json", {"env": ESCAPES}),
    "data": ("run.json", {"data": ESCAPES}),
    "a panel's environment": ("panel.json", {"env": ESCAPES}),
    "a panel's key": ("panel.json", {ESCAPES: ESCAPES}),
    "a panel's argument": ("panel.json", {"content": {"arguments": {ESCAPES: ESCAPES}}}),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_a_folder_holds(spoilt, run, capsys):
    name, changed = SPOILT[spoilt]
    (run / name).write_text(json.dumps({**json.loads((run / name).read_text()), **changed}))
    commands: dict[str, list[str]] = {
        "score": ["score", str(run), "--out", "new.jsonl", "--force", "--quiet"],
        "view": ["view", str(run), "--answers", "all", "--out", "new.html", "--force"],
        "play": ["play", "--run", str(run)],
        "resume": [*EVAL, str(run)],
        "panel": ["eval", "--panel", str(run), "--policy", "expert", "--quiet"],
        "compare": ["compare", "other", str(run)],
    }
    for command in commands.values():
        main(command)
        _clean(capsys)


def test_names_of_files(run, capsys):
    (run / f"episodes-{ESCAPES}.jsonl").write_text("oops\n")
    shutil.move(run / "episodes.jsonl", run / "away")
    for command in (["score", "--out", "new"], ["view", "--out", "new"], ["score", "--by", "papers"]):
        assert main([*command, str(run)]) == 2
        assert r"\x1b]0;owned" in _clean(capsys)


def test_texts_errors_warnings_and_logs(capsys):
    def act() -> str:
        logging.getLogger("agent_envs").warning("%s", ESCAPES)
        sys.stderr.write("\r" + ESCAPES[:5])  # as a progress bar begins
        raise BackendError(ESCAPES)

    assert run_command(lambda: ESCAPES) == 0 and run_command(act) == 1
    assert run_command(lambda: {}[ESCAPES]) == run_command(lambda: str(int(ESCAPES))) == 2  # user code
    assert run_command(functools.partial({}.__getitem__, ESCAPES)) == 1  # with a traceback
    assert run_command(lambda: str(sys.stdout.writelines([ESCAPES]))) == 0
    printed = capsys.readouterr()
    text = (printed.out + printed.err).replace("\n", "")
    assert text.count("\r") == 1 and text.replace("\r", "").isprintable()
    run_command(lambda: str(sys.stdout.write(TerminalCode("\x1b_G"))))  # as pictures are drawn
    assert capsys.readouterr().out.startswith("\x1b_G")
