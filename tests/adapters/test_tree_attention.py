"""Stock Hugging Face models over packed trees: outputs and gradients are those of rows, one by one.

1. every family, causal language models and critics, grouped heads, sliding windows; trees that branch anywhere
2. passes without a tree are what `sdpa` computes, padded or not
3. pieces and buckets: any cut of the queries gives the same
4. FlexAttention: its block mask is the brute-force mask, its outputs and gradients are those of rows, and trees of
   other sizes do not compile it anew; on a GPU as it is used there
5. what is refused
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import torch.nn.attention.flex_attention as flex_module  # noqa: E402

from agent_envs.adapters.trees import attention as module  # noqa: E402
from agent_envs.adapters.trees import pack_tree, sort_rows  # noqa: E402
from agent_envs.adapters.trees.attention import FAMILIES, check_model, enable, plan_attention, tree_pass, tree_passes  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402

SIZES = {
    "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "attn_implementation": "sdpa",
}  # fmt: skip
WINDOWS = {
    "mistral": {"sliding_window": 5},
    "qwen2": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen3": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
}


def build(family, *, critic=False, **more):
    more = {"sliding_window": None, **more} if family == "mistral" else more
    config = transformers.AutoConfig.for_model(family, **{**SIZES, "num_labels": 1, **more})
    if family == "qwen3":
        config.head_dim = more.get("head_dim", 8)
    torch.manual_seed(0)
    auto = transformers.AutoModelForTokenClassification if critic else transformers.AutoModelForCausalLM
    return auto.from_config(config, attn_implementation="sdpa").eval()


def rows_of(seed, count=7, high=12):
    """Rows that share beginnings of any length, equal ones and prefixes of others among them."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(1, 40, 9).tolist()]
    while len(rows) < count:
        base = rows[int(rng.integers(len(rows)))]
        keep = int(rng.integers(1, len(base) + 1))
        rows.append(base[:keep] + rng.integers(1, 40, int(rng.integers(0, high))).tolist())
    rows.append(rng.integers(1, 40, 5).tolist())  # shares nothing
    return [row if len(row) > 1 else [*row, 3] for row in rows]


def flat(rows):
    return np.array([x for row in rows for x in row], dtype=np.int64), np.cumsum([0, *map(len, rows)])


def by_rows(model, rows):
    """Outputs at all tokens but the last of each row."""
    return torch.cat([model(input_ids=torch.tensor([row])).logits[0, :-1] for row in rows])


def wanted_of(rows):
    return np.concatenate([np.arange(len(row)) > 0 for row in rows])


def by_trees(model, rows, budget=10_000, kind=None):
    ids, offsets = flat(rows)
    wanted = wanted_of(rows)
    passes = list(tree_passes(ids, offsets, sort_rows(ids, offsets), wanted, budget, "cpu"))
    if kind:
        passes = [tree_pass(ids, offsets, sort_rows(ids, offsets), wanted, "cpu", kind)]
    outputs = torch.cat([part.logits(model)[part.output] for part in passes])
    return outputs[torch.cat([part.tokens for part in passes]).argsort()]


