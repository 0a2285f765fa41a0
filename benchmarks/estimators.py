"""What the estimators cost on one core. Run: python benchmarks/estimators.py

A batch of 100,000 step rows (5,000 trajectories of 20 steps in groups of 8, 1 to 127 tokens a step) goes through every
estimator, checks included. Each has a peer in the same run: the recursion or the grouping as loops over Python's
dictionaries and rows, as trainers write it (verl's own functions take padded [rows, tokens] arrays and loop over rows
or over token positions). The peer is timed on a part of the batch and its time scaled up.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace

import torch

from agent_envs.adapters.estimators import ESTIMATORS, EstimatorOptions, StepRows, TokenRows

GROUP, STEPS = 8, 20


def batch(rows: int, tokens: int, seed: int = 0) -> StepRows:
    """``rows`` steps of ``tokens`` tokens on average, in episodes of 20 steps and groups of 8, sparse rewards."""
    g = torch.Generator().manual_seed(seed)
    trajectory = torch.arange(rows) // STEPS
    step = torch.arange(rows) % STEPS
    last = step == STEPS - 1
    step_row = torch.repeat_interleave(torch.arange(rows), torch.randint(1, 2 * tokens, (rows,), generator=g))
    group = trajectory // GROUP
    return StepRows(
        rewards=torch.where(last, torch.randint(0, 2, (rows,), generator=g).float(), 0.0),
        trajectory=trajectory,
        step=step,
        group=group,
        valid=torch.ones(rows, dtype=torch.bool),
        truncated=last & (torch.rand(rows, generator=g) < 0.2),
        values=torch.rand(rows, generator=g),
        final_values=torch.where(last, torch.rand(rows, generator=g), torch.nan),
        tokens=TokenRows(
            step_row, values=torch.rand(len(step_row), generator=g), score_norms=torch.rand(len(step_row), generator=g)
        ),
        baseline=torch.rand(int(group.max()) + 1, generator=g)[group],
        anchor=group * 8 + torch.randint(0, 8, (rows,), generator=g),
        anchor_texts=None,
    )


def shuffled(rows: StepRows, seed: int = 1) -> StepRows:
    """The steps in another order, their tokens with them, as a trainer's balancing leaves them."""
    order = torch.randperm(len(rows.rewards), generator=torch.Generator().manual_seed(seed))
    tokens = rows.tokens
    if tokens is None or tokens.values is None or tokens.score_norms is None:
        raise SystemExit("the batch has no tokens")
    moved = {
        field.name: getattr(rows, field.name)[order]
        for field in fields(rows)
        if isinstance(getattr(rows, field.name), torch.Tensor)
    }
    lengths = torch.bincount(tokens.step_row).tolist()

    def same(x: torch.Tensor) -> torch.Tensor:
        parts = x.split(lengths)
        return torch.cat([parts[i] for i in order.tolist()])

    step_row = torch.repeat_interleave(torch.arange(len(order)), torch.bincount(tokens.step_row)[order])
    return replace(
        rows, **moved, tokens=TokenRows(step_row, values=same(tokens.values), score_norms=same(tokens.score_norms))
    )


def with_texts(rows: StepRows, seed: int = 2) -> StepRows:
    """The rows with about 110 characters of text per state, 25 states a group, which differ in what is seen."""
    rng = random.Random(seed)
    states = (int(rows.group.max()) + 1) * 25
    texts = []
    for _ in range(states):
        seen = ", ".join(f"a object{rng.randrange(60)} {rng.randrange(3)}" for _ in range(6))
        texts.append(f"You are at place {rng.randrange(30)}. You see {seen}.")
    g = torch.Generator().manual_seed(seed)
    anchor = rows.group * 25 + torch.randint(0, 25, rows.group.shape, generator=g)
    return replace(rows, anchor=anchor, anchor_texts=texts)


