"""verl's own trainer end to end on a CPU, Ray included: optimiser steps, checkpoint, resume, episodes.

gae trains actor and critic in two mini-batches, validates and saves; a second start resumes from the checkpoint.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
from omegaconf import OmegaConf

from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.verl.config.compose import compose_run
from agent_envs.adapters.verl.run.process import process_environment
from agent_envs.adapters.verl.run.tasks import make_rows, write_rows
from agent_envs.episodes.record import read_episodes
from benchmarks.pretraining.model import build_model
from benchmarks.pretraining.tokenizer import build_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.ray]
ENV = "AgentR1/GSM8KTool-v0"


@pytest.fixture
def ray_dir():
    path = tempfile.mkdtemp(prefix="ae")  # Ray's socket names must stay short
    yield path
    shutil.rmtree(path, ignore_errors=True)


def train(out, ray_dir, root, *overrides, algo="gae", steps=2):
    variables = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    variables |= process_environment(cpu=True) | {"RAY_TMPDIR": ray_dir, "HF_HUB_OFFLINE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    config = compose_run(
        env=ENV, algo=algo, preset="cpu-tiny", steps=steps, data=None, split="train", env_kwargs=None, wrappers=[],
        out=str(out), model=str(out / "model"), seed=0, warm_start=None, demo_noise=None, val_fraction=0.1,
        overrides=[
            "data.train_batch_size=4",
            "data.val_batch_size=4",
            "data.max_prompt_length=512",
            "data.max_response_length=16",
            "actor_rollout_ref.rollout.n=2",
            "actor_rollout_ref.actor.ppo_mini_batch_size=2",
            "critic.ppo_mini_batch_size=2",
            "trainer.val_before_train=False",
            "trainer.save_freq=1",
            *overrides,
        ],
    ).verl()  # fmt: skip
    config.trainer.logger = ["console"]
    (out / "config.yaml").write_text(OmegaConf.to_yaml(config))
    done = subprocess.run(
        [sys.executable, "-m", "agent_envs.adapters.verl.run.launch", str(os.getpid()), str(out / "config.yaml")],
        env=variables,
        cwd=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout


def metric(log, step, name):
    line = next(line for line in log.splitlines() if f"step:{step} - " in line)
    return float(re.search(rf" {re.escape(name)}:(?:np\.float64\()?([-+0-9.e]+)", line).group(1))


@pytest.fixture
def run_dir(tmp_path):
    tokenizer = build_tokenizer(["words of a problem, 12 + 3 apples"])
    save_model(build_model(tokenizer), tokenizer, tmp_path / "model")
    write_rows(tmp_path / "data" / "train.parquet", make_rows(ENV, range(16), wrappers=["FormatReward(weight=0.1)"]))
    write_rows(tmp_path / "data" / "validation.parquet", make_rows(ENV, range(4), phase="validation"))
    return tmp_path


def test_gae_trains_validates_saves_and_resumes(run_dir, ray_dir, root):
    code, log = train(run_dir, ray_dir, root, "trainer.test_freq=2")
    assert code == 0, log[-5000:]
    assert metric(log, 1, "actor/grad_norm") > 0
    assert metric(log, 1, "critic/grad_norm") > 0
    assert metric(log, 1, "env/episodes") == 8
    assert metric(log, 2, "val/episodes") == 4
    folder = run_dir / "checkpoints"
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "2"
    (folder / "latest_checkpointed_iteration.txt").write_text("")  # what a kill in the middle of a save leaves
    code, log = train(run_dir, ray_dir, root, "trainer.test_freq=2", steps=3)
    assert code == 0, log[-5000:]
    assert "step:3 - " in log and "step:2 - " not in log
    names = sorted(path.name for path in (run_dir / "episodes").iterdir())
    assert names == [
        "train-000001.jsonl", "train-000002.jsonl", "train-000003.jsonl",
        "validation-000002.jsonl", "validation-000003.jsonl",
    ]  # fmt: skip
    episodes = list(read_episodes(run_dir / "episodes" / "train-000003.jsonl"))
    assert len(episodes) == 8
    for episode in episodes:
        for step in episode.steps:
            assert len(step.response_ids) == len(step.response_logprobs) > 0
