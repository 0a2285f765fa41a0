"""Makes a tiny model that reads pages, unattended, from tiny-base and what this package draws.

    python -m agent_envs.adapters.tiny.seeing.pretrain --out runs/tiny-vision

A tower learns by itself to tell what it sees (`tower`) and stays as it is from then on. The language model learns to
say it: what a thing is that is shown from near; where on a page everything lies; then, all mixed, where to zoom to for
a thing that is asked for, and whole episodes of PictureSearch by its expert. A second loss has the first layer know
which feature is of which row and column: without it, and without the list of all places, nothing is found in a thousand
steps. At last the expert errs on purpose and its mistakes are learned too, so that a reward has something to unlearn.
The model is written to OUT/base. The same command goes on where a run was stopped.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, rms_norm

from agent_envs.adapters.tiny.base import write_base
from agent_envs.adapters.tiny.demonstrations import encode, play
from agent_envs.adapters.tiny.pretrain import add_numbers, train
from agent_envs.adapters.tiny.seeing.tower import TowerTrainer, settle_features
from agent_envs.adapters.tiny.supervised import Conversation, Sequences, SupervisedTrainer
from agent_envs.adapters.tiny.vision import VisionModel, build_vision_model
from agent_envs.checks import load_function
from agent_envs.episodes.run_folder import keep_settings
from agent_envs.messages import Message, pictures_of
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.rollout.demonstrations import encode_conversation

__all__ = ["PlaceTrainer", "main", "pretrain"]

SHAPE: dict[str, int] = {"patch": 16, "width": 48}
PRACTICE = "agent_envs.envs.picturesearch.practice"
TASK: dict[str, Any] = {"level": 1, "families": "find"}
_MOST = (1, 2, 3, 6, 6)  # most things on a page on which something is looked for
_LENGTH = 2048  # tokens of the longest episode
_SETTLED = 60  # pages that set the scale of the features
_TOKENS = 4096
_ACROSS = 8  # features of a row or a column of a picture, at most


class PlaceTrainer(SupervisedTrainer):
    """Trains a model, and has the first layer's states of features tell their row and their column."""

    def __init__(self, made: VisionModel, sequences: Sequences, **options: Any) -> None:
        super().__init__(made.model, sequences, image_tokens=made.pictures, tokens_per_step=_TOKENS, **options)
        size = made.model.config.text_config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.heads = nn.ModuleList([nn.Linear(size, _ACROSS) for _ in range(2)])
        self.optimizers.append(torch.optim.AdamW(self.heads.parameters(), weight_decay=0.0))

    def hidden(self, ids: torch.Tensor, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the last hidden states, [sequences, tokens, size], and the loss of the places."""
        out = self.model.model(input_ids=ids, use_cache=False, output_hidden_states=True, **seen)
        image = ids == self.model.config.image_token_id
        first = out.hidden_states[1][image].float()
        states = rms_norm(first, first.shape[-1:])
        losses = [
            cross_entropy(head(states), place)
            for head, place in zip(self.heads, self._places(seen["image_grid_thw"]), strict=True)
        ]
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


def pretrain(
    folder: Path, *, tower_steps: int = 3000, caption_steps: int = 450, place_steps: int = 1500, steps: int = 2000,
    mistake_steps: int = 150, captions: int = 4000, places: int = 10_000, openings: int = 12_000,
    demonstrations: int = 3000, noise: float = 0.4, save_seconds: float = 300.0, seed: int = 0,
) -> VisionModel:  # fmt: skip
    """Make a model, or go on where a run in `folder` was stopped.

    Args:
        folder: Keeps states of the trainers and losses.
        tower_steps: Steps of the tower by itself.
        caption_steps: Steps of things that are shown from near.
        place_steps: Steps of where everything is on a page.
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
    tower = TowerTrainer(made, _drawn("pages"), _drawn("vocabulary")(), steps=tower_steps, seed=seed)
    train(tower, folder, "tower", save_seconds, ("word_loss", "letters_right"))
    shown = itertools.islice(_drawn("pages")(seed + 1, 4), _SETTLED)
    settle_features(made, itertools.chain.from_iterable(page.pictures for page in shown))
    made.model.model.visual.requires_grad_(False)
    near = _captions(made, captions, seed + 2)
    how: dict[str, Any] = {"warmup": 20, "seed": seed}
    trainer = PlaceTrainer(made, near, steps=caption_steps, learning_rate=1.5e-3, decay=0.2, **how)
    train(trainer, folder, "captions", save_seconds)
    far = Sequences.join([_encoded(made, itertools.islice(_drawn("placed")(seed + 8, _MOST), places)), near])
    trainer = PlaceTrainer(made, far, steps=place_steps, learning_rate=2e-3, decay=0.2, **how)
    train(trainer, folder, "places", save_seconds)
    mixed = Sequences.join([far, _openings(made, openings, seed + 3), _episodes(made, demonstrations, 0.0, seed + 4)])
    trainer = PlaceTrainer(made, mixed, steps=steps, learning_rate=2e-3, decay=0.2, **how)
    train(trainer, folder, "mixture", save_seconds)
    del near, far, trainer  # gigabytes of pictures
    # half of the tokens are of episodes
    mixed = Sequences.join([
        _captions(made, captions // 4, seed + 5), _openings(made, openings // 8, seed + 6),
        _episodes(made, -(-demonstrations // 3), noise, seed + 7),
    ])  # fmt: skip
    trainer = PlaceTrainer(made, mixed, steps=mistake_steps, learning_rate=7e-4, decay=0.5, **how)
    train(trainer, folder, "mistakes", save_seconds)
    made.model.model.visual.requires_grad_(True)
    return made


def _drawn(name: str) -> Callable[..., Any]:
    return load_function(f"{PRACTICE}:{name}", what="practice")


def _captions(made: VisionModel, count: int, seed: int) -> Sequences:
    parts = (part for page in _drawn("pages")(seed, 1) for part in page.close)
    return _encoded(made, itertools.islice(map(_drawn("described"), parts), count))


def _openings(made: VisionModel, count: int, seed: int) -> Sequences:
    return _encoded(made, itertools.islice(_drawn("looked_for")(seed, _MOST), count))


def _episodes(made: VisionModel, count: int, noise: float, seed: int) -> Sequences:
    played = play("AgentR1/PictureSearch-v0", noise=noise, seed=seed, env_kwargs=TASK, reader="")
    return encode(
        itertools.islice(played, count), made.tokenizer, max_tokens=count * _LENGTH, max_length=_LENGTH,
        image_tokens=made.pictures,
    )  # fmt: skip


def _encoded(made: VisionModel, conversations: Iterable[Sequence[Message]]) -> Sequences:
    builder = PromptBuilder(made.tokenizer, pictures=made.pictures)

    def found() -> Iterable[Conversation]:
        for messages in conversations:
            ids, spans = encode_conversation(messages, builder)
            yield Conversation(ids, spans, (), pictures_of(messages))

    return Sequences.of(found())


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
