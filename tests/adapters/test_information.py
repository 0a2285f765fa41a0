"""The mutual information of prompt and response, against every pair scored by itself, in every layout."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from toy_episodes import toy_episode, toy_model

from agent_envs.adapters.torch.information import information
from agent_envs.adapters.torch.loop import score
from agent_envs.adapters.torch.playing import Group
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.adapters.trees.attention import enable
from agent_envs.episodes.record import Step, StopReason


def played(rng, group, member):
    """An episode of drawn tokens, whose prompts share a beginning."""
    steps = [
        Step("o", "a", 0.0, False, False, {}, (1, 2, *rng.integers(2, 12, 4 + t).tolist()),
             tuple(rng.integers(2, 12, int(rng.integers(1, 5))).tolist()), None)
        for t in range(3)
    ]  # fmt: skip
    broken = StopReason.ERROR if group == 0 else StopReason.TERMINATED
    return toy_episode(f"{group}/{member}", steps, f"{group}", broken)


@pytest.mark.parametrize("layout", ["steps", "merged", "tree"])
def test_every_response_is_scored_after_every_prompt(layout):
    model = toy_model(std=0.4).requires_grad_(False)
    rng, seen = np.random.default_rng(0), []
    groups = [Group(None, [played(rng, group, member) for member in range(12)]) for group in range(6)]
    config = LoopConfig(env="Toy-v0", out="x", max_response_tokens=8, max_tokens=64, temperature=0.7)

    def scored(batch):
        seen.append(batch)
        return score(model, batch, config)

    if layout == "tree":
        enable(model)
    run = SimpleNamespace(config=config, layout=layout, pictures=None)
    (found,) = information(run, 3, groups, scored).values()
    (batch,) = seen
    rows = batch.ids.split(torch.bincount(batch.row).tolist())
    wrote = (batch.step >= 0).split(torch.bincount(batch.row).tolist())
    prompts = [tuple(ids[~mask].tolist()) for ids, mask in zip(rows, wrote, strict=True)]
    responses = [tuple(ids[mask].tolist()) for ids, mask in zip(rows, wrote, strict=True)]
    n = 4  # 72 episodes, of which a quarter is 18 rows; none of the states is of the group that broke
    taken = {step.prompt_ids: step.response_ids for g in groups[1:] for e in g.episodes for step in e.steps}
    matched = [i for i, (x, z) in enumerate(zip(prompts, responses, strict=True)) if taken[x] == z]
    assert len(prompts) == n * n and len({*prompts}) == len({*responses}) == len(matched) == n

    def log_p(x, z):
        logits = model(torch.tensor([[*x, *z]])).logits[0, len(x) - 1 : -1] / config.temperature
        return float(logits.log_softmax(-1).gather(1, torch.tensor(z)[:, None]).sum())

    terms = []
    for i in matched:
        mixture = np.mean([np.exp(log_p(x, responses[i])) for x in {*prompts}])
        terms.append(log_p(prompts[i], responses[i]) - np.log(mixture))
    assert found == pytest.approx(np.mean(terms), abs=1e-6) and abs(found) > 0.01
    assert information(run, 3, groups[:2], scored) == {}  # of one group nothing is known
    assert information(run, 3, groups, scored) != information(run, 4, groups, scored)
