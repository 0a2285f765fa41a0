"""Downloads of released files, from a server on the loopback.

1. They are resumed: after a broken connection in the same call, after a killed process in the next.
2. What arrives is compared with the released size and SHA-256; nothing else gets the file's name.
3. Files given with --from are compared where the released ones are known.
4. The hub is asked for a pinned revision.
"""

import hashlib
import json
import logging
import re

import pytest

from agent_envs.cli.main import main
from agent_envs.datasets import download as downloads
from agent_envs.datasets.download import RELEASED, compare_released, download, released_files
from agent_envs.datasets.prepare import PREPARERS, prepare
from agent_envs.errors import DataError

CONTENT = bytes(range(256)) * 5000
NAME = "file.bin"


@pytest.fixture
def released(fake_service, monkeypatch):
    """Serve CONTENT, at most `step` bytes an answer; returns the requests. `about` may be changed."""
    about = {"bytes": len(CONTENT), "sha256": [hashlib.sha256(CONTENT).hexdigest()]}
    served = {"content": CONTENT, "step": len(CONTENT), "type": "application/octet-stream", "status": 200}
    served["ranges"] = True

    def answer(asked, number):
        if served["status"] != 200:
            return served["status"], b"no"
        begin = re.fullmatch(r"bytes=(\d+)-", asked.headers.get("Range", "")) if served["ranges"] else None
        begin = int(begin[1]) if begin else 0
        body = served["content"][begin : begin + served["step"]]
        return 206 if begin else 200, body, {"Content-Type": served["type"]}

    service = fake_service(answer)
    about["url"] = service.url
    monkeypatch.setattr(downloads, "released_files", lambda task: {NAME: about})
    return service.asked, about, served


def get(folder):
    return download("task", NAME, folder, manual="Do it by hand.")


def test_a_download_goes_on_where_the_connection_broke(released, tmp_path):
    asked, _, served = released
    served["step"] = 500_000
    assert get(tmp_path).read_bytes() == CONTENT
    assert [each.headers.get("Range") for each in asked] == [None, "bytes=500000-", "bytes=1000000-"]
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    get(tmp_path)
    assert len(asked) == 3  # it is there


def test_a_killed_download_is_resumed(released, tmp_path):
    asked, *_ = released
    (tmp_path / f"{NAME}.partial").write_bytes(CONTENT[:777])
    assert get(tmp_path).read_bytes() == CONTENT
    assert [each.headers.get("Range") for each in asked] == ["bytes=777-"]


def test_a_server_without_ranges_sends_all_of_it(released, tmp_path):
    _, _, served = released
    served["ranges"] = False
    (tmp_path / f"{NAME}.partial").write_bytes(b"something else")
    assert get(tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"content": CONTENT[:-1] + b"x"}, "not the released file: its SHA-256 is [0-9a-f]{64}, expected"),
        ({"content": CONTENT + b"x" * 9, "step": len(CONTENT) + 9}, "has 1280009 bytes, expected 1280000"),
        ({"type": "text/html; charset=utf-8"}, "a web page; it may limit downloads"),
        ({"status": 404}, "404"),
    ],
)
def test_anything_else_is_refused(released, tmp_path, change, message):
    _, _, served = released
    served |= change
    with pytest.raises(DataError, match=f"could not download {NAME} .*{message}.* Do it by hand"):
        get(tmp_path)
    assert NAME not in [path.name for path in tmp_path.iterdir()]
    served |= {"content": CONTENT, "step": len(CONTENT), "type": "application/octet-stream", "status": 200}
    assert get(tmp_path).read_bytes() == CONTENT  # nothing of it is in the way


def test_a_server_that_never_goes_on_is_given_up(released, tmp_path):
    asked, _, served = released
    served["content"] = CONTENT[:1000]
    with pytest.raises(DataError, match=f"could not download {NAME}"):
        get(tmp_path)
    assert len(asked) < 10


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("alfworld", r"json_2.1.1_json.zip \(.*agentr1 prepare alfworld --from FOLDER"),
        ("webshop", r"items_shuffle.json \(.*items_human_ins.json .* --from FOLDER"),
    ],
)
def test_without_a_connection_it_is_said_what_to_do(task, says, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    known = {name: {"url": "http://127.0.0.1:9/x", "bytes": 9} for name in released_files(task)}
    monkeypatch.setattr(downloads, "released_files", lambda task: known)
    assert main(["prepare", task]) == 2
    said = capsys.readouterr().err
    assert re.search(f"could not download {says}", said) and "Traceback" not in said
    assert not {task, *known} & {path.name for path in tmp_path.rglob("*")}


def test_given_files_are_compared_with_the_released_ones(tmp_path, monkeypatch, caplog):
    rows = [{"question": "1 + 1?", "answer": "#### 2"}]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with caplog.at_level(logging.WARNING):
        prepare("gsm8k", str(tmp_path), tmp_path / "out")
    changed, missing = (record.getMessage() for record in caplog.records)
    assert "train.jsonl is not the released file of this name" in changed
    assert "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465" in changed
    assert "out has no split test, as" in missing
    caplog.clear()
    (tmp_path / "test.jsonl").write_text(file.read_text())
    prepare("gsm8k", str(tmp_path), tmp_path / "whole")
    assert "test.jsonl is not the released file" in caplog.text and "no split" not in caplog.text
    caplog.clear()
    file.rename(tmp_path / "mine_train.jsonl")
    prepare("gsm8k", str(tmp_path / "mine_train.jsonl"), tmp_path / "out")
    assert "not the released file" not in caplog.text  # an unknown name
    caplog.clear()
    known = {"mine_train.jsonl": {"sha256": [hashlib.sha256((tmp_path / "mine_train.jsonl").read_bytes()).hexdigest()]}}
    monkeypatch.setattr(downloads, "released_files", lambda task: known)
    compare_released("gsm8k", [tmp_path / "mine_train.jsonl"])
    assert not caplog.records  # the same contents


def test_what_is_known_is_whole():
    for task in PREPARERS:
        entry = RELEASED[task]
        if "hub" in entry:
            assert re.fullmatch("[0-9a-f]{40}", entry["revision"])
        else:
            assert all(
                about["url"].startswith("https://") and about["bytes"] for about in released_files(task).values()
            )
        for about in released_files(task).values():
            assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in about.get("sha256", ()))
