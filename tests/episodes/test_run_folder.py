"""The folder of a run.

Behaviours pinned here:
1. A run is resumed only with its own settings; the error lists every difference, and what may change may change.
2. A file that holds no settings is a DataError that names it.
3. Only one process at a time uses a folder, and a folder that cannot be made is a ConfigError.
"""

import json

import pytest

from agent_envs.episodes.run_folder import keep_settings, locked_folder
from agent_envs.errors import ConfigError, DataError

pytest.importorskip("fcntl")


def test_other_settings_are_refused_and_listed(tmp_path):
    path = tmp_path / "run.json"
    keep_settings(path, {"seed": 0, "tasks": (1, 2), "steps": 5}, may_change=["steps"])
    keep_settings(path, {"seed": 0, "tasks": [1, 2], "steps": 50}, may_change=["steps"])
    assert json.loads(path.read_text()) == {"seed": 0, "tasks": [1, 2], "steps": 50}
    with pytest.raises(ConfigError, match=r"other settings \(seed was 0, now 1; tasks was \[1, 2\], now None\)"):
        keep_settings(path, {"seed": 1, "steps": 50}, may_change=["steps"])
    assert json.loads(path.read_text())["seed"] == 0


def test_a_run_that_has_written_nothing_may_begin_with_other_settings(tmp_path):
    path = tmp_path / "run.json"
    keep_settings(path, {"model": "wrong"}, writes=["metrics.jsonl"])
    keep_settings(path, {"model": "right"}, writes=["metrics.jsonl"])
    (tmp_path / "episodes.jsonl").touch()  # an evaluation's, whose settings a training would replace
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        keep_settings(path, {"model": "wrong"}, writes=["metrics.jsonl"])
    (tmp_path / "episodes.jsonl").unlink()
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(ConfigError, match="model was 'right', now 'wrong'"):
        keep_settings(path, {"model": "wrong"}, writes=["metrics.jsonl"])


@pytest.mark.parametrize("text", ["", "{", "7", "[1]"])
def test_a_file_without_settings_is_named(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(DataError, match="run.json: .* a run's settings"):
        keep_settings(path, {"seed": 0})


def test_one_process_at_a_time(tmp_path):
    with locked_folder(tmp_path / "run") as folder:
        assert folder.is_dir()
        with pytest.raises(ConfigError, match="another process is using"), locked_folder(folder):
            pass
    with locked_folder(folder):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to the folder"), locked_folder(tmp_path / "file" / "run"):
        pass