def both(model, rows, **how):
    """Outputs and gradients of a random sum of them: one by one, and as trees."""
    found = []
    for of in (by_rows, lambda model, rows: by_trees(model, rows, **how)):
        model.zero_grad()
        out = of(model, rows)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
        (out.log_softmax(-1) * weights if out.shape[1] > 1 else out * weights).sum().backward()
        found.append((out.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    return found


def assert_same(model, rows, **how):
    (apart, slow), (together, fast) = both(model, rows, **how)
    assert torch.allclose(apart, together, atol=2e-6)
    assert len(slow) == len(fast)
    scale = max(float(g.abs().max()) for g in slow)
    for a, b in zip(slow, fast, strict=True):
        assert float((a - b).abs().max()) <= 1e-5 * scale


MODELS = [
    *[(family, False, {}) for family in FAMILIES],
    ("qwen2", True, {}),
    *[(family, False, more) for family, more in WINDOWS.items()],
]


@pytest.mark.parametrize(("family", "critic", "more"), MODELS)
def test_outputs_and_gradients_are_those_of_rows(family, critic, more):
    model = build(family, critic=critic, **more)
    enable(model)
    for seed in (0, 1):
        assert_same(model, rows_of(seed))
    assert_same(model, rows_of(2), budget=20)  # several passes, some tokens computed twice
    assert_same(model, [[1, 2, 3, 4]])


def test_windows_are_narrower_than_the_rows():
    """Otherwise the cases above would prove nothing."""
    rows = rows_of(0)
    for family, more in WINDOWS.items():
        narrow, wide = build(family, **more), build(family)
        assert not torch.allclose(by_rows(narrow, rows), by_rows(wide, rows), atol=1e-4)


def test_a_pass_without_a_tree_is_what_sdpa_computes():
    model = build("qwen2")
    ids = torch.tensor([[5, 6, 7, 8], [9, 3, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    before = model(input_ids=ids, attention_mask=mask).logits, model(input_ids=ids).logits
    enable(model)
    after = model(input_ids=ids, attention_mask=mask).logits, model(input_ids=ids).logits
    assert torch.equal(before[1], after[1])
    assert torch.equal(before[0], after[0])


@pytest.mark.parametrize("piece", [1, 3])
def test_any_cut_of_the_queries_gives_the_same(monkeypatch, piece):
    monkeypatch.setattr(module, "_PIECE", piece)
    monkeypatch.setattr(module, "_PADDED", 10.0 / piece)  # much padding, and a little
    model = build("llama")
    enable(model)
    assert_same(model, rows_of(3))


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("seed", range(2))
def test_the_block_mask_is_the_brute_force_one(monkeypatch, window, seed):
    monkeypatch.setattr(module, "_BLOCK", 8)
    ids, offsets = flat(rows_of(seed, count=20))
    tree = pack_tree(ids, offsets, sort_rows(ids, offsets))
    nodes = np.arange(len(tree))
    expected = torch.from_numpy((nodes <= nodes[:, None]) & (nodes[:, None] < tree.end))
    if window:
        depth = torch.from_numpy(tree.position_ids)
        expected &= depth[:, None] - depth < window
    blocks = plan_attention(tree, "cpu", "flex").block_mask(window)
    nodes = torch.arange(len(tree))
    inside = blocks.mask_mod(0, 0, nodes[:, None], nodes[None, :])
    assert torch.equal(inside, expected)
    count = -(-len(tree) // 8)
    for i in range(count):
        partly = set(blocks.kv_indices[0, 0, i, : blocks.kv_num_blocks[0, 0, i]].tolist())
        wholly = set(blocks.full_kv_indices[0, 0, i, : blocks.full_kv_num_blocks[0, 0, i]].tolist())
        assert not partly & wholly
        for j in range(count):
            block = expected[8 * i : 8 * i + 8, 8 * j : 8 * j + 8]
            assert not block.any() or j in partly | wholly
            assert j not in wholly or block.all()
        assert window or len(partly | wholly) == sum(
            bool(expected[8 * i : 8 * i + 8, 8 * j : 8 * j + 8].any()) for j in range(count)
        )


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own tracing
@pytest.mark.parametrize(("family", "more"), [("llama", {}), ("mistral", {"sliding_window": 5})])
def test_flex_attention_gives_the_same_outputs_and_gradients(monkeypatch, family, more):
    """PyTorch refuses gradients of FlexAttention on a CPU, but its step-by-step form has them."""
    monkeypatch.setattr(flex_module, "_validate_device", lambda *args: None)
    monkeypatch.setattr(module, "_compiled", lambda: flex_module.flex_attention)
    monkeypatch.setattr(module, "_BLOCK", 16)
    model = build(family, **more)
    enable(model)
    assert_same(model, rows_of(5), kind="flex")


@pytest.mark.filterwarnings("ignore")
def test_trees_of_other_sizes_do_not_compile_flex_attention_anew(monkeypatch):
    """Without a compiler behind it: what is counted is how often PyTorch would call one."""
    graphs = []

    def compiler(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(flex_module.flex_attention, dynamic=True, backend=compiler)
    monkeypatch.setattr(module, "_compiled", lambda: compiled)
    monkeypatch.setattr(module, "_BLOCK", 16)
    model = build("llama", num_hidden_layers=1)
    enable(model)
    seen = []
    for seed, count in enumerate((20, 45, 8, 60)):
        rows = rows_of(seed, count=count)
        with torch.no_grad():
            assert torch.allclose(by_rows(model, rows), by_trees(model, rows, kind="flex"), atol=2e-6)
        seen.append(len(graphs))
    assert seen[0] == 1 and set(seen[1:]) <= {1, 2}  # a number of blocks may equal that of heads in the first tree
    assert len(set(seen[1:])) == 1
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("family", FAMILIES)
def test_flex_attention_on_a_gpu(family):
    model = build(family, hidden_size=128, head_dim=32, **WINDOWS.get(family, {}))
    rows, expected = rows_of(4, count=40), None
    for device, kind in (("cpu", "sdpa"), ("cuda", "sdpa"), ("cuda", "flex")):
        model = model.to(device).float()
        enable(model)
        model.zero_grad()
        ids, offsets = flat(rows)
        part = tree_pass(ids, offsets, sort_rows(ids, offsets), wanted_of(rows), device, kind)
        out = part.logits(model)
        out.log_softmax(-1).square().sum().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found = [tensor.detach().cpu().clone() for tensor in (out, *grads)]  # `to` moves a gradient in place
        expected = expected or found
        for a, b in zip(expected, found, strict=True):
            assert float((a - b).abs().max()) <= 1e-3 * float(a.abs().max())  # TF32 may be on


def test_what_is_refused():
    with pytest.raises(ConfigError, match="trees are proved for models of the types llama.*this one is 'gpt2'"):
        check_model(transformers.AutoConfig.for_model("gpt2"))
    with pytest.raises(ConfigError, match="without dropout in attention"):
        check_model(transformers.AutoConfig.for_model("qwen2", attention_dropout=0.1))
    for kind in ("dynamic", "longrope"):
        config = transformers.AutoConfig.for_model("llama")
        config.rope_parameters = {"rope_type": kind, "rope_theta": 1e4}
        with pytest.raises(ConfigError, match=f"rotary positions that do not depend .* this model has '{kind}'"):
            check_model(config)
    check_model(transformers.AutoConfig.for_model("llama"))
    ids, offsets = flat([[1, 2]])
    with pytest.raises(ConfigError, match="kind of tree attention"):
        plan_attention(pack_tree(ids, offsets, sort_rows(ids, offsets)), "cpu", "dense")
