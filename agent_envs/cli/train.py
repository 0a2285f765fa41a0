"""Train a model on an environment with verl's own trainer. Run the same command again to resume a stopped run.

The folder --out then has metrics.jsonl (one line per step), episodes/*.jsonl, curve.png, checkpoints and train.log.
verl runs in a process of its own, whose output goes to train.log.

examples:
  agentr1 train --env AgentR1/GSM8KTool-v0 --out runs/mine           # a tiny model on the CPU, in minutes
  agentr1 train --env AgentR1/GSM8KTool-v0 --preset cpu-llm          # smollm2-135m on the CPU, in an hour or more
  agentr1 train --env AgentR1/HotpotQA-v0 --algo gigpo --preset gpu-8 --model Qwen/Qwen3-4B-Instruct-2507
  agentr1 train --preset qwen3-4b/alfworld/steppo/h100-8 --dry-run   # published settings, and what differs
  agentr1 train --env AgentR1/GSM8KTool-v0 --algo my_package.algorithms:mine actor_rollout_ref.actor.optim.lr=2e-6
  agentr1 plot runs/mine; agentr1 eval --checkpoint runs/mine

docs/training.md explains the files of a run, its options and the algorithms.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from agent_envs.cli.options import AgentOptions, Folder, Json, Spec, option
from agent_envs.errors import check_release


@dataclass(kw_only=True)
class Options(AgentOptions):
    env: list[str] = option([], "such as AgentR1/GSM8KTool-v0; several: --env A=0.7 --env B=0.3", metavar="ID[=WEIGHT]")
    algo: str | None = option(None, "such as grpo, steppo or your own module:name (default: the preset's, or grpo)")
    preset: str = option("cpu-tiny", "cpu-tiny, cpu-vllm, cpu-llm, gpu-8, or as in qwen3-4b/alfworld/steppo/h100-8")
    steps: int | None = option(None, "training steps (default: the preset's)")
    data: str | None = option(None, "generated, official or a path (default: the preset's, or generated)")
    split: str = option("train", "split to train on")
    env_kwargs: Json | None = option(None, "further arguments of the environment; of several: {ID: {...}}")
    wrappers: list[Spec] = option([], '"Name(key=value)"; may be repeated', "--wrapper")
    train_roles: list[str] = option([], "role of the agent that is trained; may be repeated (default: all)")
    teacher: str | None = option(None, "who labels what the policy reaches: expert, or expert:NAME", metavar="WHO")
    branch: str | None = option(
        None, "N of every N + 1 episodes of a group grow from one of these steps of the other", metavar="FIRST-LAST:N"
    )
    levels: Json | None = option(None, "values of an argument of the environment to train on, as a JSON object")
    curriculum: str | None = option(None, "how levels are chosen: uniform (default), fixed (in order) or learnable")
    out: Folder | None = option(None, "the same command resumes it (default: runs/ENV-ALGO-seedN)")
    model: Folder | None = option(None, "model to start from (default: tiny-base or, with pictures, tiny-vision)")
    seed: int = option(0, "seed of tasks, demonstrations, model and sampling")
    warm_start: int | None = option(None, "supervised steps on demonstrations before (default: 0)")
    demo_noise: float | None = option(None, "share of demonstrated actions that are wrong on purpose")
    val_fraction: float = option(0.1, "share held out of data without such a split")
    trust: bool = option(False, "resume from the checkpoint in --out even if its files hold code")
    dry_run: bool = option(False, "print what differs from published settings and the full configuration")
    overrides: list[str] = option(..., "verl settings; they win", "overrides", nargs="*", metavar="KEY=VALUE")


def run(options: Options) -> str:
    """Train, showing the progress on standard error; a dry run returns its configuration."""
    check_release("verl", "verl")
    # Set before torch is loaded: its threads then sleep while they wait. Spinning ones make the warm start ten times
    # slower as soon as another program wants one of the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from agent_envs.adapters.verl.config.compose import compose_run
    from agent_envs.adapters.verl.run.training import check_model, check_verl, describe, train

    settings = dict(vars(options))
    trust, dry_run = (settings.pop(name) for name in ("trust", "dry_run"))
    of_episodes = ("agent", "score", "train_roles", "teacher", "branch", "levels", "curriculum")
    settings["chosen"] = {name: settings.pop(name) for name in of_episodes}
    composed = compose_run(**settings)
    check_verl(verl := composed.verl())
    if composed.run.model is not None:
        check_model(composed.run.model, verl, fetch=not dry_run)
    return describe(composed) if dry_run else train(composed, trust=trust)
