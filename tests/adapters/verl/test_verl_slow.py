"""verl's own trainer end to end on a CPU, Ray included: optimiser steps, checkpoint, resume, episodes.

1. gae trains actor and critic in two mini-batches, validates, saves; a second start goes on from the checkpoint
2. an unknown estimator ends the run with its message
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("torch")
pytest.importorskip("verl")

from agent_envs.adapters.tiny.model import build_model, save_model
from agent_envs.adapters.tiny.tokenizer import build_tokenizer
from agent_envs.adapters.verl.config.overrides import base_overrides, cpu_overrides, environment
from agent_envs.adapters.verl.run.task_rows import make_rows, write_rows
from agent_envs.episodes.record import read_episodes

pytestmark = pytest.mark.slow
ENV = "AgentR1/GSM8KTool-v0"


@pytest.fixture
def ray_dir():
    path = tempfile.mkdtemp(prefix="ae")  # Ray's socket names must stay short
    yield path
    shutil.rmtree(path, ignore_errors=True)


def train(out, ray_dir, root, *overrides):
    variables = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    variables |= environment(cpu=True) | {"RAY_TMPDIR": ray_dir, "HF_HUB_OFFLINE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = [
        *base_overrides(),
        *cpu_overrides(),
        f"data.train_files=[{out / 'train.parquet'}]",
        f"data.val_files=[{out / 'validation.parquet'}]",
        "data.train_batch_size=4",
        "data.val_batch_size=4",
        "data.max_prompt_length=512",
        "data.max_response_length=16",
        f"actor_rollout_ref.model.path={out / 'model'}",
        f"critic.model.path={out / 'model'}",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "critic.ppo_mini_batch_size=2",
        "trainer.logger=[console]",
        "trainer.val_before_train=False",
        "trainer.save_freq=1",
        "trainer.resume_mode=auto",
        f"trainer.default_local_dir={out / 'checkpoints'}",
        f"+agentr1.episodes_dir={out / 'episodes'}",
        *overrides,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "verl.trainer.main_ppo", *settings],
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
    write_rows(tmp_path / "train.parquet", make_rows(ENV, range(16), wrappers=["FormatReward(weight=0.1)"]))
    write_rows(tmp_path / "validation.parquet", make_rows(ENV, range(4), phase="validation"))
    return tmp_path


def test_gae_trains_validates_saves_and_resumes(run_dir, ray_dir, root):
    gae = ("algorithm.adv_estimator=gae", "critic.enable=True", "trainer.total_epochs=9", "trainer.test_freq=2")
    code, log = train(run_dir, ray_dir, root, *gae, "trainer.total_training_steps=2")
    assert code == 0, log[-5000:]
    assert metric(log, 1, "actor/grad_norm") > 0
    assert metric(log, 1, "critic/grad_norm") > 0
    assert metric(log, 1, "env/episodes") == 8
    assert metric(log, 2, "val/episodes") == 4
    folder = run_dir / "checkpoints"
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "2"
    (folder / "latest_checkpointed_iteration.txt").write_text("")  # what a kill in the middle of a save leaves
    code, log = train(run_dir, ray_dir, root, *gae, "trainer.total_training_steps=3")
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


def test_an_unknown_estimator_says_what_there_is(run_dir, ray_dir, root):
    code, log = train(run_dir, ray_dir, root, "algorithm.adv_estimator=gpro", "critic.enable=False")
    assert code != 0
    assert "unknown advantage estimator 'gpro'. Did you mean 'grpo'?" in log
