"""A training step of every algorithm in this process, without Ray: agent loop, generation, verl's workers, weights.

Everything but the storage between the parts is what `agentr1 train` runs: the configuration its command line leads to,
the agent loop, the generation server, layout, columns, losses, verl's training workers, and new weights for the server,
with which the next algorithm plays.
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from agent_loops import Client, play_session
from composing import composed
from local_training import build_worker, local_batch
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass

from agent_envs.adapters.losses import POLICY_LOSSES, policy_loss
from agent_envs.adapters.merging import TokenRow
from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.verl.batch.rows import mini_batches
from agent_envs.adapters.verl.config import compose
from agent_envs.adapters.verl.config.compose import algorithms
from agent_envs.adapters.verl.config.objective import read_objective
from agent_envs.adapters.verl.rollout import agent_loop
from agent_envs.adapters.verl.rollout.cpu_rollout import load_engine
from agent_envs.adapters.verl.rollout.episode_rows import Row
from agent_envs.policies.local.server import GenerateServer
from agent_envs.spaces import UnicodeText
from benchmarks.pretraining.model import build_model
from benchmarks.pretraining.tokenizer import build_tokenizer
from tests.helpers import sampled

pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = ["data.train_batch_size=2", "actor_rollout_ref.rollout.n=3", "actor_rollout_ref.actor.ppo_mini_batch_size=1",
         "critic.ppo_mini_batch_size=1", "data.max_prompt_length=256", "data.max_response_length=8",
         "+agentr1.turn_gamma=0.9", "+agentr1.process_rewards={length: 0.5}"]  # fmt: skip


class LengthEnv(gym.Env):
    """Rewards answers by their length and the task's number; three steps, two where a limit cuts it."""

    instructions = "Answer."
    tools: list = []

    def __init__(self):
        self.observation_space = self.action_space = UnicodeText()

    def info(self, reward=0.0):
        return {"task_id": "t", "split": "train", "index": self.index, "source": "test", "invalid_action": False,
                "score": reward, "success": reward > 0.5, "reward_components": {"length": reward},
                "anchor": f"{self.index}/{self.t}"}  # fmt: skip

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.index, self.t = options["index"], 0
        return f"task {self.index}", self.info()

    def step(self, action):
        self.t += 1
        reward = (len(action) + self.index) % 5 / 4
        return f"{len(action)} letters", reward, self.t == 3 and self.index == 0, False, self.info(reward)


