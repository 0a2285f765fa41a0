"""A training run from its settings to its results: tasks, the model it starts from, verl, metrics and the curve."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from agent_envs.adapters.estimators import get_estimator
from agent_envs.adapters.run import Record, success_lines, write_records
from agent_envs.adapters.verl.config.checks import find_row_loss, row_loss_notice
from agent_envs.adapters.verl.config.compose import Composed, RunConfig, files_of
from agent_envs.adapters.verl.config.engines import attention_notice, missing_engine, precision_notice
from agent_envs.adapters.verl.config.models import check_context, check_vision, memory_notice, sees_pictures
from agent_envs.adapters.verl.config.objective import choose_layout
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.adapters.verl.run.checkpoints import check_pickles, last_step
from agent_envs.adapters.verl.run.folder import RunFolder, join_logs
from agent_envs.adapters.verl.run.process import run_verl
from agent_envs.adapters.verl.run.tasks import Tasks, choose_tasks, make_env, training_rows, validation_rows, write_rows
from agent_envs.episodes.curves import group_runs, read_run
from agent_envs.episodes.figures import draw_configurations
from agent_envs.episodes.run_folder import keep_settings, locked_folder
from agent_envs.errors import BackendError, ConfigError, DataError, first_line
from agent_envs.registration import versions
from agent_envs.spaces import refuse_pictures, shows_pictures


def describe(composed: Composed) -> str:
    """Return what a run is made of: its tasks and wrappers, the published settings it differs from, verl's settings."""
    run, verl = composed.run, composed.verl()
    lines = [
        f"# {run.env}, {run.algo}, {run.steps} steps of {verl.data.train_batch_size} tasks x "
        f"{verl.actor_rollout_ref.rollout.n} episodes; data {run.data!r}, arguments {json.dumps(run.env_kwargs)}, "
        f"wrappers {json.dumps(run.wrappers)}"
    ]
    lines += [
        f"# {share.weight:.3g} of the tasks: {share.env}, arguments {json.dumps(share.env_kwargs)}, "
        f"wrappers {json.dumps(share.wrappers)}"
        for share in run.mixed
    ]
    try:
        _check_pictures(run, verl, fetch=False)
        for own in _draw(composed, verl) if run.data != "generated" else ():
            held_out = ", ".join(f"{len(indices)} of {split!r}" for split, indices in own.held_out)
            lines.append(f"# {len({*own.train})} tasks of {own.train_split!r} to train on, held out {held_out}")
    except DataError as e:
        if run.data != "official":
            raise
        lines.append(f"# before it can run: {e}")
    lines += [f"# before it can run: {why}" for why in (missing_engine(verl), *composed.needed.values()) if why]
    local = verl.model_engine == "dp" and (run.model is None or Path(run.model).is_dir())
    notices = [attention_notice(verl), memory_notice(verl, run.model) if local else None]
    notices.append(precision_notice(composed.origins, verl))
    if find_row_loss(verl.actor_rollout_ref) is not None:
        notices.append(row_loss_notice(verl.actor_rollout_ref.actor.policy_loss.loss_mode))
    lines += [f"# {notice}" for notice in notices if notice]
    lines += [f"# beside the release {composed.released}, in settings:"] * (composed.released is not None)
    for d in composed.differences:
        lines.append(f"# {d.key}: {d.ours} (published: {'none' if d.published is None else d.published}): {d.why}")
    if composed.remaining is not None:
        lines.append(f"# and in what no setting says:{'' if composed.remaining else ' nothing'}")
        lines += [f"# {name}: {says}" for name, says in composed.remaining.items()]
    settings, files = asdict(read_settings(verl)), files_of(composed.groups)
    return "\n".join([*lines, *composed.annotated({**settings.pop("options"), **settings}, files)])


def check_verl(config: Any) -> None:
    """Check settings as verl itself does when it starts, if the engines that it asks about are installed."""
    if missing_engine(config) is not None:
        return
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:  # a critic's settings are read together with its model, which a dry run neither makes nor fetches
        critic = need_critic(config) and Path(config.critic.model.path).is_dir()
        with contextlib.redirect_stdout(io.StringIO()):
            validate_config(config, need_reference_policy(config), critic)
    except (AssertionError, HydraException, OmegaConfBaseException, TypeError, ValueError) as e:
        raise ConfigError(f"verl does not accept these settings: {first_line(e.__cause__ or e)}") from e


