"""Two steps with vLLM as the rollout engine, on a machine with a GPU: `make test-gpu`."""

import importlib.util
import json
import math

import pytest
import torch

from agent_envs.cli.main import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]

ENV = "AgentR1/GSM8KTool-v0"


@pytest.mark.parametrize("algo", ["grpo", "steppo"])
def test_two_steps_with_vllm(algo, tmp_path):
    from agent_envs.adapters.tiny.warm_start import make_warm_model

    model = tmp_path / "model"
    make_warm_model(model, ENV, steps=0, noise=0.0, seed=0)
    out = tmp_path / "run"
    status = main(
        [
            "train", "--env", ENV, "--algo", algo, "--preset", "gpu-8", "--model", str(model), "--steps", "2",
            "--out", str(out), "trainer.n_gpus_per_node=1", "data.train_batch_size=8", "data.val_max_samples=16",
            "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4",
            "critic.ppo_mini_batch_size=4",
            "data.max_prompt_length=1024", "data.max_response_length=64",
            "actor_rollout_ref.rollout.gpu_memory_utilization=0.3", "actor_rollout_ref.rollout.agent.num_workers=1",
        ]
    )  # fmt: skip
    assert status == 0
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    trained = [record for record in records if record["step"] > 0]
    assert [record["step"] for record in trained] == [1, 2]
    assert all(math.isfinite(record["actor/grad_norm"]) for record in trained)


def test_policies_on_a_gpu_play_what_the_model_plays_on_a_cpu(tmp_path):
    from agent_envs.adapters.tiny.warm_start import make_warm_model
    from agent_envs.policies import TransformersPolicy, VLLMPolicy
    from agent_envs.rollout.many import run_episodes

    model = tmp_path / "model"
    make_warm_model(model, ENV, steps=0, noise=0.0, seed=0)
    policies = {
        "cpu": TransformersPolicy(model, device="cpu", temperature=0.0, max_tokens=64),
        "cuda": TransformersPolicy(model, device="cuda", dtype="float32", temperature=0.0, max_tokens=64),
        "vllm": VLLMPolicy(
            model, temperature=0.0, max_tokens=64, engine={"dtype": "float32", "gpu_memory_utilization": 0.3}
        ),
    }
    tokens = {}
    for name, policy in policies.items():
        episodes = run_episodes(
            ENV, policy, 32, options=[{"index": i} for i in range(32)], env_kwargs={"level": 1}, progress=False
        )
        assert all(episode.error is None for episode in episodes), name
        tokens[name] = [[step.response_ids for step in episode.steps] for episode in episodes]
        policy.close()
    for name in ("cuda", "vllm"):
        same = sum(one == other for one, other in zip(tokens[name], tokens["cpu"], strict=True))
        assert same >= 28, f"{name}: {same} of 32 episodes"


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.05)])
def test_the_pytorch_loop_on_a_gpu(tmp_path, dtype, tolerance):
    from agent_envs.adapters.torch.loop import train
    from agent_envs.adapters.torch.settings import LoopConfig

    records = train(LoopConfig(
        env=ENV, env_kwargs={"level": 1}, out=str(tmp_path / "run"), device="cuda", dtype=dtype, estimator="gae",
        loss="steppo", kl="loss", entropy_coef=0.01, steps=2, tasks=4, group=4, eval_tasks=8,
    ))  # fmt: skip
    assert [record["step"] for record in records] == [0, 1, 2]
    for record in records[1:]:
        assert record["rollout/logprob_diff"] < tolerance
        assert all(math.isfinite(record[name]) for name in ("actor/grad_norm", "critic/grad_norm", "actor/kl"))
    assert records[-1]["actor/grad_norm"] > 0
