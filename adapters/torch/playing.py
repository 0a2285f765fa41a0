"""How the PyTorch loop plays: the model that is trained, many episodes at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import torch

from agent_envs.adapters.branches import Branches, Tree
from agent_envs.adapters.curriculum import number_of_round
from agent_envs.adapters.torch.run import Run
from agent_envs.adapters.torch.tasks import Tasks
from agent_envs.episodes.record import Episode
from agent_envs.policies import TransformersPolicy
from agent_envs.rollout.many import run_episodes
from agent_envs.wrapping.specs import make_text_env


class Group(NamedTuple):
    """The episodes of a task, which are compared with each other."""

    of: Tasks
    """Where the task is from."""
    episodes: Sequence[Episode]
    trees: Sequence[Tree] = ()
    """The same episodes, if groups branch."""
    greedy: Sequence[Episode] = ()
    """A greedy episode of the task, if the estimator compares with one."""
    refill: int = 0
    """The further round of the iteration that it was played in."""

    @property
    def has_signal(self) -> bool:
        """Whether not all its episodes, broken ones left out, have the same reward."""
        return len({episode.reward for episode in self.episodes if not episode.stop_reason.broken}) > 1


def play_iteration(run: Run, number: int) -> tuple[list[Group], list[Group]]:
    """Play the groups of an iteration.

    Groups without a signal are replaced by those of up to ``refill`` further rounds that have one. What comes in such a
    round depends on the iteration's number, the seed and the groups before alone.

    Returns:
        The groups to train on, as many as tasks, and those that were played besides.
    """
    groups, unused = _round(run, number), list[Group]()
    for refill in range(1, run.config.refill + 1):
        silent = [i for i, group in enumerate(groups) if not group.has_signal]
        for group in _round(run, number, refill, len(silent)) if silent else ():
            if group.has_signal:
                at = silent.pop(0)
                groups[at], group = group, groups[at]
            unused.append(group)
    return groups, unused


def _round(run: Run, number: int, refill: int = 0, count: int | None = None) -> list[Group]:
    """Play the tasks of an iteration, or so many of a further round."""
    config, size, groups = run.config, run.config.group, list[Group]()
    taught, drawn_by = config.teaching.labels_at(number), number_of_round(number, refill)
    for of, tasks in run.tasks.draw(number, run.records, refill, count):
        if config.branch:
            for trees in grow(run, of, drawn_by, tasks, taught):
                groups.append(Group(of, [episode for tree in trees for episode in tree.episodes], trees, (), refill))
            continue
        played = play(run, of, drawn_by, config.split, tasks, size, config.temperature, taught)
        greedy = play(run, of, drawn_by, config.split, tasks, 1, 0.0) if run.estimator.needs_baseline else []
        groups += [Group(of, played[i * size :][:size], (), greedy[i : i + 1], refill) for i in range(len(tasks))]
    return groups


def play(
    run: Run, of: Tasks, number: int, split: str, tasks: Any, per_task: int, temperature: float, taught: bool = False
) -> list[Episode]:
    """Play each of some tasks `per_task` times, in their order; tokens and log-probabilities are kept as sampled.

    If it is `taught`, the info of every state has its label.
    """
    config = of.config
    env_kwargs, wrappers = config.environment_of(split, taught=taught)
    with closing(_policy(run, number, temperature)) as policy:
        return run_episodes(
            str(config.env), policy, len(tasks) * per_task, env_kwargs=env_kwargs, wrappers=wrappers,
            seeds=config.seed, options=[{"index": int(index)} for index in tasks for _ in range(per_task)],
            concurrency=config.concurrency, step_timeout=config.step_timeout or None, on_error="record", progress=False,
            agent=config.agent or None, score=config.score or None,
        )  # fmt: skip


def grow(run: Run, of: Tasks, number: int, tasks: Any, taught: bool = False) -> list[list[Tree]]:
    """Play a group for each task of which some episodes grow from inner states of the others; see `Branches`."""
    config, branches = of.config, Branches.read(of.config.branch)
    policy, trunks = _policy(run, number, config.temperature), config.group // branches.size
    env_kwargs, wrappers = config.environment_of(config.split, taught=taught)

    def grown(unit: tuple[int, int]) -> Tree:
        index, trunk = unit
        own, drawn_by = policy.with_seed(config.group * policy.seed + trunk), (config.seed, number, index, trunk)
        with closing(make_text_env(str(config.env), env_kwargs, wrappers)) as env:
            return branches.grow(env, own, seed=config.seed, options={"index": index}, drawn_by=drawn_by)

    units = [(int(index), trunk) for index in tasks for trunk in range(trunks)]
    with closing(policy), ThreadPoolExecutor(min(len(units), config.concurrency)) as pool:
        trees = list(pool.map(grown, units))
    return [trees[i : i + trunks] for i in range(0, len(trees), trunks)]


def _policy(run: Run, number: int, temperature: float) -> TransformersPolicy:
    config, model = run.config, run.models["model"]
    if config.dtype == "bfloat16":
        model = copy.deepcopy(model).to(torch.bfloat16)
    return TransformersPolicy(
        model, tokenizer=run.tokenizer, temperature=temperature, max_tokens=config.max_response_tokens,
        context_length=config.max_tokens, concurrency=config.concurrency, seed=1_000_003 * config.seed + number,
        pictures=run.pictures,
    )  # fmt: skip
