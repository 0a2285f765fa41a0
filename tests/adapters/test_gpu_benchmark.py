"""The script of figures from one GPU, rehearsed: every part that can be run here leaves its figures in the file."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agent_envs.adapters.tiny.model import base_folder  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


@pytest.mark.gpu
@pytest.mark.slow
def test_a_rehearsal_leaves_every_figure_and_goes_on(tmp_path):
    pytest.importorskip("verl")
    out = tmp_path / "gpu.json"
    command = [sys.executable, str(SCRIPT), "--rehearse", "--model", str(base_folder()), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["panels"]["AgentR1/GSM8KTool-v0 generated"].isalnum()
    vllm = importlib.util.find_spec("vllm") is not None
    for engine in ["transformers", "vllm"] if vllm else ["transformers"]:
        assert found[engine]["tokens"] > 0 and found[engine]["tokens_per_second"] > 0, found[engine]
        for dtype in {found["dtype"], "float32"}:
            far = found["precision"][f"{engine} beside {dtype}"]
            assert 0 <= far["mean"] <= far["p99"] <= far["max"] < 0.5
    assert vllm or found["vllm"] == {"skipped": "vllm is not installed"}
    tokens = [found[layout]["tokens"] for layout in ("steps", "merged", "tree")]
    assert tokens[0] > 2 * tokens[1] >= 2 * tokens[2]
    assert len({found[layout]["trained_tokens"] for layout in ("steps", "merged", "tree")}) == 1
    assert all(found[layout][name] > 0 for layout in ("steps", "merged", "tree") for name in ("seconds", "memory_gb"))
    if "skipped" not in found["learns"]:
        assert len(found["learns"]["curve"]) == 3 and found["learns"]["minutes_of_100_steps"] > 0
        assert found["honest"]["same_observations"] == found["honest"]["episodes"] > 0
        assert found["honest"]["largest_difference_of_rewards"] == 0
    out.write_text(json.dumps({**found, "honest": {"failed": "killed"}}))
    again = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    assert [line.split()[0] for line in again.stdout.splitlines()[:-1]] == ["honest"]
    assert json.loads(out.read_text()) == found
