"""The tiny model's tokenizer, its weights, its base model and its warm start.

Behaviours pinned here:
1. A tokenizer loaded by AutoTokenizer beside a Qwen2 model gives the ids of the one that was trained.
2. Text comes back byte for byte (NFC, as Qwen2 normalises); digits and operators are tokens of their own, and a name
   has the same tokens after a space as after a bracket.
3. A prompt that grows by PromptBuilder has the tokens of the whole conversation rendered at once.
4. Supervised training lowers the loss, goes on the same after a stop, and sees every sequence once a pass.
5. tiny-base is small and checked when it is loaded; its script makes one, which copies, and resumes.
6. A warm start leaves a folder that loads.
"""

from __future__ import annotations

import itertools
import operator
import re
import shutil
import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

from agent_envs.adapters.tiny import model as tiny_model  # noqa: E402
from agent_envs.adapters.tiny import supervised, warm_start  # noqa: E402
from agent_envs.adapters.tiny.model import save_model  # noqa: E402
from agent_envs.adapters.tiny.supervised import (  # noqa: E402
    IGNORED,
    RESPONSE,
    Conversation,
    Muon,
    Sequences,
    SupervisedTrainer,
)
from agent_envs.adapters.tiny.warm_start import (  # noqa: E402
    encode,
    encoded,
    make_warm_model,
)
from agent_envs.datasets.qa.generated.names import spell  # noqa: E402
from agent_envs.errors import BackendError, ConfigError  # noqa: E402
from agent_envs.pictures.picture import Picture  # noqa: E402
from agent_envs.policies import ExpertPolicy  # noqa: E402
from agent_envs.prompts.builder import PromptBuilder  # noqa: E402
from agent_envs.registration import ENV_IDS  # noqa: E402
from agent_envs.rollout.demonstrations import Demonstration  # noqa: E402
from benchmarks.pretraining import language as pretrain  # noqa: E402
from benchmarks.pretraining.arithmetic import practice_arithmetic  # noqa: E402
from benchmarks.pretraining.copying import practice, teach_to_copy  # noqa: E402
from benchmarks.pretraining.model import build_model  # noqa: E402
from benchmarks.pretraining.moments import Stumbling, encode_moments, ending, opening, transcript  # noqa: E402
from benchmarks.pretraining.renaming import renamed  # noqa: E402
from benchmarks.pretraining.tokenizer import build_tokenizer  # noqa: E402

ENV = "AgentR1/GSM8KTool-v0"
SMALL = {"hidden_size": 64, "layers": 2, "heads": 2, "intermediate_size": 64}


def play(env_id: str, *, noise: float, seed: int, stumbles: float = 0.0, **how: Any) -> Iterator[Demonstration]:
    """Demonstrations by an expert that errs and stumbles."""
    policy = Stumbling(ExpertPolicy(noise=noise, seed=seed), stumbles, seed)
    return warm_start.play(
        env_id, policy=policy if stumbles else ExpertPolicy(noise=noise, seed=seed), seed=seed, **how
    )


TEXTS = [
    "Anna has 12 apples and 3.50 dollars; 7*(8+9)-10/2 = 114.",
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "-3+4"}}\n</tool_call>',
    "  leading, trailing  \n\n\ttabs\r\nand lines \n",
    "é ü ß 中文字 русский עברית 🙂👩‍👩‍👧 \U0010ffff",
    "\x00\x01\x7f\x80",
    "<tool_respons <|im_en|> <|im_start|",
]


@pytest.fixture(scope="module")
def demonstrations():
    return list(islice(play(ENV, noise=0.5, seed=0, env_kwargs={"level": 1}), 150))


@pytest.fixture(scope="module")
def tokenizer(demonstrations):
    return build_tokenizer(map(transcript, demonstrations))


def test_auto_tokenizer_gives_the_same_ids(tokenizer, tmp_path):
    save_model(build_model(tokenizer), tokenizer, tmp_path / "model")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert len(loaded) == len(tokenizer) == 512
    for text in TEXTS:
        assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.chat_template == tokenizer.chat_template
    assert (loaded.eos_token, loaded.pad_token) == ("<|im_end|>", "<|endoftext|>")


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(tokenizer, text):
    text = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text  # tags are text


def test_digits_and_operators_stand_alone(tokenizer):
    for token in ("12+7", "(48/2)*-3", "#### 72"):
        pieces = tokenizer.tokenize(token)
        assert [p for p in pieces if any(c in p for c in "0123456789+-*/#")] == [c for c in token if c not in " ()"]


