"""The script of the GPU curve at toy size: it makes its model, stops in time, goes on, and leaves a curve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_learning.py"


@pytest.mark.gpu
@pytest.mark.slow
def test_the_script_of_the_gpu_curve_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--env", "HotpotQA", "--out", str(tmp_path), "--toy"]
    ends = []
    for minutes in ("0.001", "10", "10"):  # the model and one iteration; the rest; nothing
        done = subprocess.run([*command, "--minutes", minutes], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        ends.append(done.stdout.splitlines()[-1])
    assert ends[0].endswith("stopped at step 1: call it again") and ends[1].endswith("done") and ends[2] == ends[1]
    found = json.loads((tmp_path / "HotpotQA.json").read_text())
    assert [point["step"] for point in found["curve"]] == [0, 2, 4]
    assert all(point["success_low"] <= point["success"] <= point["success_high"] for point in found["curve"])
