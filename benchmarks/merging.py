"""What merging and prefix trees save: tokens, time of an optimiser step, and what building a batch costs; as tables.

    python benchmarks/merging.py [--episodes 1024] [--updates 3] [--skip building loop verl]
    python benchmarks/merging.py --skip building verl --model 0.5b --dtype bfloat16 --device cuda      # on a GPU
    python benchmarks/merging.py --skip building verl --dtype bfloat16 --groups 1          # the same on a CPU, at once

1. building a batch from recorded episodes, nested or merged, next to writing the same arrays once (no checks, no plan)
   and to padded rows (left-padded prompts, right-padded responses, a mask each), the layout of the released systems
2. the PyTorch loop on groups of 8 recorded episodes of some tasks, and on episodes that share nothing: a row per step,
   merged rows and trees; tokens processed over unique tokens of a group, what micro-batches repeat included, and time
   of an update. On a GPU trees are computed with FlexAttention and with gathered paths
3. verl's own training worker on the same episodes, on this machine's CPU, rows padded (as `cpu-tiny` does) or packed

Side by side in one process; the best of some rounds of each, in turn. On a CPU, processor time of this process.
"""

from __future__ import annotations

import argparse
import io
import os
import socket
import sys
import tempfile
import time
import tracemalloc
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np

from agent_envs.adapters.batches import TokenBatch, build_batch
from agent_envs.adapters.merging import pack
from agent_envs.adapters.trees import PackedTree, cut, pack_tree, sort_rows
from agent_envs.episodes.record import Episode, Step, StopReason
from agent_envs.policies import ExpertPolicy
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.conversation import Conversation
from agent_envs.prompts.past import TokenPast
from agent_envs.rollout.many import run_episodes

PROMPT, RESPONSE, STEPS = 512, 128, 20


