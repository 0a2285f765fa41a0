"""Counts image tokens against image features over random episodes: the two must be equal in every row of a batch.

    python benchmarks/picture_tokens.py --episodes 100000

An episode has one to five steps. Its task and the results of its tools show up to three pictures each, of random sizes
from one pixel to 300, thin ones included, or none; words imitate control tokens; responses are random tokens. Prompts
grow, are rebuilt at every step, or are cut by a window, a number of tokens or the context. The features of a picture
are counted from what the image processor of Qwen2-VL makes of its pixels, which a sample of real forward passes of the
vision tower confirms. It prints their counts and the mismatches, as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from agent_envs import Pictured, ToolEnv, run_episode
from agent_envs.adapters.batches import build_batch
from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.tiny.vision import VisionModel, build_vision_model
from agent_envs.episodes.record import Episode
from agent_envs.pictures.picture import Picture
from agent_envs.policies.tokens import Sampled, TokenPolicy
from agent_envs.problem_env import Problem
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome
from agent_envs.wrappers import ChatMessages, RebuildPrompt, SlidingWindow, TokenBudget

SIZES = 400
WORDS = ("north", "<image>", "<|image_pad|>", "<|vision_start|>", "\U000f0000", "a b", "\n", "")


def pool(seed: int = 0) -> list[Picture]:
    """Return pictures of random sizes; every tenth is thin."""
    rng = np.random.default_rng(seed)
    pictures = []
    for number in range(SIZES):
        height, width = (int(side) for side in np.exp(rng.uniform(0, np.log(300), 2)))
        if number % 10 == 0:
            height, width = int(rng.integers(1, 4)), int(rng.integers(1, 900))
        pictures.append(Picture(rng.integers(0, 256, (height, width, 3), np.uint8)))
    return pictures


class Endless(IndexedTasks):
    """One task for every number."""

    def __len__(self) -> int:
        return 1 << 30

    def get(self, index: int) -> Problem:
        """Return a task."""
        return Problem(f"pictures/{index}", "", "")


class RandomPictures(ToolEnv):
    """Shows random words and pictures, whatever the policy says, for a random number of steps."""

    instructions = "Look."
    max_images = 12
    max_image_side = 900

    def __init__(self, pictures: Sequence[Picture]) -> None:
        super().__init__(tools=[self.look], split="train")
        self.pictures = pictures
        self.rng = np.random.default_rng(0)

    def look(self) -> Any:
        """Look again."""
        return self.shown()

    def open_tasks(self) -> Endless:
        """Return the tasks."""
        return Endless("generated", self.split)

    def begin(self, task: Problem) -> tuple[Any, None]:
        """Return the first observation."""
        self.rng = np.random.default_rng(int(task.task_id.partition("/")[2]))
        self.left = int(self.rng.integers(1, 6))
        return self.shown(), None

    def answer(self, text: str) -> Outcome:
        """Return another observation, or the end."""
        self.left -= 1
        return Outcome(self.shown(), 0.0, self.left <= 0, score=0.0, success=False)

    def shown(self) -> Any:
        """Return words with up to three pictures between them."""
        parts: list[Any] = [str(self.rng.choice(WORDS))]
        for _ in range(int(self.rng.choice([0, 0, 1, 1, 2, 3]))):
            parts += [self.pictures[int(self.rng.integers(len(self.pictures)))], str(self.rng.choice(WORDS))]
        return Pictured(*parts) if len(parts) > 1 else parts[0]


class RandomTokens(TokenPolicy):
    """Samples random tokens, now and then a call of the tool."""

    async def sample(
        self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture] = ()
    ) -> Sampled:
        """Return a few tokens."""
        assert self.pictures is not None
        rng = np.random.default_rng(seed)
        if rng.random() < 0.4:
            call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
            ids = self.tokenizer.encode(call * int(rng.integers(1, 3)))
        elif rng.random() < 0.3:
            ids = self.tokenizer.encode("see <|image_pad|> <image>", split_special_tokens=True)
        else:
            ids = [int(i) for i in rng.integers(3, min(self.pictures.reserved), int(rng.integers(1, 8)))]
        ids = [i for i in ids if i not in self.pictures.reserved][:max_tokens]
        if rng.random() < 0.8:
            ids = [*ids, self.tokenizer.eos_token_id][:max_tokens]
        return Sampled(ids, [-1.0] * len(ids))


def environments(pictures: Sequence[Picture], folder: str) -> list[gym.Env[Any, str]]:
    """Return the environment under everything that makes, rebuilds or cuts prompts."""

    def bare() -> gym.Env[Any, str]:
        return gym.wrappers.TimeLimit(RandomPictures(pictures), 8)

    return [
        bare(),
        ChatMessages(bare()),
        ChatMessages(bare(), reasoning="strip", tools="text", max_images=4),
        SlidingWindow(ChatMessages(bare()), k=1),
        TokenBudget(ChatMessages(bare()), n=500, tokenizer=folder),
        RebuildPrompt(bare(), template="$observation"),
        RebuildPrompt(bare(), template="history", max_images=3),
        ChatMessages(RebuildPrompt(bare(), history=2, max_length=1000)),
    ]


def mismatches(episode: Episode, made: VisionModel, features: dict[Picture, int]) -> tuple[int, int, int]:
    """Return the rows of an episode in both layouts, their pictures, and those with tokens that are not features."""
    assert made.pictures is not None
    rows = shown = wrong = 0
    for layout in ("merged", "steps"):
        batch = build_batch([episode], layout)
        pictures = batch.pictures or ((),) * (len(batch.offsets) - 1)
        for ids, own in zip(np.split(batch.input_ids, batch.offsets[1:-1]), pictures, strict=True):
            rows, shown = rows + 1, shown + len(own)
            wrong += int((ids == made.pictures.token_id).sum()) != sum(features[picture] for picture in own)
    return rows, shown, wrong


def count(episodes: int, seed: int = 0) -> dict[str, Any]:
    """Play random episodes, and return how many rows do not have the tokens of their features."""
    made, pictures = build_vision_model(patch=8, width=48), pool(seed)
    assert made.pictures is not None
    merge = made.pictures.image_processor.merge_size**2
    inputs = {picture: made.pictures.inputs([picture]) for picture in pictures}
    features = {picture: int(given.image_grid_thw.prod()) // merge for picture, given in inputs.items()}
    with torch.no_grad():  # what the tower really gives
        for picture in pictures[:: max(1, SIZES // 40)]:
            arrays = [torch.from_numpy(array) for array in inputs[picture]]
            (given,) = made.model.get_image_features(*arrays).pooler_output
            assert len(given) == features[picture] == made.pictures.count(picture)
    found = {"episodes": episodes, "steps": 0, "rows": 0, "pictures": 0, "mismatches": 0, "merged": 0}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        save_model(made.model, made.tokenizer, f"{folder}/model", made.pictures)
        envs = environments(pictures, f"{folder}/model")
        policies = [
            RandomTokens(made.tokenizer, max_tokens=40, context_length=n, seed=seed, pictures=made.pictures)
            for n in (4096, 700)
        ]
        for number in range(episodes):
            rng = np.random.default_rng([seed, number])
            env = envs[int(rng.integers(len(envs)))]
            policy = policies[int(rng.random() < 0.2)]
            episode = run_episode(env, policy, options={"index": int(rng.integers(1 << 30))})
            if episode.stop_reason.broken:
                raise SystemExit(episode.error)
            rows, shown, wrong = mismatches(episode, made, features)
            acted = sum(bool(step.response_ids) for step in episode.steps)
            found["steps"] += acted
            found["rows"] += rows
            found["merged"] += 2 * acted - rows
            found["pictures"] += shown
            found["mismatches"] += wrong
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    """Count, and print what was found."""
    parser = argparse.ArgumentParser(description="Count image tokens against image features.")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(json.dumps(count(args.episodes, args.seed)))


if __name__ == "__main__":
    main()
