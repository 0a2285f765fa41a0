"""The tiny model's tokenizer, its weights and its warm start.

Behaviours pinned here:
1. A tokenizer loaded by AutoTokenizer beside a Qwen2 model gives the ids of the one that was trained.
2. Text comes back byte for byte (NFC, as Qwen2 normalises); digits and operators are tokens of their own.
3. A prompt that grows by PromptBuilder has the tokens of the whole conversation rendered at once.
4. A warm start lowers the loss, is the same for the same seed, and leaves a folder that loads.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase  # noqa: E402

from agent_envs.adapters.tiny.model import build_model, save_model  # noqa: E402
from agent_envs.adapters.tiny.tokenizer import build_tokenizer  # noqa: E402
from agent_envs.adapters.tiny.warm_start import (  # noqa: E402
    encode,
    make_warm_model,
    play_demonstrations,
    train_on,
    transcript,
)
from agent_envs.errors import ConfigError, PromptError  # noqa: E402
from agent_envs.prompts.builder import PromptBuilder  # noqa: E402
from agent_envs.rollout.demonstrations import Demonstration  # noqa: E402

ENV = "AgentR1/GSM8KTool-v0"

TEXTS = [
    "Anna has 12 apples and 3.50 dollars; 7*(8+9)-10/2 = 114.",
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "-3+4"}}\n</tool_call>',
    "  leading, trailing  \n\n\ttabs\r\nand lines \n",
    "é ü ß 中文字 русский עברית 🙂👩‍👩‍👧 \U0010ffff",
    "\x00\x01\x7f\x80",
    "<tool_respons <|im_en|> <|im_start|",
]


@pytest.fixture(scope="module")
def demonstrations() -> list[Demonstration]:
    return play_demonstrations(ENV, 300, noise=0.5, seed=0, env_kwargs={"level": 1}, progress=False)


@pytest.fixture(scope="module")
def tokenizer(demonstrations: list[Demonstration]) -> PreTrainedTokenizerBase:
    return build_tokenizer(map(transcript, demonstrations))


def test_auto_tokenizer_gives_the_same_ids(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    save_model(build_model(tokenizer), tokenizer, tmp_path / "model")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert len(loaded) == len(tokenizer) == 512
    for text in TEXTS:
        assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.chat_template == tokenizer.chat_template
    assert (loaded.eos_token, loaded.pad_token) == ("<|im_end|>", "<|endoftext|>")


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text  # tags are text


def test_digits_and_operators_stand_alone(tokenizer: PreTrainedTokenizerBase) -> None:
    for token in ("12+7", "(48/2)*-3", "#### 72"):
        pieces = tokenizer.tokenize(token)
        assert [p for p in pieces if any(c in p for c in "0123456789+-*/#")] == [c for c in token if c not in " ()"]


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 263"):
        build_tokenizer(["text"], vocab_size=100)


def test_growing_a_prompt_equals_rendering_it_whole(tokenizer: PreTrainedTokenizerBase) -> None:
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


def test_demonstrations_know_the_format_and_err_as_often_as_asked() -> None:
    def success(noise: float) -> float:
        played = play_demonstrations(ENV, 200, noise=noise, seed=1, env_kwargs={"level": 1}, progress=False)
        return sum(d.success for d in played) / len(played)

    assert success(0.0) == 1.0
    assert 0.15 < success(0.6) < 0.75


def test_rebuilt_prompts_are_demonstrated_one_by_one():
    env, kwargs = "AgentR1/PaperSearch-v0", {"papers": 200, "split": "test"}
    whole = play_demonstrations(env, 5, noise=0.0, seed=1, env_kwargs=kwargs, progress=False)
    steps = play_demonstrations(
        env, 5, noise=0.0, seed=1, env_kwargs=kwargs, wrappers=["RebuildPrompt"], progress=False
    )
    assert [a for d in whole for a in d.actions] == [a for d in steps for a in d.actions]
    assert all(len(d.actions) == 1 and not d.answers and d.opening[-1]["content"].startswith("Query: ") for d in steps)
    assert all(d.opening[0] == whole[0].opening[0] for d in steps)  # each with the instructions


def test_only_responses_carry_loss(demonstrations: list[Demonstration], tokenizer: PreTrainedTokenizerBase) -> None:
    for demonstration, encoded in zip(demonstrations, encode(demonstrations, tokenizer, max_length=2048), strict=True):
        spans = [tokenizer.decode(encoded.ids[start:end]) for start, end in encoded.spans]
        assert spans == [action + "<|im_end|>" for action in demonstration.actions]
    with pytest.raises(ConfigError, match="no demonstration fits into 8 tokens"):
        encode(demonstrations, tokenizer, max_length=8)


def test_a_few_steps_lower_the_loss_and_repeat(
    demonstrations: list[Demonstration], tokenizer: PreTrainedTokenizerBase
) -> None:
    encoded = encode(demonstrations, tokenizer, max_length=2048)
    runs = [
        train_on(build_model(tokenizer, seed=3), encoded, steps=12, batch_size=8, warmup=4, progress=False)
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert sum(runs[0][-3:]) < 0.9 * sum(runs[0][:3])


def test_building_a_model_leaves_the_global_random_state(tokenizer: PreTrainedTokenizerBase) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    build_model(tokenizer, seed=9)
    assert torch.equal(torch.rand(1), expected)


def test_a_warm_model_is_a_folder_that_loads(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    make_warm_model(folder, ENV, steps=2, noise=0.5, seed=0, env_kwargs={"level": 1}, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.num_parameters() == 139_968
    assert PromptBuilder(AutoTokenizer.from_pretrained(folder)).start([{"role": "user", "content": "Hi"}])


def test_a_tokenizer_without_a_chat_template_is_named(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    save_model(build_model(tokenizer), tokenizer, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").unlink()
    with pytest.raises(PromptError, match="no chat template"):
        PromptBuilder(AutoTokenizer.from_pretrained(tmp_path / "model"))