def check_model(model: str, config: Any, *, fetch: bool) -> None:
    """Check that a model, a folder or (with ``fetch``) a name on the hub, has what training with verl needs."""
    folder = Path(model)
    if not folder.is_dir():
        if folder.is_absolute() or model.startswith(".") or len(folder.parts) > 2:
            raise ConfigError(f"--model {model}: there is no such folder")
        if not fetch:
            return
    check_context(model, config)
    from transformers import AutoConfig, AutoTokenizer

    if read_settings(config).layout == "tree":
        from agent_envs.adapters.trees.attention import check_model as check_tree_model

        check_tree_model(AutoConfig.from_pretrained(model, trust_remote_code=False))
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    except (OSError, ValueError) as e:
        raise ConfigError(f"--model {model}: not a Hugging Face model folder: {first_line(e)}") from e
    if not tokenizer.chat_template:
        raise ConfigError(
            f"--model {model}: its tokenizer has no chat template; use an instruction-tuned model, or put a "
            "chat_template.jinja beside its tokenizer.json"
        )


def train(composed: Composed, *, trust: bool = False) -> str:
    """Train, or resume a run that was stopped; return the results and where the files are, as text.

    With ``trust``, verl opens the checkpoint that it resumes from whatever its files would run.
    """
    run, config = composed.run, composed.verl()
    if composed.needed:
        raise ConfigError(f"{run.preset} is a released run, and {'; '.join(composed.needed.values())}")
    if (missing := missing_engine(config)) is not None:
        raise ConfigError(missing)
    tasks = _draw(composed, config)
    pictures = _check_pictures(run, config, fetch=True)
    if config.trainer.device == "cpu":
        for notice in filter(None, (memory_notice(config, run.model), precision_notice(composed.origins, config))):
            tqdm.write(notice, file=sys.stderr)
    folder = RunFolder(run.out.resolve())
    with locked_folder(folder.out):
        settings = {**run.settings(), "steps": run.steps, "versions": versions(run.env)}
        settings["response_length"] = int(config.data.max_response_length)
        keep_settings(folder.settings, settings, may_change={"steps"}, writes=folder.names())
        if (run.model is None or run.warm_start) and not folder.model.exists():
            from agent_envs.adapters.tiny.warm_start import make_warm_model

            held_out_too = not tasks or run.train_files or tasks[0].train_split in dict(tasks[0].held_out)
            own = run.demo_env_kwargs if held_out_too else run.env_kwargs_of(tasks[0].train_split)
            make_warm_model(
                folder.model, run.env, model=run.model, steps=run.warm_start, noise=run.demo_noise, seed=run.seed,
                max_length=config.data.max_prompt_length + config.data.max_response_length, wrappers=run.wrappers,
                pool=tasks[0].pool if tasks else None, pictures=pictures, env_kwargs=own, generated=run.demo_env_kwargs,
            )  # fmt: skip
        if not trust and (step := last_step(folder.checkpoints)):
            check_pickles(folder.checkpoints / f"global_step_{step}")
        records = _train(run, config, tasks, folder, pictures)
    start, caption = _start(run, pictures)
    last: Record = next((r for r in reversed(records) if r.get("val/success") is not None), {})
    matches = (re.fullmatch("val/(.+)/success", name) for name in sorted(last))
    return "\n".join(
        [
            caption.replace("\n", " "),
            *success_lines(records, start),
            *(f"{match[1]}: success {last[match[0]]:.3f}" for match in matches if match),
            f"curve: {folder.curve}",
            f"episodes, as a page for a browser: agentr1 view {shlex.quote(str(run.out))}",
            f"checkpoints: {folder.checkpoints}",
            f"metrics: {folder.metrics}",
            f"log: {folder.log}",
        ]
    )


