"""Mutual information of prompt and response: what a policy loses that answers whatever it is asked alike.

The estimate of RAGEN-2 (Wang and others 2026, arXiv 2604.06268), where the prompts x_1 to x_n of a sample are all that
there are, each as likely, and z_i is what was answered to x_i:

    I(X; Z) = 1/n sum_i [log p(z_i | x_i) - log 1/n sum_j p(z_i | x_j)] <= log n

An entropy cannot show this: answers may be as different as before, and yet have nothing to do with the prompt. The
deviation: z is the whole response, where RAGEN-2 takes the reasoning in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from agent_envs.adapters.run import Record
from agent_envs.adapters.torch.batch import Batch, assemble
from agent_envs.adapters.torch.playing import Group
from agent_envs.adapters.torch.run import Run
from agent_envs.episodes.record import Episode

Score = Callable[[Batch], torch.Tensor]
"""Gives the policy's log-probability of each token that was written, 0 elsewhere, shape [tokens]."""


def information(run: Run, number: int, groups: Sequence[Group], score: Score) -> Record:
    """Return the mutual information in an iteration; nothing if it has too few tasks or episodes.

    It is of n states: one step each of some groups, drawn from a drawn episode. The n^2 pairs are at most a quarter as
    many rows as there are episodes.
    """
    rng, config = np.random.default_rng([run.config.seed, number, 2]), run.config
    states = list[Episode]()
    for i in rng.permutation(len(groups)):
        episode = groups[i].episodes[rng.integers(len(groups[i].episodes))]
        steps = [s for s in episode.steps if s.trained and s.prompt_ids and s.response_ids]
        if steps and not episode.stop_reason.broken:
            step = replace(steps[rng.integers(len(steps))], role="")
            if len(step.prompt_ids or ()) + config.max_response_tokens <= config.max_tokens:
                states.append(replace(episode, steps=(step,)))
    states = states[: math.isqrt(sum(len(group.episodes) for group in groups) // 4)]
    if len(states) < 2:
        return {}
    pairs = []  # each response after each prompt
    for i, answered in enumerate(states):
        for j, asked in enumerate(states):
            x, z = asked.steps[0], answered.steps[0]
            step = replace(z, prompt_ids=x.prompt_ids, prompt_pictures=x.prompt_pictures)
            pairs.append(replace(answered, episode_id=f"{i}/{j}", steps=(step,)))
    batch = assemble(pairs, range(len(pairs)), None, run.layout, run.pictures)
    wrote = batch.step >= 0
    log_p = torch.zeros(len(pairs)).double().index_add_(0, batch.step[wrote], score(batch)[wrote].double())
    return {"actor/mutual_information": mutual_information(log_p.view(len(states), len(states)))}


def mutual_information(log_p: torch.Tensor) -> float:
    """Return the mutual information (nats), given log p(z_i | x_j) as float64 of shape [responses, prompts].

    >>> f"{mutual_information(torch.tensor([[-1.0, -1.0], [-3.0, -3.0]])):z.3f}"  # responses to anything
    '0.000'
    >>> round(mutual_information(torch.tensor([[-1.0, -99.0], [-99.0, -3.0]])), 3)  # that tell the prompt
    0.693
    """
    return float((log_p.diagonal() - log_p.logsumexp(1)).mean()) + math.log(len(log_p))
