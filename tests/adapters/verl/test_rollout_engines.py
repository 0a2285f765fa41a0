"""What every rollout engine does alike: this package's own, verl's vLLM server, and the policies that run a model.

The reference is the model in transformers, one sequence at a time, without a cache.

1. greedy tokens are the model's, whatever runs beside; log-probabilities are the model's to 1e-5 in float32
2. log-probabilities are of the distribution that was sampled from: after temperature, top-k and top-p
3. a response ends with the end of text or a stop token asked for, which it includes, or at a limit
4. one seed, one response, however many prompts there are; other seeds, other responses
5. a prompt that leaves no room is refused, and the engine goes on
6. prompts that were computed before are not computed again, are counted, and give the same
7. new weights: the tokens, log-probabilities and version are the new ones', and nothing cached is left
8. an abort ends what is being written, which is said; later requests wait, or end at once
9. a server that slept has no weights until they are sent
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_drivers import (
    CONTEXT,
    CPURolloutDriver,
    TransformersDriver,
    VerlVLLMDriver,
    VLLMPolicyDriver,
)

GPU = torch.cuda.is_available()
# A GPU multiplies with fewer bits, even in float32.
TOLERANCE = 1e-3 if GPU else 1e-5

_VLLM = [
    pytest.mark.vllm,
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]
DRIVERS = {"cpu": CPURolloutDriver, "verl-vllm": VerlVLLMDriver, "transformers": TransformersDriver,
           "vllm": VLLMPolicyDriver}  # fmt: skip
SERVERS = [pytest.param("cpu"), pytest.param("verl-vllm", marks=_VLLM)]
ALL = [*SERVERS, pytest.param("transformers", marks=[pytest.mark.gpu] if GPU else []),
       pytest.param("vllm", marks=_VLLM)]  # fmt: skip
GREEDY = {"temperature": 0.0, "max_tokens": 12}


@pytest.fixture(scope="module")
def tokenizer():
    from benchmarks.pretraining.tokenizer import build_tokenizer

    return build_tokenizer(["some words to learn"], vocab_size=263)


@pytest.fixture(scope="module")
def models(tokenizer):
    """Two models of the same shape, with clear preferences."""
    from benchmarks.pretraining.model import build_model

    out = [build_model(tokenizer, seed=seed, context_length=CONTEXT).eval() for seed in (2, 7)]
    for model in out:
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(3)
    return out


@pytest.fixture(scope="module")
def driver(request, models, tokenizer, tmp_path_factory):
    from agent_envs.adapters.tiny.model import save_model

    folder = Path(tmp_path_factory.mktemp("engine") / "model")
    save_model(models[0], tokenizer, folder)
    driver = DRIVERS[request.param](folder)
    yield driver
    driver.close()


def engines(names: Sequence[Any]) -> Any:
    return pytest.mark.parametrize("driver", names, indirect=True, scope="module")


def prompts(count: int, length: int = 20, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 250, (count, length), generator=generator).tolist()


@torch.no_grad()
def scored(
    model: Any,
    prompt: Sequence[int],
    response: Sequence[int],
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = -1,
) -> list[float]:
    """The log-probability of each token of a response, from the definition; -inf for one that is left out."""
    logits = model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1].double()
    out = []
    for row, token in zip(logits / (temperature or 1.0), response, strict=True):
        probabilities, order = row.softmax(-1).sort(descending=True)
        kept = probabilities.clone()
        kept[top_k if top_k > 0 else len(kept) :] = 0
        kept /= kept.sum()
        kept[kept.cumsum(0) - kept >= top_p] = 0
        kept /= kept.sum()
        out.append(float(kept[order == token].log()))
    return out


@torch.no_grad()
def is_greedy(model: Any, prompt: Sequence[int], answer: Any, end: int) -> bool:
    """Whether every token is the model's most likely one, and nothing is missing at the end."""
    tokens = answer.tokens
    likely = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].argmax(-1)
    return likely.tolist() == tokens and (len(tokens) == GREEDY["max_tokens"] or tokens[-1] == end)


