"""`agentr1 train`: from an environment's id to a trained model, with verl's own trainer.

    agentr1 train --env AgentR1/GSM8KTool-v0 --algo grpo --preset cpu-tiny --out runs/first

leaves in --out: metrics.jsonl (one line per step), episodes/*.jsonl, curve.png, checkpoints, train.log. The same
command continues a run that was stopped. verl runs in a process of its own: what it and Ray print goes to train.log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_envs.adapters.metrics_log import Record, write_records
from agent_envs.adapters.verl.config.presets import PRESETS, Preset
from agent_envs.adapters.verl.config.run import (
    Paths,
    RunConfig,
    Tasks,
    build,
    check_reset,
    choose_tasks,
    make_env,
)
from agent_envs.adapters.verl.config.settings import settle, verl_overrides
from agent_envs.adapters.verl.run.process import run_verl
from agent_envs.adapters.verl.run.verl_log import join_logs
from agent_envs.adapters.verl.run.version import check_version
from agent_envs.episodes.run_folder import keep_settings, locked_folder
from agent_envs.episodes.statistics import difference, share
from agent_envs.errors import BackendError, ConfigError, DataError, first_line, run_command
from agent_envs.messages import observation_text

__all__ = ["DESCRIPTION", "add_arguments", "main", "run"]


DESCRIPTION = "Train a model on an environment with verl's own trainer. The same command continues a stopped run."

_EPILOG = """\
examples:
  agentr1 train --env AgentR1/GSM8KTool-v0 --out runs/mine           # a tiny model on the CPU, in minutes
  agentr1 train --env AgentR1/HotpotQA-v0 --algo gigpo --preset gpu-8 --model Qwen/Qwen3-4B-Instruct-2507
  agentr1 train --preset qwen3-4b/alfworld/steppo/h100-8 --dry-run   # published settings, and what differs
  agentr1 train --out runs/mine --env AgentR1/GSM8KTool-v0 actor_rollout_ref.actor.optim.lr=2e-6
  agentr1 plot runs/mine; agentr1 eval --env AgentR1/GSM8KTool-v0 --checkpoint runs/mine

