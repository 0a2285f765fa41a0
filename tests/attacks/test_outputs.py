"""Files that are where a command writes: they stay as they are unless --force says otherwise.

Behaviours pinned here:
1. A command that writes a file refuses one that exists, a link too; --force replaces files only.
2. A command that keeps a folder refuses files there that no run of its own has written.
3. Results say which versions made them, and another version resumes a run with a warning.
"""

import json
import logging
from pathlib import Path

import pytest

import agent_envs
from agent_envs.cli.main import main
from agent_envs.episodes.run_folder import keep_settings
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines
from agent_envs.policies import ExpertPolicy
from agent_envs.registration import versions
from tests.attacks.commands import EVAL

ENV = "AgentR1/GSM8KTool-v0"

COMMANDS = {
    "demos": ["--env", ENV, "--n", "1", "--quiet", "--out", "new.jsonl"],
    "score": ["--quiet", "--out", "new.jsonl"],
    "view": ["--out", "new.html"],
    "plot": ["--out", "new.svg"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_exists_stays(command, run, tmp_path, monkeypatch, capsys):
    if command == "plot":
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    line = [command, *([] if command == "demos" else [str(run)]), *COMMANDS[command]]
    out = Path(line[-1])
    Path("notes").write_text("mine")
    for there in ("file", "empty", "link", "link to nothing"):
        if "link" in there:
            out.symlink_to("notes" if there == "link" else "nowhere")
        else:
            out.write_text("mine" if there == "file" else "")
        capsys.readouterr()
        assert main(line) == 2
        said = capsys.readouterr().err
        assert f"--out {out} " in said and said.count("\n") == 1, there
        assert ("give --force to replace it" in said) == (there != "link to nothing")
        assert there == "link to nothing" or out.read_text() == ("" if there == "empty" else "mine")
        out.unlink()
    out.mkdir()
    assert main([*line, "--force"]) == 2 and "must be a file" in capsys.readouterr().err
    out.rmdir()
    out.write_text("mine")
    assert main([*line, "--force"]) == 0
    assert out.read_text() != "mine" and Path("notes").read_text() == "mine"


def test_names_by_default_are_refused_too(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command, name in (("view", "episodes.html"), ("plot", "curves.png")):
        Path(name).write_text("mine")
        assert main([command, str(run)]) == 2
        assert Path(name).read_text() == "mine"


@pytest.mark.parametrize("name", ["episodes.jsonl", "summary.json"])
def test_an_evaluation_does_not_replace_what_is_not_its_own(name, tmp_path, capsys):
    (tmp_path / name).write_text('{"mine": 1}\n')
    assert main([*EVAL, str(tmp_path)]) == 2
    assert f"holds files of an unknown run: {name} without run.json" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == '{"mine": 1}\n'


@pytest.mark.parametrize("name", ["metrics.jsonl", "curve.png", "model", "checkpoints", "data"])
def test_training_does_not_replace_what_is_not_its_own(name, tmp_path):
    folder = pytest.importorskip("agent_envs.adapters.verl.run.folder").RunFolder(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=f"unknown run: {name} without run.json"):
        keep_settings(folder.settings, {"seed": 0}, writes=folder.names())
    assert not folder.settings.exists()


@pytest.mark.parametrize("manifest", ["{}", '{"name": "a page"}', "[]", "[" * 100_000, None])
def test_a_folder_that_is_no_index_is_never_replaced(manifest, tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "words"}\n')
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").write_text("mine")
    if manifest is not None:
        (mine / "index.json").write_text(manifest)
    for more in ([], ["--force"]):
        assert main(["index", str(tmp_path / "corpus.jsonl"), "--out", str(mine), "--quiet", *more]) == 2
    assert (mine / "notes").read_text() == "mine"


def test_rows_are_not_added_to_a_text(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("first\nand a last line without its end")
    with pytest.raises(DataError, match="rows cannot be added"):
        JSONLines(tmp_path / "notes.txt").append({"a": 1})
    assert (tmp_path / "notes.txt").read_text() == "first\nand a last line without its end"
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a"')
    JSONLines(tmp_path / "rows.jsonl").append({"a": 2})
    assert (tmp_path / "rows.jsonl").read_text() == '{"a": 1}\n{"a": 2}\n'


def test_results_carry_versions(run):
    expected = {"agent_envs": agent_envs.__version__, "env": "v0"}
    assert json.loads((run / "run.json").read_text())["versions"] == expected
    assert json.loads((run / "summary.json").read_text())["settings"]["versions"] == expected
    assert agent_envs.evaluate(ENV, ExpertPolicy(), 1).settings["versions"] == expected
    assert versions("numpy.random:Generator")["numpy"] and versions("no_such_package:Env").keys() == {"agent_envs"}


def test_another_version_resumes_with_a_warning(run, caplog):
    settings = json.loads((run / "run.json").read_text())
    settings["versions"]["agent_envs"] = "0.0.1"
    (run / "run.json").write_text(json.dumps(settings))
    with caplog.at_level(logging.WARNING):
        assert main([*EVAL, str(run)]) == 0
    [record] = [r for r in caplog.records if "begun with" in r.message]
    assert "0.0.1" in record.message and agent_envs.__version__ in record.message
    assert json.loads((run / "run.json").read_text())["versions"]["agent_envs"] == agent_envs.__version__