def furthest(model: Any, prompts: Sequence[Sequence[int]], answers: Sequence[Any], **params: Any) -> float:
    """The largest distance of a log-probability to the model's."""
    return max(
        abs(ours - theirs) if math.isfinite(theirs) else math.inf
        for prompt, answer in zip(prompts, answers, strict=True)
        for ours, theirs in zip(answer.log_probs, scored(model, prompt, answer.tokens, **params), strict=True)
    )


@engines(ALL)
def test_greedy_responses_are_the_models(driver, models, tokenizer):
    asked = prompts(16)
    answers = driver.ask(asked, **GREEDY)
    assert all(is_greedy(models[0], *pair, tokenizer.eos_token_id) for pair in zip(asked, answers, strict=True))
    assert len({tuple(answer.tokens) for answer in answers}) > 8
    assert furthest(models[0], asked, answers) <= TOLERANCE
    assert driver.ask(asked[3:4], **GREEDY)[0].tokens == answers[3].tokens  # alone too


@engines(ALL)
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.6},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 1.0, "top_k": 4},
        {"temperature": 0.6, "top_p": 0.7, "top_k": 9},
    ],
    ids=str,
)
def test_log_probabilities_are_of_what_was_sampled_from(driver, models, params):
    asked = prompts(12, seed=1)
    answers = driver.ask(asked, seeds=range(12), max_tokens=10, **params)
    assert furthest(models[0], asked, answers, **params) <= TOLERANCE
    if len(params) > 1:  # the reference can tell the difference
        assert furthest(models[0], asked, answers, temperature=params["temperature"]) > 0.01


@engines(ALL)
def test_a_response_ends_with_an_end_or_at_the_limit(driver, tokenizer):
    eos, asked = tokenizer.eos_token_id, prompts(32, seed=2)
    sampled = driver.ask(asked, seeds=range(32), temperature=1.5, max_tokens=48)
    ended = [answer.tokens for answer in sampled if eos in answer.tokens]
    assert ended and all(tokens.index(eos) == len(tokens) - 1 for tokens in ended)
    assert all(len(answer.tokens) == 48 for answer in sampled if eos not in answer.tokens)
    assert not any(answer.aborted for answer in sampled)
    whole = driver.ask(asked[:1], **GREEDY)[0].tokens
    stop = next(token for token in whole if token != whole[0])
    (answer,) = driver.ask(asked[:1], stop_token_ids=[stop], **GREEDY)
    assert answer.tokens == whole[: whole.index(stop) + 1] and len(answer.log_probs) == len(answer.tokens)


@engines(ALL)
def test_a_seed_makes_a_response_reproducible(driver):
    params = {"temperature": 1.0, "max_tokens": 12}
    prompt = prompts(1, seed=3)[0]
    first = driver.ask([prompt] * 8, seeds=range(8), **params)
    again = driver.ask([*prompts(5, seed=4), *[prompt] * 8], seeds=[*[99] * 5, *range(8)], **params)[5:]
    assert [answer.tokens for answer in first] == [answer.tokens for answer in again]
    assert len({tuple(answer.tokens) for answer in first}) == 8