def _draw(composed: Composed, config: Any) -> list[Tasks]:
    """Draw the tasks of each environment; none if files name those that are trained on and those that are held out."""
    run, held_out = composed.run, composed.unresolved.run.validation_tasks
    parts = () if run.train_files and run.val_files else run.parts()
    each = None if held_out is None else max(1, held_out // len(run.parts()))
    size, levels = config.data.train_batch_size, read_settings(config).chosen
    return [choose_tasks(part, tasks_per_step=size, validation_tasks=each, levels=levels) for part in parts]


def _check_pictures(run: RunConfig, config: Any, *, fetch: bool) -> bool:
    """Return whether the environment shows pictures, to a model that sees them; each level is made, as it is taught.

    Without ``fetch``, a first task is begun, and a model on the hub is not asked.
    """
    spaces, settings = [], read_settings(config)
    levels = [{}] if settings.chosen is None else settings.chosen.env_kwargs
    for part in (replace(part, env_kwargs=part.env_kwargs | own) for part in run.parts() for own in levels):
        if settings.teacher:
            env_kwargs, wrappers = settings.teaching.asked(part.env_kwargs, part.wrappers)
            part = replace(part, env_kwargs=env_kwargs, wrappers=wrappers)
        with contextlib.closing(make_env(part)) as env:
            if not fetch:
                env.reset(options={"index": 0})
            spaces.append(env.observation_space)
    space = next(filter(shows_pictures, spaces), spaces[0])
    pictures = shows_pictures(space)
    if run.model is not None and not fetch and not Path(run.model).is_dir():
        return pictures
    sees = pictures if run.model is None else sees_pictures(run.model)
    if not sees:
        refuse_pictures(space, f"training with verl with {run.model}, a model of text,")
    else:
        check_vision(config, needs_critic=get_estimator(str(config.algorithm.adv_estimator)).needs_critic)
    return pictures


def _train(run: RunConfig, config: Any, tasks: Sequence[Tasks], folder: RunFolder, pictures: bool) -> list[Record]:
    resumed_from, starts = last_step(folder.checkpoints), folder.logs()
    records = join_logs(starts)

    def draw() -> None:
        if records:
            title = f"{run.env}, {run.algo}, {run.preset}, seed {run.seed}, from {_start(run, pictures)[0]}"
            draw_configurations(folder.curve, group_runs([read_run(folder.out, episodes=False)]), title=title)

    if resumed_from >= run.steps and any(r["step"] >= run.steps and "val/success" in r for r in records):
        draw()
        return records
    trust = read_settings(config).trust
    write_rows(folder.train_rows, training_rows(run, tasks, int(config.data.train_batch_size), trust=trust))
    write_rows(folder.validation_rows, validation_rows(run, tasks, trust=trust))
    folder.starts.mkdir(exist_ok=True)
    log = folder.starts / f"{len(starts):03d}-from-{resumed_from}.jsonl"
    starts.append((resumed_from, log))
    records = join_logs(starts)  # without what comes after the checkpoint, which is played again
    write_records(folder.metrics, records)
    if any(r["step"] == resumed_from and "val/success" in r for r in records):
        config.trainer.val_before_train = False
    config.agentr1.layout = choose_layout(config)
    config.agentr1.trust = True  # rows made above name what the user named, and those of files have been checked
    try:
        run_verl(config, folder, log, resumed_from)
    finally:
        records = join_logs(starts)
        write_records(folder.metrics, records)
        draw()
    done = max((r["step"] for r in records), default=0)
    if done < run.steps:
        raise BackendError(f"verl stopped at step {done} of {run.steps} without an error; see {folder.log}")
    return records


def _start(run: RunConfig, pictures: bool) -> tuple[str, str]:
    """What the model is before the first step, in a few words and in a sentence."""
    base = "tiny-base" if run.model is None else Path(run.model).name
    if run.warm_start == 0 and run.model is not None:
        return f"base model {base}", f"Step 0 is the base model {run.model}."
    if run.warm_start == 0:
        start, taught = ("tiny-vision", "PictureSearch") if pictures else ("tiny-base", "nine environments")
        return start, f"Step 0 is {start}, pretrained on demonstrations of {taught} by noisy teachers."
    start = f"{base} after {run.warm_start} warm-start steps"
    by = f", {run.demo_noise:.0%} of whose\nactions are wrong on purpose: it knows the form, not the task."
    return start, f"Step 0 is {start} on demonstrations{by if run.demo_noise else ' by the expert.'}"
