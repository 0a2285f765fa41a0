"""Supervised warm start of `tiny-base` on demonstrations by an environment's expert, for tasks of one's own.

A model that never acts in a task's form gives reinforcement learning nothing to reinforce. The demonstrations come from
`ExpertPolicy(noise=P)`: a share P of the demonstrated actions is well-formed but wrong on purpose. The warm start
therefore teaches a task's form; which actions are right is left to reinforcement learning.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import trange

from agent_envs.adapters.tiny.base import load_base
from agent_envs.adapters.tiny.demonstrations import encode, play
from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.tiny.supervised import SupervisedTrainer
from agent_envs.adapters.tiny.vision import VisionModel, build_vision_model, load_vision_base, spread_features
from agent_envs.policies import ExpertPolicy

__all__ = ["make_warm_model"]

TOKENS_PER_STEP = 4096
MAX_TOKENS = 4_000_000
"""Most tokens of different demonstrations; a longer warm start repeats them in another order."""


def make_warm_model(
    folder: str | Path,
    env_id: str,
    *,
    steps: int,
    noise: float,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    max_length: int = 2048,
    pool: int | None = None,
    pictures: bool = False,
    progress: bool = True,
) -> None:
    """Teach tiny-base an environment's form and write it to `folder`, completely or not at all.

    Args:
        steps: Supervised steps of about 4,096 tokens; 0 leaves the base model as it is.
        noise: Share of the demonstrated actions that are wrong on purpose.
        max_length: Tokens of the longest demonstration that is trained on.
        pool: Only tasks below this index are demonstrated; None for all.
        pictures: Whether the environment shows pictures. With 0 steps the base model is then tiny-vision, which reads
            pages; otherwise tiny-base gets a new tower for larger patches, which is trained with it (`vision`).

    Raises:
        PolicyError: The environment has no expert for these tasks.
        ConfigError: No demonstration fits.
    """
    if not pictures:
        made = VisionModel(*load_base(), None)
    else:
        made = build_vision_model(seed=seed) if steps else load_vision_base()
    if steps:
        demonstrations = play(
            env_id, policy=ExpertPolicy(noise=noise, seed=seed), seed=seed, env_kwargs=env_kwargs,
            wrappers=wrappers, pool=pool, reader="" if pictures else "a tiny model",
        )  # fmt: skip
        wanted = min(MAX_TOKENS, steps * TOKENS_PER_STEP)
        sequences = encode(
            demonstrations, made.tokenizer, max_tokens=wanted, max_length=max_length, image_tokens=made.pictures
        )
        if pictures:
            spread_features(made, itertools.chain.from_iterable(sequences.pictures))
        trainer = SupervisedTrainer(
            made.model, sequences, steps=steps, tokens_per_step=TOKENS_PER_STEP,
            learning_rate=1e-3 if pictures else 2e-3, seed=seed, image_tokens=made.pictures,
        )  # fmt: skip
        for _ in trange(steps, desc="warm start", unit="step", disable=not progress):
            trainer.train_step()
    save_model(made.model, made.tokenizer, folder, made.pictures)
