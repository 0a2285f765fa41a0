"""The script of figures from one GPU at toy size: every part that can be run here leaves its figures in the file."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


@pytest.mark.gpu
@pytest.mark.slow
def test_the_script_leaves_every_figure(tmp_path):
    command = [sys.executable, str(SCRIPT), "--toy", "--out", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    vllm = importlib.util.find_spec("vllm") is not None
    engines = ["transformers", "vllm"] if vllm else ["transformers"]
    for engine in engines:
        assert found[engine]["tokens"] > 0 and found[engine]["tokens_per_second"] > 0, found[engine]
        for dtype in ("bfloat16", "float32"):
            far = found["precision"][f"{engine} beside {dtype}"]
            assert 0 < far["mean"] <= far["p99"] <= far["max"] < 0.5
    assert vllm or found["vllm"] == {"skipped": "vllm is not installed"}
    assert torch.cuda.is_available() or "skipped" in found["train"]
    tokens = [found[layout]["tokens"] for layout in ("steps", "merged", "tree")]
    assert tokens[0] > 2 * tokens[1] >= 2 * tokens[2]
    assert len({found[layout]["trained_tokens"] for layout in ("steps", "merged", "tree")}) == 1
    assert all(found[layout][name] > 0 for layout in ("steps", "merged", "tree") for name in ("seconds", "memory_gb"))