@engines(ALL)
def test_prompts_with_seeds_may_be_more_than_a_pass_takes(driver):
    params = {"temperature": 1.0, "max_tokens": 8}
    asked = prompts(9000 // CONTEXT + 2, CONTEXT - 20, seed=6)
    together = driver.ask(asked, seeds=range(len(asked)), **params)
    alone = driver.ask(asked[-1:], seeds=[len(asked) - 1], **params)
    assert together[-1].tokens == alone[0].tokens


@engines(ALL)
def test_limits(driver, models, tokenizer):
    long = prompts(1, CONTEXT)[0]
    (one,) = driver.ask([long[: CONTEXT - 1]], temperature=0.0, max_tokens=1)
    assert len(one.tokens) == 1 and furthest(models[0], [long[: CONTEXT - 1]], [one]) <= TOLERANCE
    with pytest.raises(driver.errors):
        driver.ask([long], temperature=0.0, max_tokens=1)
    (more,) = driver.ask([long[: CONTEXT - 3]], temperature=0.0, max_tokens=50)
    assert len(more.tokens) == 3 or more.tokens[-1] == tokenizer.eos_token_id


@engines(SERVERS)
def test_what_was_computed_before_is_counted_and_changes_nothing(driver, models):
    prompt = prompts(1, 600, seed=5)[0]
    first, second = (driver.ask([prompt], **GREEDY)[0] for _ in range(2))
    assert first.cached == 0 and 256 <= second.cached < 600
    assert second.tokens == first.tokens
    assert furthest(models[0], [prompt] * 2, [first, second]) <= TOLERANCE


@engines(SERVERS)
def test_new_weights_leave_nothing_of_the_old_ones(driver, models, tokenizer):
    asked = [*prompts(8, seed=6), prompts(1, 600, seed=7)[0]]
    before = driver.ask(asked, **GREEDY)
    for version, model in ((5, models[1]), (6, models[0])):
        tied = {"lm_head.weight"}
        driver.load({k: v for k, v in model.state_dict().items() if k not in tied}, version)
        answers = driver.ask(asked, **GREEDY)
        assert all(is_greedy(model, *pair, tokenizer.eos_token_id) for pair in zip(asked, answers, strict=True))
        assert furthest(model, asked, answers) <= TOLERANCE
        assert [(answer.version, answer.cached) for answer in answers] == [(version, 0)] * len(asked)
        changed = [answer.tokens for answer in answers] != [answer.tokens for answer in before]
        assert changed == (version == 5)


@engines(SERVERS)
def test_an_abort_ends_what_is_being_written_and_says_so(driver, models):
    asked = prompts(3, seed=8)
    params = {"temperature": 1.0, "max_tokens": CONTEXT - 100, "ignore_eos": True}

    async def abort(reject: bool) -> tuple[list[Any], list[Any]]:
        running = asyncio.ensure_future(driver.ask_all(asked, range(3), params))
        await asyncio.sleep(driver.pause)
        await driver.call("abort_all_requests", reject_request=reject)
        late = asyncio.ensure_future(driver.ask_all(asked, [None] * 3, GREEDY))
        if reject:
            await asyncio.wait_for(asyncio.shield(late), 60)
        else:
            await asyncio.sleep(0.3)
            assert not late.done()
        await driver.call("resume_generation")
        return await running, await late

    for reject in (False, True):
        cut, late = driver.run(abort(reject))
        assert all(answer.aborted and len(answer.tokens) < CONTEXT - 100 for answer in cut)
        written = [(prompt, answer) for prompt, answer in zip(asked, cut, strict=True) if answer.log_probs]
        assert not written or furthest(models[0], *zip(*written, strict=True), temperature=1.0) <= TOLERANCE
        assert [answer.aborted for answer in late] == [reject] * 3
        if reject:
            assert not any(answer.tokens for answer in late)
        else:
            assert furthest(models[0], asked, late) <= TOLERANCE
    assert not driver.ask(asked[:1], **GREEDY)[0].aborted


@engines(SERVERS[1:])
def test_a_server_that_slept_has_no_weights_until_they_are_sent(driver, models):
    asked = prompts(2, seed=9)
    good = driver.ask(asked, **GREEDY)
    driver.sleep_and_wake()
    lost = driver.ask(asked, **GREEDY)
    assert [answer.tokens for answer in lost] != [answer.tokens for answer in good]
    driver.load({k: v for k, v in models[0].state_dict().items() if k != "lm_head.weight"}, 7)
    again = driver.ask(asked, **GREEDY)
    assert [answer.tokens for answer in again] == [answer.tokens for answer in good]
    assert furthest(models[0], asked, again) <= TOLERANCE
