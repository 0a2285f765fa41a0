"""`agentr1 prepare alfworld`: from folders, from archives, by downloading, and what goes wrong."""

import os
import zipfile

import gymnasium as gym
import pytest

from agent_envs.cli.main import main
from agent_envs.datasets import download as downloads
from agent_envs.datasets.prepare import prepare
from agent_envs.errors import DataError

GAME, TRAJECTORY = "game.tw-pddl", "traj_data.json"
TRIAL = "json_2.1.1/valid_seen/pick_and_place_simple-Mug-None-Desk-307/trial_T1"
FILES = {
    f"{TRIAL}/{GAME}": '{"pddl_domain": "d", "grammar": "g", "pddl_problem": "p", "solvable": true}',
    f"{TRIAL}/{TRAJECTORY}": '{"task_type": "pick_and_place_simple", "pddl_params": {}}',
    f"{TRIAL}/initial_state.pddl": "not needed",
    "json_2.1.1/train/pick_and_place_simple-Mug-None-Desk-9/trial_T2/traj_data.json": '{"task_type": "x"}',
}


def _folder(path, files=FILES):
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def _archive(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _placed(out):
    return sorted(
        path.relative_to(out).as_posix() for path in out.rglob("*.*") if path.is_file() and path.name != "prepared.json"
    )


@pytest.mark.parametrize("inner", ["", "json_2.1.1"])
def test_from_a_folder(tmp_path, inner):
    source = _folder(tmp_path / "given")
    out = prepare("alfworld", str(source / inner), tmp_path / "out")
    assert _placed(out) == sorted([f"{TRIAL}/{GAME}", f"{TRIAL}/{TRAJECTORY}"])


def test_from_the_archives(tmp_path):
    games = {name: text for name, text in FILES.items() if name.endswith(GAME)}
    others = {name: text for name, text in FILES.items() if not name.endswith(GAME)}
    _archive(tmp_path / "json_2.1.2_tw-pddl.zip", games)
    with pytest.raises(DataError, match="json_2.1.1_json.zip"):
        prepare("alfworld", str(tmp_path / "json_2.1.2_tw-pddl.zip"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    _archive(tmp_path / "json_2.1.1_json.zip", others)
    assert _placed(prepare("alfworld", str(tmp_path), tmp_path / "out")) == [f"{TRIAL}/{GAME}", f"{TRIAL}/{TRAJECTORY}"]


def test_real_games_are_played_where_they_were_placed(tmp_path, data_dir, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    assert main(["prepare", "alfworld", "--from", str(data_dir / "alfworld" / "json_2.1.1")]) == 0
    env = gym.make("AgentR1/ALFWorld-v0", data="official", split="valid_train")
    _, info = env.reset(seed=0)
    assert info["source"] == "official" and env.unwrapped.num_tasks >= 1
    prepare("alfworld", str(data_dir / "alfworld"))  # again: replaced in one step


def test_paths_that_lead_out_are_not_followed(tmp_path):
    files = {**FILES, f"../../../../{GAME}": "x", "a/../../trial/game.tw-pddl": "x"}
    out = prepare("alfworld", str(_archive(tmp_path / "games.zip", files)), tmp_path / "out")
    assert len(_placed(out)) == 2


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "there are no games"),
        (
            {**FILES, f"{TRIAL}/{GAME}": '{"pddl_domain": "d", "gram'},
            f"trial_T1/{GAME}.*cannot be read as the JSON object of a game",
        ),
        ({**FILES, f"{TRIAL}/{GAME}": '{"pddl_domain": "d"}'}, "'grammar'"),
        ({**FILES, f"{TRIAL}/{TRAJECTORY}": "[]"}, "expected the JSON object of a game, got list"),
        ({**FILES, f"{TRIAL}/{TRAJECTORY}": "{}"}, "'task_type'"),
    ],
)
def test_broken_files_are_named_and_nothing_is_left(tmp_path, files, says):
    (tmp_path / "given").mkdir()
    with pytest.raises(DataError, match=says):
        prepare("alfworld", str(_folder(tmp_path / "given", files)), tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"given"}


def test_no_archive_and_no_path(tmp_path, capsys):
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(DataError, match="not a readable zip"):
        prepare("alfworld", str(tmp_path / "cut.zip"), tmp_path / "out")
    assert main(["prepare", "alfworld", "--from", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2
    assert "there is no" in capsys.readouterr().err


def test_the_released_archives_are_downloaded(tmp_path, monkeypatch):
    site = tmp_path / "site"
    site.mkdir()
    for name, ending in (("json_2.1.2_tw-pddl.zip", GAME), ("json_2.1.1_json.zip", TRAJECTORY)):
        _archive(site / name, {path: text for path, text in FILES.items() if path.endswith(ending)})
    known = {path.name: {"url": path.as_uri(), "bytes": path.stat().st_size} for path in site.iterdir()}
    monkeypatch.setattr(downloads, "released_files", lambda task: known)
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "data"))
    assert len(_placed(prepare("alfworld"))) == 2
    assert sorted(os.listdir(tmp_path / "data" / "alfworld-released")) == sorted(known)
