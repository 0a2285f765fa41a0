"""Groups that branch from inner states beside plain groups, at equal numbers of sampled tokens.

    python benchmarks/branching.py --out runs/branching                      # every arm, one after another; resumable
    python benchmarks/branching.py --out runs/branching --arm branched-gigpo --seed 1

Each arm trains tiny-base with the PyTorch loop until the policy has sampled `--tokens` tokens. A plain group is 8
episodes of a task; a branched one is 2 episodes, from whose states 3 more each are played on (`agent_envs.branch`), so
that its tokens are sampled once however many episodes share them. OUT/ARM-SEED is an ordinary run of the loop, with
`sampled_tokens` in its metrics; the table at the end has the success on held-out tasks at equal shares of the budget.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import agent_envs
from agent_envs.adapters.metrics_log import Record
from agent_envs.adapters.torch.loop import assemble, learn, play
from agent_envs.adapters.torch.run import Run, about, named
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.episodes.record import Episode
from agent_envs.policies import TransformersPolicy
from agent_envs.wrapping.specs import make_text_env

ARMS = {
    "grpo": ("grpo", False),
    "branched-grpo": ("grpo", True),
    "gigpo": ("gigpo", False),
    "branched-gigpo": ("gigpo", True),
}
"""Estimator, and whether groups branch."""
TRUNKS = 2  # episodes of a branched group that begin at the start
POINTS = 5  # evaluations of an arm after the first


def branched(run: Run, number: int, tasks: Sequence[int]) -> list[Episode]:
    """Play a group of `run.config.group` episodes for each task, of which all but two begin in a state of these."""
    config = run.config
    policy = TransformersPolicy(
        run.models["model"], tokenizer=run.tokenizer, temperature=config.temperature,
        max_tokens=config.max_response_tokens, context_length=config.max_tokens, concurrency=config.concurrency,
        seed=TRUNKS * (1_000_003 * config.seed + number),
    )  # fmt: skip
    size = config.group // TRUNKS

    def grow(unit: tuple[int, int]) -> list[Episode]:
        index, trunk = unit
        env = make_text_env(config.env, config.env_kwargs_of(config.split), config.wrappers)
        try:
            of_trunk = policy.with_seed(policy.seed + trunk)
            found = agent_envs.branch(env, of_trunk, size, seed=number, options={"index": index})
            return [*found, *found[:1] * (size - len(found))]  # an episode without a step has no branches
        finally:
            env.close()

    units = [(int(index), trunk) for index in tasks for trunk in range(TRUNKS)]
    with ThreadPoolExecutor(len(units)) as pool:
        episodes = [episode for group in pool.map(grow, units) for episode in group]
    policy.close()
    return episodes


def sampled_tokens(episodes: Sequence[Episode]) -> int:
    """Return the number of tokens that the policy sampled; a step that several episodes share counts once."""
    return sum(len(step.response_ids or ()) for step in {id(s): s for e in episodes for s in e.steps}.values())


def train(config: LoopConfig, branches: bool, budget: int) -> list[Record]:
    """Train until `budget` tokens are sampled, or go on where that was stopped; as `loop.train`, but for the groups."""
    run = Run(config)
    if not run.records:
        run.log({"step": 0, "sampled_tokens": 0, **_evaluated(run, 0)})
    done = run.records[-1]["sampled_tokens"]
    for number in run.iterations():
        if done >= budget:
            break
        tasks = run.draw(number)
        if branches:
            episodes = branched(run, number, tasks)
        else:
            episodes = play(run, number, config.split, tasks, config.group, config.temperature)
        before, done = done, done + sampled_tokens(episodes)
        groups = [i // config.group for i in range(len(episodes))]
        record: Record = {"step": number, "sampled_tokens": done, **named("train", about(episodes))}
        record |= learn(run, assemble(episodes, groups, layout=run.layout), number)
        if done * POINTS // budget > before * POINTS // budget:
            record |= _evaluated(run, number)
        run.log(record)
        run.save(number)
    return run.records


def _evaluated(run: Run, number: int) -> Record:
    config = run.config
    return named("val", about(play(run, number, config.eval_split, run.held_out, 1, config.temperature)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Groups that branch beside plain groups, at equal sampled tokens.")
    parser.add_argument("--out", type=Path, required=True, help="folder; the same command goes on where it was stopped")
    parser.add_argument("--env", default="AgentR1/ALFWorld-v0")
    parser.add_argument("--env-kwargs", default={"size": 1, "max_episode_steps": 16}, type=json.loads)
    parser.add_argument("--arm", action="append", choices=ARMS, help="(default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=200_000, help="tokens to sample in an arm (default: %(default)s)")
    parser.add_argument("--eval-tasks", type=int, default=256)
    options = parser.parse_args()
    rows = []
    for arm in options.arm or ARMS:
        estimator, branches = ARMS[arm]
        config = LoopConfig(
            env=options.env, env_kwargs=options.env_kwargs, wrappers=("FormatReward(weight=0.1)",),
            out=str(options.out / f"{arm}-{options.seed}"), steps=10_000, estimator=estimator, seed=options.seed,
            eval_tasks=options.eval_tasks, eval_split="validation", save_every=1, max_tokens=3072,
        )  # fmt: skip
        records = [r for r in train(config, branches, options.tokens) if "val/success" in r]
        rows.append((arm, records))
    for arm, records in rows:
        points = (f"{r['sampled_tokens']:>8,}: {r['val/success']:.3f}" for r in records)
        print(f"{arm:<15} {'  '.join(points)}   {records[-1]['step']} iterations")


if __name__ == "__main__":
    main()