docs/training.md explains the files of a run, the presets and what a step row is.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `agentr1 train`."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--env", metavar="ID", help="environment, such as AgentR1/GSM8KTool-v0")
    add("--algo", help="algorithm, such as grpo, ppo, steppo or gigpo (default: the preset's, or grpo)")
    add(
        "--preset",
        default="cpu-tiny",
        help=f"size and machine: {', '.join(PRESETS)}, or MODEL/TASK/ALGORITHM[/HARDWARE] such as "
        "qwen3-4b/alfworld/steppo/h100-8 (default: cpu-tiny)",
    )
    add("--steps", type=int, help="training steps (default: the preset's)")
    add("--data", help="generated, official or a path (default: the preset's, or generated)")
    add("--split", default="train", help="split to train on (default: train)")
    add("--env-kwargs", metavar="JSON", help="further arguments of the environment, as a JSON object")
    add("--wrapper", action="append", default=[], metavar="SPEC", help='"Name(key=value)"; may be repeated')
    add("--out", metavar="DIR", help="folder of the run; the same command continues it (default: runs/ENV-ALGO-seedN)")
    add("--model", metavar="DIR", help="Hugging Face folder to start from (default: a tiny model, made here)")
    add("--seed", type=int, default=0, help="seed of tasks, demonstrations, model and sampling (default: 0)")
    add("--warm-start", type=int, metavar="N", help="supervised steps of the tiny model; 0 to skip")
    add("--demo-noise", type=float, metavar="P", help="share of demonstrated calls that are wrong on purpose")
    add("--val-fraction", type=float, default=0.1, help="held-out share of data without such a split (default: 0.1)")
    add(
        "--dry-run",
        action="store_true",
        help="print what differs from published settings, the full configuration, stop",
    )
    add("overrides", nargs="*", metavar="KEY=VALUE", help="verl settings, in Hydra's form; they win")


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m agent_envs.adapters.verl.run.train`: the same as `agentr1 train`."""
    parser = argparse.ArgumentParser(
        prog="python -m agent_envs.adapters.verl.run.train",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    arguments = parser.parse_intermixed_args(argv)
    return run_command(lambda: run(arguments))


def run(arguments: argparse.Namespace) -> str:
    """Train as the options say, showing the progress on standard error.

    Returns:
        What there is to print at the end: how it went and where things are, or the configuration of a dry run.

    Raises:
        AgentEnvsError: Bad input, or training that failed; the message says what to do.
    """
    check_version()
    # Before torch is loaded: its threads then sleep while they wait. Spinning ones make the warm start ten times slower
    # as soon as another program wants one of the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    options = vars(arguments)
    config, preset = build(
        **{name: options[name] for name in (
            "env", "algo", "preset", "steps", "data", "split", "env_kwargs", "out", "model", "seed",
            "warm_start", "demo_noise", "val_fraction", "overrides",
        )},
        wrappers=options["wrapper"],
    )  # fmt: skip
    paths = Paths(config.out.resolve())
    if config.model is not None:
        _check_model(config.model, fetch=not options["dry_run"])
    model = config.model or str(paths.model)
    settled = settle(verl_overrides(config, preset, model=model))
    if options["dry_run"]:
        return _explained(config, preset) + settled.yaml
    tasks = choose_tasks(config, preset, tasks_per_step=settled.tasks_per_step)
    with locked_folder(paths.out):
        keep_settings(paths.run, {**config.settings(), "steps": config.steps}, may_change={"steps"})
        if config.model is None and not paths.model.exists():
            _make_model(config, preset, tasks, paths.model)
        records = _train(config, preset, tasks, paths, model)
    return _summary(config, paths, records)


def _explained(config: RunConfig, preset: Preset) -> str:
    """What the environment is made with and where a preset differs from published settings, over the configuration."""
    lines = [
        f"# {config.env}, {config.algo}, {config.steps} steps of {preset.tasks_per_step} tasks x "
        f"{preset.episodes_per_task} episodes; data {config.data!r}, arguments {json.dumps(config.env_kwargs)}"
    ]
    try:
        env = make_env(config)
        check_reset(env)
        env.close()
    except DataError as e:
        if config.data != "official":
            raise
        lines.append(f"# before it can run: {e}")
    for d in preset.differences:
        lines.append(f"# {d.key}: {d.ours} (published: {'none' if d.released is None else d.released}): {d.why}")
    return "\n".join(lines) + "\n"


def _check_model(model: str, *, fetch: bool) -> None:
    """Refuse what is no model with a chat template. A name on the hub is looked at only if `fetch`."""
    folder = Path(model)
    if not folder.is_dir() and (folder.is_absolute() or model.startswith(".") or len(folder.parts) > 2):
        raise ConfigError(f"--model {model}: there is no such folder")
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ConfigError(f"--model {model}: not a Hugging Face model folder: it has no config.json")
    if folder.is_dir() and not any(folder.glob("tokenizer*.json")):
        raise ConfigError(f"--model {model}: not a Hugging Face model folder: it has no tokenizer files")
    if not folder.is_dir() and not fetch:
        return
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as e:
        raise ConfigError(f"--model {model}: not a Hugging Face model folder: {first_line(e)}") from e
    if not tokenizer.chat_template:
        raise ConfigError(
            f"--model {model}: its tokenizer has no chat template; use an instruction-tuned model, or put a "
            "chat_template.jinja beside its tokenizer.json"
        )


def _make_model(config: RunConfig, preset: Preset, tasks: Tasks, folder: Path) -> None:
    from agent_envs.adapters.tiny.warm_start import make_warm_model

    texts = []
    if config.data != "generated":
        # The demonstrations are generated tasks; the tokenizer is made for the real ones too.
        env = make_env(config)
        texts = [observation_text(env.reset(options={"index": index})[0]) for index in tasks.train[:1000]]
        env.close()
    make_warm_model(
        folder,
        config.env,
        steps=config.warm_start,
        noise=config.demo_noise,
        seed=config.seed,
        env_kwargs=config.demo_env_kwargs,
        wrappers=config.wrappers,
        texts=texts,
        max_length=preset.max_prompt_length + preset.max_response_length,
    )


def _train(config: RunConfig, preset: Preset, tasks: Tasks, paths: Paths, model: str) -> list[Record]:
    from agent_envs.adapters.verl.run.task_rows import make_rows, write_rows

    resumed_from = _last_checkpoint(paths)
    starts = _past_starts(paths)
    records = join_logs(starts)
    if resumed_from < config.steps or not any(r["step"] >= config.steps and "val/success" in r for r in records):
        held_out = [(tasks.validation_split, tasks.validation), *filter(None, (tasks.unseen,))]
        for path, sets, phase in (
            (paths.train_rows, [(tasks.train_split, tasks.train)], "train"),
            (paths.validation_rows, held_out, "validation"),
        ):
            rows = []
            for split, indices in sets:
                rows += make_rows(
                    config.env,
                    indices,
                    phase=phase,
                    env_kwargs={**config.env_kwargs, "split": split, "data": config.data},
                    wrappers=config.wrappers,
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            write_rows(path, rows)
        paths.starts.mkdir(exist_ok=True)
        log = paths.starts / f"{len(starts):03d}-from-{resumed_from}.jsonl"
        # What lies after the checkpoint is played again.
        records = join_logs([*starts, (resumed_from, log)])
        write_records(paths.metrics, records)
        validated = any(r["step"] == resumed_from and "val/success" in r for r in records)
        overrides = settle(verl_overrides(config, preset, model=model, validate_first=not validated)).overrides
        try:
            run_verl(config, preset, paths, overrides, log, resumed_from)
        finally:
            records = join_logs([*starts, (resumed_from, log)])
            write_records(paths.metrics, records)
            _draw(config, paths, records)
    else:
        _draw(config, paths, records)
    done = max((r["step"] for r in records), default=0)
    if done < config.steps:
        raise BackendError(f"verl ended at step {done} of {config.steps} without an error; look into {paths.log}")
    return records


def _last_checkpoint(paths: Paths) -> int:
    """The step verl will resume from; 0 where there is no complete checkpoint."""
    latest = paths.checkpoints / "latest_checkpointed_iteration.txt"
    try:
        return int(latest.read_text())
    except FileNotFoundError:
        return 0
    except ValueError as e:
        raise ConfigError(f"{latest} holds no step number; write the last good step into it, or delete it") from e


def _past_starts(paths: Paths) -> list[tuple[int, Path]]:
    return [(int(path.stem.rpartition("-")[2]), path) for path in sorted(paths.starts.glob("*-from-*.jsonl"))]


def _caption(config: RunConfig) -> str:
    if config.model is not None:
        return f"Training started from {config.model}."
    if config.warm_start == 0:
        return "Training started from an untrained tiny model."
    of = "" if config.data == "generated" else " of generated tasks"
    start = f"Step 0 is a tiny model after {config.warm_start} supervised steps on demonstrations{of}"
    if config.demo_noise == 0:
        return f"{start} by the expert."
    return (
        f"{start} in which {config.demo_noise:.0%} of the calls are wrong on purpose:\n"
        "it knows the format and not yet the task."
    )


def _draw(config: RunConfig, paths: Paths, records: Sequence[Record]) -> None:
    from agent_envs.adapters.verl.run.curve import draw_curve

    title = f"{config.env}, {config.algo}, {config.preset}, seed {config.seed}"
    draw_curve(paths.curve, records, title=title, caption=_caption(config))


def _summary(config: RunConfig, paths: Paths, records: Sequence[Record]) -> str:
    lines = [_caption(config).replace("\n", " ")]
    held_out = [r for r in records if r.get("val/success") is not None]
    if held_out:
        first, last = held_out[0], held_out[-1]
        counts = tuple(int(r["val/episodes"] + r.get("val/lost_episodes", 0)) for r in (first, last))
        for record, count in ((first, counts[0]), (last, counts[1])):
            s = share(record["val/success"] * count, count)
            lines.append(
                f"step {record['step']:<5} success {s.value:.3f} [{s.low:.3f}, {s.high:.3f}] on {count} held-out tasks"
            )
        d = difference(first["val/success"], counts[0], last["val/success"], counts[1])
        lines.append(
            f"difference {d.value:+.3f} [{d.low:+.3f}, {d.high:+.3f}] (95 % intervals; sampled, temperature 1)"
        )
        lines += [
            f"{name.removeprefix('val/').removesuffix('/success')}: success {last[name]:.3f}"
            for name in sorted(last)
            if name.startswith("val/") and name.endswith("/success") and name != "val/success"
        ]
    lines += map(str, (paths.curve, paths.metrics, paths.episodes, paths.checkpoints, paths.log))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
