"""Comparing what runs leave, weights and gradients; of which estimators it is enough to compare them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest


def without_times(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of a run without what no two runs share."""
    return [{name: value for name, value in record.items() if "seconds" not in name} for record in records]


def assert_same_records(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
    """A run that was stopped and goes on leaves what a whole one leaves, up to the order of sums."""
    for one, other in zip(without_times(found), without_times(expected), strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)


def weights_of(batch: Any, weighting: str, step: Any = None) -> Any:
    """The weights of a batch of the PyTorch loop, as one mini-batch; of the tokens alone that a step is named for."""
    import torch

    from agent_envs.adapters.losses import token_weights

    step = batch.step if step is None else step
    lengths = torch.bincount(step[step >= 0], minlength=len(batch.steps.rewards))
    return token_weights(weighting, lengths, batch.steps.trajectory, step, None, batch.counts)


def step_order(batch: Any) -> Any:
    """The places of a batch's trained tokens, step by step: the same tokens in every layout, and in verl's table."""
    import torch

    place = (batch.step >= 0).nonzero().squeeze(1)
    return place[torch.argsort(batch.step[place], stable=True)]


def gradients(model: Any) -> dict[str, Any]:
    """The gradients of a model's parameters, which forgets them."""
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def relative(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """Largest relative difference, in norm, of any parameter's gradient."""
    assert found.keys() == expected.keys()
    assert max(float(gradient.abs().max()) for gradient in expected.values()) > 1e-4
    out = 0.0
    for name, gradient in expected.items():
        norm = float(gradient.double().norm())
        difference = float((found[name].double() - gradient.double()).norm())
        out = max(out, difference / norm if norm else float(difference > 0))
    return out


def unlike_estimators() -> list[str]:
    """One estimator for each set of what a trainer provides; others of the same set differ in their formula alone."""
    from agent_envs.adapters.estimators import ESTIMATORS

    kinds = {}
    for name, estimator in sorted(ESTIMATORS.items()):
        told = [getattr(estimator, field.name) for field in fields(estimator) if field.name not in ("name", "function")]
        kinds.setdefault(tuple(told), name)
    return list(kinds.values())
