"""Practice in arithmetic, of which a demonstration of GSM8K holds a few tokens among a hundred."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from transformers import PreTrainedTokenizerBase

from agent_envs.adapters.tiny.supervised import Conversation, Sequences

_EQUATIONS = 12  # of a sequence


def practice_arithmetic(tokenizer: PreTrainedTokenizerBase, tokens: int, seed: int) -> Sequences:
    """Return sequences of drawn equations as GSM8K writes them, `25+49=<<25+49=74>>74`; the responses are the results.

    The operands of sums and differences have one or two digits; products and quotients are of numbers up to 12.

    Args:
        tokenizer: Of the model.
        tokens: About how many to make.
        seed: The sequences are the same for the same seed.
    """

    def sequences() -> Iterator[Conversation]:
        rng = np.random.default_rng(seed)
        left = tokens
        while left > 0:
            yield (sequence := _equations(rng, tokenizer))
            left -= len(sequence.ids)

    return Sequences.of(sequences())


def _equations(rng: np.random.Generator, tokenizer: PreTrainedTokenizerBase) -> Conversation:
    ids, spans = list[int](), list[tuple[int, int]]()
    for _ in range(_EQUATIONS):
        term, result = _equation(rng)
        ids += tokenizer.encode(f"{term}=<<{term}=", add_special_tokens=False)
        answer = tokenizer.encode(f"{result}>>", add_special_tokens=False)
        spans.append((len(ids), len(ids) + len(answer)))
        ids += [*answer, *tokenizer.encode(f"{result}\n", add_special_tokens=False)]
    return Conversation(ids, spans)


def _equation(rng: np.random.Generator) -> tuple[str, int]:
    """Return a drawn term and its value, a natural number."""
    kind = rng.choice(4, p=[0.4, 0.35, 0.15, 0.1])
    a, b = (int(number) for number in (rng.integers(1, 100, 2) if kind < 2 else rng.integers(2, 13, 2)))
    if kind == 0:
        return f"{a}+{b}", a + b
    if kind == 1:
        return f"{max(a, b)}-{min(a, b)}", abs(a - b)
    return (f"{a}*{b}", a * b) if kind == 2 else (f"{a * b}/{b}", a)