@pytest.fixture(scope="module")
def made(tmp_path_factory, process_group):
    """Model, workers, and a server; one set for all algorithms."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer(["task 0 task 1 letters Answer. one two three"])
    save_model(build_model(tokenizer, hidden_size=32, intermediate_size=64), tokenizer, folder)
    gym.register("Length-v0", entry_point=LengthEnv, max_episode_steps=3)
    engine = load_engine(str(folder), max_length=264, max_rows=16)
    server = GenerateServer(engine)
    workers = {kind: build_worker(str(folder), kind, total_steps=1000, learning_rate=1e-3)
               for kind in ("language_model", "value_model")}  # fmt: skip
    yield folder, tokenizer, server, engine, workers
    server.close()
    agent_loop._pool.close()
    del gym.registry["Length-v0"]


def play(config, tokenizer, server, sessions):
    """Every prompt's sessions at once, as verl's agent loop manager asks for them."""

    async def one(prompt, session):
        how = {"index": prompt, "session": session, "uid": f"p{prompt}"}
        outputs = await play_session(config, Client(server), tokenizer, "Length-v0", **how)
        return [(f"p{prompt}", output) for output in outputs]

    async def everything():
        return await asyncio.gather(*(one(p, s) for p in range(config.data.train_batch_size) for s in range(sessions)))

    return [pair for outputs in asyncio.run(everything()) for pair in outputs]


def as_row(output):
    fields = output.extra_fields
    tokens = TokenRow(output.prompt_ids, output.response_ids, output.step_ids, output.response_logprobs, ())
    own = {name: fields[name] for name in ("part", "peers", "share")}
    return fields["trajectory"], Row(fields["kind"], tokens, tuple(fields["steps"]), fields["value_at"], **own)


BRANCHED = ("rloo", "1:1")
CASES = [*((algo, "") for algo in algorithms()), BRANCHED]
# The others need from a trainer what some of these need, and differ in a formula.
PLAIN = ("bi_level_gae", "capo", "gdpo", "gigpo", "grpo", "optimal_token_baseline", "remax")


@pytest.mark.parametrize(("algo", "branch"), sampled(CASES, [BRANCHED, *((algo, "") for algo in PLAIN)]))
def test_a_step(made, tmp_path, algo, branch):
    folder, tokenizer, server, engine, workers = made
    paid = algo != "gdpo" and not branch  # by process rewards
    overrides = [each for each in SMALL if paid or "process_rewards" not in each]
    overrides += ["actor_rollout_ref.rollout.n=4", f"+agentr1.branch='{branch}'"] if branch else []
    config = composed(*overrides, algo=algo, steps=2, out=str(tmp_path), model=str(folder)).verl()
    objective = read_objective(config)
    actor_config = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert policy_loss(actor_config.policy_loss.loss_mode)
    assert bool(config.critic.enable) == objective.estimator.needs_critic
    actor, critic = workers["language_model"], workers["value_model"]
    before = {k: v.full_tensor().clone() for k, v in actor.engine.module.state_dict().items()}
    batches = mini_batches(config.actor_rollout_ref.actor, config)
    outputs = play(config, tokenizer, server, 2 if branch else 3 + objective.estimator.needs_baseline)
    greedy = {uid: o.extra_fields["reward_extra_info"]["return"] for uid, o in outputs
              if o.extra_fields["kind"] == "baseline"}  # fmt: skip
    assert len(greedy) == 2 * objective.estimator.needs_baseline
    rows = [(uid, *as_row(o)) for uid, o in outputs if o.extra_fields["kind"] != "baseline"]
    assert len(rows) == (12 if branch else 6)  # three steps each, merged; of a tree, what is shared and two rests
    batch = local_batch(rows, filler_id=2, mini_batches=batches)
    given = {"old_log_probs": batch.sampled}
    if objective.estimator.needs_critic:
        given["values"] = batch.infer(critic, "values")
        assert (batch.table().final >= 0).sum() == 3  # prompt 1 is cut by the limit
    if objective.estimator.needs_score_norms:
        given["sum_pi_squared"] = batch.infer(actor, "sum_pi_squared")
    result = batch.columns(given, objective, actor_batches=batches, critic_batches=batches, baselines=greedy)
    metrics = dict(result.metrics)
    columns = {**given, **result.columns}
    if objective.estimator.needs_critic:
        config_of_critic = omega_conf_to_dataclass(config.critic)
        metrics |= batch.update(critic, columns, "critic", config_of_critic, mini_batches=batches)
        assert metrics["critic/grad_norm"] > 0
    metrics |= batch.update(actor, columns, "actor", actor_config, mini_batches=batches)
    assert metrics["actor/grad_norm"] > 0 and metrics["actor/ratio/moved"] > 0
    assert not paid or metrics["env/process_rewards/count"] > 0
    assert not branch or metrics["env/groups_compared"] == 2 + 4  # the tasks, and the states that trees branch from
    assert all(math.isfinite(value) for value in metrics.values())
    after = {k: v.full_tensor() for k, v in actor.engine.module.state_dict().items()}
    assert any(not torch.equal(before[k], after[k]) for k in before)
    weights, _ = actor.engine.get_per_tensor_param()
    sent = {k: v.detach().clone() for k, v in weights}
    asyncio.run(server.call(partial(engine.load_weights, sent, 1)))


def test_every_loss_is_some_algorithms():
    files = (Path(compose.__file__).parent / "algorithm").glob("*.yaml")
    chosen = {OmegaConf.select(OmegaConf.load(file), "actor_rollout_ref.actor.policy_loss.loss_mode") for file in files}
    assert chosen - {None} | {"vanilla"} == set(POLICY_LOSSES)  # which is verl's own choice
