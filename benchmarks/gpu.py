"""What ten minutes on one GPU are good for: a sceptic's four questions, then speed, precision and memory, as one JSON.

    python benchmarks/gpu.py --out runs/gpu.json [--model Qwen/Qwen3-0.6B] [--minutes 10]
    python benchmarks/gpu.py --out runs/rehearsal.json --rehearse [--model DIR]       # the same on a CPU, smaller

Each part runs in a process of its own, so that it has the memory to itself; one that fails or is not installed leaves
its reason, and the file is written after each. The same command goes on with the parts that are missing or failed.

    panels               is it the benchmark? digests of 100 test tasks of every id, generated and, where they are
                         prepared, official: the same digest is the same tasks, answers, instructions and tools
    steps, merged, tree  is it as fast? an update of the PyTorch loop over the same episodes of 16 growing steps: rows
                         of a step each, as others train them, merged rows, prefix trees
    learns               does it learn? three steps of `agentr1 train`: success and reward of each, seconds of each
                         phase, minutes that 100 steps would take, and how far the sampler's probabilities are from the
                         trainer's
    honest               was the reward cheated? the run's episodes played again, action by action: how many get the
                         recorded observations and rewards
    transformers, vllm   tokens per second of `TransformersPolicy` and `VLLMPolicy` on the same prompts, a quarter of
                         which each response's prompt shares with all others
    precision            log-probabilities of both beside those of plain transformers in the same type (what a trainer
                         computes) and in float32: largest, 99th percentile and mean of the differences (nats)

The type is bfloat16, or float32 on a CPU without instructions for it. Without `--model` one with random weights is
made; a rehearsal takes smollm2-135m (`agentr1 model`). Memory is the most that PyTorch had allocated in the part's
process, of vllm what it held of the GPU, and on a CPU the largest resident set.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from merging import record

from agent_envs.adapters.run import read_records
from agent_envs.adapters.tiny.supervised import computes_bfloat16
from agent_envs.episodes.record import read_episodes
from agent_envs.errors import ConfigError, DataError, MissingExtraError, first_line, run_command
from agent_envs.files import write_text
from agent_envs.policies.named import model_path
from agent_envs.registration import ENV_IDS, make_env
from agent_envs.rollout.panel import panel_of

AGENTR1 = [sys.executable, "-m", "agent_envs"]
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPE = "bfloat16" if computes_bfloat16(torch.device(DEVICE)) else "float32"
ENV = "AgentR1/GSM8KTool-v0"
PANEL_TASKS, STEPS = 100, 3


@dataclass(frozen=True)
class Size:
    """How much is computed."""

    shape: dict[str, int]
    """Of the model that is made."""
    prompts: int
    prompt_tokens: int
    response_tokens: int
    episodes: int
    """Of an update."""
    concurrency: int


FULL = Size({"hidden_size": 1024, "layers": 24, "heads": 16, "intermediate_size": 4096}, 512, 512, 256, 64, 256)
SMALL = Size({}, 8, 32, 8, 2, 8)
CONTEXT = 2048


def asked(size: Size, vocabulary: int) -> list[list[int]]:
    """Prompts, shape [prompts][prompt tokens]."""
    rng = np.random.default_rng(0)
    common = rng.integers(7, vocabulary, size.prompt_tokens // 4).tolist()
    own = rng.integers(7, vocabulary, (size.prompts, size.prompt_tokens - len(common)))
    return [common + row.tolist() for row in own]


def memory(held: bool = False) -> float:
    """GB; with ``held`` what all processes hold of the GPU."""
    if CUDA:
        free, total = torch.cuda.mem_get_info()
        return round((total - free if held else torch.cuda.max_memory_allocated()) / 1e9, 3)
    return round(resource.getrusage(resource.RUSAGE_CHILDREN if held else resource.RUSAGE_SELF).ru_maxrss / 1e6, 3)


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def generate(engine: str, model: str, size: Size, work: Path) -> dict[str, Any]:
    """Answer all prompts at once, after a few that warm the engine up; the responses go to a file."""
    from agent_envs.policies import TransformersPolicy, VLLMPolicy

    limits = {"max_tokens": size.response_tokens, "context_length": CONTEXT}
    if engine == "vllm":
        share = {"gpu_memory_utilization": 0.6} if CUDA else {"kv_cache_memory_bytes": 1 << 26, "enforce_eager": True}
        policy: Any = VLLMPolicy(model, **limits, engine={"dtype": DTYPE, **share})
    else:
        policy = TransformersPolicy(model, **limits, device=DEVICE, dtype=DTYPE, concurrency=size.concurrency)
    prompts = asked(size, min(250, policy.tokenizer.vocab_size))

    async def answer(some: list[list[int]]) -> list[Any]:
        return await asyncio.gather(*(policy.sample(p, size.response_tokens, seed) for seed, p in enumerate(some)))

    asyncio.run(answer([prompt[::-1] for prompt in prompts[:4]]))
    taken, answers = seconds(lambda: asyncio.run(answer(prompts)))
    rows = [
        {"prompt": prompt, "response": list(out.token_ids), "log_probs": list(out.log_probs)}
        for prompt, out in zip(prompts, answers, strict=True)
    ]
    write_text(work / f"{engine}.json", json.dumps(rows))
    held = memory(held=engine == "vllm")
    policy.close()
    tokens = sum(len(row["response"]) for row in rows)
    return {"tokens": tokens, "seconds": round(taken, 2), "tokens_per_second": round(tokens / taken), "memory_gb": held}


@torch.no_grad()
def precision(model: str, size: Size, work: Path) -> dict[str, Any]:
    """Compare what the engines said with one forward pass over each response."""
    from transformers import AutoModelForCausalLM

    out: dict[str, Any] = {}
    for dtype in (DTYPE, "float32"):
        loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).to(DEVICE).eval()
        for engine in ("transformers", "vllm"):
            if not (path := work / f"{engine}.json").exists():
                continue
            far = []
            for row in json.loads(path.read_text())[:128]:
                ids = torch.tensor([row["prompt"] + row["response"]], device=DEVICE)
                logits = loaded(ids).logits[0, len(row["prompt"]) - 1 : -1].float()
                own = logits.log_softmax(-1).gather(1, ids[0, len(row["prompt"]) :, None])[:, 0]
                far += (own.cpu() - torch.tensor(row["log_probs"])).abs().tolist()
            found = {"max": max(far), "p99": float(np.quantile(far, 0.99)), "mean": float(np.mean(far))}
            out[f"{engine} beside {dtype}"] = {name: round(value, 6) for name, value in found.items()}
    return out


def update(layout: str, model: str, size: Size, work: Path) -> dict[str, Any]:
    """An update over recorded episodes, the second one timed."""
    from agent_envs.adapters.torch.batch import assemble
    from agent_envs.adapters.torch.loop import LoopConfig, Scores, actor_loss, credit
    from agent_envs.adapters.torch.loop import update as step
    from agent_envs.policies.local.loading import load_model

    loaded: Any = load_model(model, dtype=torch.float32, device=DEVICE)
    optimizer = torch.optim.AdamW(loaded.parameters(), lr=0.0)
    config = LoopConfig(env="x", out="y", mini_batches=1, estimator="reinforce", dtype=DTYPE)
    episodes = record("grow", size.episodes, steps=16, first=200, said=16, response=64, high=250)
    batch = assemble(episodes, [i // 4 for i in range(len(episodes))], layout=layout)
    scores = Scores(batch.sampled)
    loss = partial(actor_loss, batch, config, scores, credit(batch, config, scores)[0])
    times = [seconds(lambda: step(loaded, optimizer, batch, config, loss))[0] for _ in range(2)]
    nodes = len(batch.ids) if batch.trees is None else batch.trees.nodes
    trained = int((batch.step >= 0).sum())
    return {"tokens": nodes, "trained_tokens": trained, "seconds": round(times[1], 3), "memory_gb": memory()}


def panels(model: str, size: Size, work: Path) -> dict[str, Any]:
    """Digests of test tasks by id and data; why there is none where data or a package is not at hand."""
    out: dict[str, Any] = {}
    for env_id in ENV_IDS:
        for data in ("generated", "official"):
            arguments = {"data": data, "split": "test"}
            try:
                env = make_env(env_id, **arguments)
                count = min(PANEL_TASKS, env.unwrapped.num_tasks)
                out[f"{env_id} {data}"] = panel_of(env, range(count), env_id, arguments).name
                env.close()
            except (ConfigError, DataError, MissingExtraError) as e:
                out[f"{env_id} {data}"] = first_line(e)
    return out


def learns(model: str, size: Size, work: Path) -> dict[str, Any]:
    """The first steps of a training run; a run that was stopped goes on."""
    out, machine = work / "run", ["--preset", "cpu-tiny", "data.train_batch_size=2", "actor_rollout_ref.rollout.n=4"]
    if CUDA:
        machine = ["--preset", "gpu-8", "trainer.n_gpus_per_node=1", "data.train_batch_size=16",
                   "actor_rollout_ref.rollout.gpu_memory_utilization=0.4"]  # fmt: skip
    settings = [
        f"actor_rollout_ref.actor.ppo_mini_batch_size={8 if CUDA else 2}", "data.max_prompt_length=1024",
        "data.max_response_length=128", "trainer.val_before_train=False", "trainer.test_freq=-1", "trainer.save_freq=1",
    ]  # fmt: skip
    command = ["train", "--env", ENV, "--env-kwargs", '{"level": 1}', "--model", model, "--steps", str(STEPS)]
    subprocess.run([*AGENTR1, *command, *machine, *settings, "--out", str(out)], check=True, stdout=sys.stderr)
    records = list(read_records(out / "metrics.jsonl"))
    kept = ("timing_s/", "training/rollout_probs_diff", "rollout_corr/", "perf/", "env/prefix_cache_hits")
    return {
        "curve": [{name: record.get(f"env/{name}") for name in ("success", "return/mean")} for record in records],
        "minutes_of_100_steps": round(sum(r["timing_s/step"] for r in records[1:]) / len(records[1:]) * 100 / 60, 1),
        "last": {name: value for name, value in records[-1].items() if name.startswith(kept)},
    }


def honest(model: str, size: Size, work: Path) -> dict[str, Any]:
    """Recorded rewards of the training run against those of the same actions, played again on the same tasks."""
    run, again = work / "run", work / "again.jsonl"
    command = [*AGENTR1, "score", str(run), "--only-same", "--quiet", "--out", str(again), "--force"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    files = sorted((run / "episodes").glob("*.jsonl*"))
    recorded = {episode.episode_id: episode.reward for file in files for episode in read_episodes(file)}
    played = {episode.episode_id: episode.reward for episode in read_episodes(again)}
    furthest = max((abs(reward - recorded[name]) for name, reward in played.items()), default=None)
    return {"episodes": len(recorded), "same_observations": len(played), "largest_difference_of_rewards": furthest}


PARTS: dict[str, Callable[[str, Size, Path], dict[str, Any]]] = {
    "panels": panels,
    **{layout: partial(update, layout) for layout in ("steps", "merged", "tree")},
    "learns": learns,
    "honest": honest,
    "transformers": partial(generate, "transformers"),
    "vllm": partial(generate, "vllm"),
    "precision": precision,
}


def missing(part: str) -> str | None:
    """Why a part cannot be run here."""
    needs_vllm = part == "vllm" or (CUDA and part in ("learns", "honest"))
    return "vllm is not installed" if needs_vllm and importlib.util.find_spec("vllm") is None else None


def make_model(folder: Path, size: Size) -> str:
    from pretraining.model import build_model
    from pretraining.tokenizer import build_tokenizer

    from agent_envs.adapters.tiny.model import save_model

    if not folder.exists():
        tokenizer = build_tokenizer(["some words"])
        save_model(build_model(tokenizer, context_length=CONTEXT, **size.shape), tokenizer, folder)
    return str(folder)


def main() -> str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON; files in between go beside it")
    parser.add_argument("--model", help="Hugging Face folder or name (default: one with random weights)")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all parts (default: %(default)s)")
    parser.add_argument("--rehearse", action="store_true", help="smollm2-135m and few tokens, to try it on a CPU")
    parser.add_argument("--part", choices=PARTS, help="only this one; its result is the last line that is printed")
    options = parser.parse_args()
    size, work = SMALL if options.rehearse else FULL, options.out.resolve().with_suffix(".files")
    if options.part:
        return json.dumps(PARTS[options.part](options.model, size, work))
    end = time.monotonic() + 60 * options.minutes
    work.mkdir(parents=True, exist_ok=True)
    named = options.model or ("smollm2-135m" if options.rehearse else None)
    device = torch.cuda.get_device_name() if CUDA else "CPU"
    found: dict[str, Any] = {"device": device, "dtype": DTYPE, "model": named, "size": asdict(size)}
    if options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))
        if {name: before.get(name) for name in found} != found:
            raise ConfigError(f"{options.out} is of another model, size or device; give another --out")
        found = before
    command = [sys.executable, __file__, "--out", str(options.out), "--model"]
    command += [model_path(named) if named else make_model(work / "model", size)]
    command += ["--rehearse"] if options.rehearse else []
    for part in PARTS:
        if part in found and "failed" not in found[part]:
            continue
        found[part] = {"skipped": missing(part)} if missing(part) else run([*command, "--part", part], end)
        write_text(options.out, json.dumps(found, indent=1) + "\n")
        print(part, json.dumps(found[part]), flush=True)
    return str(options.out)


def run(command: list[str], end: float) -> dict[str, Any]:
    """A part's result, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return {"failed": "out of time (--minutes)"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["without a word"])[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(run_command(main))
