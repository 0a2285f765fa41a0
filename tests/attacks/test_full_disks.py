"""A disk that is full: a sentence, the old data in place, and the same command works once there is room.

Evaluations are in tests/rollout/test_evaluate.py.

Files are limited to 20,000 bytes (RLIMIT_FSIZE), which fails in the same calls as a full disk does.
"""

import pytest

from agent_envs.cli.main import main
from tests.helpers import full_disk, write_rows

pytest.importorskip("resource")

ROOM = 20_000  # bytes a file may have
COMMANDS = {
    "prepare": ["prepare", "gsm8k", "--from", "rows.jsonl", "--out", "out"],
    "catalog": ["prepare", "webshop", "--from", "shop", "--out", "out"],
    "generate": ["generate", "alfworld", "--out", "out", "--n", "6"],
    "index": ["index", "docs.jsonl", "--out", "out", "--quiet"],
    "demos": ["demos", "--env", "AgentR1/GSM8KTool-v0", "--n", "60", "--out", "out.jsonl", "--quiet"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_a_sentence_and_can_be_mended(name, tmp_path, released_files, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{i} + 1 = " + "?" * 60, "answer": f"#### {i + 1}"} for i in range(600)]
    docs = [{"id": str(i), "text": f"word{i % 9} hill " * 9} for i in range(600)]
    write_rows(tmp_path / "rows.jsonl", rows)
    write_rows(tmp_path / "docs.jsonl", docs)
    released_files.write_shop(tmp_path / "shop", 4)
    capsys.readouterr()
    with full_disk(ROOM):
        status = main(COMMANDS[name])
    said = capsys.readouterr().err.splitlines()[-1]  # `generate` shows its progress before it
    assert status in (1, 2) and said.startswith("agentr1: "), said
    assert "File too large" in said or "out cannot be written: disk I/O error" in said
    assert main(COMMANDS[name]) == 0, capsys.readouterr().err
