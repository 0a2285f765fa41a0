"""A disk that is full: a sentence, the old data in place, and the same command works once there is room.

Files are limited to 20,000 bytes (RLIMIT_FSIZE), which fails in the same calls as a full disk does.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

resource = pytest.importorskip("resource")

ROOM = 20_000  # bytes a file may have
COMMANDS = {
    "prepare": ["prepare", "gsm8k", "--from", "rows.jsonl", "--out", "out"],
    "catalog": ["prepare", "webshop", "--from", "shop", "--out", "out"],
    "generate": ["generate", "alfworld", "--out", "out", "--n", "6"],
    "index": ["index", "docs.jsonl", "--out", "out", "--quiet"],
    "demos": ["demos", "--env", "AgentR1/GSM8KTool-v0", "--n", "60", "--out", "out.jsonl", "--quiet"],
    "eval": ["eval", "--env", "AgentR1/GSM8KTool-v0", "--policy", "expert", "--n", "60", "--out", "out", "--quiet"],
}


def agentr1(arguments: list[str], folder: Path, *, full: bool) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))

    command = [sys.executable, "-m", "agent_envs", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, preexec_fn=limit if full else None
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_a_sentence_and_can_be_mended(name, tmp_path, released_files):
    rows = [{"question": f"{i} + 1 = " + "?" * 60, "answer": f"#### {i + 1}"} for i in range(600)]
    docs = [{"id": str(i), "text": f"word{i % 9} hill " * 9} for i in range(600)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in docs))
    released_files.write_shop(tmp_path / "shop", 4)
    done = agentr1(COMMANDS[name], tmp_path, full=True)
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "File too large" in done.stderr or "out cannot be written: disk I/O error" in done.stderr
    done = agentr1(COMMANDS[name], tmp_path, full=False)
    assert done.returncode == 0, done.stderr