def record(
    contexts: str, episodes: int, *, steps: int, first: int, said: int, response: int, seed: int = 0, high=150_000
):
    """Episodes with tokens, as they come from a file: no two numbers are one object.

    ``grow``: prompts extend each other; ``rebuilt``: every prompt is rewritten.
    """
    rng = np.random.default_rng(seed)
    out = []
    for number in range(episodes):
        context = rng.integers(7, high, first)
        done = []
        for t in range(steps):
            if contexts == "rebuilt":
                context = rng.integers(7, high, int(rng.integers(PROMPT // 2, PROMPT + 1)))
            answer = rng.integers(7, high, int(rng.integers(max(1, response // 2), response + 1)))
            done.append(Step(
                "", "", float(rng.random()), t == steps - 1, False, {}, tuple(context.tolist()),
                tuple(answer.tolist()), tuple(rng.normal(-1, 0.2, len(answer)).tolist()),
            ))  # fmt: skip
            context = np.concatenate([context, answer, rng.integers(7, high, said)])
        out.append(Episode("Toy-v0", f"e{number}", f"g{number // 4}", None, 0, "", (), {}, tuple(done), "",
                           StopReason.TERMINATED))  # fmt: skip
    return out


def write_once(batch: TokenBatch, sources: list, filled: list) -> None:
    """The same arrays, allocated and written once from the same records, the plan known beforehand."""
    tokens = len(batch.input_ids)
    ids, positions = np.empty(tokens, np.int64), np.empty(tokens, np.int64)
    steps, logprobs = np.full(tokens, -1, np.int64), np.zeros(tokens, np.float32)
    places = np.arange(PROMPT + RESPONSE + 1)
    for begin, middle, end, prompt, response in sources:
        ids[begin:middle] = np.frombuffer(pack(prompt), dtype="<i8")
        ids[middle:end] = np.frombuffer(pack(response), dtype="<i8")
        positions[begin:end] = places[: end - begin]
    for i, (at, to, values) in enumerate(filled):
        steps[at:to] = i
        logprobs[at:to] = values
    for name in ("offsets", "row", "start", "length", "episode", "rewards"):
        getattr(batch, name).copy()


def pad(episodes: list[Episode]) -> list[np.ndarray]:
    """A row per step, prompts padded on the left and responses on the right, as the released systems lay them out."""
    rows = [step for episode in episodes for step in episode.steps]
    shape = (len(rows), PROMPT + RESPONSE)
    ids, mask, positions = (np.zeros(shape, np.int64) for _ in range(3))
    response_mask = np.zeros((len(rows), RESPONSE), np.int64)
    logprobs = np.zeros((len(rows), RESPONSE), np.float32)
    for i, step in enumerate(rows):
        p, r = step.prompt_ids or (), step.response_ids or ()
        begin, n = PROMPT - len(p), len(r)
        ids[i, begin:PROMPT] = np.frombuffer(pack(p), dtype="<i8")
        ids[i, PROMPT : PROMPT + n] = np.frombuffer(pack(r), dtype="<i8")
        mask[i, begin : PROMPT + n] = 1
        response_mask[i, :n] = 1
        logprobs[i, :n] = step.response_logprobs
    np.cumsum(mask, axis=1, out=positions)
    positions -= 1
    np.maximum(positions, 0, out=positions)
    return [ids, mask, positions, response_mask, logprobs]


def best(functions: dict, rounds: int = 3, now=time.process_time) -> dict[str, float]:
    """Seconds by a clock, the least of some rounds, all functions in turn."""
    out = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = now()
            function()
            out[name] = min(out[name], now() - start)
    return out


def peak(function) -> int:
    """Most bytes a function has allocated at a time."""
    tracemalloc.start()
    kept = function()
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del kept
    return size


def building(count: int) -> None:
    print(f"\nBuilding a batch of {count:,} episodes x {STEPS} steps from records")
    heads = ("contexts", "layout", "rows", "tokens", "s", "write once", "ratio", "peak/output")
    print("{:<10}{:<9}{:>8}{:>12}{:>8}{:>12}{:>7}{:>13}".format(*heads))
    for contexts, how in (
        ("grow", {"first": 90, "said": 4, "response": 18}),
        ("rebuilt", {"first": 0, "said": 0, "response": RESPONSE}),
    ):
        episodes = record(contexts, count, steps=STEPS, **how)
        flat = [step for episode in episodes for step in episode.steps]
        for layout in ("steps", "merged"):
            batch = build_batch(episodes, layout)
            last = {int(row): i for i, row in enumerate(batch.row)}
            sources = []
            for number in range(len(batch.offsets) - 1):
                step, begin, end = flat[last[number]], int(batch.offsets[number]), int(batch.offsets[number + 1])
                sources.append((begin, begin + len(step.prompt_ids), end, step.prompt_ids, step.response_ids))
            filled = [(int(s), int(s + n), step.response_logprobs)
                      for s, n, step in zip(batch.start, batch.length, flat, strict=True)]  # fmt: skip
            seconds = best({
                "ours": lambda e=episodes, w=layout: build_batch(e, w),
                "once": lambda b=batch, s=sources, f=filled: write_once(b, s, f),
            })  # fmt: skip
            size = sum(column.nbytes for column in vars(batch).values() if isinstance(column, np.ndarray))
            share = peak(lambda e=episodes, w=layout: build_batch(e, w)) / size
            print(
                f"{contexts:<10}{layout:<9}{len(batch.offsets) - 1:>8,}{len(batch.input_ids):>12,}"
                f"{seconds['ours']:>8.3f}{seconds['once']:>12.3f}"
                f"{seconds['ours'] / seconds['once']:>7.2f}{share:>13.2f}"
            )
        seconds = best({"merged": lambda e=episodes: build_batch(e), "trees": lambda e=episodes: build_trees(e)})
        tree = build_trees(episodes)
        print(f"{contexts:<10}{'tree':<9}{len(tree.rows):>8,}{len(tree):>12,}{seconds['trees']:>8.3f}"
              f"{'':>19}  {seconds['trees'] / seconds['merged']:.2f} times merged rows")  # fmt: skip
        seconds = best({"peer": lambda e=episodes: pad(e)})["peer"]
        arrays = pad(episodes)
        size = sum(array.nbytes for array in arrays)
        print(f"{contexts:<10}{'padded':<9}{len(arrays[0]):>8,}{arrays[0].size:>12,}{seconds:>8.3f}{'':>19}"
              f"{peak(lambda e=episodes: pad(e)) / size:>13.2f}  ({size / 2**20:,.0f} MiB)")  # fmt: skip


def build_trees(episodes: list[Episode]) -> PackedTree:
    """Return the merged rows of episodes as trees."""
    batch = build_batch(episodes)
    return pack_tree(batch.input_ids, batch.offsets, sort_rows(batch.input_ids, batch.offsets))


GROUP = 8
TOKENS = 16_384  # most of a forward and backward pass
TASKS = {"GSM8KTool": (8, 0.3), "ALFWorld": (2, 0.3), "PaperSearch": (4, 0.3)}
"""Groups of each, and the share of the expert's actions that are wrong on purpose, so that episodes part."""
VOCABULARY = 1024
SHAPES = {
    "tiny": {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 2},
    "0.5b": {"vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
             "num_attention_heads": 14, "num_key_value_heads": 2},
}  # fmt: skip
"""Models with random weights: that of the tests, and Qwen2.5-0.5B's (its config.json)."""


def play(name: str, groups: int, noise: float) -> list[Episode]:
    """Episodes of an expert, `GROUP` of each task."""
    return [
        episode
        for index in range(groups)
        for seed in range(GROUP)
        for episode in run_episodes(
            f"AgentR1/{name}-v0", ExpertPolicy(noise=noise, seed=seed), 1, seeds=index, options={"index": index},
            progress=False, concurrency=1,
        )
    ]  # fmt: skip


def with_tokens(episode: Episode, tokenizer) -> Episode:
    """The tokens that a policy would have been given and have written."""
    builder = PromptBuilder(tokenizer, episode.tools)
    conversation, past = Conversation(episode.instructions), TokenPast(latest_only=True)
    steps, info = [], episode.reset_info
    for step in episode.steps:
        conversation.observe(step.observation, info)
        prompt = past.prompt(builder, conversation.messages)
        answer = tuple(builder.response(step.action))
        past.answer(prompt, step.action, answer)
        conversation.respond(step.action)
        info = step.info
        steps.append(
            replace(step, prompt_ids=tuple(prompt.ids), response_ids=answer, response_logprobs=(-1.0,) * len(answer))
        )
    return replace(episode, steps=tuple(steps))


def unique_of_groups(episodes: list[Episode]) -> int:
    """Tokens of the tries of groups of ``GROUP`` episodes."""
    out = 0
    for begin in range(0, len(episodes), GROUP):
        rows = build_batch(episodes[begin : begin + GROUP])
        out += sort_rows(rows.input_ids, rows.offsets).nodes
    return out


def recorded(groups: int) -> dict[str, list[Episode]]:
    """Episodes of each task, and some that share nothing, all with tokens."""
    from pretraining.tokenizer import build_tokenizer

    sets = {name: play(name, groups or count, noise) for name, (count, noise) in TASKS.items()}
    words = [text for episodes in sets.values() for e in episodes for step in e.steps
             for text in (e.instructions, str(step.observation), step.action)]  # fmt: skip
    tokenizer = build_tokenizer(words, vocab_size=VOCABULARY)
    found = {name: [with_tokens(episode, tokenizer) for episode in episodes] for name, episodes in sets.items()}
    for name, steps in (("nothing shared", 5), ("nothing, long", 20)):
        found[name] = record("grow", 2 * GROUP, steps=steps, first=90, said=4, response=18, high=250)
    return found


def longest_row(episodes: list[Episode]) -> int:
    return max(len(s.prompt_ids or ()) + len(s.response_ids or ()) for e in episodes for s in e.steps)


def shaped(name: str, context: int):
    """A Qwen2 model with random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(**SHAPES[name], max_position_embeddings=context, tie_word_embeddings=True,
                         attn_implementation="sdpa")  # fmt: skip
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config).eval()


def say(name: str, tokens: dict[str, float], seconds: dict[str, float]) -> None:
    """Print a line; the last ways are trees."""
    steps, merged = seconds["steps"], seconds["merged"]
    trees = [f"{way} is {steps / seconds[way]:.1f} times as fast as step rows, {merged / seconds[way]:.2f} times as "
             "fast as merged rows" for way in seconds if way.startswith("tree")]  # fmt: skip
    print(f"{name:<24}tokens {' | '.join(f'{x:6.2f}' for x in tokens.values())}   seconds "
          f"{' | '.join(f'{x:6.3f}' for x in seconds.values())}   {'; '.join(trees)}", flush=True)  # fmt: skip


def loop(sets: dict[str, list[Episode]], updates: int, shape: str, device: str, dtype: str) -> None:
    import torch

    from agent_envs.adapters.torch.batch import assemble
    from agent_envs.adapters.torch.loop import LoopConfig, Scores, actor_loss, credit, update
    from agent_envs.adapters.trees import attention

    cuda = device.startswith("cuda")
    kinds = {"steps": None, "merged": None, "tree": None} | ({"tree, paths": "sdpa"} if cuda else {})
    plan = attention.plan_attention

    def now() -> float:
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() if cuda else time.process_time()

    def one(way: str, batch, config, model, optimizer) -> None:
        with patch.object(attention, "plan_attention", lambda tree, device, _: plan(tree, device, kinds[way])):
            update(model, optimizer, batch, config, losses[way])

    print(
        f"\nAn update of the PyTorch loop, {GROUP} episodes a group, {shape} model, {dtype}, {device}; at most "
        f"{TOKENS:,} tokens\nat a time. "
        f"Tokens over those of the groups' tries, and seconds of an update: {' | '.join(kinds)}"
    )
    for name, episodes in sets.items():
        model = shaped(shape, longest_row(episodes) + 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        config = LoopConfig(env="x", out="y", mini_batches=1, estimator="reinforce", dtype=dtype, micro_tokens=TOKENS)
        groups, losses, updating, tokens = [i // GROUP for i in range(len(episodes))], {}, {}, {}
        for way in kinds:
            batch = assemble(episodes, groups, layout=way.partition(",")[0])
            scores = Scores(batch.sampled)
            losses[way] = partial(actor_loss, batch, config, scores, credit(batch, config, scores)[0])
            updating[way] = partial(one, way, batch, config, model, optimizer)
            processed = len(batch.ids)
            if batch.trees is not None:  # what micro-batches repeat included
                processed = sum(part.nodes for part in cut(batch.trees, config.micro_tokens))
            tokens[way] = processed / unique_of_groups(episodes)
        say(name, tokens, best(updating, updates, now))


def verl(sets: dict[str, list[Episode]], updates: int) -> None:
    from agent_envs.adapters.verl.run.process import process_environment

    os.environ.update(process_environment(cpu=True))
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "adapters" / "verl"))  # local_training
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from local_training import build_worker, local_batch
        from verl.workers.config import FSDPActorConfig, FSDPOptimizerConfig

    import torch
    from pretraining.tokenizer import build_tokenizer

    from agent_envs.adapters.estimators import get_estimator
    from agent_envs.adapters.tiny.model import save_model
    from agent_envs.adapters.verl.config.objective import Objective
    from agent_envs.adapters.verl.rollout.episode_rows import episode_rows

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ.update(WORLD_SIZE="1", RANK="0", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    config = FSDPActorConfig(
        strategy="fsdp2", ppo_mini_batch_size=1, ppo_micro_batch_size_per_gpu=1, rollout_n=1, use_kl_loss=False,
        optim=FSDPOptimizerConfig(lr=1e-5, total_training_steps=1000),
    )  # fmt: skip
    print(
        "\nAn update of verl's worker, tiny model, CPU; micro-batches of 16 rows padded, or of 16,384 tokens packed\n"
        "tokens over those of the groups' tries, padding rows included, and seconds of an update: steps | merged | tree"
    )
    workers = {}
    with tempfile.TemporaryDirectory() as folder:
        model = shaped("tiny", max(map(longest_row, sets.values())) + 1)
        save_model(model, build_tokenizer(["some words"]), Path(folder) / "model")
        for packing, trees in product((False, True), repeat=2):
            with redirect_stdout(io.StringIO()):  # verl prints what it loads
                workers[packing, trees] = build_worker(
                    str(Path(folder) / "model"), "language_model", packing=packing and not trees, trees=trees,
                    micro_rows=None if packing else 16, learning_rate=1e-5, total_steps=1000,
                )  # fmt: skip
    for (name, episodes), packing in product(sets.items(), (False, True)):
        updating, tokens = {}, {}
        for way in ("steps", "merged", "tree"):
            rows = [(f"g{i // GROUP}", f"g{i // GROUP}_{i}", row) for i, e in enumerate(episodes)
                    for row in episode_rows(e, filler_id=2, merge=way != "steps")]  # fmt: skip
            batch = local_batch(rows, filler_id=2, trees=way == "tree", row_multiple=1 if packing else 16)
            columns = batch.columns({"old_log_probs": batch.sampled}, Objective(get_estimator("reinforce"))).columns
            columns = {"old_log_probs": batch.sampled, **columns}
            updating[way] = partial(batch.update, workers[packing, way == "tree"], columns, "actor", config)
            tokens[way] = (batch.layout.nodes or batch.tokens) / unique_of_groups(episodes)
        say(f"{name}, {'packed' if packing else 'padded'}", tokens, best(updating, updates))
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1024, help="to build a batch from (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=2, help="rounds (default: %(default)s)")
    parser.add_argument("--groups", type=int, default=0, help="of each task (default: 2 to 8)")
    parser.add_argument("--skip", nargs="*", default=[], choices=("building", "loop", "verl"))
    parser.add_argument("--model", default="tiny", choices=SHAPES, help="of the loop (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="of the loop (default: %(default)s)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of the loop's computation")
    arguments = parser.parse_args()
    if "building" not in arguments.skip:
        building(arguments.episodes)
    sets = recorded(arguments.groups) if {"loop", "verl"} - set(arguments.skip) else {}
    if "loop" not in arguments.skip:
        loop(sets, arguments.updates, arguments.model, arguments.device, arguments.dtype)
    if "verl" not in arguments.skip:
        verl(sets, arguments.updates)


if __name__ == "__main__":
    main()
