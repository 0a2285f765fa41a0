"""How a small model comes to copy names out of a page, which it finds out late, if at all, from demonstrations alone.

`teach_to_copy` initialises two attention heads for it, and `practice` makes sequences that repeat parts of themselves:
some hundred steps on these make the two heads reliable at any distance, and a share of them in the mixture keeps what
the demonstrations of a few worlds would otherwise replace by names known by heart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from transformers import Qwen2ForCausalLM

from agent_envs.adapters.tiny.supervised import Conversation, Sequences


def teach_to_copy(model: Qwen2ForCausalLM, seed: int = 0) -> None:
    """Initialise a head of each of the first two layers as an induction head, in place.

    The first attends to the token before and notes what it was; the second attends to where the present token was
    noted, and copies what followed there. A small model finds such a pair late, if at all; with it, it copies names out
    of a page from the start. The result is an ordinary Qwen2 model. The global random state of torch is not changed.

    Source: Olsson and others, "In-context Learning and Induction Heads", arXiv 2209.11895.
    """
    config = model.config
    size = config.hidden_size // config.num_attention_heads  # of a head
    half = size // 2  # rotary position embeddings rotate dimension i together with i + half
    slow = slice(half // 2, half), slice(half + half // 2, size)  # dimensions that hardly rotate: what, not where
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)

    previous, matching = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    token, noted = draw(size // 2, config.hidden_size), draw(size // 2, config.hidden_size)
    read = draw(size, config.hidden_size)
    with torch.no_grad():
        for layer in model.model.layers:
            for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
                projection.weight *= _QUIET
        # Layer 0, head 0: constant queries and keys whose product is largest one token back.
        fast = torch.arange(half) < max(2, half // 4)
        for projection in (previous.q_proj, previous.k_proj):
            projection.weight[:size] = 0.0
            projection.bias[:size] = 0.0
        previous.q_proj.bias[:half][fast] = _SHARPNESS
        previous.k_proj.bias[:half][fast] = _SHARPNESS * torch.cos(frequencies[fast])
        previous.k_proj.bias[half:size][fast] = _SHARPNESS * torch.sin(frequencies[fast])
        previous.v_proj.weight[:size] = torch.cat([token, torch.zeros_like(token)])
        previous.o_proj.weight[:, :size] = _NOTE * torch.cat([noted, torch.zeros_like(noted)]).T
        # Layer 1, head 0: the query is the present token, the key what the first head noted.
        for projection, source in ((matching.q_proj, token), (matching.k_proj, noted)):
            projection.weight[:size] = 0.0
            projection.bias[:size] = 0.0
            for part, rows in zip(slow, source.chunk(2), strict=True):
                projection.weight[part] = _MATCH * rows[: part.stop - part.start]
        matching.v_proj.weight[:size] = read
        matching.o_proj.weight[:, :size] = _COPY * read.T


_SHARPNESS = 8.0  # of attention to the token before: 0.99 of it at the start
_MATCH = 3.0  # of attention to where the present token was noted
_QUIET = 0.03  # of what other heads and the MLPs add, which would drown what the tokens are
_NOTE = 0.08  # of the note, about as large as an embedding
_COPY = 1.0  # of what is copied


def practice(vocabulary: range, tokens: int, seed: int) -> Sequences:
    """Return sequences of drawn tokens in which spans return, about `tokens` tokens in all.

    A sequence of 128 to 768 tokens starts with 30 to 60 % of drawn tokens; the rest are spans of 5 to 23 tokens from
    before it, with up to 3 drawn tokens between two. The responses are the tokens of a span that follow from what is
    before them: all but the first, or all but the first three where so few tokens are drawn from (24 or 64) that pairs
    of them return by chance. The loss leaves out the others.

    Args:
        vocabulary: Ids of the tokens that are drawn.
        tokens: How many to make.
        seed: The sequences are the same for the same seed.
    """

    def sequences() -> Iterator[Conversation]:
        rng = np.random.default_rng(seed)
        left = tokens
        while left > 0:
            yield (sequence := _repeating(rng, np.asarray(vocabulary)))
            left -= len(sequence.ids)

    return Sequences.of(sequences())


def _repeating(rng: np.random.Generator, vocabulary: np.ndarray) -> Conversation:
    """Return one sequence of `practice`."""
    size = int(rng.choice([24, 64, 256, len(vocabulary)]))
    drawn = rng.choice(vocabulary, min(size, len(vocabulary)), replace=False)
    unclear = 3 if size <= 64 else 1
    length = int(rng.integers(128, 768))
    ids = rng.choice(drawn, int(length * rng.uniform(0.3, 0.6))).tolist()
    spans, unforeseen, end = list[tuple[int, int]](), list[tuple[int, int]](), 0
    while len(ids) < length:
        count = int(rng.integers(5, 24))
        start = int(rng.integers(len(ids) - count))
        unforeseen.append((end, len(ids) + unclear))
        end = len(ids) + count
        spans.append((len(ids) + unclear, end))
        ids += ids[start : start + count]
        ids += rng.choice(drawn, rng.integers(4)).tolist()
    return Conversation(ids, spans, ignored=[*unforeseen, (end, len(ids))])