def test_a_vocabulary_without_room_for_the_bytes_is_refused():
    with pytest.raises(ConfigError, match="at least 263"):
        build_tokenizer(["text"], vocab_size=100)


def test_growing_a_prompt_equals_rendering_it_whole(tokenizer):
    parameters = {"type": "object", "properties": {"expression": {"type": "string"}}}
    function = {"name": "calculator", "description": "", "parameters": parameters}
    builder = PromptBuilder(tokenizer, tools=[{"type": "function", "function": function}])
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+2"}}\n</tool_call>'
    opening = [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": "One and two?"}]
    results = [{"role": "tool", "name": "calculator", "content": "3"}, {"role": "tool", "name": "x", "content": "4"}]
    prompt = builder.start(opening)
    assert tokenizer.decode(prompt) == (
        "<|im_start|>system\nUse the tool.\nTools: calculator(expression)<|im_end|>\n"
        "<|im_start|>user\nOne and two?<|im_end|>\n<|im_start|>assistant\n"
    )
    response = [*tokenizer.encode(call), tokenizer.eos_token_id]
    grown = builder.extend(prompt, response, results)
    as_text = {"role": "assistant", "content": call}
    as_call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "calculator", "arguments": {"expression": "1+2"}}}],
    }
    for assistant in (as_text, as_call):
        assert grown == builder.start([*opening, assistant, *results])


def test_a_name_has_the_same_tokens_wherever_it_stands(tokenizer):
    def pieces(text: str) -> list[str]:
        return tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))

    for name in ("Wimaer", "klodaer", "New Bugrith"):
        alone = pieces(name)
        for before, after in (("search[", "]"), ('"', '"'), ("(", ")"), (" ", " "), (" ", "?"), ("\n", "\n")):
            found = pieces(before + name + after)
            assert "|".join(alone) in "|".join(found), found
    assert any(token.startswith("\u0120") and len(token) > 3 for token in tokenizer.get_vocab())  # some words have one


def test_responses_are_told_from_the_rest(demonstrations, tokenizer):
    pairs = list(encoded(demonstrations, tokenizer))
    for demonstration, (ids, spans, *_) in zip(demonstrations, pairs, strict=True):
        responses = [tokenizer.decode(ids[start:end]) for start, end in spans]
        assert responses == [action + "<|im_end|>" for action in demonstration.actions]
    sequences = encode(demonstrations, tokenizer, max_tokens=10**9, max_length=2048)
    for kept in (sequences, pretrain.join_sequences([sequences])):
        assert len(kept) == len(pairs)
        for i, (ids, spans, *_) in enumerate(pairs):
            part = slice(kept.starts[i], kept.starts[i + 1])
            assert kept.ids[part].tolist() == ids
            assert np.flatnonzero(kept.kinds[part] == RESPONSE).tolist() == [n for span in spans for n in range(*span)]
    assert len(encode(demonstrations, tokenizer, max_tokens=1000, max_length=2048).ids) < 2000
    with pytest.raises(ConfigError, match="no demonstration fits into 8 tokens"):
        encode(demonstrations, tokenizer, max_tokens=1000, max_length=8)


def test_joined_sequences_keep_their_pictures():
    picture = Picture(np.zeros((8, 8, 3), np.uint8))
    shown = Sequences.of([Conversation([1, 2], [(1, 2)], pictures=(picture,)), Conversation([3], [(0, 1)])])
    words = Sequences.of([Conversation([4, 5, 6], [(2, 3)])])
    joined = pretrain.join_sequences([words, shown, words])
    assert joined.pictures == ((), (picture,), (), ()) and joined.starts.tolist() == [0, 3, 5, 6, 9]
    assert pretrain.join_sequences([words, words]).pictures == ()


def _trainer(tokenizer: PreTrainedTokenizerBase, demonstrations: list[Demonstration]) -> SupervisedTrainer:
    sequences = encode(demonstrations, tokenizer, max_tokens=10**9, max_length=2048)
    model = build_model(tokenizer, seed=3, hidden_size=64, layers=2, heads=2)
    return SupervisedTrainer(model, sequences, steps=12, tokens_per_step=1024, context_weight=0.5, warmup=4)


