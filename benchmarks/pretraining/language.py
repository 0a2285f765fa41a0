"""Makes tiny-base, unattended and from nothing but this package.

    python -m benchmarks.pretraining.language --out runs/tiny-base

It plays demonstrations of nine environments by noisy teachers (mixture.json: environments, arguments, wrappers, the
share of wrong actions), trains a tokenizer and a model on them, and writes the model to OUT/base. The model practises
copying first, then choosing what a first or a last action copies, then whole episodes: from whole episodes alone,
where few tokens depend on such a choice, it would learn neither for a long time. Drawn equations are practised too. The
tasks are those of the split "train"; panels and held-out tasks are of other splits. The same command goes on where a
run was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from tqdm import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2ForCausalLM,
)

from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.tiny.supervised import Sequences, SupervisedTrainer
from agent_envs.adapters.tiny.warm_start import encode, play
from agent_envs.checks import load_function
from agent_envs.errors import AgentEnvsError
from agent_envs.files import replacing
from agent_envs.messages import Message
from agent_envs.policies import ExpertPolicy, Policy
from agent_envs.prompts.pictures import PictureTokens
from agent_envs.rollout.demonstrations import Demonstration
from benchmarks.pretraining.arithmetic import practice_arithmetic
from benchmarks.pretraining.copying import practice, teach_to_copy
from benchmarks.pretraining.model import build_model
from benchmarks.pretraining.moments import Stumbling, encode_moments, ending, opening, transcript
from benchmarks.pretraining.renaming import renamed
from benchmarks.pretraining.tokenizer import build_tokenizer

SHAPE: dict[str, Any] = {
    "hidden_size": 128, "layers": 3, "heads": 4, "intermediate_size": 384, "rope_theta": 100_000.0,
    "context_length": 4096,
}  # fmt: skip
VOCABULARY = 1536
MAX_LENGTH = 3072
"""Tokens of the longest demonstration that is trained on."""
_LOGGED_STEPS = 50
_WORLDS_OF_A_SEED = 100  # before those of the next one
_PRACTICE_SHARE = 0.06  # tokens of practised copying, and as many of arithmetic, for each of the mixture


class OutOfTime(AgentEnvsError):  # noqa: N818  a stop is not a failure
    """A deadline has passed; the same call goes on from what has been kept."""


@dataclass(frozen=True)
class Recipe:
    """A part of the mixture: an environment, and how it is demonstrated."""

    name: str
    env: str
    noise: float
    """Share of the actions that are wrong on purpose."""
    share: float
    """Part of the mixture's tokens, in proportion to the others'."""
    openings: float = 0.0
    """Likewise part of the tokens of first actions, which are learned before whole episodes and with them."""
    endings: float = 0.0
    """Likewise part of the tokens of last actions that take their words from the page before them."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: Sequence[str] = ()
    stumbles: float = 0.0
    """Share of the actions that an environment hardly understands; these are never learned."""
    mistakes: bool = False
    """Whether the wrong actions are learned too, rather than only seen."""
    names: str | None = None
    """Where the function is that invents the words of its names; every demonstration gets words of its own."""
    worlds: Mapping[str, Any] | None = None
    """The argument whose every value makes another world, its first value, and the tasks played in each.

    In a single world names are soon known by heart, and nothing is gained by copying them.
    """

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Demonstrate tasks of the split "train", in an order drawn with `seed`, world after world."""
        if self.names is None:
            yield from self._played(seed)
        else:
            yield from renamed(self._played(seed), load_function(self.names, what="names"), seed)

    def _played(self, seed: int) -> Iterator[Demonstration]:
        policy: Policy = ExpertPolicy(noise=self.noise, seed=seed)
        if self.stumbles:
            policy = Stumbling(policy, self.stumbles, seed)
        how: dict[str, Any] = {"policy": policy, "seed": seed, "wrappers": self.wrappers}
        how["mark_mistakes"] = not self.mistakes
        if self.worlds is None:
            yield from play(self.env, **how, env_kwargs=self.env_kwargs)
            return
        for value in itertools.count(self.worlds["first"] + _WORLDS_OF_A_SEED * seed):
            world = play(self.env, **how, env_kwargs={**self.env_kwargs, self.worlds["argument"]: value})
            yield from itertools.islice(world, self.worlds["tasks"])


class _Part(NamedTuple):
    tokens: float  # for each of whole episodes
    seed: int  # added to the seed, so that the tasks are others
    moment: Callable[[Demonstration], list[Message]] | None = None


_PARTS = {"share": _Part(1.0, 0), "openings": _Part(0.2, 2, opening), "endings": _Part(0.25, 4, ending)}


def mixture() -> list[Recipe]:
    """Return the mixture that tiny-base is trained on."""
    return [Recipe(**recipe) for recipe in json.loads(Path(__file__).with_name("mixture.json").read_bytes())]


def make_tokenizer(recipes: Sequence[Recipe], characters: int, seed: int) -> PreTrainedTokenizerBase:
    """Train a tokenizer on `characters` characters of the mixture, each part with its share."""
    texts: list[str] = []
    total = sum(recipe.share for recipe in recipes)
    for recipe in recipes:
        left = recipe.share / total * characters
        for text in map(transcript, recipe.demonstrations(seed)):
            texts.append(text)
            left -= len(text)
            if left <= 0:
                break
    return build_tokenizer(texts, VOCABULARY)


def join_sequences(parts: Sequence[Sequences]) -> Sequences:
    """Return the sequences of all parts."""
    ends = itertools.accumulate(len(part.ids) for part in parts)
    starts = [part.starts[:-1] + end - len(part.ids) for part, end in zip(parts, ends, strict=True)]
    ids, kinds = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "kinds"))
    pictures = tuple(seen for part in parts for seen in part.pictures or ((),) * len(part))
    return Sequences(ids, kinds, np.concatenate([*starts, [len(ids)]]), pictures if any(pictures) else ())


def make_sequences(
    recipes: Sequence[Recipe], tokenizer: PreTrainedTokenizerBase, folder: Path, tokens: int, seed: int,
    deadline: float = math.inf,
) -> dict[str, Sequences]:  # fmt: skip
    """Demonstrate the mixture, and keep its parts in `folder`.

    Returns:
        By its part of `Recipe`: about `tokens` tokens of whole episodes ("share"), a fifth of that of first actions
        ("openings"), a quarter of last ones ("endings").

    Raises:
        OutOfTime: `deadline` had passed when a part was kept.
    """
    found: dict[str, list[Sequences]] = {name: [] for name in _PARTS}
    for recipe, (name, part) in tqdm([*itertools.product(recipes, _PARTS.items())], desc="demonstrations"):
        share = operator.attrgetter(name)
        if not share(recipe):
            continue
        path = folder / (f"{recipe.name}.{name}.npz" if part.moment else f"{recipe.name}.npz")
        if not path.exists():
            demonstrations = recipe.demonstrations(seed + part.seed)
            wanted = round(part.tokens * tokens * share(recipe) / sum(map(share, recipes)))
            if part.moment:
                sequences = encode_moments(demonstrations, tokenizer, part.moment, max_tokens=wanted)
            else:
                sequences = encode(demonstrations, tokenizer, max_tokens=wanted, max_length=MAX_LENGTH)
            with replacing(path) as partial, partial.open("wb") as file:
                np.savez_compressed(file, ids=sequences.ids, kinds=sequences.kinds, starts=sequences.starts)
            _check_time(deadline, f"demonstrations of {recipe.name}")
        with np.load(path, allow_pickle=False) as arrays:
            found[name].append(Sequences(arrays["ids"], arrays["kinds"], arrays["starts"]))
    return {name: join_sequences(parts) for name, parts in found.items() if parts}


class Trainer(Protocol):
    """Trains a model in place, a step at a time."""

    step: int
    steps: int

    def train_step(self) -> tuple[float, float]:
        """Train on the next batch; return two figures of it."""

    def state(self) -> dict[str, Any]:
        """Return what a later `resume` goes on from."""

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""


def train(
    trainer: Trainer, folder: Path, name: str, save_seconds: float,
    figures: tuple[str, str] = ("response_loss", "context_loss"), deadline: float = math.inf,
) -> None:  # fmt: skip
    """Train to the end, from the state in FOLDER/NAME.pt if there is one; NAME.jsonl has means over 50 steps.

    Raises:
        OutOfTime: `deadline` had passed after a step, whose state is kept.
    """
    state = folder / f"{name}.pt"
    if state.exists():
        trainer.resume(torch.load(state, map_location="cpu", weights_only=True))
    saved, recent = time.monotonic(), []
    with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as log:
        for _ in tqdm(range(trainer.step, trainer.steps), desc=name, unit="step", initial=trainer.step):
            recent.append(trainer.train_step())
            if len(recent) == _LOGGED_STEPS:
                means = (float(np.nanmean(values)) for values in zip(*recent, strict=True))
                line = {"step": trainer.step, **dict(zip(figures, means, strict=True)), "time": time.time()}
                log.write(json.dumps(line) + "\n")
                log.flush()
                recent = []
            now, done = time.monotonic(), trainer.step == trainer.steps
            if done or now > deadline or now - saved > save_seconds:
                with replacing(state) as partial:
                    torch.save(trainer.state(), partial)
                saved = time.monotonic()
            if not done and now > deadline:
                raise OutOfTime(f"time is up at step {trainer.step} of {trainer.steps} of the {name}")


def pretrain(
    folder: Path, recipes: Sequence[Recipe], *, shape: Mapping[str, Any] = SHAPE, start: Path | None = None,
    tokens: int = 24_000_000, unique_tokens: int = 9_000_000, tokens_per_step: int = 4096, copying_steps: int = 400,
    openings_steps: int = 1000, context_weight: float = 0.1, learning_rate: float = 3e-3, save_seconds: float = 300.0,
    tokenizer_characters: int = 6_000_000, seed: int = 0, device: str = "cpu", deadline: float = math.inf,
) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:  # fmt: skip
    """Make a model from a mixture, or go on where a run in `folder` was stopped.

    Args:
        folder: Keeps the tokenizer, the demonstrations as tokens, states of the trainer and losses.
        recipes: The mixture.
        shape: What `build_model` takes beside the tokenizer and the seed.
        start: Folder of a model to go on from instead, which need not practise copying first.
        tokens: Tokens to train on.
        unique_tokens: Tokens of different demonstrations.
        tokens_per_step: Tokens of a step.
        copying_steps: Steps of copying alone, at first.
        openings_steps: Steps of first and last actions alone, after that.
        context_weight: Weight of the loss of what is no response.
        learning_rate: See `SupervisedTrainer`.
        save_seconds: Seconds between two checkpoints.
        tokenizer_characters: Characters of demonstrations that the tokenizer is trained on.
        seed: Of everything that is drawn.
        device: Where it is trained.
        deadline: Time of `time.monotonic()` after which it stops, with the tokenizer, the demonstrations of an
            environment or the step that it is at. Every call does at least one of these.

    Raises:
        OutOfTime: The deadline has passed; the same call goes on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = start or folder / "tokenizer"
    if start is None and not files.exists():
        make_tokenizer(recipes, tokenizer_characters, seed + 1).save_pretrained(files)
        _check_time(deadline, "the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(files)
    parts = make_sequences(recipes, tokenizer, folder, unique_tokens, seed, deadline)
    words = range(len(tokenizer.all_special_ids), len(tokenizer))
    how: dict[str, Any] = {"tokens_per_step": tokens_per_step, "learning_rate": learning_rate, "seed": seed}
    saved: dict[str, Any] = {"save_seconds": save_seconds, "deadline": deadline}
    model: Qwen2ForCausalLM
    if start:
        model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32).to(device)
    else:
        model = build_model(tokenizer, **shape, seed=seed)
        teach_to_copy(model, seed)
        model.to(device)
        repeated = practice(words, copying_steps * tokens_per_step, seed)
        train(SupervisedTrainer(model, repeated, steps=copying_steps, **how), folder, "copying", **saved)
        moments = join_sequences([part for name, part in parts.items() if name != "share"])
        chosen = join_sequences([moments, practice(words, len(moments.ids) // 4, seed + 2)])
        trainer = SupervisedTrainer(model, chosen, steps=openings_steps, context_weight=context_weight, **how)
        train(trainer, folder, "openings", **saved)
    drawn = round(_PRACTICE_SHARE * unique_tokens)
    practised = [practice(words, drawn, seed + 1), practice_arithmetic(tokenizer, drawn, seed + 1)]
    mixed = join_sequences([*parts.values(), *practised])
    steps = tokens // tokens_per_step
    trainer = SupervisedTrainer(model, mixed, steps=steps, context_weight=context_weight, **how)
    train(trainer, folder, "mixture", **saved)
    return model, tokenizer


def write_base(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pictures: PictureTokens | None, folder: Path
) -> None:
    """Write a model as tiny-base is kept: in float16, with the SHA-256 of each file."""
    save_model(model.half(), tokenizer, folder, pictures)
    whole = folder / "tokenizer.json"  # written with a line for every token and merge
    whole.write_text(json.dumps(json.loads(whole.read_text(encoding="utf-8")), ensure_ascii=False), encoding="utf-8")
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
    (folder / "digest.json").write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")


def _check_time(deadline: float, made: str) -> None:
    if time.monotonic() > deadline:
        raise OutOfTime(f"time is up after {made}")


def add_numbers(parser: argparse.ArgumentParser, function: Any, texts: Mapping[str, str]) -> None:
    """Add an option for each of some keyword arguments of a function, with its default."""
    for name, text in texts.items():
        default = function.__kwdefaults__[name]
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(default), default=default, help=f"{text} (default: {default})")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make tiny-base.")
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of the run; the same command resumes it")
    add("--start", type=Path, help="model to go on from, such as adapters/tiny/base (default: a new one)")
    numbers = {
        "tokens": "tokens to train on",
        "unique_tokens": "tokens of different demonstrations",
        "tokens_per_step": "tokens of a step",
        "copying_steps": "steps of copying alone, at first",
        "openings_steps": "steps of first and last actions alone, after that",
        "context_weight": "weight of the loss of what is no response",
        "learning_rate": "learning rate of the matrices and the embeddings",
        "save_seconds": "seconds between two checkpoints",
        "seed": "seed of everything that is drawn",
    }
    add_numbers(parser, pretrain, numbers)
    options = vars(parser.parse_args())
    out = options.pop("out")
    write_base(*pretrain(out, mixture(), **options), None, out / "base")


if __name__ == "__main__":
    main()
