"""What cannot be trained is refused before anything starts, in one line that names it.

1. by the command: ids, algorithms, presets, splits, files, wrappers, numbers, and names of settings
2. settings that verl does not have, whatever else there is
3. settings that do not go together, on composed runs
"""

from __future__ import annotations

import re

import pytest
import yaml
from composing import ENV, changed, composed

from agent_envs.adapters.estimators import ESTIMATORS
from agent_envs.adapters.tiny.model import base_folder
from agent_envs.adapters.verl.config.checks import check_config, check_numbers
from agent_envs.adapters.verl.config.objective import read_objective
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.adapters.verl.run.training import check_verl
from agent_envs.cli.main import main
from agent_envs.errors import ConfigError

PLAIN = "AgentR1/GSM8K-v0"
TWO = ["--env", f"{ENV}=1", "--env", f"{PLAIN}=1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "AgentR1/GSM8KTol-v0"], "Did you mean 'AgentR1/GSM8KTool-v0'?"),
        (["--env", "nosuch:Env-v0"], "unknown environment"),
        (["--env", ENV, "--env", f"{PLAIN}=0.5"], f"several environments need weights: --env {ENV}=0.5"),
        (["--env", f"{ENV}=0.5", "--env", f"{ENV}=0.5"], f"--env {ENV} is given twice"),
        (["--env", f"{ENV}=0", "--env", f"{PLAIN}=1"], "must be a number above 0"),
        (["--env", f"{ENV}=x"], f"the weight of --env {ENV} must be a number above 0, got 'x'"),
        ([*TWO, "--env-kwargs", '{"level": 1}'], "several environments --env-kwargs is {ID: {NAME: VALUE}}; got 'lev"),
        ([*TWO, "--warm-start", "5"], "--warm-start teaches one environment"),
        ([*TWO, "--levels", '{"level": [1, 2]}'], "from one --env"),
        (["--split", "trian"], "trian"),
        (["--data", "no/such/file.jsonl"], "no/such/file.jsonl"),
        (["--model", "no/such/model"], "there is no such folder"),
        (["--wrapper", "FormatRewrd(weight=1)"], "Did you mean 'FormatReward'?"),
        (["--wrapper", "SlidingWindow(k=2)"], "In this order: ChatMessages, SlidingWindow"),
        (["--wrapper", "RewardNormalisation(by='kind')"], "by='kind': the reset's info has no such key"),
        (["--wrapper", "gymnasium.wrappers:TimeLimit(max_episode_steps=-3)"], "wrapper 'gymnasium.wrappers:TimeLimit"),
        (
            ["--wrapper", "ChatMessages", "--wrapper", f"TokenBudget(n=20, tokenizer={str(base_folder())!r})"],
            "leaves no room for a step within n=20",
        ),
        (["--env-kwargs", "{level: 1}"], "--env-kwargs is not valid JSON"),
        (["--env-kwargs", '{"split": "test"}'], "use --split"),
        (["--env-kwargs", '{"levle": 1}'], "levle"),
        (["--steps", "0"], "--steps must be an integer of at least 1"),
        (["--seed", "-1"], "--seed must be an integer of at least 0"),
        (["--demo-noise", "1.5"], "--demo-noise must be a number from 0 to 1"),
        (["--curriculum", "fixed"], "chooses among levels: add agentr1.levels"),
        (["--levels", '{"split": ["train", "test"]}'], "name the splits and the data with options of their own"),
        (["--levels", '{"level": [1, 99]}'], "level"),
        (["--levels", '{"levle": [1, 2]}'], "does not take 'levle'"),
        (["--teacher", "expert:bogus"], "does not take 'expert'"),
        (["--env", "AgentR1/ALFWorld-v0", "--teacher", "expert:bogus"], "bogus"),
        (["--algo", "grop"], "Did you mean 'grpo'?"),
        (["--algo", "no_such_package.algorithms:mine"], "cannot be loaded: No module named 'no_such_package'"),
        (["--algo", "json:"], "must be written module:function"),
        (["--preset", "cpu-tin"], "Did you mean 'cpu-tiny'?"),
        (["--preset", "gpu-8"], "preset 'gpu-8' needs a model to train: add --model"),
        (["--preset", "cpu-vllm"], "which `make setup-vllm` puts into .venv-vllm"),
        (["--preset", "qwen3-4b/alfworl/grpo"], "Did you mean 'alfworld'?"),
        (["--preset", "qwen3-4b/gsm8k/grpo/h100"], "the hardware of a preset must be one of 'h100-2', 'h100-4'"),
        (["--preset", "published"], "--preset must be one of 'cpu-llm', 'cpu-tiny', 'cpu-vllm', 'gpu-8'"),
        (["--preset", "qwen3-4b/alfworld"], "is written MODEL/TASK/ALGORITHM"),
        (["--preset", "../../x/alfworld/grpo"], "MODEL/TASK/ALGORITHM"),
        (["--env", PLAIN, "--preset", "qwen3-4b/gsm8k/grpo", "--algo", "gae"], "is for 'grpo', but --algo is 'gae'"),
        (["--preset", "qwen3-4b/gsm8k/grpo"], "but --env is"),
        (["actor_rollout_ref.actor.optim.lr"], "expected a verl setting as key=value"),
        (["=1"], "expected a verl setting as key=value"),
        (["rollout.max_model_len=64"], "To append to your config use +rollout.max_model_len=64"),
        (["algorithm.adv_estimator=gpro"], "algorithm.adv_estimator follows from --algo"),
        (["trainer={total_training_steps:9}"], "trainer.total_training_steps follows from --steps"),
        (["model_engine=megatrn"], "Did you mean 'megatron'?"),
        (["algorithm.gamma=abc"], "algorithm.gamma must be a number, got 'abc'"),
        (["actor_rollout_ref.actor.use_dynamic_bsz=abc"], "use_dynamic_bsz must be True or False, got 'abc'"),
        (["trainer.logger=[console]"], "trainer.logger must contain 'file'"),
        (["run.steps=-5"], "run.steps must be an integer of at least 1, got -5"),
        (["run.steps=null"], "preset 'cpu-tiny' has no epochs to take it from: add --steps N"),
        (["run.updates_per_step=9"], "run.updates_per_step=9 must divide run.tasks_per_step=16"),
    ],
)
def test_the_command_refuses_in_one_clear_line(arguments, message, tmp_path, capsys):
    given = ["train", *([] if "--env" in arguments else ["--env", ENV]), "--out", str(tmp_path / "run"), *arguments]
    assert main(given) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("agentr1: ") and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_an_environment_is_asked_for(capsys):
    assert main(["train", "--preset", "cpu-tiny"]) == 2 and "add --env ID" in capsys.readouterr().err


