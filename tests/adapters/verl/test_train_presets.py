"""Presets made of parts: every published setting resolves, and each value that differs says why.

Behaviours pinned here:
1. verl takes every combination of parts; --dry-run prints the differences from published values above it.
2. ``launch.sh`` names presets that exist, and trains any other environment by its id.
3. the environment of every task opens as its preset has it, or says what it needs.
4. ``cpu-llm`` trains a language model on a CPU: in bfloat16 where that is fast, with vLLM where it is installed.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from composing import ENV, composed
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from agent_envs.adapters.tiny import warm_start
from agent_envs.adapters.tiny.model import base_folder
from agent_envs.adapters.verl.config import compose, engines
from agent_envs.adapters.verl.config.compose import group_names
from agent_envs.adapters.verl.config.composed import Composed
from agent_envs.adapters.verl.config.objective import read_objective
from agent_envs.adapters.verl.run.tasks import make_env
from agent_envs.adapters.verl.run.training import describe, train
from agent_envs.cli.main import main
from agent_envs.errors import ConfigError

LAUNCH = Path(__file__).parents[3] / "adapters" / "verl" / "launch.sh"


def _combinations() -> list[str]:
    """Every task with and without a critic, each model and each hardware."""
    models = itertools.cycle(name for name in group_names("model") if name != "lora")
    hardware = itertools.cycle(group_names("hardware"))
    pairs = itertools.product(group_names("task"), ["gspo", "steppo"])
    return [f"{next(models)}/{task}/{algo}/{next(hardware)}" for task, algo in pairs]


def of_preset(name: str) -> Composed:
    return composed(preset=name, model="m" if name.startswith("any/") else None)


@pytest.mark.parametrize("name", _combinations())
def test_every_combination_is_whole_and_every_difference_has_a_reason(name):
    run = of_preset(name)
    verl = run.verl()
    algo = name.split("/")[2]
    updates, rest = divmod(verl.data.train_batch_size, verl.actor_rollout_ref.actor.ppo_mini_batch_size)
    assert not rest and run.run.algo == algo and all(d.why for d in run.differences)
    assert updates >= 2  # otherwise every ratio is 1
    assert (verl.actor_rollout_ref.rollout.n == 1) == read_objective(verl).estimator.needs_critic == verl.critic.enable


@pytest.mark.parametrize(
    "name", [*_combinations()[::2], *(f"qwen3-4b/{task}/grpo/published" for task in group_names("task"))]
)
def test_the_environment_of_every_task_opens_or_says_what_it_needs(name, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))  # where nothing was prepared
    task = name.split("/")[1]
    if task == "scienceworld":
        pytest.importorskip("scienceworld")
    made = of_preset(name)
    needs = re.findall(r"# before it can run: the official data of .*; (.*)", describe(made))
    fetch = f"fetch it with: agentr1 prepare {task.partition('-')[0]}"
    small = "name the folder of items_shuffle_1000.json and items_ins_v2_1000.json in data"
    assert needs == {"scienceworld": [], "webshop-small": [small]}.get(task, [fetch])
    if name != "qwen3-4b/hotpotqa/grpo/published":  # whose prompts are fitted with a tokenizer of the hub
        with closing(make_env(replace(made.run, data="generated"))) as env:
            assert env.reset(options={"index": 0})[0]


def _keys(values: dict, prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_setting_in_the_files_is_one_of_verls():
    """Hydra checks the names in overrides, but not those in files."""
    verl = importlib.util.find_spec("verl")
    with initialize_config_dir(str(Path(verl.submodule_search_locations[0], "trainer", "config")), version_base=None):  # type: ignore
        known = set(_keys(OmegaConf.to_container(hydra_compose("ppo_trainer"))))  # type: ignore[arg-type]
    added = re.compile(
        r"(run|kept|named|agentr1|ray_kwargs\.ray_init|data\.apply_chat_template_kwargs)\."
        r"|.*\.(override_config|mixed_precision)\."
        r"|algorithm\.rollout_correction\."
        r"|actor_rollout_ref\.rollout\.(engine_kwargs\.vllm\.|enable_sleep_mode$)"
    )
    for path in Path(compose.__file__).parent.rglob("*.yaml"):
        values = yaml.safe_load(path.read_text())
        if path.name == "remaining.yaml":
            continue
        if path.parent.name == "release":  # by the words of what they are for
            values = {key: value for settings in values["settings"].values() for key, value in settings.items()}
            values = {key if "." in key else f"run.{key}": value for key, value in values.items()}
        values.pop("defaults", None)
        for key in _keys(values):
            assert key in known or added.match(key) or key in ("kept", "named"), (path.name, key)


@pytest.mark.parametrize(
    ("name", "model", "rank", "gpus", "different"),
    [
        ("qwen3-1.7b+lora/gsm8k-tool/grpo/h100-8x2", "Qwen/Qwen3-1.7B", 32, (8, 2),
         {"trainer.n_gpus_per_node", "trainer.nnodes", "model", "actor_rollout_ref.actor.optim.lr"}),
        ("qwen2.5-1.5b/hotpotqa-legacy/grpo/h200-1", "Qwen/Qwen2.5-1.5B-Instruct", 0, (1, 1),
         {"trainer.n_gpus_per_node"}),
    ],
)  # fmt: skip
def test_a_dry_run_prints_the_parts_what_differs_and_what_verl_takes(name, model, rank, gpus, different, capsys):
    assert main(["train", "--preset", name, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    run = composed(preset=name)
    config, verl = OmegaConf.create(printed), run.verl()
    assert run.run.model == model and (verl.trainer.n_gpus_per_node, verl.trainer.nnodes) == gpus
    assert verl.actor_rollout_ref.model.lora_rank == rank
    assert {name: config.agentr1[name] for name in verl.agentr1} == verl.agentr1  # and the others' defaults
    assert {**config, "agentr1": verl.agentr1} == {**verl, "run": config.run}
    assert verl.actor_rollout_ref.rollout.name == "vllm"
    assert different <= {difference.key for difference in run.differences}
    for difference in run.differences:
        assert f"# {difference.key}: {difference.ours} " in printed and difference.why in printed


def test_a_warm_start_of_a_preset_teaches_one_environment_and_not_several():
    alone = composed(env="AgentR1/HelpDesk-v0", algo="grpo").run
    assert alone.warm_start == 1400 and alone.demo_env_kwargs["domains"] == "bicycle_hire"
    assert composed(env=["AgentR1/HelpDesk-v0=1", "AgentR1/GSM8KTool-v0=1"], algo="grpo").run.warm_start == 0


def test_a_language_model_on_a_cpu_is_in_bfloat16_where_the_cpu_computes_it(monkeypatch):
    language_model = {"preset": "cpu-llm", "env": ENV, "model": str(base_folder())}
    for computes, kind in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(engines, "computes_bfloat16", lambda device, yes=computes: yes and device.type == "cpu")
        run = composed(**language_model, algo="gae")
        verl = run.verl()
        parts = (verl.actor_rollout_ref.actor.fsdp_config, verl.actor_rollout_ref.ref.fsdp_config, verl.critic.fsdp)
        assert verl.actor_rollout_ref.rollout.dtype == kind
        assert ("# float32 in place of bfloat16" in describe(run)) is not computes
        assert {part.mixed_precision.param_dtype for part in parts} == {kind}
    given = composed("actor_rollout_ref.rollout.dtype=float16", **language_model).verl()
    assert given.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "float16"
    with pytest.raises(ConfigError, match="rollout.dtype must be .*got 'float17'"):
        composed("actor_rollout_ref.rollout.dtype=float17", **language_model)
    assert composed().verl().actor_rollout_ref.rollout.dtype == "float32"  # cpu-tiny


@pytest.mark.parametrize("installed", [True, False])
def test_a_language_model_on_a_cpu_generates_with_vllm_where_it_is_installed(installed, monkeypatch):
    find = importlib.util.find_spec
    stands_for = {"vllm": "json" if installed else "none"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: find(stands_for.get(name, name)))
    verl = composed(preset="cpu-llm", env=ENV, model="m").verl()
    rollout, correction = verl.actor_rollout_ref.rollout, verl.algorithm.rollout_correction
    assert rollout.name == ("vllm" if installed else "agentr1_cpu")
    assert correction.bypass_mode is not installed  # whose log-probabilities are of other kernels
    if installed:
        assert composed().verl().actor_rollout_ref.rollout.name == "agentr1_cpu"
        assert rollout.engine_kwargs.vllm.kv_cache_memory_bytes == 1 << 30
        verl = composed(preset="cpu-vllm", env=ENV, model="m").verl()
        tiny = verl.actor_rollout_ref.rollout
        assert (tiny.name, tiny.dtype, tiny.engine_kwargs.vllm.kv_cache_memory_bytes) == ("vllm", "float32", 1 << 27)
        assert verl.algorithm.rollout_correction == correction


def test_a_language_model_on_a_cpu_trains_on_any_id():
    tools = composed(preset="cpu-llm", env=ENV, model="m")
    assert tools.run.warm_start == 60 and tools.run.env_kwargs == {"level": "1-2"}
    asked = composed(preset="cpu-llm", env=ENV, model="m", env_kwargs='{"level": 4}', warm_start=7).run
    assert asked.warm_start == 7 and asked.env_kwargs == {"level": 4}
    house = composed(preset="cpu-llm", env="AgentR1/ALFWorld-v0", model="m")
    assert house.run.warm_start == 0 and house.run.env_kwargs == {} == house.run.demo_env_kwargs
    lengths = [run.verl().data.max_prompt_length for run in (tools, house)]
    both = composed(preset="cpu-llm", env=[f"{ENV}=1", "AgentR1/ALFWorld-v0=1"], model="m").verl()
    assert lengths[0] < lengths[1] == both.data.max_prompt_length == both.actor_rollout_ref.rollout.max_model_len - 96
    assert both.actor_rollout_ref.actor.ppo_max_token_len_per_gpu >= both.actor_rollout_ref.rollout.max_model_len


def test_the_model_of_a_preset_may_have_a_short_name(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    (tmp_path / "models" / "smollm2-135m").mkdir(parents=True)
    assert composed(preset="cpu-llm", env=ENV).run.model == f"{tmp_path}/models/smollm2-135m"


def test_the_longest_response_of_several_environments_counts():
    envs = ["AgentR1/ALFWorld-v0=1", "AgentR1/GSM8KTool-v0=1", "AgentR1/MathCode-v0=1"]
    lengths = [composed(env=envs[:n]).verl().data.max_response_length for n in (1, 3)]
    assert lengths == [32, 96]


@pytest.mark.parametrize("words", [["alfworld"], ["gsm8k-tool", "ppo"], ["AgentR1/TableQA-v0", "gigpo"]])
def test_the_launch_script_names_a_run_that_resolves(words, tmp_path):
    stand_in = tmp_path / "agentr1"
    stand_in.write_text(f'#!{sys.executable}\nimport sys\nprint("\\n".join(sys.argv[1:]))\n')
    stand_in.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    further = [] if len(words) == 1 else ["--seed", "1"]
    command, variables = ["bash", str(LAUNCH), *words, *further], {**os.environ, "PATH": path}
    said = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    given = said.splitlines()
    assert given[0] == "train" and given[len(given) - len(further) :] == further
    options = dict(zip(given[1::2], given[2::2], strict=True))
    algo = composed(preset=options["--preset"], env=options.get("--env"), model=options.get("--model")).run.algo
    assert options.get("--algo", algo) == (words[1] if len(words) > 1 else "steppo")


@pytest.mark.parametrize("files", [["train", "validation"], ["all"]])
def test_a_warm_start_shows_own_tasks_but_none_that_is_held_out(tmp_path, monkeypatch, files):
    rows = [{"id": str(n), "question": f"Where is {n}?", "answers": ["here"], "supporting": ["Map"]} for n in range(20)]
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"title": "Map", "text": "All is here."}) + "\n")
    for name in files:
        path = tmp_path / "rows" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = []

    def make(*args, env_kwargs, **kwargs):
        asked.append(env_kwargs)
        raise ConfigError("seen enough")

    monkeypatch.setattr(warm_start, "make_warm_model", make)
    data = tmp_path / "rows" if len(files) > 1 else tmp_path / "rows" / "all.jsonl"
    own = json.dumps({"corpus": str(tmp_path / "corpus.jsonl")})
    run = composed(env="AgentR1/HotpotQA-v0", data=str(data), env_kwargs=own, warm_start=1, out=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match="seen enough"):
        train(run)
    assert asked[0].get("data", "generated") == (str(data) if len(files) > 1 else "generated")


def test_a_setting_of_the_command_line_is_shown_beside_the_published_one(capsys):
    command = ["train", "--preset", "any/webshop/grpo", "--model", "some/model", "--dry-run"]
    assert main([*command, "actor_rollout_ref.actor.optim.lr=2e-6"]) == 0
    assert "optim.lr: 2e-06 (published: 1e-06): set on the command line" in capsys.readouterr().out
