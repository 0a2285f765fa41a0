"""Supervised warm start of tiny-base or a model of yours on demonstrations by an environment's expert.

A model that never acts in a task's form gives reinforcement learning nothing to reinforce. The demonstrations come from
`ExpertPolicy(noise=P)`: a share P of the demonstrated actions is well-formed but wrong on purpose. The warm start
therefore teaches a task's form; which actions are right is left to reinforcement learning.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm, trange

from agent_envs.adapters.tiny.base import load_base
from agent_envs.adapters.tiny.demonstrations import encode, play
from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.tiny.supervised import Sequences, SupervisedTrainer
from agent_envs.adapters.tiny.vision import VisionModel, build_vision_model, load_vision_base, spread_features
from agent_envs.errors import ConfigError, DataError, PolicyError, first_line
from agent_envs.files import replacing
from agent_envs.policies import ExpertPolicy
from agent_envs.policies.local.loading import load_model
from agent_envs.policies.tokens import load_tokenizer

TOKENS_PER_STEP = 4096
_SAVED = 120.0  # seconds between two states, which take seconds to write
MAX_TOKENS = 4_000_000
"""Most tokens of different demonstrations; a longer warm start repeats them in another order."""


def make_warm_model(
    folder: str | Path,
    env_id: str,
    *,
    model: str | None = None,
    steps: int,
    noise: float,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    generated: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    max_length: int = 2048,
    pool: int | None = None,
    pictures: bool = False,
    progress: bool = True,
) -> None:
    """Teach a model an environment's form and write it to `folder`, completely or not at all.

    That of a model of yours goes on where it was stopped: every two minutes its state is written beside `folder`.

    Args:
        model: A Hugging Face folder or name; None for tiny-base.
        steps: Supervised steps of about 4,096 tokens; 0 leaves the base model unchanged.
        noise: Share of the demonstrated actions that are wrong on purpose.
        generated: Arguments for the environment's generated tasks, shown where those of `env_kwargs` have no expert.
        max_length: Tokens of the longest demonstration that is trained on.
        pool: Only tasks below this index are demonstrated; None for all.
        pictures: Whether the environment shows pictures. With 0 steps the base model is then tiny-vision, which reads
            pages; otherwise tiny-base gets a new tower for larger patches, which is trained with it (`vision`).

    Raises:
        PolicyError: The environment has no expert for these tasks.
        ConfigError: No demonstration fits, or `model` is to learn from pictures.
    """
    if model is not None:
        if pictures:
            raise ConfigError("a warm start teaches your model from text alone; leave --model or --warm-start out")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        own = load_model(model, dtype=torch.float32, device=device)
        made = VisionModel(own, load_tokenizer(model), None)
    elif not pictures:
        made = VisionModel(*load_base(), None)
    else:
        made = build_vision_model(seed=seed) if steps else load_vision_base()
    if steps:

        def shown(kwargs: Mapping[str, Any] | None, below: int | None) -> Sequences:
            expert, reader = ExpertPolicy(noise=noise, seed=seed), "" if pictures else model or "a tiny model"
            where: dict[str, Any] = {"env_kwargs": kwargs, "wrappers": wrappers, "pool": below, "reader": reader}
            demonstrations = play(env_id, policy=expert, seed=seed, **where)
            limits = {"max_tokens": min(MAX_TOKENS, steps * TOKENS_PER_STEP), "max_length": max_length}
            return encode(demonstrations, made.tokenizer, **limits, image_tokens=made.pictures)

        try:
            sequences = shown(env_kwargs, pool)
        except PolicyError:
            if generated is None or generated == env_kwargs:
                raise
            tqdm.write("warm start: these tasks have no expert, so generated ones are shown", file=sys.stderr)
            sequences = shown(generated, None)
        if pictures:
            spread_features(made, itertools.chain.from_iterable(sequences.pictures))
        rate = 1.2 / math.sqrt(made.model.num_parameters()) if model else 1e-3 if pictures else 2e-3
        trainer = SupervisedTrainer(
            made.model, sequences, steps=steps, tokens_per_step=TOKENS_PER_STEP, learning_rate=rate, seed=seed,
            image_tokens=made.pictures, muon=model is None, warmup=50 if model is None else min(50, steps // 10 + 1),
        )  # fmt: skip
        state = Path(folder).with_name(f".{Path(folder).name}.warm-start.pt")
        if state.exists():
            try:
                trainer.resume(torch.load(state, map_location="cpu", weights_only=True))
            except Exception as e:  # what a damaged file raises has no common base
                raise DataError(f"{state} is damaged ({first_line(e)}): delete it to begin the warm start anew") from e
        saved = time.monotonic()
        for _ in trange(trainer.step, steps, desc="warm start", unit="step", disable=not progress):
            trainer.train_step()
            if model is not None and time.monotonic() - saved >= _SAVED:
                with replacing(state) as partial:
                    torch.save(trainer.state(), partial)
                saved = time.monotonic()
        state.unlink(missing_ok=True)
    save_model(made.model, made.tokenizer, folder, made.pictures)
