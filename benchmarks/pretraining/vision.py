"""Makes a tiny model that reads pages, unattended, from tiny-base and what this package draws.

    python -m benchmarks.pretraining.vision --out runs/tiny-vision

A tower learns by itself to tell what it sees (`tower`) and stays unchanged from then on. The language model learns to
say it: what a thing is that is shown from near; where on a page everything is, and where to zoom to for what is asked
for; then whole episodes of PictureSearch by its expert. Two more losses make the first layer tell which feature is of
which row and column, and a head of the second look at the thing whose place is told: without them nothing is found in a
thousand steps. At last the expert errs on purpose and its mistakes are learned too, so that a reward has something to
unlearn.
The model is written to OUT/base. The same command goes on where a run was stopped.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, rms_norm
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_multimodal_rotary_pos_emb

from agent_envs.adapters.tiny.supervised import Conversation, Sequences, SupervisedTrainer
from agent_envs.adapters.tiny.vision import VisionModel, build_vision_model
from agent_envs.adapters.tiny.warm_start import encode, play
from agent_envs.episodes.run_folder import keep_settings
from agent_envs.messages import pictures_of
from agent_envs.policies import ExpertPolicy
from agent_envs.prompts.builder import PromptBuilder
from benchmarks.pretraining import practice
from benchmarks.pretraining.language import add_numbers, join_sequences, train, write_base
from benchmarks.pretraining.seen import Located
from benchmarks.pretraining.tower import TowerTrainer, settle_features

SHAPE: dict[str, int] = {"patch": 16, "width": 48}
TASK: dict[str, Any] = {"level": 1, "families": "find"}
_MOST = (1, 2, 3, 6, 6)  # most things on a page on which something is looked for
_LENGTH = 2048  # tokens of the longest episode
_SETTLED = 60  # pages that set the scale of the features
_TOKENS = 4096
_ACROSS = 8  # features of a row or a column of a picture, at most
_LOOKING = 3  # the head of the second layer that looks where a thing is; with the first one tiny-base copies

_Looks = Sequence[Sequence[tuple[int, int]]]


class _Practice(NamedTuple):
    """Sequences, and what is to be looked at in each: tokens that look, and the tokens that they look at."""

    sequences: Sequences
    looks: _Looks


class PlaceTrainer(SupervisedTrainer):
    """Trains a model, and has it look where a thing is when it says where.

    Two losses are added. The first layer's states of features tell their row and their column. And before a number that
    says where a thing is, a head of the second layer attends to the feature in which the thing has its middle.

    Source:
        Attention that is told where to look: Mi and others, arXiv 1608.00112.

    Args:
        looks: For each sequence, tokens before such a number and the feature's token.
    """

    def __init__(self, made: VisionModel, sequences: Sequences, looks: _Looks, **options: Any) -> None:
        super().__init__(made.model, sequences, image_tokens=made.pictures, tokens_per_step=_TOKENS, **options)
        self.looks = looks
        size = made.model.config.text_config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.heads = nn.ModuleList([nn.Linear(size, _ACROSS) for _ in range(2)])
        self.optimizers.append(torch.optim.AdamW(self.heads.parameters(), weight_decay=0.0))

    def hidden(
        self, ids: torch.Tensor, seen: Mapping[str, torch.Tensor], batch: np.ndarray
    ) -> tuple[torch.Tensor, ...]:
        """Return the last hidden states, [sequences, tokens, size], and the loss of the places."""
        out = self.model.model(input_ids=ids, use_cache=False, output_hidden_states=True, **seen)
        image = ids == self.model.config.image_token_id
        first = out.hidden_states[1]
        features = first[image].float()
        states = rms_norm(features, features.shape[-1:])
        losses = [
            cross_entropy(head(states), place)
            for head, place in zip(self.heads, self._places(seen["image_grid_thw"]), strict=True)
        ]
        looks = [(row, *look) for row, n in enumerate(batch) for look in self.looks[n]]
        if looks:
            losses.append(self._look(first, seen["position_ids"], *torch.tensor(looks).T))
        return out.last_hidden_state, torch.stack(losses).sum()

    def state(self) -> dict[str, Any]:
        return {**super().state(), "heads": self.heads.state_dict()}

    def resume(self, state: dict[str, Any]) -> None:
        self.heads.load_state_dict(state["heads"])
        super().resume(state)

    def _places(self, grids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the row and the column of each feature of pictures."""
        side = self.model.config.vision_config.spatial_merge_size
        found = [torch.cartesian_prod(torch.arange(h // side), torch.arange(w // side)) for _, h, w in grids.tolist()]
        rows, columns = torch.cat(found).T
        return rows, columns

    def _look(
        self,
        first: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        tokens: torch.Tensor,
        wanted: torch.Tensor,
    ) -> torch.Tensor:
        """Return how far tokens of some rows are from attending to the wanted ones of their row, in nats."""
        words = self.model.model.language_model
        layer = words.layers[1]
        states = layer.input_layernorm(first)
        queries, keys = (
            project(states).unflatten(-1, (-1, layer.self_attn.head_dim)).transpose(1, 2)
            for project in (layer.self_attn.q_proj, layer.self_attn.k_proj)
        )
        sections = self.model.config.text_config.rope_parameters["mrope_section"]
        turned = apply_multimodal_rotary_pos_emb(queries, keys, *words.rotary_emb(states, positions), sections)
        query, key = (each[:, _LOOKING].float() for each in turned)
        logits = torch.einsum("ls,lts->lt", query[rows, tokens], key[rows]) * layer.self_attn.scaling
        later = torch.arange(key.shape[1]) > tokens[:, None]
        return cross_entropy(logits.masked_fill(later, -torch.inf), wanted)


def pretrain(
    folder: Path, *, tower_steps: int = 3000, caption_steps: int = 450, place_steps: int = 800, steps: int = 500,
    mistake_steps: int = 150, captions: int = 4000, places: int = 4000, openings: int = 5000,
    demonstrations: int = 2000, noise: float = 0.4, save_seconds: float = 300.0, seed: int = 0,
) -> VisionModel:  # fmt: skip
    """Make a model, or go on where a run in `folder` was stopped.

    Args:
        folder: Keeps states of the trainers and losses.
        tower_steps: Steps of the tower by itself.
        caption_steps: Steps of things that are shown from near.
        place_steps: Steps of where everything is on a page, of which only the digits that say it count in full.
        steps: Steps of everything.
        mistake_steps: Steps of everything, with mistakes.
        captions: Different things that are shown from near.
        places: Different pages on which everything is told where it is.
        openings: Different pages on which something is looked for.
        demonstrations: Different whole episodes.
        noise: Share of wrong actions where there are mistakes.
        save_seconds: Seconds between two checkpoints.
        seed: Of everything that is drawn.

    Raises:
        ConfigError: The folder holds a run with other arguments.
    """
    settings = {name: value for name, value in locals().items() if name != "folder"}
    folder.mkdir(parents=True, exist_ok=True)
    keep_settings(folder / "settings.json", settings, may_change={"save_seconds"})
    made = build_vision_model(**SHAPE, seed=seed)
    tower = TowerTrainer(made, practice.pages, practice.vocabulary(), steps=tower_steps, seed=seed)
    train(tower, folder, "tower", save_seconds, ("word_loss", "letters_right"))
    shown = itertools.islice(practice.pages(seed + 1, 4), _SETTLED)
    settle_features(made, itertools.chain.from_iterable(page.pictures for page in shown))
    made.model.model.visual.requires_grad_(False)

    def taught(name: str, *parts: _Practice, **how: Any) -> None:
        joined = join_sequences([part.sequences for part in parts])
        looks = [looks for part in parts for looks in part.looks]
        trainer = PlaceTrainer(made, joined, looks, warmup=20, seed=seed, **how)
        train(trainer, folder, name, save_seconds)

    near = _captions(made, captions, seed + 2)
    taught("captions", near, steps=caption_steps, learning_rate=1.5e-3, decay=0.2)
    far = _located(made, itertools.islice(practice.placed(seed + 8, _MOST), places), digits=True)
    asked = _located(made, itertools.islice(practice.looked_for(seed + 3, _MOST), openings), digits=True)
    taught("places", far, asked, near, steps=place_steps, learning_rate=2e-3, decay=0.3, context_weight=0.2)
    del far, asked  # gigabytes of pictures
    asked = _located(made, itertools.islice(practice.looked_for(seed + 6, _MOST), openings // 2))
    played = _episodes(made, demonstrations, 0.0, seed + 4)
    taught("mixture", asked, near, played, steps=steps, learning_rate=1e-3, decay=0.5)
    del asked, near, played
    # half of the tokens are of episodes
    asked = _located(made, itertools.islice(practice.looked_for(seed + 9, _MOST), openings // 5))
    near, played = _captions(made, captions // 4, seed + 5), _episodes(made, -(-demonstrations // 2), noise, seed + 7)
    taught("mistakes", asked, near, played, steps=mistake_steps, learning_rate=7e-4, decay=0.5)
    made.model.model.visual.requires_grad_(True)
    return made


def _captions(made: VisionModel, count: int, seed: int) -> _Practice:
    parts = (part for page in practice.pages(seed, 1) for part in page.close)
    described = map(practice.described, itertools.islice(parts, count))
    return _located(made, (Located(messages, ()) for messages in described))


def _episodes(made: VisionModel, count: int, noise: float, seed: int) -> _Practice:
    played = play(
        "AgentR1/PictureSearch-v0", policy=ExpertPolicy(noise=noise, seed=seed), seed=seed, env_kwargs=TASK, reader=""
    )
    sequences = encode(
        itertools.islice(played, count), made.tokenizer, max_tokens=count * _LENGTH, max_length=_LENGTH,
        image_tokens=made.pictures,
    )  # fmt: skip
    return _Practice(sequences, [()] * len(sequences))


def _located(made: VisionModel, located: Iterable[Located], *, digits: bool = False) -> _Practice:
    """Return conversations as tokens and what is looked at in them; with `digits` only first digits are responses."""
    pictures = made.pictures
    assert pictures is not None
    builder = PromptBuilder(made.tokenizer, pictures=pictures)
    figures = frozenset(made.tokenizer.convert_tokens_to_ids(list("0123456789")))
    side = pictures.image_processor.patch_size * pictures.image_processor.merge_size
    looks: list[Sequence[tuple[int, int]]] = []

    def found() -> Iterable[Conversation]:
        for messages, middles in located:
            ids, spans = builder.conversation(messages)
            seen = pictures_of(messages)
            if middles:
                numbers = [n for span in spans for n in range(*span) if ids[n] in figures and ids[n - 1] not in figures]
                across, start = seen[0].width // side, ids.index(pictures.token_id)
                cells = [start + y // side * across + x // side for x, y in middles]
                each = len(numbers) // len(cells)
                looks.append([(n - 1, cells[k // each]) for k, n in enumerate(numbers)])
                spans = [(n, n + 1) for n in numbers] if digits else spans
            else:
                looks.append(())
            yield Conversation(ids, spans, (), seen)

    return _Practice(Sequences.of(found()), looks)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make tiny-vision.")
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of the run; the same command resumes it")
    numbers = {
        "tower_steps": "steps of the tower by itself",
        "caption_steps": "steps of things that are shown from near",
        "place_steps": "steps of where everything is on a page",
        "steps": "steps of everything",
        "mistake_steps": "steps of everything, with mistakes",
        "captions": "different things that are shown from near",
        "places": "different pages on which everything is told where it is",
        "openings": "different pages on which something is looked for",
        "demonstrations": "different whole episodes",
        "noise": "share of wrong actions where there are mistakes",
        "save_seconds": "seconds between two checkpoints",
        "seed": "seed of everything that is drawn",
    }
    add_numbers(parser, pretrain, numbers)
    options = vars(parser.parse_args())
    out = options.pop("out")
    write_base(*pretrain(out, **options), out / "base")


if __name__ == "__main__":
    main()