@pytest.fixture
def own_model(tokenizer, tmp_path):
    """The folder of a small model of another architecture."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=2048, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    save_model(LlamaForCausalLM(config), tokenizer, tmp_path / "own")
    return str(tmp_path / "own")


def test_a_warm_start_of_a_model_of_yours_goes_on_where_it_was_stopped(own_model, tmp_path, monkeypatch):
    """Whatever fits into memory at a time."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)  # float32: bfloat16 rounds each part of a step
    how = {"model": own_model, "steps": 5, "noise": 0.5, "seed": 0, "env_kwargs": {"level": 1}, "progress": False}
    make_warm_model(tmp_path / "whole", "AgentR1/GSM8KTool-v0", **how)
    monkeypatch.setattr(warm_start, "_SAVED", 0.0)
    monkeypatch.setattr(supervised, "fitting_tokens", lambda model: 600)
    step, taken = SupervisedTrainer.train_step, []

    def stopping(trainer):
        taken.append(trainer.step)
        if len(taken) == 4:
            raise KeyboardInterrupt
        return step(trainer)

    monkeypatch.setattr(SupervisedTrainer, "train_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        make_warm_model(tmp_path / "stopped", "AgentR1/GSM8KTool-v0", **how)
    assert not (tmp_path / "stopped").exists()
    make_warm_model(tmp_path / "stopped", "AgentR1/GSM8KTool-v0", **how)
    assert taken == [0, 1, 2, 3, 3, 4] and not list(tmp_path.glob(".stopped*"))
    start, whole, stopped = (
        AutoModelForCausalLM.from_pretrained(folder).state_dict()
        for folder in (own_model, tmp_path / "whole", tmp_path / "stopped")
    )
    for name, weight in whole.items():
        assert torch.allclose(weight, stopped[name], atol=1e-4), name
    assert not torch.allclose(start["lm_head.weight"], whole["lm_head.weight"], atol=1e-3)


@pytest.mark.parametrize(("capabilities", "dtype"), [({"avx512_bf16": True}, "bfloat16"), ({"avx2": True}, "float32")])
def test_bfloat16_is_for_processors_that_have_it(tokenizer, demonstrations, monkeypatch, capabilities, dtype):
    """Without its instructions a step takes 80 times as long."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    trainer = _trainer(tokenizer, demonstrations)
    dtypes = []
    trainer.model.lm_head.register_forward_hook(lambda _module, _inputs, logits: dtypes.append(logits.dtype))
    trainer.train_step()
    assert dtypes == [getattr(torch, dtype)]


def test_muon_is_torchs_in_float32():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in ((48, 48), (96, 32), (32, 96))]
    theirs = [torch.nn.Parameter(matrix.detach().clone()) for matrix in ours]
    arguments = {"weight_decay": 0.01, "adjust_lr_fn": "match_rms_adamw"}
    optimizers = Muon(ours, {"lr": 0.02}), torch.optim.Muon(theirs, lr=0.02, **arguments)
    for _ in range(3):
        before = [matrix.detach().clone() for matrix in ours]
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
        for mine, other, earlier in zip(ours, theirs, before, strict=True):
            assert (mine - other).norm() < 0.04 * (mine - earlier).norm()  # what bfloat16 rounds


def test_a_few_steps_lower_the_loss(demonstrations, tokenizer):
    trainer = _trainer(tokenizer, demonstrations)
    losses = [trainer.train_step() for _ in range(12)]
    assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])


def test_a_mistake_is_read_but_not_learned(tokenizer):
    marked = islice(play("AgentR1/ALFWorld-v0", noise=0.5, seed=0, env_kwargs={"size": 1}, mark_mistakes=True), 20)
    wrong = right = 0
    for demonstration in marked:
        conversation = next(encoded([demonstration], tokenizer))
        kinds = Sequences.of([conversation]).kinds
        ignored = [bool((kinds[start:end] == IGNORED).all()) for start, end in conversation.responses]
        assert ignored == list(demonstration.mistaken) and len(ignored) == len(demonstration.actions)
        assert int((kinds == IGNORED).sum()) == sum(end - start for start, end in conversation.ignored)
        wrong, right = wrong + sum(ignored), right + len(ignored) - sum(ignored)
    assert 0.3 < wrong / (wrong + right) < 0.6


def test_every_sequence_is_trained_on_once_a_pass(demonstrations, tokenizer):
    trainer = _trainer(tokenizer, demonstrations)
    lengths, seen = np.diff(trainer.sequences.starts), []
    batches = trainer.batches()
    while len(seen) < len(demonstrations):
        batch = next(batches)
        assert len(batch) * lengths[batch].max() <= 1024
        seen += batch.tolist()
    assert sorted(seen) == list(range(len(demonstrations)))


def test_short_sequences_of_any_length_share_batches(tokenizer):
    # a length may tell which action is demonstrated, and batches of one action teach that action alone
    words = Sequences(
        np.zeros(40 * 1000, np.uint16), np.full(40 * 1000, RESPONSE, np.uint8),
        np.concatenate([np.arange(0, 39 * 500, 39), 39 * 500 + np.arange(0, 41 * 500 + 1, 41)]),
    )  # fmt: skip
    trainer = SupervisedTrainer(build_model(tokenizer), words, steps=1, tokens_per_step=1024, seed=0)
    lengths = np.diff(words.starts)
    shares = [float((lengths[batch] == 39).mean()) for batch in islice(trainer.batches(), 40)]
    assert np.quantile(shares, 0.1) > 0.2 and np.quantile(shares, 0.9) < 0.8, shares


def test_a_model_that_was_taught_to_copy_does_so(tokenizer):
    """Random tokens that come twice: untrained, its favourite next token is often the one that followed before."""
    drawn = torch.randint(0, len(tokenizer), (4, 100), generator=torch.Generator().manual_seed(0))
    twice, copied = torch.cat([drawn, drawn], dim=1), []
    for taught in (False, True):
        model = build_model(tokenizer, hidden_size=128, layers=3, heads=4, rope_theta=1e5)
        if taught:
            teach_to_copy(model)
        with torch.no_grad():
            favourite = model(twice).logits[:, 100:-1].argmax(-1)
        copied.append(float((favourite == twice[:, 101:]).float().mean()))
    assert copied[0] < 0.02 and copied[1] > 0.2


def test_what_is_practised_follows_from_what_was_before():
    sequences = practice(range(3, 500), 20_000, seed=0)
    assert 20_000 <= len(sequences.ids) < 20_768
    assert np.array_equal(sequences.ids, practice(range(3, 500), 20_000, seed=0).ids)
    assert sequences.ids.min() >= 3 and sequences.ids.max() < 500
    for start, end in itertools.pairwise(sequences.starts):
        ids, mask = sequences.ids[start:end].tolist(), sequences.kinds[start:end] == RESPONSE
        steps = np.flatnonzero(np.diff(mask.astype(int), prepend=0, append=0))
        for begin, stop in zip(steps[::2], steps[1::2], strict=True):
            repeated = ids[begin - 1 : stop]
            assert any(ids[i : i + len(repeated)] == repeated for i in range(begin - 1))


def test_every_demonstration_gets_names_of_its_own():
    def played() -> Iterator[Demonstration]:
        return islice(play("AgentR1/HotpotQA-v0", noise=0.0, seed=0, env_kwargs={"style": "react", "hops": 2}), 12)

    def words(demonstration: Demonstration) -> list[str]:
        return re.findall(r"\w+|\W", transcript(demonstration))

    kept, seen = set[str](), list[set[str]]()
    for before, after in zip(played(), renamed(played(), spell, seed=0), strict=True):
        pairs = dict(zip(words(before), words(after), strict=True))
        assert words(after) == [pairs[word] for word in words(before)]  # the same word throughout
        assert len(set(pairs.values())) == len(pairs)
        kept |= {old for old, new in pairs.items() if old == new}
        seen.append({new for old, new in pairs.items() if old != new})
    assert {"Answer", "search", "River"} <= kept and min(map(len, seen)) >= 2
    assert len(set().union(*seen)) > 0.95 * sum(map(len, seen))  # drawn words may come twice
    assert [transcript(d) for d in renamed(played(), spell, seed=3)] != [transcript(d) for d in played()]


def test_stumbles_are_mistakes_after_which_the_expert_goes_on():
    how: dict[str, Any] = {"noise": 0.0, "seed": 0, "env_kwargs": {"size": 1}, "mark_mistakes": True}
    played = list(islice(play("AgentR1/ALFWorld-v0", stumbles=0.3, **how), 12))
    assert played == list(islice(play("AgentR1/ALFWorld-v0", stumbles=0.3, **how), 12))
    marks = [mark for d in played for mark in d.mistaken]
    assert 0.15 < sum(marks) / len(marks) < 0.5
    for demonstration in played:
        for mistaken, (answer, *_) in zip(demonstration.mistaken, demonstration.answers, strict=False):
            assert mistaken or answer["content"] != "Nothing happens."
    assert all(d.success for d in played)


def test_practised_equations_are_true(tokenizer):
    sequences = practice_arithmetic(tokenizer, 3000, seed=0)
    assert 3000 <= len(sequences.ids) < 3600
    assert np.array_equal(sequences.ids, practice_arithmetic(tokenizer, 3000, seed=0).ids)
    values, learned = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}, ""
    for start, end in itertools.pairwise(sequences.starts):
        text = tokenizer.decode(sequences.ids[start:end])
        for line in text.splitlines():
            a, sign, b, result = re.fullmatch(r"(?P<t>(\d+)([-+*/])(\d+))=<<(?P=t)=(\d+)>>\5", line).groups()[1:]
            assert values[sign](int(a), int(b)) == int(result)
            learned += f"{result}>>"
    assert tokenizer.decode(sequences.ids[sequences.kinds == RESPONSE]) == learned


def test_first_actions_stand_many_in_a_sequence(tokenizer):
    def played() -> Iterator[Demonstration]:
        return play("AgentR1/HotpotQA-v0", noise=0.5, seed=0, env_kwargs={"style": "react"}, mark_mistakes=True)

    sequences = encode_moments(played(), tokenizer, opening, max_tokens=3000, length=400)
    assert 3000 <= len(sequences.ids) < 3000 + 800
    right = (tokenizer.encode(d.actions[0] + "<|im_end|>") for d in played() if not d.mistaken[0])
    for start, end in itertools.pairwise(sequences.starts):
        ids, mask = sequences.ids[start:end], sequences.kinds[start:end] == RESPONSE
        edges = np.flatnonzero(np.diff(mask.astype(int), prepend=0, append=0))
        assert len(edges) > 6
        for begin, stop in zip(edges[::2], edges[1::2], strict=True):
            assert ids[begin:stop].tolist() == next(right)
    with pytest.raises(ConfigError, match="fits into 20 tokens"):
        encode_moments(islice(played(), 20), tokenizer, opening, max_tokens=100, length=10)


def test_last_actions_are_learned_where_they_take_words_of_the_last_page(tokenizer):
    how: dict[str, Any] = {"noise": 0.3, "seed": 0, "env_kwargs": {"style": "react"}, "mark_mistakes": True}
    played = list(islice(play("AgentR1/HotpotQA-v0", **how), 40))
    right = []
    for demonstration in played:
        answer = demonstration.actions[-1].removeprefix("finish[").removesuffix("]")
        question, page = demonstration.opening[-1]["content"], "".join(m["content"] for m in demonstration.answers[-1])
        messages = ending(demonstration)
        if messages:
            assert not demonstration.mistaken[-1] and answer in page and answer not in question
            assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
            assert [message["content"] for message in messages[1::2]] == list(demonstration.actions[-2:])
            right.append(answer)
    assert 5 < len(right) < 30  # comparisons and yes or no are none
    sequences = encode_moments(played, tokenizer, ending, max_tokens=10**6)
    learned = tokenizer.decode(sequences.ids[sequences.kinds == RESPONSE]).split("<|im_end|>")[:-1]
    assert learned == [f"finish[{answer}]" for answer in right[: len(learned)]] and len(right) - len(learned) < 4


def test_building_a_model_leaves_the_global_random_state(tokenizer):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    build_model(tokenizer, seed=9)
    assert torch.equal(torch.rand(1), expected)


def test_a_warm_model_is_a_folder_that_loads(tmp_path):
    folder = tmp_path / "model"
    make_warm_model(folder, ENV, steps=2, noise=0.5, seed=0, env_kwargs={"level": 1}, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    model, (start, _) = AutoModelForCausalLM.from_pretrained(folder), tiny_model.load_base()
    assert model.dtype == torch.float32 and model.num_parameters() == start.num_parameters()
    assert not torch.equal(model.lm_head.weight, start.lm_head.weight)
    assert PromptBuilder(AutoTokenizer.from_pretrained(folder)).start([{"role": "user", "content": "Hi"}])


def test_the_base_model_is_small_and_whole(tmp_path, monkeypatch):
    model, tokenizer = tiny_model.load_base()
    assert 500_000 < model.num_parameters() < 3_000_000
    assert len(tokenizer) == model.config.vocab_size
    assert model.num_parameters() == build_model(tokenizer, **pretrain.SHAPE).num_parameters()
    assert sum(path.stat().st_size for path in tiny_model.base_folder().iterdir()) < 6_000_000
    folder = tmp_path / "base"
    shutil.copytree(tiny_model.base_folder(), folder)
    monkeypatch.setattr(tiny_model, "base_folder", lambda: folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(BackendError, match="config.json: the file of tiny-base has changed"):
        tiny_model.load_base()
    (folder / "config.json").unlink()
    with pytest.raises(BackendError, match="config.json: a file of tiny-base is missing"):
        tiny_model.load_base()
    for damaged in (b"", b"\xff", b"[]", b"{}"):
        (folder / "digest.json").write_bytes(damaged)
        with pytest.raises(BackendError, match="digest.json: the file of tiny-base has changed"):
            tiny_model.load_base()


def test_a_base_model_is_made_and_the_command_resumes_it(tmp_path, monkeypatch):
    """The whole script on a mixture of two short recipes, stopped and started again."""
    recipes = [recipe for recipe in pretrain.mixture() if recipe.name in ("gsm8k", "gsm8k-tool")]
    monkeypatch.setattr(pretrain, "mixture", lambda: recipes)
    for name, small in (("tokenizer_characters", 50_000), ("shape", SMALL)):
        monkeypatch.setitem(pretrain.pretrain.__kwdefaults__, name, small)
    command = ["pretrain", "--out", str(tmp_path), "--unique-tokens", "20000", "--tokens-per-step", "512"]
    command += ["--copying-steps", "3", "--openings-steps", "2"]
    for tokens, steps in ((2048, 4), (3072, 6)):
        monkeypatch.setattr("sys.argv", [*command, "--tokens", str(tokens), "--save-seconds", "0"])
        pretrain.main()
        assert torch.load(tmp_path / "copying.pt", weights_only=True)["step"] == 3
        assert torch.load(tmp_path / "openings.pt", weights_only=True)["step"] == 2
        assert torch.load(tmp_path / "mixture.pt", weights_only=True)["step"] == steps
    monkeypatch.setattr(tiny_model, "base_folder", lambda: tmp_path / "base")
    model, tokenizer = tiny_model.load_base()
    assert len(tokenizer) == model.config.vocab_size
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "base").dtype == torch.float16


def test_a_deadline_stops_the_making_of_a_model_which_goes_on_the_same(tmp_path):
    recipes = [recipe for recipe in pretrain.mixture() if recipe.name == "gsm8k-tool"]
    how: dict[str, Any] = {
        "shape": SMALL, "tokens": 1536, "unique_tokens": 2000, "tokens_per_step": 512, "copying_steps": 2,
        "openings_steps": 2, "tokenizer_characters": 50_000,
    }  # fmt: skip
    stops: list[str] = []
    made = None
    while made is None:
        try:
            made = pretrain.pretrain(tmp_path / "stopped", recipes, **how, deadline=0.0)
        except pretrain.OutOfTime as e:
            stops.append(str(e).removeprefix("time is up "))
    parts = ["after demonstrations of gsm8k-tool"] * (len(stops) - 5)
    steps = ["at step 1 of 2 of the copying", "at step 1 of 2 of the openings"]
    steps += [f"at step {n} of 3 of the mixture" for n in (1, 2)]
    assert parts and stops == ["after the tokenizer", *parts, *steps]
    whole = pretrain.pretrain(tmp_path / "whole", recipes, **how)
    assert made[1].get_vocab() == whole[1].get_vocab()
    for one, other in zip(made[0].parameters(), whole[0].parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_mixture_demonstrates_what_the_preset_trains_and_no_held_out_task():
    recipes = pretrain.mixture()
    assert {recipe.env for recipe in recipes} <= set(ENV_IDS)
    assert not any("split" in recipe.env_kwargs for recipe in recipes)


def test_a_recipe_of_many_worlds_plays_each_for_a_while():
    recipe = next(recipe for recipe in pretrain.mixture() if recipe.name == "papersearch")
    assert recipe.worlds is not None
    played = islice(recipe.demonstrations(seed=0), 2 * recipe.worlds["tasks"])
    queries = [demonstration.opening[-1]["content"] for demonstration in played]
    first, second = queries[: recipe.worlds["tasks"]], queries[recipe.worlds["tasks"] :]
    assert not set(first) & set(second)
