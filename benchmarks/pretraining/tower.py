"""A vision tower by itself: it learns to tell what is where, before any language model reads its features."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from agent_envs.adapters.tiny.vision import VisionModel
from agent_envs.pictures.picture import Picture
from benchmarks.pretraining.seen import SeenPage, Thing

Pages = Callable[[Sequence[int], int], Iterator[SeenPage]]
_FAR = 2  # words of a thing that can be told on the whole page: its colour and its kind
_CODE = slice(3, 5)
_EIGHTHS = 8
_LONGEST = 0.9  # quantile of the features' lengths that is made the length of a word's vector


class TowerTrainer:
    """Trains a tower to tell the words of things, from the feature where one is and from all features of a part.

    A word is told by the dot product of a linear map of a feature with the word's vector in the language model, whose
    language the features so come close to. Where a thing begins among the pixels of a feature is told too, to an eighth
    of them, and whether there is a thing is asked of every feature. Each step draws new pages, seen whole and in parts.
    Matrices are trained with Muon, the rest with AdamW.

    Args:
        made: A model with a tower, which is changed in place.
        pages: Draws pages in an order that its first argument, a list of numbers, decides, with as many parts as the
            second says.
        words: What each word of a thing may be.
    """

    def __init__(
        self, made: VisionModel, pages: Pages, words: Sequence[Sequence[str]], *, steps: int,
        learning_rate: float = 2e-3, pages_per_step: int = 12, parts_per_page: int = 4, whole_pages: int = 4,
        noise: float = 0.05, seed: int = 0,
    ) -> None:  # fmt: skip
        self.made, self.steps, self.learning_rate, self.seed = made, steps, learning_rate, seed
        self.pages_per_step, self.parts_per_page, self.whole_pages = pages_per_step, parts_per_page, whole_pages
        self.noise, self.step = noise, 0
        self.tower = made.model.model.visual
        self._cell = self.tower.spatial_merge_size * self.tower.config.patch_size  # pixels of a feature's side
        vectors = made.model.model.language_model.embed_tokens.weight.detach()
        self._scale = 1 / float(vectors.std())
        self._words, self._vectors = words, _vectors_of(made, words, vectors)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.heads = _Heads(vectors.shape[1], len(self._words))
        trained = [*self.tower.parameters(), *self.heads.parameters()]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon([p for p in trained if p.dim() == 2], weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([p for p in trained if p.dim() != 2], weight_decay=0.0),
        ]
        self._draw = pages

    def train_step(self) -> tuple[float, float]:
        """Train on newly drawn pages.

        Returns:
            The mean loss of a word or a beginning in nats, and the share of the letters that are told right.
        """
        self.step += 1
        left = (self.steps - self.step) / (0.6 * self.steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * min(1.0, self.step / 50, max(0.02, left))
        pages = self._draw([self.seed, self.step], self.parts_per_page)
        drawn = list(itertools.islice(pages, self.pages_per_step))
        loss, words, letters = self._losses(drawn)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.tower.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        return words, letters

    def state(self) -> dict[str, Any]:
        """Return what a later `resume` goes on from."""
        return {
            "step": self.step,
            "tower": self.tower.state_dict(),
            "heads": self.heads.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.step = state["step"]
        self.tower.load_state_dict(state["tower"])
        self.heads.load_state_dict(state["heads"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)

    def _losses(self, drawn: list[SeenPage]) -> tuple[Tensor, float, float]:
        """Return the loss, that of a word, and the share of letters that are told right."""
        assert self.made.pictures is not None
        parts = [part for page in drawn for part in page.close]
        far = drawn[: self.whole_pages]
        inputs = self.made.pictures.inputs(
            [Picture(pixels) for pixels in (*(part.pixels for part in parts), *(page.pixels for page in far))]
        )
        pixels, grids = torch.from_numpy(inputs.pixel_values), torch.from_numpy(inputs.image_grid_thw)
        drawn_noise = torch.Generator().manual_seed(self.seed << 32 | self.step)
        pixels = pixels + self.noise * torch.randn(pixels.shape, generator=drawn_noise)
        features = self.tower(pixels, grid_thw=grids).pooler_output * self._scale  # [features of all pictures, size]
        across = (grids[:, 2] // self.tower.spatial_merge_size).tolist()
        counts = (grids.prod(1) // self.tower.spatial_merge_size**2).tolist()
        starts = [0, *itertools.accumulate(counts)]
        near: list[tuple[int, list[int]]] = []  # where a thing is among the features, its beginning and its words
        alone: list[tuple[int, list[int]]] = []  # which part has a single thing, and its words
        whole: list[tuple[int, list[int]]] = []  # where a thing is that is seen on its page
        for n, part in enumerate(parts):
            for thing in part.things:
                at = self._cell_of(thing, part.left, part.top, 1, across[n])
                near.append((starts[n] + at, self._begins(thing, part.left, part.top, 1) + self._numbers(thing)))
            if len(part.things) == 1:
                alone.append((n, self._numbers(part.things[0])))
        for n, page in enumerate(far, start=len(parts)):
            for thing in page.things:
                at = self._cell_of(thing, 0, 0, page.factor, across[n])
                whole.append((starts[n] + at, self._begins(thing, 0, 0, page.factor) + self._numbers(thing)[:_FAR]))
        places, told = _columns(near)
        losses, right = self._told(self.heads.at, features[places], told[:, 2:])
        pooled = torch.stack([features[starts[n] : starts[n + 1]].sum(0) for n, _ in alone])
        losses += self._told(self.heads.whole, pooled, _columns(alone)[1])[0]
        places_far, told_far = _columns(whole)
        losses += self._told(self.heads.at, features[places_far], told_far[:, 2:])[0]
        for seen, begins in ((features[places], told), (features[places_far], told_far)):
            losses += [cross_entropy(head(seen), n) for head, n in zip(self.heads.begins, begins.T, strict=False)]
        there = torch.zeros(len(features))
        there[torch.cat([places, places_far])] = 1
        loss = torch.stack(losses).sum() + 2 * binary_cross_entropy_with_logits(self.heads.there(features)[:, 0], there)
        return loss, float(torch.stack(losses).detach().mean()), float(np.mean(right[_CODE]))

    def _told(self, heads: nn.ModuleList, features: Tensor, words: Tensor) -> tuple[list[Tensor], list[float]]:
        """Return the loss of each kind of word, and the share that is right."""
        losses, right = [], []
        for head, vectors, wanted in zip(heads, self._vectors, words.T, strict=False):
            logits = head(features) @ vectors.T * (4 * self._scale / vectors.shape[1] ** 0.5)
            losses.append(cross_entropy(logits, wanted))
            right.append(float((logits.argmax(-1) == wanted).float().mean()))
        return losses, right

    def _numbers(self, thing: Thing) -> list[int]:
        return [words.index(word) for words, word in zip(self._words, thing.words, strict=True)]

    def _begins(self, thing: Thing, left: int, top: int, factor: int) -> list[int]:
        """Return in which eighth of a feature's pixels a thing begins, across and down."""
        x, y = ((low - start) // factor for low, start in zip(thing.box[:2], (left, top), strict=True))
        return [at % self._cell * _EIGHTHS // self._cell for at in (x, y)]

    def _cell_of(self, thing: Thing, left: int, top: int, factor: int, across: int) -> int:
        """Return the number of the feature in whose pixels a thing has its middle."""
        x, y = ((low + high) // 2 for low, high in (thing.box[::2], thing.box[1::2]))
        return (y - top) // factor // self._cell * across + (x - left) // factor // self._cell


class _Heads(nn.Module):
    """What reads features while a tower is trained."""

    def __init__(self, size: int, words: int) -> None:
        super().__init__()
        self.at = nn.ModuleList([nn.Linear(size, size) for _ in range(words)])
        self.whole = nn.ModuleList([nn.Linear(size, size) for _ in range(words)])
        self.begins = nn.ModuleList([nn.Linear(size, _EIGHTHS) for _ in range(2)])
        self.there = nn.Linear(size, 1)


def _vectors_of(made: VisionModel, words: Sequence[Sequence[str]], vectors: Tensor) -> list[Tensor]:
    """Return the vectors of the words that each word of a thing may be, all of the mean length."""
    found = []
    for choices in words:
        ids = [made.tokenizer(f" {word}" if len(word) > 1 else word)["input_ids"] for word in choices]
        sums = torch.stack([vectors[i].sum(0) for i in ids])
        found.append(sums / sums.norm(dim=1, keepdim=True) * vectors.norm(dim=1).mean())
    return found


def _columns(pairs: list[tuple[int, list[int]]]) -> tuple[Tensor, Tensor]:
    places, words = zip(*pairs, strict=True)
    return torch.tensor(places), torch.tensor(words)


def settle_features(made: VisionModel, pictures: Iterable[Picture]) -> None:
    """Change a tower's last layer so that its features have the mean 0 and are about as long as words' vectors.

    Args:
        made: A model with a tower, which is changed in place.
        pictures: Pictures that set both.
    """
    assert made.pictures is not None
    inputs = made.pictures.inputs(list(pictures))
    with torch.no_grad():
        pixels, grids = torch.from_numpy(inputs.pixel_values), torch.from_numpy(inputs.image_grid_thw)
        features = torch.cat(made.model.model.get_image_features(pixels, grids).pooler_output)
        last = made.model.model.visual.merger.mlp[-1]
        last.bias.sub_(features.mean(0))
        lengths = (features - features.mean(0)).norm(dim=1)
        words = made.model.model.language_model.embed_tokens.weight.norm(dim=1).mean()
        for weight in (last.weight, last.bias):
            weight.mul_(words / lengths.quantile(_LONGEST))