def loop_over_groups(rows: StepRows) -> None:
    """Scores, group means and deviations in dictionaries, a row at a time."""
    score: dict[int, float] = defaultdict(float)
    group = {}
    for i in range(len(rows.rewards)):
        score[int(rows.trajectory[i])] += float(rows.rewards[i])
        group[int(rows.trajectory[i])] = int(rows.group[i])
    members = defaultdict(list)
    for t, s in score.items():
        members[group[t]].append(s)
    mean = {g: statistics.fmean(s) for g, s in members.items()}
    std = {g: statistics.stdev(s) if len(s) > 1 else 1.0 for g, s in members.items()}
    out = torch.zeros(len(rows.rewards))
    for i in range(len(rows.rewards)):
        t = int(rows.trajectory[i])
        out[i] = (score[t] - mean[group[t]]) / (std[group[t]] + 1e-6)


def loop_over_steps(rows: StepRows) -> None:
    """GAE as a recursion over the steps of one trajectory after another."""
    of = defaultdict(list)
    for i in range(len(rows.rewards)):
        of[int(rows.trajectory[i])].append((int(rows.step[i]), i))
    out = torch.zeros(len(rows.rewards))
    for steps in of.values():
        a = v = 0.0
        for _, i in sorted(steps, reverse=True):
            value = float(rows.values[i]) if rows.values is not None else 0.0
            a = float(rows.rewards[i]) + 0.99 * v - value + 0.95 * a
            v = value
            out[i] = a


def loop_over_tokens(rows: StepRows) -> None:
    """GAE as a recursion over the tokens of one trajectory after another."""
    tokens = rows.tokens
    if tokens is None or tokens.values is None:
        raise SystemExit("the batch has no tokens")
    of = defaultdict(list)
    for k in range(len(tokens.step_row)):
        row = int(tokens.step_row[k])
        of[int(rows.trajectory[row])].append((int(rows.step[row]), k))
    out = torch.zeros(len(tokens.step_row))
    for places in of.values():
        a = v = 0.0
        for _, k in sorted(places, reverse=True):
            value = float(tokens.values[k])
            a = 0.99 * v - value + 0.95 * a
            v = value
            out[k] = a


PEERS: dict[str, Callable[[StepRows], None]] = {
    **dict.fromkeys(("grpo", "rloo", "remax", "gigpo", "reinforce_pp_baseline"), loop_over_groups),
    **dict.fromkeys(("gae", "reinforce"), loop_over_steps),
    **dict.fromkeys(("token_gae", "bi_level_gae", "reinforce_pp"), loop_over_tokens),
}


def seconds(call: Callable[[], object], runs: int) -> float:
    """Median CPU seconds."""
    times = []
    for _ in range(runs):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=64, help="per step, on average")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    part = STEPS * GROUP * 4
    small = batch(part, arguments.tokens)
    ordered = batch(arguments.rows, arguments.tokens)
    mixed = shuffled(ordered)
    print(f"{arguments.rows:,} step rows, {len(ordered.tokens.step_row):,} tokens, one core, median of runs")
    print(f"{'estimator':<24}{'in order s':>12}{'shuffled s':>12}{'loops s':>10}{'ratio':>8}")
    options = EstimatorOptions(gamma=0.99, lam=0.95)
    peers: dict[Callable[[StepRows], None], float] = {}
    for name, estimator in sorted(ESTIMATORS.items()):
        peer = PEERS[name]
        if peer not in peers:
            peers[peer] = seconds(lambda peer=peer: peer(small), 1) * arguments.rows / part
        ours = [
            seconds(lambda rows=rows, estimator=estimator: estimator(rows, options), arguments.runs)
            for rows in (ordered, mixed)
        ]
        print(f"{name:<24}{ours[0]:>12.3f}{ours[1]:>12.3f}{peers[peer]:>10.1f}{peers[peer] / ours[1]:>8.0f}")
    texts = with_texts(ordered)
    similar = replace(options, similar_anchors=True)
    took = seconds(lambda: ESTIMATORS["gigpo"](texts, similar), 1)
    print(f"{'gigpo, similar texts':<24}{took:>12.3f}    ({len(texts.anchor_texts or ()):,} different texts)")


if __name__ == "__main__":
    main()