def test_numbers_of_a_run():
    counts = ("epochs", "min_updates_per_step", "response_length", "steps", "tasks_per_step", "train_tasks",
              "updates_per_step", "validation_tasks", "vllm_cache", "warm_start")  # fmt: skip
    usual = dict.fromkeys(counts, 1) | {"demo_noise": 0.5, "learning_rate": 1e-6}
    check_numbers(usual)
    for name in counts:
        minimum = int(name != "warm_start")
        for wrong in (minimum - 1, 2.5, "abc"):
            with pytest.raises(ConfigError, match=f"run.{name} must be an integer of at least {minimum}"):
                check_numbers({**usual, name: wrong})
    for name, wrong in (("demo_noise", 2), ("learning_rate", -1), ("learning_rate", "abc"), ("warm_start", None)):
        with pytest.raises(ConfigError, match=f"run.{name} must be"):
            check_numbers({**usual, name: wrong})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("wieghting: row", "unknown setting agentr1.wieghting. Did you mean 'weighting'"),
        ("whiten: flase", "agentr1.whiten must be True or False, got 'flase'"),
        ("weighting: rows", "got 'rows'. Did you mean 'row'"),
        ("layout: trees", "agentr1.layout must be one of 'merged', 'steps', 'tree', got 'trees'"),
        ("mode: later", "agentr1.mode must be one of"),
        ("lookahead: 2", "needs agentr1.mode=colocate"),
        ("{mode: colocate, lookahead: -1}", "agentr1.lookahead must be"),
        ("turn_gamma: high", "agentr1.turn_gamma must be a number, got 'high'"),
        ("step_advantage_weight: .nan", "agentr1.step_advantage_weight must be a number, got"),
        ("step_timeout: 0", "agentr1.step_timeout must be a number above 0, got 0"),
        ("env_workers: 0", "agentr1.env_workers must be"),
        ("max_episodes: 0", "agentr1.max_episodes must be"),
        ("process_rewards: format", "agentr1.process_rewards must be {component: weight}"),
        ("process_rewards: {format: much}", "agentr1.process_rewards.format must be a number, got 'much'"),
        ("{mode: colocate, branch: '1:1'}", "agentr1.branch needs agentr1.mode=sync, got colocate"),
        ("{branch: '1:1', twin_final: won}", "agentr1.branch is for a loop of one call per step"),
        ("{mode: colocate, levels: '{\"level\": [1, 2]}'}", "agentr1.levels needs agentr1.mode=sync"),
    ],
)
def test_settings_of_this_package(given, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_settings({"agentr1": yaml.safe_load(given)})


RUNS = {
    "grpo": {"algo": "grpo"},
    "rloo": {"algo": "rloo"},
    "gae": {"algo": "gae"},
    "otb": {"algo": "optimal_token_baseline"},
    "critic on GPUs": {"preset": "any/gsm8k/steppo", "model": str(base_folder())},
    "GPUs": {"preset": "any/gsm8k/grpo", "model": str(base_folder())},
    "megatron": {"preset": "any/gsm8k/steppo", "model": str(base_folder()), "engine": "megatron"},
}


@pytest.fixture(scope="module")
def runs():
    def make(engine=None, **how):
        return composed(*([f"model_engine={engine}"] if engine else []), **how).verl()

    return {name: make(**how) for name, how in RUNS.items()}


ACTOR, ROLLOUT, CORRECTION = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "algorithm.rollout_correction"
AHEAD, SEPARATE, FILTERED = "agentr1.mode=colocate", "agentr1.mode=separate", "algorithm.filter_groups.enable=True"
RANKS, SP = "need the same number of data-parallel ranks", "ulysses_sequence_parallel_size"


@pytest.mark.parametrize(
    ("run", "settings", "message"),
    [
        ("grpo", "algorithm.gamma=1.5", "gamma must be a number from 0 to 1, got 1.5"),
        ("grpo", "algorithm.kl_penalty=k4", "algorithm.kl_penalty must be one of"),
        ("grpo", f"{ACTOR}.kl_loss_type=low_var", f"{ACTOR}.kl_loss_type must be one of"),
        ("grpo", f"{ACTOR}.policy_loss.loss_mode=gsp", "the policy loss must be one of 'capo'"),
        ("grpo", f"{ACTOR}.policy_loss.loss_mode=bypass_mode", "'bypass_mode' is no loss"),
        ("grpo", "agentr1.scale_rewards=mean", "must be one of 'batch', 'running', 'released', got 'mean'"),
        ("grpo", "agentr1.normalize_process_rewards=max", "normalize_process_rewards must be one of None, 'prime'"),
        ("grpo", f"{ROLLOUT}.max_num_seqs=null", "max_num_seqs must be an integer of at least 1, got None"),
        ("grpo", f"{ACTOR}.optim.lr=null", f"{ACTOR}.optim.lr must be a number of at least 0, got None"),
        ("grpo", "data.train_batch_size=7", "does not divide data.train_batch_size=7"),
        ("grpo", f"{CORRECTION}.rollout_is=token", f"add {CORRECTION}.bypass_mode=False"),
        ("gae", "critic.enable=False", "the estimator 'gae' needs a critic"),
        ("gae", "critic.ppo_mini_batch_size=5", "ppo_mini_batch_size=5 does not divide data.train_batch_size=16"),
        ("critic on GPUs", f"critic.{SP}=2", RANKS),
        ("critic on GPUs", f"critic.fsdp.{SP}=2", r"critic 2 (each of 2 devices)"),
        ("GPUs", f"actor_rollout_ref.ref.{SP}=2", RANKS),
        ("megatron", "critic.megatron.tensor_model_parallel_size=2", RANKS),
        ("megatron", "agentr1.layout=tree", "layout=tree needs model_engine=dp"),
        ("grpo", f"agentr1.layout=tree critic.{SP}=2", f"needs critic.{SP}=1, got 2"),
        ("grpo", "agentr1.layout=tree actor_rollout_ref.model.use_fused_kernels=True", "kernels=False, got True"),
        ("otb", f"{CORRECTION}.bypass_mode=True", f"log-probabilities: {CORRECTION}.bypass_mode must be False"),
        ("otb", "actor_rollout_ref.model.use_fused_kernels=True", "use_fused_kernels must be False"),
        ("grpo", f"{ROLLOUT}.calculate_log_probs=False", "bypass_mode=True uses the sampler's"),
        ("grpo", f"{ROLLOUT}.top_p=0.9", "rollout.top_p=0.9 samples from fewer tokens than the trainer"),
        ("grpo", f"{ROLLOUT}.top_k=20", "rollout.top_k=20 samples from fewer tokens"),
        ("grpo", f"{ROLLOUT}.top_k=20 {ROLLOUT}.name=sglang", "engine 'sglang' whether"),
        ("grpo", f"{ROLLOUT}.name=vllm {ROLLOUT}.temperature=0.7 {ROLLOUT}.logprobs_mode=raw_logprobs",
         "vLLM's raw_logprobs are not those of the distribution it samples from"),
        ("grpo", "data.gen_batch_size=abc", "data.gen_batch_size must be an integer of at least 1, got 'abc'"),
        ("grpo", "data.gen_batch_size=3", "does not divide data.train_batch_size=16"),
        ("grpo", f"{AHEAD} {FILTERED}", "filter_groups replaces groups"),
        ("grpo", f"{AHEAD} trainer.v1.sampler.custom_sampler.path=theirs.py", "batches here are in order"),
        ("grpo", f"{SEPARATE} actor_rollout_ref.model.lora_rank=8", "model.lora.merge=True"),
        ("grpo", f"{SEPARATE} trainer.v1.separate_async.hybrid_rollout.enable_switch=True", "here are in order"),
        ("grpo", "trainer.use_v1=False", "over verl's v1 trainers alone"),
        ("grpo", "distillation.enabled=True", "does not support distillation"),
        ("grpo", f"{ACTOR}.shuffle=True", "mini-batches hold whole groups"),
        ("rloo", "agentr1.branch=1", "branch is FIRST-LAST:COUNT"),
        ("rloo", f"agentr1.branch='1:1' {ROLLOUT}.n=3", f"2 episodes, got {ROLLOUT}.n=3"),
        ("gae", f"agentr1.branch='1:1' {ROLLOUT}.n=4", "such as rloo; got 'gae'"),
        ("rloo", "agentr1.branch='1:1' agentr1.step_timeout=5", "leave out agentr1.step_timeout"),
        ("rloo", "agentr1.branch='1:1' algorithm.use_kl_in_reward=True", "leave out algorithm.use_kl_in_reward"),
        ("rloo", f"agentr1.branch='1:1' {FILTERED}", "agentr1.branch needs the episodes of all groups"),
        ("grpo", f"agentr1.levels='{{\"level\":[1,2]}}' {FILTERED}", "levels needs the episodes of all groups"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(runs, run, settings, message):
    config = changed(runs[run], *settings.split())
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_config(config, read_objective(config).estimator)


def test_groups_of_one_are_for_estimators_that_compare_none():
    for name, estimator in ESTIMATORS.items():
        if estimator.compares_groups:
            with pytest.raises(ConfigError, match=f"'{name}' compares the episodes"):
                estimator.check_group(1, f"{ROLLOUT}.n")
        else:
            estimator.check_group(1, f"{ROLLOUT}.n")
    composed(f"{ROLLOUT}.n=1", algo="reinforce")
    with pytest.raises(ConfigError, match="'grpo' compares the episodes"):
        composed(f"{ROLLOUT}.n=1", algo="grpo")


@pytest.mark.parametrize("name", ["ppo_micro_batch_size_per_gpu=null", "temperature=0.0"])
def test_what_verl_refuses_is_refused_by_a_dry_run(name):
    of = ROLLOUT if name.startswith("temperature") else ACTOR
    with pytest.raises(ConfigError, match=f"verl does not accept these settings: .*{name.partition('=')[0][:6]}"):
        check_verl(composed(f"{of}.{name}").verl())
