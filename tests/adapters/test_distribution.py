"""Log-probabilities, entropies and their gradients, computed in parts.

1. the same as log_softmax over all at once, for rows that share outputs too, in float32 and bfloat16
2. gradients agree with finite differences
3. no tensor but the gradient is larger than a part
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from agent_envs.adapters.losses import distribution  # noqa: E402
from agent_envs.adapters.losses.distribution import entropies, log_probs_of, square_sums  # noqa: E402


@pytest.fixture(autouse=True)
def three_rows(monkeypatch):
    monkeypatch.setattr(distribution, "CPU_PART", 3 * 11)


def drawn(outputs=10, tokens=None, kind=torch.float32, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(outputs, 11, generator=numbers)).to(kind).requires_grad_()
    ids = torch.randint(0, 11, (tokens or outputs,), generator=numbers)
    return logits, ids, None if tokens is None else torch.randint(0, outputs, (tokens,), generator=numbers)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(("outputs", "tokens"), [(10, None), (9, None), (10, 25), (10, 4), (0, None)])
def test_values_and_gradients_are_those_of_log_softmax(outputs, tokens, temperature):
    logits, ids, at = drawn(outputs, tokens)
    weights = torch.linspace(-1, 1, len(ids))
    found = log_probs_of(logits, ids, at, temperature), entropies(logits, temperature)
    (gradient,) = torch.autograd.grad((found[0] * weights).sum() + found[1].square().sum(), logits)
    log_p = torch.log_softmax(logits / temperature, 1)
    rows = torch.arange(outputs) if at is None else at
    expected = log_p[rows, ids], -(log_p.exp() * log_p).sum(1)
    (asked,) = torch.autograd.grad((expected[0] * weights).sum() + expected[1].square().sum(), logits)
    for one, other in (*zip(found, expected, strict=True), (gradient, asked)):
        assert torch.allclose(one, other, atol=1e-6)
    assert torch.allclose(square_sums(logits, temperature), log_p.exp().square().sum(1), atol=1e-6)


def test_bfloat16_is_computed_in_float32():
    logits, ids, at = drawn(kind=torch.bfloat16)
    found = log_probs_of(logits, ids, at)
    exact = torch.log_softmax(logits.detach().double(), 1)[torch.arange(10), ids]
    assert found.dtype == torch.float32 and torch.allclose(found.double(), exact, atol=1e-6)
    found.sum().backward()
    assert logits.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("tokens", [None, 17])
def test_gradients_agree_with_finite_differences(tokens):
    logits, ids, at = drawn(tokens=tokens, kind=torch.float64)
    assert torch.autograd.gradcheck(lambda x: log_probs_of(x, ids, at, 0.8), logits)
    assert torch.autograd.gradcheck(lambda x: entropies(x, 0.8), logits)


def test_nothing_but_the_gradient_is_larger_than_a_part():
    class Largest(TorchDispatchMode):
        made: list[int] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() != logits.data_ptr():
                self.made.append(out.untyped_storage().nbytes() // out.element_size())
            return out

    logits, ids, at = drawn(outputs=100)
    with Largest() as mode:
        loss = log_probs_of(logits, ids, at).sum() + entropies(logits.detach()).sum()
        assert max(mode.made) <= 100
        mode.made.clear()
        loss.backward()
    assert {made for made in mode.made if made > 100} == {logits.numel()}
