"""A run is resumed only with its own settings. That one process at a time uses its folder is in tests/recording."""

import json

import pytest

from agent_envs.episodes.run_folder import keep_settings
from agent_envs.errors import ConfigError, DataError


def test_other_settings_are_refused_and_listed(tmp_path):
    path = tmp_path / "run.json"
    keep_settings(path, {"seed": 0, "tasks": (1, 2), "steps": 5}, may_change=["steps"])
    keep_settings(path, {"seed": 0, "tasks": [1, 2], "steps": 50}, may_change=["steps"])
    assert json.loads(path.read_text()) == {"seed": 0, "tasks": [1, 2], "steps": 50}
    with pytest.raises(ConfigError, match=r"other settings \(seed was 0, now 1; tasks was \[1, 2\], now None\)"):
        keep_settings(path, {"seed": 1, "steps": 50}, may_change=["steps"])
    assert json.loads(path.read_text())["seed"] == 0
    path.write_text("[1]")
    with pytest.raises(DataError, match="run.json: .* a run's settings"):
        keep_settings(path, {"seed": 0})


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
