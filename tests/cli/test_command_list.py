"""`agentr1 list`: what there is."""

import json
import sys

import pytest

import agent_envs
from agent_envs.cli import list as list_command
from agent_envs.cli.main import main
from agent_envs.registration import FOREIGN_IDS, PICTURE_IDS

BY_PATH = (
    "AgentR1/HelpDesk-v0",
    "AgentR1/MathCode-v0",
    "AgentR1/PictureSearch-v0",
    "AgentR1/TableQA-v0",
)  # several released data sets or none, and no official one


@pytest.fixture
def said(capsys):
    def run(*arguments, expected=0):
        assert main(list(arguments)) == expected
        return capsys.readouterr().out if expected == 0 else capsys.readouterr().err

    return run


def test_every_id_is_listed_with_its_data_and_how_to_get_more(said, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    rows = json.loads(said("list", "--json"))
    assert [row["id"] for row in rows] == [*agent_envs.ENV_IDS, *PICTURE_IDS]
    for row in rows:
        assert row["description"].endswith(".") and row["max_episode_steps"] >= 2 and row["data"]["generated"]
        official = row["data"]["official"]
        if row["id"] in BY_PATH:
            assert official is None
            continue
        assert not official["in_place"] and "agentr1 prepare " in official["note"] and str(tmp_path) in official["note"]
        assert row["id"] != "AgentR1/PaperSearch-v0" or row["tools"] == ["search", "expand", "finish"]
    head, *lines = said("list").splitlines()
    assert head.split() == ["id", "steps", "data", "here", "missing", "extras", "task"]
    assert [line.split()[0] for line in lines] == [*(row["id"] for row in rows), *FOREIGN_IDS]
    for row, line in zip(rows, lines[: len(rows)], strict=True):
        assert line[head.index("steps") :].split()[:2] == [str(row["max_episode_steps"]), "generated"]
        assert line[head.index("task") :] == row["description"]


def test_official_data_that_is_in_place_is_said(said, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    row = json.dumps({"question": "1 + 1?", "answer": "#### 2"}) + "\n"
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "train.jsonl").write_text(row)
    assert said("list", "gsm8k").count("  generated, official  ") == 3
    (tmp_path / "gsm8k" / "train.jsonl").rename(tmp_path / "gsm8k" / "test.jsonl")
    assert said("list", "GSM8KTool").count("official") == 1  # without the split that is the default


def test_missing_extras_come_with_the_line_that_installs_them(said, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    (row,) = json.loads(said("list", "hotpot", "--json"))
    dense = next(each for each in row["extras"] if each["module"] == "faiss")
    assert dense["install"] == "pip install 'agent-envs[search]'" and not dense["installed"]
    head, line = said("list", "hotpot").splitlines()
    assert "search" in line[head.index("missing") : head.index("task")].split()[0].split(",")
    monkeypatch.setattr(list_command, "_installed", lambda module: True)
    head, *lines = said("list").splitlines()
    assert not any(line[head.index("missing") : head.index("task")].strip() for line in lines)
    assert set(list_command.NEEDS) <= {*agent_envs.ENV_IDS, *FOREIGN_IDS}
    assert all(env_id in said("list") for env_id in FOREIGN_IDS)


def test_other_ids_and_words_that_are_in_none(said):
    _, game, shop = said("list", "FrozenLake-v1", "webshop").splitlines()
    assert game.startswith("FrozenLake-v1 ") and "generated" not in game
    assert shop.startswith("AgentR1/WebShop-v0 ") and "generated" in shop
    assert "Did you mean 'AgentR1/GSM8K-v0'" in said("list", "AgentR1/GSM9K-v0", expected=2)
    assert "no id contains 'nope'. There are:" in said("list", "nope", expected=2)
    assert "unknown environment 'no_such:Env-v0'" in said("list", "no_such:Env-v0", expected=2)


@pytest.mark.parametrize("command", ["list", "play"])
def test_help_teaches_by_examples(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0 and f"\n  agentr1 {command} " in text and "examples:" in text
