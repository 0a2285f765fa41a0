"""Supervised training of a tiny model on whole conversations: the loop of the warm start and of the base model.

One conversation is one sequence. The loss is the mean over the tokens of responses, and `context_weight` times the mean
over those of the context: to predict the names on a page teaches a small model to copy them. Batches have about the
same number of tokens each, and sequences of about the same length, so that little of them is padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen2ForCausalLM, Qwen2VLForConditionalGeneration

from agent_envs.adapters.batches import fitting_tokens, micro_batches
from agent_envs.pictures.picture import Picture
from agent_envs.policies.local.padded_engine import forward_arguments
from agent_envs.prompts.pictures import PictureTokens

CONTEXT, RESPONSE, IGNORED = 0, 1, 2
"""Kinds of tokens: what is read, what is written, and what nobody should learn to predict."""
_SORTED_BATCHES = 64  # batches among which sequences are sorted by length
NO_BFLOAT16 = (
    "float32 in place of bfloat16, for which this CPU has no instructions: one that has is several times faster"
)
_BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")  # capabilities of a CPU
_MOMENTUM, _QUINTIC = 0.95, (3.4445, -4.775, 2.0315)  # of Muon
_ALIKE = 64  # tokens by which the lengths of sequences may differ that are not sorted


class Conversation(NamedTuple):
    """The tokens of a conversation."""

    ids: Sequence[int]
    """Token ids of all of it."""
    responses: Sequence[tuple[int, int]]
    """Where each response begins and ends in them."""
    ignored: Sequence[tuple[int, int]] = ()
    """Likewise what the loss leaves out."""
    pictures: Sequence[Picture] = ()
    """Its pictures, in the order of their tokens."""


@dataclass(frozen=True)
class Sequences:
    """Conversations as tokens, one after another."""

    ids: np.ndarray
    """Token ids of all of them, uint32, shape [tokens]."""
    kinds: np.ndarray
    """Kind of each token, uint8, shape [tokens]."""
    starts: np.ndarray
    """Where each sequence begins, and the end of the last one, shape [sequences + 1]."""
    pictures: tuple[tuple[Picture, ...], ...] = ()
    """The pictures of each sequence; empty if none has any."""

    @classmethod
    def of(cls, conversations: Iterable[Conversation]) -> Sequences:
        """Join conversations."""
        ids, kinds, starts = [], [], [0]
        pictures: list[tuple[Picture, ...]] = []
        for conversation in conversations:
            marks = np.full(len(conversation.ids), CONTEXT, dtype=np.uint8)
            for kind, spans in ((RESPONSE, conversation.responses), (IGNORED, conversation.ignored)):
                for start, end in spans:
                    marks[start:end] = kind
            ids.append(np.asarray(conversation.ids, dtype=np.uint32))
            kinds.append(marks)
            starts.append(starts[-1] + len(marks))
            pictures.append(tuple(conversation.pictures))
        seen = tuple(pictures) if any(pictures) else ()
        return cls(np.concatenate(ids), np.concatenate(kinds), np.array(starts), seen)

    def __len__(self) -> int:
        return len(self.starts) - 1


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon in float32: its bfloat16 takes twenty times as long on a CPU that has no instructions for it.

    Source:
        Keller Jordan and others, 2024, "Muon: An optimizer for hidden layers in neural networks"; the scale that makes
        its steps those of AdamW: Liu and others, arXiv 2502.16982, equation 4.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Move each matrix along the nearest orthogonal matrix to its gradient with Nesterov momentum."""
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                momentum = self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix))
                momentum.lerp_(matrix.grad, 1 - _MOMENTUM)
                update = matrix.grad.lerp(momentum, _MOMENTUM)
                tall = update.size(0) > update.size(1)
                update = (update.T if tall else update) / update.norm().clamp(min=1e-7)
                for _ in range(5):  # Newton and Schulz's iteration, of degree five
                    gram = update @ update.T
                    gram = torch.addmm(gram, gram, gram, beta=_QUINTIC[1], alpha=_QUINTIC[2])
                    update = torch.addmm(update, gram, update, beta=_QUINTIC[0])
                matrix.mul_(1 - 0.01 * group["lr"])  # weight decay
                matrix.add_(update.T if tall else update, alpha=-0.2 * max(matrix.shape) ** 0.5 * group["lr"])


