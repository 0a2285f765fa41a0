"""`agentr1 train` with pictures: two steps by verl's own trainer, Ray included, and what it leaves.

Each prompt has a greedy episode more, of `--algo remax`, which is neither trained nor counted.
"""

import json
import os

import pytest
import torch

from agent_envs import read_episodes
from agent_envs.cli.main import main

pytest.importorskip("pygame")
from safetensors.torch import load_file

from agent_envs.adapters.verl.run.checkpoints import hugging_face_folder
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.pictures import load_picture_tokens

pytestmark = [pytest.mark.slow, pytest.mark.ray]

LAKE = (
    "--env", "FrozenLake-v1", "--wrapper", "ImageGame(max_side=64)", "--wrapper",
    'RebuildPrompt(template="$observation")', "--env-kwargs",
    '{"render_mode": "rgb_array", "is_slippery": false, "max_episode_steps": 4}',
    "--wrapper", "LimitInvalidActions(limit=2)", "--wrapper", "lake_rewards:LongerIsBetter",
)  # fmt: skip
SMALL = (
    "data.train_batch_size=4", "data.val_max_samples=4", "data.max_prompt_length=256", "data.max_response_length=4",
    "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "trainer.save_freq=2",
    "trainer.test_freq=2", "trainer.val_before_train=False", "algorithm.rollout_correction.bypass_mode=False",
)  # fmt: skip


REWARDS = """
import gymnasium

class LongerIsBetter(gymnasium.Wrapper):
    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return (observation, float(reward) + len(action) / 100, *rest)
"""


def test_two_steps_on_pictures(tmp_path, capsys, monkeypatch):
    (tmp_path / "lake_rewards.py").write_text(REWARDS)  # what any model earns differs, so that there is a gradient
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "lake"
    assert main(["train", *LAKE, "--algo", "remax", "--out", str(out), "--steps", "2", *SMALL]) == 0
    capsys.readouterr()
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [1, 2]
    for record in records:
        assert record["actor/grad_norm"] > 0 and record["env/baselines_missing"] == 0
        assert record["env/episodes"] == 16 and record["env/merge_factor"] > 0.999
    # computed anew by the trainer, from the same tokens and pictures
    assert all(record["training/rollout_probs_diff_max"] < 1e-5 for record in records)
    episodes = list(read_episodes(out / "episodes" / "train-000001.jsonl"))
    assert len(episodes) == 16 and not any(episode.error for episode in episodes)
    for episode in episodes:
        for step in episode.steps:
            (picture,) = step.prompt_pictures
            assert picture.array.shape == (64, 64, 3) and picture == step.observation["images"][0]
    start = load_file(out / "model" / "model.safetensors")
    folder = hugging_face_folder(out, tmp_path / "converted", trust=True)
    trained = load_file(folder / "model.safetensors")
    moved = [name for name in start if not torch.equal(start[name].to(trained[name].dtype), trained[name])]
    assert any("visual" in name for name in moved) and any("visual" not in name for name in moved)
    assert load_picture_tokens(str(folder), load_tokenizer(str(folder))) is not None
