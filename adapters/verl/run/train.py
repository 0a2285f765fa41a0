"""`agentr1 train`: from an environment's id to a trained model, with verl's own trainer.

    agentr1 train --env AgentR1/GSM8KTool-v0 --algo grpo --preset cpu-tiny --out runs/first

The folder `--out` then has metrics.jsonl (one line per step), episodes/*.jsonl, curve.png, checkpoints and train.log.
Run the same command again to resume. verl runs in a process of its own, whose output goes to train.log.
"""

from __future__ import annotations

import argparse
import os
import sys

from agent_envs.errors import check_release

__all__ = ["add_arguments", "run"]

_EPILOG = """\
examples:
  agentr1 train --env AgentR1/GSM8KTool-v0 --out runs/mine           # a tiny model on the CPU, in minutes
  agentr1 train --env AgentR1/HotpotQA-v0 --algo gigpo --preset gpu-8 --model Qwen/Qwen3-4B-Instruct-2507
  agentr1 train --preset qwen3-4b/alfworld/steppo/h100-8 --dry-run   # published settings, and what differs
  agentr1 train --out runs/mine --env AgentR1/GSM8KTool-v0 actor_rollout_ref.actor.optim.lr=2e-6
  agentr1 train --env AgentR1/GSM8KTool-v0 --algo my_package.algorithms:my_estimator
  agentr1 plot runs/mine; agentr1 eval --checkpoint runs/mine

docs/training.md explains the files of a run, the presets and what a step row is.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `agentr1 train`."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--env", metavar="ID", help="environment, such as AgentR1/GSM8KTool-v0")
    add(
        "--algo",
        help="algorithm, such as grpo, ppo, steppo or gigpo, or module:name of your own estimator (default: the "
        "preset's, or grpo)",
    )
    add(
        "--preset",
        default="cpu-tiny",
        help="size and machine: cpu-tiny, cpu-vllm, gpu-8, or MODEL/TASK/ALGORITHM[/HARDWARE] such as "
        "qwen3-4b/alfworld/steppo/h100-8 (default: cpu-tiny)",
    )
    add("--steps", type=int, help="training steps (default: the preset's)")
    add("--data", help="generated, official or a path (default: the preset's, or generated)")
    add("--split", default="train", help="split to train on (default: train)")
    add("--env-kwargs", metavar="JSON", help="further arguments of the environment, as a JSON object")
    add("--wrapper", action="append", default=[], metavar="SPEC", help='"Name(key=value)"; may be repeated')
    add("--out", metavar="DIR", help="folder of the run; the same command resumes it (default: runs/ENV-ALGO-seedN)")
    add(
        "--model",
        metavar="DIR",
        help="Hugging Face model to start from (default: tiny-base or, with pictures, tiny-vision, which are included)",
    )
    add("--seed", type=int, default=0, help="seed of tasks, demonstrations, model and sampling (default: 0)")
    add("--warm-start", type=int, metavar="N", help="supervised steps of tiny-base before (default: 0)")
    add("--demo-noise", type=float, metavar="P", help="share of demonstrated actions that are wrong on purpose")
    add("--val-fraction", type=float, default=0.1, help="share held out of data without such a split (default: 0.1)")
    add("--trust", action="store_true", help="resume from the checkpoint in --out even if its files hold code")
    add("--dry-run", action="store_true", help="print what differs from published settings and the full configuration")
    add("overrides", nargs="*", metavar="KEY=VALUE", help="verl settings, in Hydra's form; they win")


def run(arguments: argparse.Namespace) -> str:
    """Train as the options say, showing the progress on standard error.

    Returns:
        What to print at the end: the results and where the files are, or the configuration of a dry run.
    """
    check_release("verl", "verl")
    # Set before torch is loaded: its threads then sleep while they wait. Spinning ones make the warm start ten times
    # slower as soon as another program wants one of the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if os.getcwd() not in sys.path:  # module:name may be beside the user, as with `python -m`
        sys.path.append(os.getcwd())
    from agent_envs.adapters.verl.config.compose import compose_run
    from agent_envs.adapters.verl.run.training import check_model, check_verl, describe, train

    names = (
        "env", "algo", "preset", "steps", "data", "split", "env_kwargs", "out", "model", "seed", "warm_start",
        "demo_noise", "val_fraction", "overrides",
    )  # fmt: skip
    composed = compose_run(**{name: getattr(arguments, name) for name in names}, wrappers=arguments.wrapper)
    check_verl(composed.verl())
    if composed.run.model is not None:
        check_model(composed.run.model, composed.verl(), fetch=not arguments.dry_run)
    return describe(composed) if arguments.dry_run else train(composed, trust=arguments.trust)
