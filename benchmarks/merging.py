"""What merging and prefix trees save: tokens, time of an optimiser step, and what building a batch costs; as tables.

    python benchmarks/merging.py [--episodes 1024] [--updates 3] [--skip building verl tasks]

1. verl's own training worker on a tiny model, on this machine's CPU: tokens processed over unique tokens of an episode,
   padding rows included, and time of an optimiser step, merged rows next to one row per step, padded and packed
2. the PyTorch loop on groups of 8 recorded episodes of some tasks, and on episodes that share nothing: a row per step,
   merged rows and trees; tokens processed over unique tokens of a group (trees also share what groups do), and time of
   an update, padding included
3. building a batch from recorded episodes, nested or merged, next to writing the same arrays once (no checks, no plan)
   and to padded rows (left-padded prompts, right-padded responses, a mask each), the layout of the released systems

Side by side in one process; the best of some rounds of each, in turn. Times are processor time of this process.
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
from pathlib import Path

import numpy as np

from agent_envs.adapters.batches import TokenBatch, build_batch
from agent_envs.adapters.merging import pack
from agent_envs.adapters.trees import build_trees, cut, sort_rows
from agent_envs.adapters.verl.run.process import process_environment
from agent_envs.episodes.record import Episode, Step, StopReason
from agent_envs.policies import ExpertPolicy
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.conversation import TokenConversation
from agent_envs.rollout.many import run_episodes

PROMPT, RESPONSE, STEPS = 512, 128, 20


def record(
    contexts: str, episodes: int, *, steps: int, first: int, said: int, response: int, seed: int = 0, high=150_000
):
    """Episodes with tokens, as they come from a file: no two numbers are one object.

    ``grow``: prompts extend each other; ``rebuilt``: every prompt is written anew.
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


def unique_tokens(episode: Episode) -> int:
    """Tokens of an episode that a computation with shared prefixes cannot avoid: nodes of the trie of its steps."""
    seen: set[int] = set()
    for step in episode.steps:
        value = 0
        for token in (*(step.prompt_ids or ()), *(step.response_ids or ())):
            value = hash((value, token))
            seen.add(value)
    return len(seen)


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


def best(functions: dict, rounds: int = 3) -> dict[str, float]:
    """Seconds of processor time, the least of some rounds, all functions in turn."""
    out = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.process_time()
            function()
            out[name] = min(out[name], time.process_time() - start)
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
            size = sum(array.nbytes for array in vars(batch).values())
            share = peak(lambda e=episodes, w=layout: build_batch(e, w)) / size
            print(
                f"{contexts:<10}{layout:<9}{len(batch.offsets) - 1:>8,}{len(batch.input_ids):>12,}"
                f"{seconds['ours']:>8.3f}{seconds['once']:>12.3f}"
                f"{seconds['ours'] / seconds['once']:>7.2f}{share:>13.2f}"
            )
        seconds = best({"merged": lambda e=episodes: build_batch(e), "trees": lambda e=episodes: build_trees(e)})
        trees = build_trees(episodes)
        print(f"{contexts:<10}{'tree':<9}{len(trees.tree.rows):>8,}{len(trees.tree):>12,}{seconds['trees']:>8.3f}"
              f"{'':>19}  {seconds['trees'] / seconds['merged']:.2f} times merged rows")  # fmt: skip
        seconds = best({"peer": lambda e=episodes: pad(e)})["peer"]
        arrays = pad(episodes)
        size = sum(array.nbytes for array in arrays)
        print(f"{contexts:<10}{'padded':<9}{len(arrays[0]):>8,}{arrays[0].size:>12,}{seconds:>8.3f}{'':>19}"
              f"{peak(lambda e=episodes: pad(e)) / size:>13.2f}  ({size / 2**20:,.0f} MiB)")  # fmt: skip


def training(updates: int) -> None:
    os.environ.update(process_environment(cpu=True))
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "adapters" / "verl"))  # local_training
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from local_training import build_worker, local_batch
        from verl.workers.config import FSDPActorConfig, FSDPOptimizerConfig

    import torch

    from agent_envs.adapters.estimators import get_estimator
    from agent_envs.adapters.tiny.model import build_model, save_model
    from agent_envs.adapters.tiny.tokenizer import build_tokenizer
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
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = build_tokenizer(["some words"])
        save_model(build_model(tokenizer), tokenizer, Path(folder) / "model")
        print("\nTokens and time of an optimiser step (140 thousand parameters, 4 episodes, CPU)")
        for packing in (False, True):
            with redirect_stdout(io.StringIO()):  # verl prints what it loads
                worker = build_worker(
                    str(Path(folder) / "model"), "language_model", packing=packing, micro_tokens=1024,
                    learning_rate=1e-5, total_steps=1000,
                )  # fmt: skip
            for contexts, steps in (("grow", 5), ("grow", 20)):
                episodes = record(contexts, 4, steps=steps, first=90, said=4, response=18, high=250)
                unique = sum(map(unique_tokens, episodes))
                batches = {}
                for merge in (False, True):
                    rows = [(e.group_id, f"{e.group_id}_{i}", row) for i, e in enumerate(episodes)
                            for row in episode_rows(e, filler_id=2, merge=merge)]  # fmt: skip
                    batch = local_batch(rows, filler_id=2, mini_batches=2, row_multiple=1)
                    columns = batch.columns({"old_log_probs": batch.sampled}, Objective(get_estimator("reinforce")),
                                            actor_batches=2)  # fmt: skip
                    batches[merge] = batch, {"old_log_probs": batch.sampled, **columns.columns}

                def update(merge, batches=batches, worker=worker):
                    batch, columns = batches[merge]
                    batch.update(worker, columns, "actor", config, mini_batches=2)

                seconds = best({"apart": lambda u=update: u(False), "merged": lambda u=update: u(True)}, updates)
                tables.append((
                    "packed" if packing else "padded", steps, *(batches[m][0].tokens / unique for m in (False, True)),
                    *(seconds[name] / 2 for name in ("apart", "merged")),
                ))  # fmt: skip
        torch.distributed.destroy_process_group()
    print("tokens processed over unique ones, seconds of an update: a row per step | merged")
    for path, steps, apart, merged, slow, fast in tables:
        print(
            f"{path:<8}{steps:>4} steps   tokens {apart:>6.2f} | {merged:<6.3f}   seconds {slow:>7.3f} | {fast:<7.3f}"
            f"   {slow / fast:.1f} times as fast"
        )


