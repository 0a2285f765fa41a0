"""A byte-level BPE tokenizer of about 512 tokens with a tool-calling chat template, trained on a task's texts.

The files are those of a Qwen2 tokenizer, because `AutoTokenizer` loads every folder with a Qwen2 model through
`Qwen2Tokenizer`, whatever class saved it, and that class has its own pre-tokenizer (transformers 5.9.0,
models/auto/tokenization_auto.py, MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS). A BPE trained under another
pre-tokenizer would give other ids after loading; here that class is built directly, so the ids stay the same.

Like every Qwen2 tokenizer it normalises text to Unicode NFC; NFC text is decoded to the same bytes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, Qwen2Tokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from agent_envs.checks import integer

PAD = "<|endoftext|>"
END = "<|im_end|>"
_CONTROL = (PAD, "<|im_start|>", END)
_SPACE = "\u0120"  # how a byte-level vocabulary writes a space
_SELDOM = 0.02  # share of a word's occurrences after a bracket or a quotation mark that still counts as none
# Part of the text, as in Qwen2.5: decoding with skip_special_tokens=True keeps them.
_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

# ChatML in the Hermes/Qwen form. Tools are written as `name(argument, ...)` and without the usual paragraph on how to
# call one: a context of some hundred tokens has no room for JSON schemas, and a tiny model learns from examples.
CHAT_TEMPLATE = """\
{%- set ns = namespace(system='') -%}
{%- if messages and messages[0].role == 'system' -%}{%- set ns.system = messages[0].content -%}{%- endif -%}
{%- if ns.system or tools -%}
{{- '<|im_start|>system\\n' + ns.system -}}
{%- if tools -%}
{{- ('\\n' if ns.system else '') + 'Tools:' -}}
{%- for tool in tools -%}
{{- ' ' + tool.function.name + '(' + (tool.function.parameters.properties or {}) | join(', ') + ')' -}}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>' + message.content + '</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- elif message.role == 'assistant' -%}
{{- '<|im_start|>assistant\\n' + (message.content or '') -}}
{%- for call in message.tool_calls or [] -%}
{%- set call = call.function or call -%}
{{- '\\n' if message.content or not loop.first else '' -}}
{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' -}}
{{- (call.arguments if call.arguments is string else call.arguments | tojson) + '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- elif message.role != 'system' or not loop.first -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def build_tokenizer(corpus: Iterable[str], vocab_size: int = 512) -> PreTrainedTokenizerBase:
    """Train a tokenizer on `corpus` and return it as the class that `AutoTokenizer` will load it with.

    Every byte is a token, and every digit and arithmetic operator is a token by itself; the other tokens are frequent
    pieces of words in `corpus`. A word has the same tokens after a space as after a bracket or a quotation mark, so
    that a name of a page is copied token for token; only for frequent words that stand after spaces alone, space and
    word are one token.

    Raises:
        ConfigError: `vocab_size` has no room for the bytes and the tags.
    """
    floor = 256 + len(_CONTROL) + len(_TAGS)  # the bytes and the chat tags
    integer("vocab_size", vocab_size, minimum=floor)
    texts = list(corpus)
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated"),
            # Only while training: no merge joins letters with what stands before them, or contains an operator, so a
            # word and "+" have the same tokens everywhere.
            pre_tokenizers.Split(Regex(r"\p{L}[\p{L}\p{M}]*"), "isolated"),
            pre_tokenizers.Split(Regex(r"[-+*/%=#]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*_CONTROL, *_TAGS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    trained = json.loads(bpe.to_str())["model"]
    vocab, merges = trained["vocab"], trained["merges"]
    room = (vocab_size - floor) // 4
    pieces = {token for token, number in vocab.items() if number < len(vocab) - room}
    words = list(itertools.islice(_words_after_spaces(texts, pieces), room))
    left = len(vocab) - len(words)  # the last merges make room for the words
    merges = [*merges[: len(merges) - len(words)], *([_SPACE, word] for word in words)]
    vocab = {token: number for token, number in vocab.items() if number < left}
    vocab |= {_SPACE + word: left + i for i, word in enumerate(words)}
    tokenizer = Qwen2Tokenizer(
        vocab=vocab,
        merges=[tuple(pair) for pair in merges],
        eos_token=END,
        pad_token=PAD,
        unk_token=PAD,
        extra_special_tokens=["<|im_start|>"],
    )
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in _TAGS])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _words_after_spaces(texts: Iterable[str], vocab: Container[str]) -> Iterator[str]:
    """Yield the words of `vocab` that nearly always stand after a space, the most frequent first."""
    spaced, opened = Counter[str](), Counter[str]()
    for text in texts:
        spaced.update(re.findall(r"(?<= )[a-z]+\b", text))
        opened.update(re.findall(r"(?<=[^\s\w])[a-z]+\b", text))
    for word, count in spaced.most_common():
        if word in vocab and opened[word] <= _SELDOM * count:
            yield word
