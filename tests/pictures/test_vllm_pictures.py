"""Pictures in vLLM itself: `VLLMPolicy` plays with tiny-vision as `TransformersPolicy` does.

vLLM's Qwen2-VL needs torchvision, which must be made for the torch beside it.
"""

import importlib.util

import pytest

from agent_envs.rollout.many import run_episodes

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"),
]
TOLERANCE = 1e-3 if torch.cuda.is_available() else 1e-4
TASKS = 6


def test_pictures_are_read_as_transformers_reads_them(tmp_path):
    from agent_envs.adapters.tiny.model import save_model
    from agent_envs.adapters.tiny.vision import load_vision_base
    from agent_envs.policies import TransformersPolicy, VLLMPolicy

    made = load_vision_base()
    save_model(made.model, made.tokenizer, tmp_path / "model", made.pictures)
    settings = {"temperature": 0.0, "max_tokens": 80, "context_length": 2048}
    memory = {"gpu_memory_utilization": 0.2} if torch.cuda.is_available() else {"kv_cache_memory_bytes": 1 << 27}
    engine = {"dtype": "float32", "enforce_eager": True, **memory}
    policies = [
        VLLMPolicy(tmp_path / "model", **settings, engine=engine),
        TransformersPolicy(tmp_path / "model", **settings),
    ]
    played = []
    for policy in policies:
        played.append(
            run_episodes(
                "AgentR1/PictureSearch-v0",
                policy,
                TASKS,
                options=[{"index": i} for i in range(TASKS)],
                env_kwargs={"level": 1, "families": "find", "max_episode_steps": 4},
                wrappers=["ChatMessages"],
                progress=False,
            )
        )
        policy.close()
    read = 0
    for ours, theirs in zip(*([step for episode in each for step in episode.steps] for each in played), strict=True):
        assert ours.prompt_ids == theirs.prompt_ids and ours.response_ids == theirs.response_ids
        assert ours.response_logprobs == pytest.approx(theirs.response_logprobs, abs=TOLERANCE)
        read += len(ours.prompt_pictures)
    assert read > 2 * TASKS  # the page, and what was zoomed to