GROUP = 8
TASKS = {"GSM8KTool": (8, 0.3), "ALFWorld": (2, 0.3), "PaperSearch": (4, 0.3)}
"""Groups of each, and the share of the expert's actions that are wrong on purpose, so that episodes part."""


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
    conversation = TokenConversation(PromptBuilder(tokenizer, episode.tools), episode.instructions)
    steps, info = [], episode.reset_info
    for step in episode.steps:
        prompt = tuple(conversation.observe(step.observation, info))
        answer = (*tokenizer.encode(step.action, add_special_tokens=False), tokenizer.eos_token_id)
        conversation.respond(step.action, answer)
        info = step.info
        steps.append(replace(step, prompt_ids=prompt, response_ids=answer, response_logprobs=(-1.0,) * len(answer)))
    return replace(episode, steps=tuple(steps))


def unique_of_groups(episodes: list[Episode]) -> int:
    """Tokens of the tries of groups of ``GROUP`` episodes."""
    out = 0
    for begin in range(0, len(episodes), GROUP):
        rows = build_batch(episodes[begin : begin + GROUP])
        out += sort_rows(rows.input_ids, rows.offsets).nodes
    return out


def tasks(updates: int) -> None:
    import torch

    from agent_envs.adapters.tiny.model import build_model
    from agent_envs.adapters.tiny.tokenizer import build_tokenizer
    from agent_envs.adapters.torch.loop import LoopConfig, Scores, actor_loss, assemble, credit, score, update

    torch.set_num_threads(1)
    print(f"\nAn update of the PyTorch loop, {GROUP} episodes a group, tiny model, CPU; micro-batches of 16,384 tokens")
    print("tokens over those of the groups' tries: a row per step | merged | tree; seconds of an update of each")
    sets = {name: play(name, *how) for name, how in TASKS.items()}
    for name, steps in (("nothing shared", 5), ("nothing, long", 20)):
        sets[name] = record("grow", 16, steps=steps, first=90, said=4, response=18, high=250)
    for name, episodes in sets.items():
        words = [
            text for e in episodes for step in e.steps for text in (e.instructions, str(step.observation), step.action)
        ]
        tokenizer = build_tokenizer(words if name in TASKS else ["some words"], vocab_size=1024)
        if name in TASKS:
            episodes = [with_tokens(episode, tokenizer) for episode in episodes]
        longest = max(len(s.prompt_ids or ()) + len(s.response_ids or ()) for e in episodes for s in e.steps)
        model = build_model(tokenizer, context_length=longest + 1).eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        config = LoopConfig(env="x", out="y", mini_batches=1, estimator="reinforce")
        groups, updating, tokens = [i // GROUP for i in range(len(episodes))], {}, {}
        for layout in ("steps", "merged", "tree"):
            batch = assemble(episodes, groups, layout=layout)
            scores = Scores(score(model, batch, config))
            loss_of = partial(actor_loss, batch, config, scores, credit(batch, config, scores)[0])
            updating[layout] = partial(update, model, optimizer, batch, config, loss_of)
            processed = len(batch.ids)
            if batch.trees is not None:  # what micro-batches repeat included
                processed = sum(part.nodes for part in cut(batch.trees, config.micro_tokens))
            tokens[layout] = processed / unique_of_groups(episodes)
        seconds = best(updating, updates)
        print(
            f"{name:<16}tokens {' | '.join(f'{tokens[w]:6.2f}' for w in tokens)}   seconds "
            f"{' | '.join(f'{seconds[w]:6.2f}' for w in seconds)}   tree is "
            f"{seconds['steps'] / seconds['tree']:.1f} times as fast as step rows, "
            f"{seconds['merged'] / seconds['tree']:.2f} times as fast as merged rows",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--skip", nargs="*", default=[], choices=("building", "tasks", "verl"))
    arguments = parser.parse_args()
    if "building" not in arguments.skip:
        building(arguments.episodes)
    if "tasks" not in arguments.skip:
        tasks(arguments.updates)
    if "verl" not in arguments.skip:
        training(arguments.updates)


if __name__ == "__main__":
    main()