class SupervisedTrainer:
    """Trains a model in place, a step at a time; one that takes pictures needs its ``image_tokens``.

    Matrices inside the layers are trained with Muon, embeddings, norms and biases with AdamW; without `muon` everything
    with AdamW, as suits a language model that is trained already. The learning rate rises over `warmup` steps, stays,
    and falls to a twentieth over the last `decay` of the steps. A step is computed in parts that fit into memory.
    """

    def __init__(
        self,
        model: Qwen2ForCausalLM | Qwen2VLForConditionalGeneration,
        sequences: Sequences,
        *,
        steps: int,
        tokens_per_step: int,
        context_weight: float = 0.0,
        learning_rate: float = 3e-3,
        warmup: int = 50,
        decay: float = 0.6,
        seed: int = 0,
        image_tokens: PictureTokens | None = None,
        muon: bool = True,
    ) -> None:
        self.model, self.sequences, self.steps = model, sequences, steps
        self.tokens_per_step, self.context_weight = tokens_per_step, context_weight
        self.learning_rate, self.warmup, self.decay, self.seed = learning_rate, warmup, decay, seed
        self.step, self.image_tokens = 0, image_tokens
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        inner = [p for name, p in trained if muon and p.dim() == 2 and ".layers." in name]
        others = [p for name, p in trained if not (muon and p.dim() == 2 and ".layers." in name)]
        adam = torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        self.optimizers: list[torch.optim.Optimizer] = [Muon(inner, {"lr": learning_rate}), adam] if muon else [adam]
        self._batches = self.batches()

    def train_step(self) -> tuple[float, float]:
        """Train on the next batch.

        Returns:
            The loss of the responses' tokens in nats per token, and that of the context; nan where there are none.
        """
        self.step += 1
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                left = (self.steps - self.step) / max(1.0, self.decay * self.steps)
                group["lr"] = self.learning_rate * min(1.0, self.step / self.warmup, max(0.05, left))
        batch = next(self._batches)
        lengths = np.diff(self.sequences.starts)[batch].tolist()
        fitting = list(micro_batches(range(len(batch)), lengths, fitting_tokens(self.model)))
        parts = [batch] if len(fitting) == 1 else [batch[rows] for rows in fitting]
        kinds = np.concatenate([self.sequences.kinds[slice(*self.sequences.starts[i : i + 2])][1:] for i in batch])
        counts = np.array([(kinds == RESPONSE).sum(), (kinds == CONTEXT).sum() if self.context_weight else 0])
        self.model.train()
        sums = np.sum([self._backward(part, np.maximum(counts, 1), len(part) / len(batch)) for part in parts], axis=0)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.model.eval()
        response, context = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).tolist()
        return response, context

    def _backward(self, batch: np.ndarray, counts: np.ndarray, share: float) -> tuple[float, float]:
        """Add the gradient of some sequences, a share of a step's; return the sums of both kinds of losses.

        ``counts`` are the tokens of responses and of context that the step has.
        """
        ids, kinds = self._padded(batch)
        seen: dict[str, torch.Tensor] = {}
        if self.image_tokens is not None:
            shown = [self.sequences.pictures[i] if self.sequences.pictures else () for i in batch]
            seen = forward_arguments(self.image_tokens, ids[:, :-1], shown)
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=computes_bfloat16(self.model.device)):
            # No attention mask: attention is causal and the padding is on the right, so no other token sees it.
            hidden, *more = self.hidden(ids[:, :-1], seen, batch)
            # [sequences, tokens]
            learned = (kinds[:, 1:] == RESPONSE) | ((kinds[:, 1:] == CONTEXT) & (self.context_weight > 0))
            logits = self.model.lm_head(hidden[learned])
        losses = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][learned], reduction="none")
        acted = kinds[:, 1:][learned] == RESPONSE
        response, context = losses[acted].sum(), losses[~acted].sum()
        # Two means: long pages with a short response each count as much as short ones.
        loss = response / counts[0] + self.context_weight * context / counts[1] + share * sum(more)
        loss.backward()
        return float(response.detach()), float(context.detach())

    def hidden(
        self, ids: torch.Tensor, seen: Mapping[str, torch.Tensor], batch: np.ndarray
    ) -> tuple[torch.Tensor, ...]:
        """Return the last hidden states, [sequences, tokens, size], and losses that are added, if any.

        ``ids`` are padded on the right, shape [sequences, tokens]; ``seen`` are the model's other arguments.
        """
        return (self.model.model(input_ids=ids, use_cache=False, **seen).last_hidden_state,)

    def state(self) -> dict[str, Any]:
        """Return what a later `resume` goes on from."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        return {"step": self.step, "model": self.model.state_dict(), "optimizers": optimizers}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.step = state["step"]
        self._batches = itertools.islice(self.batches(), self.step, None)

    def batches(self) -> Iterator[np.ndarray]:
        """Indices of the sequences of each batch, pass after pass in another order."""
        lengths = np.diff(self.sequences.starts)
        for turn in itertools.count():
            rng = np.random.default_rng([self.seed, turn])
            order = rng.permutation(len(self.sequences))
            cuts = np.cumsum(lengths[order]) // (_SORTED_BATCHES * self.tokens_per_step)
            for part in np.split(order, np.flatnonzero(np.diff(cuts)) + 1):
                # Sorted exactly, short sequences with the same action would share a batch, since no others are as long.
                about = lengths[part] + rng.uniform(0, _ALIKE, len(part))
                batches = list(self._of_equal_size(part[np.argsort(about, kind="stable")], lengths))
                yield from (batches[i] for i in rng.permutation(len(batches)))

    def _of_equal_size(self, ordered: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
        batch, longest = list[int](), 0
        for i in ordered:
            longest = max(longest, int(lengths[i]))
            if batch and (len(batch) + 1) * longest > self.tokens_per_step:
                yield np.array(batch)
                batch, longest = [], int(lengths[i])
            batch.append(int(i))
        if batch:
            yield np.array(batch)

    def _padded(self, batch: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and the kind of each token, ignored where there is none, [sequences, tokens] each."""
        starts, device = self.sequences.starts, self.model.device

        def padded(values: np.ndarray, filler: int) -> torch.Tensor:
            rows = [torch.from_numpy(values[starts[i] : starts[i + 1]].astype(np.int64)) for i in batch]
            return pad_sequence(rows, batch_first=True, padding_value=filler).to(device)

        return padded(self.sequences.ids, 0), padded(self.sequences.kinds, IGNORED)


def computes_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16; a CPU without them is 80 times slower in it."""
    return device.type != "cpu" or any(torch.cpu.get_capabilities().get(name) for name in _BFLOAT16)
