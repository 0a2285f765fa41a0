"""The engines that generate in this process against an unbatched reference, and the server around them.

1. greedy and sampled tokens and log-probabilities equal those of one full forward pass at a time
2. requests join and leave at any iteration; more requests than slots wait
3. prompts that extend or share earlier ones are computed only from where they differ, with the same result
4. seeds; top-k and top-p; stop tokens; limits; settings that are refused
5. new weights: nothing stale, log-probabilities of the new model; weights that do not fit are refused
6. the server: concurrent coroutines, failures reach whoever asked
7. padded batches: the same results; models with sliding windows, learned positions or states run in them
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from agent_envs.errors import BackendError, ConfigError  # noqa: E402
from agent_envs.policies.local.engine import BatchEngine  # noqa: E402
from agent_envs.policies.local.loading import context_length, make_engine  # noqa: E402
from agent_envs.policies.local.padded_engine import PaddedEngine  # noqa: E402
from agent_envs.policies.local.requests import SamplingParams, sample  # noqa: E402
from agent_envs.policies.local.server import GenerateServer  # noqa: E402
from benchmarks.pretraining.tokenizer import build_tokenizer  # noqa: E402

STOP = 21  # which the model says now and then


def build_model(seed=0, layers=2, heads=4, tie=False):
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=tie, eos_token_id=STOP, pad_token_id=0,
        bos_token_id=None, attn_implementation="sdpa", dtype="float32",
    )  # fmt: skip
    model = transformers.Qwen2ForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)  # a peaked distribution, so that greedy choices are clear
    return model.eval()


def engine(seed=0, rows=16, length=128, **kwargs):
    return BatchEngine(build_model(), max_length=length, max_rows=rows, stop_token_ids=[STOP], seed=seed, **kwargs)


def prompts(n, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 97, rng.integers(1, 40)).tolist() for _ in range(n)]


@torch.no_grad()
def reference(model, prompt, params, uniforms):
    """Tokens and log-probabilities by full forward passes over one sequence, without a cache."""
    tokens, log_probs = [], []
    for u in uniforms[: params.max_tokens]:
        logits = model(torch.tensor([prompt + tokens])).logits[0, -1:]
        token, log_prob = sample(logits, [params], np.array([u]))
        tokens += token
        log_probs += log_prob
        if token[0] == STOP and not params.ignore_eos:
            break
    return tokens, log_probs


def assert_same(request, model):
    tokens, log_probs = reference(model, request.prompt_ids, request.params, request.uniforms)
    assert request.token_ids == tokens
    assert request.log_probs == pytest.approx(log_probs, abs=1e-5)


def test_requests_join_and_leave_at_any_iteration():
    e, model = engine(rows=5), build_model()
    waiting, done = prompts(23, seed=1), []
    requests = []
    while waiting or e.busy:
        if waiting:
            length, temperature = (12, 1, 2, 3, 4, 5, 6)[len(waiting) % 7], (0.0, 1.0, 0.7)[len(waiting) % 3]
            params = SamplingParams(length, temperature=temperature, ignore_eos=len(waiting) % 2 == 0)
            requests.append(e.submit(waiting.pop(), params, done.append))
        e.step()
    assert len(done) == 23 and {request.stop_reason for request in requests} == {"completed"}
    assert max(len(r.token_ids) for r in requests) == 12
    assert any(len(r.token_ids) < r.params.max_tokens for r in requests)  # ended by a stop token
    for request in requests:
        assert_same(request, model)


def test_extending_prompts_reuse_what_was_computed():
    e, model = engine(), build_model()
    first = [e.submit(p, SamplingParams(6, ignore_eos=True)) for p in prompts(4, seed=2)]
    e.run()
    before = e.tokens_computed
    following = [e.submit([*r.tokens, 11, 12, 13], SamplingParams(4, ignore_eos=True)) for r in first]
    e.run()
    for request in following:
        assert_same(request, model)
    # the last sampled token and two of the new ones, then one per sampled token
    assert e.tokens_computed - before == 4 * (3 + 4)


def test_samples_of_one_prompt_compute_it_once():
    e, model = engine(), build_model()
    prompt = list(range(3, 43))
    requests = [e.submit(prompt, SamplingParams(3, ignore_eos=True)) for _ in range(8)]
    e.run()
    assert e.tokens_computed == 39 + 8 * 3
    assert len({tuple(r.token_ids) for r in requests}) > 1  # independent samples
    for request in requests:
        assert_same(request, model)


def test_a_shared_beginning_and_a_diverging_prompt():
    e, model = engine(rows=3), build_model()
    base = list(range(3, 33))
    for tail in ([40], [41, 42, 43], [44] * 9, [], [40, 41]):
        request = e.submit(base + tail, SamplingParams(5, temperature=0.0))
        e.run()
        assert_same(request, model)


def test_same_seed_same_tokens_whatever_runs_beside():
    alone, crowd = engine(seed=3), engine(seed=3)
    one = alone.submit([5, 6, 7], SamplingParams(8, ignore_eos=True))
    alone.run()
    others = [crowd.submit(p, SamplingParams(20)) for p in prompts(9)]
    crowd.step()
    same = crowd.submit([5, 6, 7], SamplingParams(8, ignore_eos=True))
    crowd.run()
    assert same.token_ids == one.token_ids
    assert all(r.token_ids for r in others)
    explicit = [engine(seed=s).submit([5, 6, 7], SamplingParams(8, seed=99)).uniforms.tolist() for s in (1, 2)]
    assert explicit[0] == explicit[1]


def test_sampling_follows_the_distribution():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).repeat(4000, 1)
    uniforms = (np.arange(4000) + 0.5) / 4000
    tokens, log_probs = sample(logits, [SamplingParams(1, temperature=2.0)] * 4000, uniforms)
    expected = torch.softmax(logits[0] / 2, 0)
    assert np.bincount(tokens, minlength=4) / 4000 == pytest.approx(expected.numpy(), abs=1e-3)
    assert log_probs[0] == pytest.approx(float(expected[tokens[0]].log()), abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [({"top_k": 2}, {1, 2}), ({"top_p": 0.6}, {2}), ({"top_p": 0.8}, {1, 2}), ({"top_k": 3, "top_p": 0.9}, {1, 2})],
)
def test_top_k_and_top_p(settings, allowed):
    # probabilities: .09, .24, .64, .03
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).repeat(500, 1)
    tokens, log_probs = sample(logits, [SamplingParams(1, **settings)] * 500, (np.arange(500) + 0.5) / 500)
    assert set(tokens) == allowed
    # as vLLM's "processed" ones: under the distribution that was sampled from
    kept = torch.full((4,), -torch.inf)
    kept[list(allowed)] = logits[0, list(allowed)]
    expected = torch.log_softmax(kept, 0)
    assert log_probs == pytest.approx([float(expected[token]) for token in tokens], abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(bad, temperature):
    logits = torch.zeros(2, 4)
    logits[1, 2] = bad
    with pytest.raises(BackendError, match="1 of 2 sampled rows"):
        sample(logits, [SamplingParams(1, temperature=temperature)] * 2, np.array([0.5, 0.5]))


def test_limits():
    e = engine(length=20)
    assert len(e.submit([3] * 15, SamplingParams(50, ignore_eos=True)).uniforms) == 5
    e.run()
    for prompt in ([], [3] * 20):
        with pytest.raises(ConfigError, match="1 to 19 tokens"):
            e.submit(prompt, SamplingParams(5))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"repetition_penalty": 1.1}, "does not support repetition_penalty"),
        ({"stop": ["x"]}, "does not support stop"),
        ({"temprature": 1}, "Did you mean 'temperature'"),
        ({"top_p": 0.0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": float("nan")}, "temperature >= 0"),
        ({"temperature": -0.1}, "temperature >= 0"),
    ],
)
def test_settings_that_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        SamplingParams.from_dict(params, 10)


def test_settings_as_verl_passes_them():
    params = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
    assert SamplingParams.from_dict(params, 10) == SamplingParams(10)
    assert SamplingParams.from_dict({"max_tokens": 3, "seed": 5}, 10) == SamplingParams(3, seed=5)
    assert SamplingParams.from_dict({"temperature": 1e-9}, 4).temperature == 0.0  # divided by it, logits overflow


def test_new_weights_take_effect_at_once_and_mid_sequence():
    e, new = engine(), build_model(seed=1)
    request = e.submit(list(range(3, 20)), SamplingParams(10, ignore_eos=True))
    for _ in range(4):
        e.step()
    e.load_weights(new.state_dict(), version=7)
    e.run()
    assert request.versions == (None, 7)
    with torch.no_grad():
        log_probs = torch.log_softmax(new(torch.tensor([request.tokens])).logits[0], -1)
    positions = range(len(request.prompt_ids) + 3, len(request.tokens) - 1)
    expected = [float(log_probs[i, request.tokens[i + 1]]) for i in positions]
    assert request.log_probs[4:] == pytest.approx(expected, abs=1e-5)
    again = e.submit(list(range(3, 20)), SamplingParams(10))
    e.run()
    assert_same(again, new)


def test_weights_that_do_not_fit():
    e = engine()
    good = build_model().state_dict()
    with pytest.raises(BackendError, match=r"missing \['lm_head.weight'\]"):
        e.load_weights({k: v for k, v in good.items() if k != "lm_head.weight"}, 1)
    with pytest.raises(BackendError, match="unknown"):
        e.load_weights({**good, "extra": torch.zeros(1)}, 1)
    with pytest.raises(BackendError, match="do not fit"):
        e.load_weights({**good, "lm_head.weight": torch.zeros(3, 3)}, 1)


def test_tied_weights_need_no_head():
    tied = BatchEngine(build_model(tie=True), max_length=64, max_rows=4, stop_token_ids=[STOP])
    weights = {k: v for k, v in build_model(seed=4, tie=True).state_dict().items() if k != "lm_head.weight"}
    tied.load_weights(weights, 1)


def test_sliding_windows_are_refused():
    model = build_model()
    model.config.layer_types = ["full_attention", "sliding_attention"]
    with pytest.raises(BackendError, match="full attention"):
        BatchEngine(model, max_length=64, max_rows=4, stop_token_ids=[])


def test_server_serves_many_coroutines():
    e = engine(rows=8)
    server = GenerateServer(e)

    async def play(prompt):
        first = await server.generate(prompt, SamplingParams(6, ignore_eos=True))
        await asyncio.sleep(0.001)
        return first, await server.generate([*first.tokens, 9], SamplingParams(6, ignore_eos=True))

    async def main():
        results = await asyncio.gather(*(play(p) for p in prompts(20)), return_exceptions=True)
        with pytest.raises(ConfigError):
            await server.generate([], SamplingParams(1))
        await server.call(lambda: e.load_weights(build_model(seed=1).state_dict(), 3))
        after = await server.generate([4, 5], SamplingParams(2))
        with pytest.raises(BackendError):
            await server.call(lambda: e.load_weights({}, 4))
        return results, after

    results, after = asyncio.run(main())
    server.close()
    model = build_model()
    for pair in results:
        for request in pair:
            assert_same(request, model)
    assert after.versions == (3, 3)


def test_stop_tokens_come_from_the_generation_config(tmp_path):
    model = build_model()
    model.generation_config.eos_token_id = [2, 5]
    model.save_pretrained(tmp_path)
    build_tokenizer(["some words"]).save_pretrained(tmp_path)
    rollout = pytest.importorskip("agent_envs.adapters.verl.rollout.cpu_rollout")
    loaded = rollout.load_engine(str(tmp_path), max_length=64, max_rows=2)
    assert loaded.stop_token_ids == {2, 5}
    request = loaded.submit([3], SamplingParams(40))
    loaded.run()
    assert not set(request.token_ids[:-1]) & {2, 5}


SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
TOKENS = {"eos_token_id": STOP, "pad_token_id": 0, "bos_token_id": 1}


def small(kind):
    """A model of another family with random weights."""
    torch.manual_seed(1)
    config = {
        "mistral": lambda: transformers.MistralConfig(**SIZES, **HEADS, **TOKENS, sliding_window=4),
        "gpt2": lambda: transformers.GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, **TOKENS),
        "gemma2": lambda: transformers.Gemma2Config(
            **SIZES, **HEADS, **TOKENS, head_dim=8, sliding_window=4, query_pre_attn_scalar=8
        ),
        "llama": lambda: transformers.LlamaConfig(**SIZES, **HEADS, **TOKENS),
        "mamba": lambda: transformers.MambaConfig(
            vocab_size=97, hidden_size=32, state_size=8, num_hidden_layers=2, **TOKENS
        ),
    }[kind]()
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "mixer" not in name:
                weight.mul_(5)
    model.generation_config.repetition_penalty = 3.0  # as some models have it, which are trained without
    return model.eval()


@pytest.mark.parametrize(
    ("kind", "engine_class", "count"),
    [
        ("llama", BatchEngine, 1), ("mistral", PaddedEngine, 9), ("gpt2", PaddedEngine, 9), ("gemma2", PaddedEngine, 9),
        ("mamba", PaddedEngine, 1),
    ],
)  # fmt: skip
def test_each_model_gets_an_engine_that_computes_what_it_computes(kind, engine_class, count):
    model = small(kind)
    e = make_engine(model, max_length=128, max_rows=5, stop_token_ids=[STOP])
    assert type(e) is engine_class
    lengths = [7, 1, 12]
    requests = [
        e.submit(p, SamplingParams(lengths[i % 3], temperature=0.8 * (i % 4 > 1), top_p=0.9 if i % 2 else 1.0))
        for i, p in enumerate(prompts(count))
    ]
    e.run()
    for request in requests:
        assert_same(request, model)


@pytest.mark.parametrize("kind", ["slots", "padded"])
def test_a_response_that_nobody_waits_for_ends(kind):
    """A step's time-out must not keep a slot, or a batch, for as long as the longest response takes."""
    made = (
        engine(length=256)
        if kind == "slots"
        else PaddedEngine(build_model(), max_length=256, max_rows=8, stop_token_ids=[])
    )
    taken, submit = [], made.submit
    made.submit = lambda *args, **kwargs: taken.append(submit(*args, **kwargs)) or taken[-1]
    server = GenerateServer(made)

    async def main():
        endless = SamplingParams(240, ignore_eos=True)
        waiting = [asyncio.create_task(server.generate([5, 6, 7 + i], endless)) for i in range(3)]
        while len(taken) < 3 or not taken[0].token_ids:
            await asyncio.sleep(0.001)
        for task in waiting:
            task.cancel()
        late = asyncio.create_task(server.generate([9], endless))
        await asyncio.sleep(0)
        late.cancel()  # before the server has seen it
        return await server.generate([5, 6], SamplingParams(3, ignore_eos=True))

    last = asyncio.run(main())
    server.close()
    assert len(last.token_ids) == 3 and not made.busy
    assert all(len(request.token_ids) < 240 for request in taken)


def test_rows_whose_positions_depend_on_their_company_run_alone():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, bos_token_id=None, eos_token_id=STOP, dtype="float32",
        rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
    )  # fmt: skip
    e = make_engine(transformers.LlamaForCausalLM(config), max_length=128, max_rows=4, stop_token_ids=[STOP])
    assert type(e) is PaddedEngine and e.max_rows == 1
    short, long = [5, 6, 7], list(range(3, 63))
    alone = e.submit(short, SamplingParams(8, temperature=0.0, ignore_eos=True))
    e.run()
    beside = [e.submit(prompt, SamplingParams(8, temperature=0.0, ignore_eos=True)) for prompt in (short, long)]
    e.run()
    assert beside[0].log_probs == pytest.approx(alone.log_probs, abs=1e-5)


def test_the_context_a_model_was_made_for():
    assert context_length(build_model()) == 256
    assert context_length(small("gpt2")) == 1024
    assert context_length(small("mamba")) is None
