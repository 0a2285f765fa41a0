"""Presets made of parts: every published setting resolves, and each value that differs says why.

Behaviours pinned here:
1. Each cell of the published table is a name, and its values are the table's or a difference with a reason.
2. verl takes the result; --dry-run prints the differences above it.
3. A name that is none is one clear line that lists what there is.
4. The scripts in ``recipes/`` name presets that exist.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_envs.cli.main import main

pytest.importorskip("torch")
pytest.importorskip("verl")

from agent_envs.adapters.verl.config.algorithms import ALGORITHMS, get_algorithm
from agent_envs.adapters.verl.config.compose import KINDS, compose_preset, part_names
from agent_envs.adapters.verl.config.presets import Preset
from agent_envs.errors import ConfigError

RECIPES = sorted((Path(__file__).parents[3] / "adapters" / "verl" / "recipes").glob("*.sh"))
Q25, Q15, Q3 = "Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen3-4B-Instruct-2507"
TINY_CLIP = (3e-4, 4e-4, 10.0)
# task, algorithm, model, prompt and response tokens, steps, (tasks, episodes of each, mini-batches), gamma, KL, clip,
# epochs x tasks, steps between validations
TABLE = [
    ("gsm8k", "ppo", Q25, 512, 1024, None, (1024, 1, 8), 1.0, "loss", (0.2, 0.2, 3.0), 15 * 7473, 20),
    ("gsm8k", "grpo", Q25, 512, 1024, None, (1024, 5, 8), 1.0, "loss", (0.2, 0.2, 3.0), 15 * 7473, 20),
    ("gsm8k-tool", "ppo", Q3, 4096, 2048, 5, (256, 1, 8), 1.0, "loss", (0.2, 0.2, 3.0), 15 * 7473, 5),
    ("hotpotqa", "ppo", Q3, 10240, 1024, 5, (256, 1, 1), 0.99, "none", (0.2, 0.2, 3.0), 5 * 90447, 10),
    ("hotpotqa", "steppo", Q3, 10240, 1024, 5, (256, 1, 1), 0.99, "none", (0.2, 0.2, 3.0), 5 * 90447, 10),
    ("hotpotqa", "grpo", Q3, 10240, 1024, 5, (32, 8, 1), 0.99, "none", (0.2, 0.2, 3.0), 5 * 90447, 10),
    ("hotpotqa", "rloo", Q3, 10240, 1024, 5, (32, 8, 1), 0.99, "reward", (0.2, 0.2, 3.0), 5 * 90447, 10),
    ("hotpotqa", "reinforce", Q3, 10240, 1024, 5, (32, 8, 1), 0.99, "reward", (0.2, 0.2, 3.0), 5 * 90447, 10),
    ("hotpotqa", "gspo", Q3, 10240, 1024, 5, (32, 8, 1), 0.99, "loss", (0.2, 0.2, 3.0), 5 * 90447, 10),
    ("hotpotqa", "gigpo", Q3, 10240, 1024, 5, (32, 8, 1), 0.99, "loss", (0.2, 0.2, 3.0), 5 * 90447, 10),
    *(
        (task, algorithm, Q3, prompt, 4096, steps, batch, 1.0, "loss", TINY_CLIP, total, test)
        for task, prompt, steps, total, test in (
            ("alfworld", 8192, 20, 10 * 3553, 5),
            ("webshop", 8192, 15, 10 * 10587, 5),
            ("papersearch", 10240, 5, 20 * 33551, 20),
        )
        for algorithm, batch in (
            ("ppo", (128, 1, 1)), ("steppo", (128, 1, 1)), ("pspo", (128, 1, 1)),
            ("grpo", (16, 8, 1)), ("gspo", (16, 8, 1)), ("gigpo", (16, 8, 1)), ("rloo", (16, 8, 1)),
        )
    ),
    ("hotpotqa-legacy", "ppo", Q15, 8192, 1024, 5, (128, 1, 2), 1.0, "reward", (0.2, 0.2, 3.0), 25600, 10),
    ("hotpotqa-legacy", "grpo", Q15, 8192, 1024, 5, (128, 5, 2), 1.0, "loss", (0.2, 0.2, 3.0), 25600, 10),
    ("hotpotqa-legacy", "reinforce_pp", Q15, 8192, 1024, 5, (128, 5, 2), 1.0, "reward", (0.2, 0.2, 3.0), 25600, 10),
]  # fmt: skip
_OF = {Q25: "qwen2.5-3b", Q15: "qwen2.5-1.5b", Q3: "qwen3-4b"}


def _released(preset: Preset) -> dict[str, object]:
    """The published values of a preset: its own, with what differs put back."""
    values: dict[str, object] = dict(override.split("=", 1) for override in preset.overrides)
    values |= {name: getattr(preset, name) for name in ("model", "max_prompt_length", "max_response_length")}
    values |= {name: getattr(preset, name) for name in ("tasks_per_step", "episodes_per_task", "updates_per_step")}
    assert preset.env is not None
    values |= {f"env.{name}": value for name, value in preset.env_kwargs[preset.env].items()}
    return {**values, **{d.key: d.released for d in preset.differences}}


@pytest.mark.parametrize("cell", TABLE, ids=lambda cell: f"{cell[0]}-{cell[1]}")
def test_every_cell_of_the_published_table_resolves(cell: tuple) -> None:
    task, algorithm, model, prompt, response, steps, batch, gamma, kl, clip, episodes, test_every = cell
    preset = compose_preset(f"{_OF[model]}/{task}/{algorithm}")
    released = _released(preset)
    actor = "actor_rollout_ref.actor."
    assert released["model"] == model
    assert (released["max_prompt_length"], released["max_response_length"]) == (prompt, response)
    assert released.get("env.max_episode_steps") == steps
    assert tuple(released[k] for k in ("tasks_per_step", "episodes_per_task", "updates_per_step")) == batch
    assert float(str(released["algorithm.gamma"])) == gamma
    in_loss, in_reward = str(released[actor + "use_kl_loss"]), str(released["algorithm.use_kl_in_reward"])
    assert (in_loss, in_reward) == {"none": ("False",) * 2, "loss": ("True", "False"), "reward": ("False", "True")}[kl]
    assert tuple(float(str(released[actor + f"clip_ratio_{k}"])) for k in ("low", "high", "c")) == clip
    assert preset.learning_rate == 1e-6 and preset.critic_learning_rate == 1e-5
    assert preset.steps == episodes // preset.tasks_per_step and preset.validate_every == test_every


def test_every_combination_is_whole_and_every_difference_has_a_reason() -> None:
    names = [[name for name in part_names(kind) if name != "lora"] for kind in KINDS]
    for parts in itertools.product(*names):
        preset = compose_preset("/".join(parts))
        assert preset.tasks_per_step % preset.updates_per_step == 0
        assert preset.algo == parts[2] and all(d.why for d in preset.differences)
        if parts[2] in ("steppo", "pspo", "gspo"):
            assert preset.updates_per_step >= 2  # otherwise every ratio is 1


def test_every_algorithm_of_the_command_line_is_a_part() -> None:
    assert set(part_names("algorithm")) == set(ALGORITHMS) - {"gae"}  # which is ppo's other name
    for name in part_names("algorithm"):
        preset = compose_preset(f"qwen3-4b/hotpotqa/{name}")
        assert (preset.episodes_per_task == 1) == get_algorithm(name).estimator.needs_critic


def test_hardware_and_adapters_are_parts() -> None:
    preset = compose_preset("qwen3-1.7b+lora/alfworld/gigpo/h100-8x2")
    assert (preset.devices, preset.nodes, preset.model) == (8, 2, "Qwen/Qwen3-1.7B")
    assert "actor_rollout_ref.model.lora_rank=32" in preset.overrides
    assert {"devices", "nodes", "model", "learning_rate"} <= {d.key for d in preset.differences}


@pytest.mark.parametrize("name", ["qwen3-4b+lora/gsm8k-tool/grpo/h100-8x2", "qwen2.5-1.5b/hotpotqa-legacy/grpo/h200-1"])
def test_a_dry_run_prints_what_differs_and_what_verl_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from omegaconf import OmegaConf

    assert main(["train", "--preset", name, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    config = OmegaConf.create(printed)
    preset = compose_preset(name)
    assert config.trainer.n_gpus_per_node == preset.devices and config.trainer.nnodes == preset.nodes
    assert config.actor_rollout_ref.rollout.n == preset.episodes_per_task
    assert config.actor_rollout_ref.rollout.name == "vllm"
    for difference in preset.differences:
        assert f"# {difference.key}: {difference.ours} " in printed and difference.why in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "qwen3-4b/alfworl/grpo"], "Did you mean 'alfworld'?"),
        (["--preset", "qwen3-4c/alfworld/grpo"], "Did you mean 'qwen3-4b'?"),
        (["--preset", "qwen3-4b/alfworld"], "is written MODEL/TASK/ALGORITHM"),
        (["--preset", "../../x/alfworld/grpo"], "MODEL/TASK/ALGORITHM"),
        (["--preset", "any/gsm8k/grpo"], "add --model"),
        (["--preset", "qwen3-4b/gsm8k/grpo", "--algo", "gae"], "is for 'grpo', and --algo says 'gae'"),
        (["--preset", "qwen3-4b/gsm8k/grpo", "--env", "AgentR1/GSM8KTool-v0"], "and --env says"),
        (["--preset", "cpu-tiny"], "add --env ID"),
    ],
)
def test_bad_names_are_one_clear_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1


def test_unknown_parts_name_their_kind() -> None:
    with pytest.raises(ConfigError, match="unknown hardware 'h100'"):
        compose_preset("qwen3-4b/gsm8k/grpo/h100")


@pytest.mark.parametrize("script", RECIPES, ids=lambda path: path.stem)
def test_recipes_name_presets_that_exist(script: Path, tmp_path: Path) -> None:
    stand_in = tmp_path / "agentr1"
    stand_in.write_text(f'#!{sys.executable}\nimport sys\nprint("\\n".join(sys.argv[1:]))\n')
    stand_in.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    given = subprocess.run(
        ["bash", str(script), "--seed", "1"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert given[:2] == ["train", "--preset"] and given[-2:] == ["--seed", "1"]
    preset = compose_preset(given[2])
    assert preset.algo == re.search(r"ALGO:-(\w+)", script.read_text())[1]  # type: ignore[index]
