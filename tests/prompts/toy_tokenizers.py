"""Small tokenizers with real chat templates: a byte-level BPE made here, with a template's own control tokens."""

import functools
import importlib.util
import re
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

_SAID = [
    "The cat sat.\n\nResults: 1. Paris\n",
    "assistant user\n<answer>42</answer>",
    '{"name": "f"}\n\n\n',
    "I am 12345?",
]
_CONTROL = re.compile(
    r"<\|[^|<>\n'\"{}]{1,40}\|?>|<[a-z_]{1,20}\|>|<｜[^｜\n'\"]{1,40}｜>|\[/?[A-Z_]{3,20}\]|\[gMASK\]"
    r"|</?(?:bos|eos|s|sop|start_of_turn|end_of_turn|end_of_utterance)>"
)
_EOS = {
    "qwen": "<|im_end|>", "llama3": "<|eot_id|>", "gptoss": "<|return|>", "deepseek": "<｜end▁of▁sentence｜>",
    "phi": "<|end|>", "glm": "<|endoftext|>", "cohere": "<|END_OF_TURN_TOKEN|>", "lfm": "<|im_end|>",
    "nemotron": "<|im_end|>", "zephyr": "</s>", "mistral": "</s>", "llava": "</s>", "base": "<|endoftext|>",
}  # fmt: skip
_MORE = {"llama3": ["<|eom_id|>"], "gptoss": ["<|return|>", "<|call|>", "<|constrain|>"]}

_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OWN = {
    # neither tools nor tool results, and a base model's end of text
    "base_chatml": _CHATML.replace(
        "{% for m in messages %}", "{% for m in messages if m.role in ('system', 'user', 'assistant') %}"
    ),
    "chatml": _CHATML,  # tool results, but no tools
    "zephyr": "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}"
    "<|{{ m.role }}|>\n{{ m.content + eos_token }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    # results need an id of nine characters; tools stand before the last message of the user
    "mistral": "{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% if tools and m == messages[-1] %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "[INST]{% if loop.last and s is defined %}{{ s + '\n\n' }}{% endif %}{{ m.content }}[/INST]"
    "{% elif m.role == 'tool' %}{% if m.tool_call_id | default('') | length != 9 %}{{ raise_exception('no id') }}"
    "{% endif %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]{% else %} {{ m.content + eos_token }}{% endif %}"
    "{% endfor %}",
    # the generation prompt is always there, and calls end in another way than answers
    "always": "{% for m in messages %}{% if m.role == 'tool' %}<|start|>{{ m.name }}<|message|>{{ m.content }}<|end|>"
    "{% elif m.tool_calls %}<|start|>assistant<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}<|start|>assistant",
}
"""Templates of this project's own, in the manner of what many models ship."""


def trl_names() -> list[str]:
    """Return the names of the chat templates that the installed TRL ships for models, without those for training."""
    spec = importlib.util.find_spec("trl")
    folder = Path(str(spec.origin)).parent / "chat_templates" if spec else Path()
    return sorted(path.stem for path in folder.glob("*.jinja") if not path.stem.endswith("_training"))


@functools.cache
def _trained() -> str:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(_SAID * 20, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    return bpe.to_str()


@functools.cache
def toy_tokenizer(name: str, template: str | None = None) -> Any:
    """Return a tokenizer with a template: TRL's, one of `OWN` or a given one. It is shared: change a copy."""
    if template is None and (template := OWN.get(name)) is None:
        spec = importlib.util.find_spec("trl")
        folder = Path(str(spec and spec.origin)).parent / "chat_templates"
        template = (folder / f"{name}.jinja").read_text(encoding="utf-8")
    end = next((token for start, token in _EOS.items() if name.startswith(start)), "<eos>")
    more = next((tokens for start, tokens in _MORE.items() if name.startswith(start)), [])
    control = sorted({*_CONTROL.findall(template), *more, "<bos>"} - {end})
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained()), bos_token="<bos>", eos_token=end, chat_template=template,
        extra_special_tokens=[AddedToken(token, special=True, normalized=False) for token in control],
    )  # fmt: skip
    tags = ("<tool_call>", "</tool_call>", "<think>", "</think>")
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in tags])
    return tokenizer


def local_tokenizer(folder: Path, name: str) -> Any:
    """Return a real tokenizer of the test data: "minimind" or "qwen"."""
    if name == "minimind":
        return PreTrainedTokenizerFast.from_pretrained(folder / name)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / name / "tokenizer.json"))
    tokenizer.chat_template = (folder / name / "qwen3_nonthinking.jinja").read_text(encoding="utf-8")
    return tokenizer
