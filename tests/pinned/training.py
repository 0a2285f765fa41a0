"""The configurations of training, as `agentr1 train --dry-run` prints them."""

import re
from functools import partial
from typing import Any

from pinned.pins import pin, ran
from pinned.play import HOUSE, QA, TOOLS

ALGORITHMS = (
    "bi_level_gae", "dr_grpo", "gigpo", "grpo", "gspo", "ppo", "pspo", "reinforce", "reinforce_pp",
    "reinforce_pp_baseline", "remax", "rloo", "steppo", "token_gae",
)  # fmt: skip
TASKS = ("alfworld", "gsm8k", "gsm8k-tool", "hotpotqa", "hotpotqa-legacy", "papersearch", "webshop")
MODELS = ("qwen2.5-1.5b", "qwen2.5-3b", "qwen3-1.7b", "qwen3-4b", "qwen3-4b+lora")
HARDWARE = ("h100-4", "h100-8", "h100-8x2", "h200-1")
# Every algorithm, and in those of the quick tests every other part, at least once.
COVER = [f"{MODELS[i % 5]}/{TASKS[i % 7]}/{algo}/{HARDWARE[i // 2 % 4]}" for i, algo in enumerate(ALGORITHMS)]
QUICK = COVER[::2]
TRAIN: dict[str, list[str]] = {
    "cpu-tiny/gsm8k-tool": ["--env", TOOLS],
    "cpu-tiny/alfworld": ["--env", HOUSE, "--algo", "ppo", "--wrapper", "AsTool", "--seed", "3", "--steps", "7"],
    "gpu-8/hotpotqa": ["--env", QA, "--algo", "gigpo", "--preset", "gpu-8", "--model", "some/model"],
    "any/webshop/grpo": [
        "--preset",
        "any/webshop/grpo",
        "--model",
        "some/model",
        "actor_rollout_ref.actor.optim.lr=2e-6",
    ],
}


def configuration(*options: str) -> list[Any]:
    """The whole configuration, without where the module lies that verl is told to import."""
    lines = ran("train", *options, "--out", "run", "--dry-run")
    return [re.sub(r"(VERL_USE_EXTERNAL_MODULES: ).*", r"\1", line) for line in lines]


NEEDED = ("torch", "verl")
for name, options in TRAIN.items():
    pin(f"text/train/{name}", partial(configuration, *options), needs=NEEDED)
for preset in COVER:
    pin(f"text/train/{preset}", partial(configuration, "--preset", preset), slow=preset not in QUICK, needs=NEEDED)
