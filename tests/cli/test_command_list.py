"""`agentr1 list`: what there is."""

import json
import sys

import agent_envs
from agent_envs.cli import list as list_command
from agent_envs.registration import FOREIGN_IDS, PICTURE_IDS

BY_PATH = (
    "AgentR1/HelpDesk-v0",
    "AgentR1/MathCode-v0",
    "AgentR1/PictureSearch-v0",
    "AgentR1/TableQA-v0",
)  # several released data sets or none, and no official one


def test_every_id_is_listed_with_its_data_and_how_to_get_more(agentr1, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    rows = json.loads(agentr1("list", "--json"))
    assert [row["id"] for row in rows] == [*agent_envs.ENV_IDS, *PICTURE_IDS]
    for row in rows:
        assert row["description"].endswith(".") and row["max_episode_steps"] >= 2 and row["data"]["generated"]
        official = row["data"]["official"]
        if row["id"] in BY_PATH:
            assert official is None
            continue
        assert not official["in_place"] and "agentr1 prepare " in official["note"] and str(tmp_path) in official["note"]
        assert row["id"] != "AgentR1/PaperSearch-v0" or row["tools"] == ["search", "expand", "finish"]
    head, *lines = agentr1("list").splitlines()
    assert head.split() == ["id", "steps", "data", "here", "missing", "extras", "task"]
    assert [line.split()[0] for line in lines] == [*(row["id"] for row in rows), *FOREIGN_IDS]
    for row, line in zip(rows, lines[: len(rows)], strict=True):
        assert line[head.index("steps") :].split()[:2] == [str(row["max_episode_steps"]), "generated"]
        assert line[head.index("task") :] == row["description"]


def test_official_data_that_is_in_place_is_said(agentr1, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    row = json.dumps({"question": "1 + 1?", "answer": "#### 2"}) + "\n"
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "train.jsonl").write_text(row)
    assert agentr1("list", "gsm8k").count("  generated, official  ") == 3
    (tmp_path / "gsm8k" / "train.jsonl").rename(tmp_path / "gsm8k" / "test.jsonl")
    assert agentr1("list", "GSM8KTool").count("official") == 1  # without the split that is the default


def test_missing_extras_come_with_the_line_that_installs_them(agentr1, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    (row,) = json.loads(agentr1("list", "hotpot", "--json"))
    dense = next(each for each in row["extras"] if each["module"] == "faiss")
    assert dense["install"] == "pip install 'agent-envs[search]'" and not dense["installed"]
    head, line = agentr1("list", "hotpot").splitlines()
    assert "search" in line[head.index("missing") : head.index("task")].split()[0].split(",")
    monkeypatch.setattr(list_command, "_installed", lambda module: True)
    head, *lines = agentr1("list").splitlines()
    assert not any(line[head.index("missing") : head.index("task")].strip() for line in lines)
    assert set(list_command.NEEDS) <= {*agent_envs.ENV_IDS, *FOREIGN_IDS}
    assert all(env_id in agentr1("list") for env_id in FOREIGN_IDS)


def test_other_ids_and_words_that_are_in_none(agentr1):
    _, game, shop = agentr1("list", "FrozenLake-v1", "webshop").splitlines()
    assert game.startswith("FrozenLake-v1 ") and "generated" not in game
    assert shop.startswith("AgentR1/WebShop-v0 ") and "generated" in shop
    assert "Did you mean 'AgentR1/GSM8K-v0'" in agentr1("list", "AgentR1/GSM9K-v0", status=2)
    assert "no id contains 'nope'. There are:" in agentr1("list", "nope", status=2)
    assert "unknown environment 'no_such:Env-v0'" in agentr1("list", "no_such:Env-v0", status=2)
