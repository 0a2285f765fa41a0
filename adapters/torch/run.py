"""A run of the PyTorch loop: its folder with settings, checkpoints and metrics, its tasks, models and optimisers."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import AutoModelForTokenClassification

from agent_envs.adapters.batches import cached_numbers, fitting_tokens, token_bytes
from agent_envs.adapters.estimators import get_estimator
from agent_envs.adapters.losses import RatioWatch
from agent_envs.adapters.run import CollapseWatch, Record, append_record, read_records, success_lines, write_records
from agent_envs.adapters.teacher import labels_in
from agent_envs.adapters.tiny.model import base_folder, vision_folder, writing_weights
from agent_envs.adapters.tiny.supervised import NO_BFLOAT16, computes_bfloat16
from agent_envs.adapters.torch.distillation import TeacherServer
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.adapters.torch.tasks import RunTasks, Tasks
from agent_envs.adapters.trained import call_metrics, calls_made
from agent_envs.adapters.trees.attention import enable, takes_trees
from agent_envs.episodes.record import Episode, Step, StopReason
from agent_envs.episodes.run_folder import keep_settings
from agent_envs.episodes.statistics import share
from agent_envs.errors import BackendError, ConfigError, DataError, first_line, what_failed
from agent_envs.files import move_folder, read_text
from agent_envs.policies.local.loading import check_pictures, context_length, load_model
from agent_envs.policies.named import UNREADABLE, model_path
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.pictures import load_picture_tokens
from agent_envs.registration import versions
from agent_envs.spaces import refuse_pictures, shows_pictures
from agent_envs.wrapping.specs import takes_argument

_log = logging.getLogger(__name__)

_LIBRARIES = 0.6  # GB

_MAY_CHANGE = frozenset(
    {"steps", "save_every", "eval_every", "minutes", "concurrency", "device", "layout", "micro_tokens", "out"}
)


class Run:
    """A run at its start, or as the last checkpoint left it.

    Its folder:

        run.json           the settings it was started with; of several environments, env is the first
        start/             the included model as it starts from it, unless another one is named
        checkpoint/        model/ (and critic/) as Hugging Face folders, optimisers
        metrics.jsonl      one line per iteration

    A resumed run must have the same settings.
    """

    def __init__(self, config: LoopConfig) -> None:
        device = _device(config.device)
        self.config, self.folder = config, Path(config.out)
        self._began, self.stopped = time.monotonic(), False
        self.estimator = get_estimator(config.estimator)
        self._watch = RatioWatch(config.loss, updates=config.mini_batches * config.epochs)
        self.tasks = RunTasks(config)
        space = self.tasks.environments[0].space
        settings = {k: v for k, v in dataclasses.asdict(config).items() if k not in _MAY_CHANGE}
        mixed = [{"env": one.env, "weight": w, "env_kwargs": one.env_kwargs} for w, one in config.environments]
        settings |= {"env": mixed[0]["env"], "env_kwargs": mixed[0]["env_kwargs"], "mixed": mixed if mixed[1:] else []}
        if config.freeze_vision and not shows_pictures(space):
            raise ConfigError(f"freeze_vision is for pictures, and {config.env} shows none; leave it out")
        settings["versions"] = {k: v for _, one in config.environments for k, v in versions(str(one.env)).items()}
        if config.dtype == "bfloat16" and not computes_bfloat16(torch.device(device)):
            tqdm.write(NO_BFLOAT16, file=sys.stderr)
            self.config = config = dataclasses.replace(config, dtype="float32")
        settings["computed_in"] = config.dtype
        files, may_change = ("checkpoint", "metrics.jsonl", "start"), {"computed_in"}
        keep_settings(self.folder / "run.json", settings, may_change=may_change, writes=files)
        checkpoint, old = self.folder / "checkpoint", self.folder / ".checkpoint.old"
        if old.exists() and not checkpoint.exists():
            old.rename(checkpoint)  # a kill came while `move_folder` replaced it
        self.resumed = checkpoint if checkpoint.exists() else None
        """The checkpoint to resume from, or None."""
        try:
            self.step = int(json.loads(read_text(checkpoint / "step.json"))["step"]) if self.resumed else 0
            """Iterations done."""
            records = read_records(self.folder / "metrics.jsonl")
            self.records: list[Record] = [r for r in records if r["step"] <= self.step]  # the rest is played again
            """The lines of metrics.jsonl."""
            if self.step and self.step not in [record["step"] for record in self.records]:
                raise ValueError(f"metrics.jsonl lacks its step, {self.step}: put it back, or take another folder")
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as e:
            raise DataError(f"the run in {self.folder} cannot be resumed from its checkpoint: {e!r:.200}") from e
        self._collapse = CollapseWatch()
        for record in self.records:
            self._collapse.update(record)

        warm, tiny = self.folder / "start", (vision_folder if shows_pictures(space) else base_folder)()
        given = str(warm) if warm.exists() else model_path(config.model) if config.model else str(tiny)
        words, taught = load_tokenizer(given), config.teaching
        # before anything is written that stands in the way of another one
        self.teacher = TeacherServer(taught, words, config.concurrency) if taught.server else None
        """The model that teaches, if it is behind a server."""
        tqdm.write(f"memory: about {gigabytes(self.config, given):.1f} GB", file=sys.stderr)
        start = self._start_model(shows_pictures(space))
        self.tokenizer = load_tokenizer(start)
        self.pictures = load_picture_tokens(start, self.tokenizer)
        """The image tokens, if the model takes pictures."""
        if self.pictures is None:
            refuse_pictures(space, f"the PyTorch loop with {start}")
        elif self.estimator.needs_critic:
            raise ConfigError(
                f"a critic cannot see pictures, and {start} takes them: use an algorithm without a critic, such as grpo"
            )
        if self.teacher is not None and self.pictures is not None:
            raise ConfigError("a teacher behind a server sees no pictures: leave out teacher, or take expert")
        self.models = {"model": load_model(self._at("model", start), dtype=torch.float32, device=device)}
        """``model``; ``critic`` if the estimator needs one; ``reference`` if there is a KL."""
        check_pictures(self.models["model"], self.pictures)
        if config.freeze_vision:
            self.models["model"].model.visual.requires_grad_(False)
        if (longest := context_length(self.models["model"])) is not None and longest < config.max_tokens:
            raise ConfigError(f"the model takes {longest} tokens, but max_tokens is {config.max_tokens}: lower it")
        self.rates = {"model": config.learning_rate}
        if self.estimator.needs_critic:
            self.models["critic"] = load_critic(self._at("critic", start), device, config.seed)
            self.rates["critic"] = config.critic_learning_rate
        adam = {"betas": (0.9, 0.98), "weight_decay": 0.0}
        trained = {name: [p for p in self.models[name].parameters() if p.requires_grad] for name in self.rates}
        self.optimizers = {name: torch.optim.AdamW(trained[name], **adam) for name in self.rates}
        """One per trained model."""
        if self.resumed:
            path = self.resumed / "optimizers.pt"
            try:
                state = torch.load(path, map_location="cpu", weights_only=True)
                for name, optimizer in self.optimizers.items():
                    optimizer.load_state_dict(state[name])
            except Exception as e:
                raise DataError(f"{path} does not hold the states of this run's optimizers: {first_line(e)}") from e
        if config.kl != "none":
            self.models["reference"] = load_model(start, dtype=torch.float32, device=device)
        self.layout = config.layout
        """``steps``, ``merged`` or ``tree``."""
        if config.layout == "auto":
            trees = device == "cpu" and self.pictures is None and takes_trees(self.models["model"].config)
            self.layout = "tree" if trees else "merged"
        if self.layout == "tree":
            if self.pictures is not None:
                raise ConfigError("the layout 'tree' cannot hold pictures; use 'merged', 'steps' or 'auto'")
            for model in self.models.values():
                enable(model)
        write_records(self.folder / "metrics.jsonl", self.records)

    def iterations(self) -> Iterator[int]:
        """Yield the numbers of the remaining iterations that the limit of time leaves, setting their learning rates."""
        steps = self.config.steps
        for number in tqdm(range(self.step + 1, steps + 1), initial=self.step, total=steps, unit="step"):
            for name, rate in self.rates.items():
                for group in self.optimizers[name].param_groups:
                    group["lr"] = rate * min(1.0, number / max(1, self.config.warmup))
            yield number
            if self.stopped:
                return

    def evaluates(self, number: int) -> bool:
        """Whether the held-out tasks are played after an iteration."""
        return number == self.config.steps or bool(self.config.eval_every and number % self.config.eval_every == 0)

    def labels(self, states: Sequence[tuple[Episode, Step, Mapping[str, Any]]]) -> list[tuple[int, ...]]:
        """Return the tokens of the teacher's label in each state, given with its episode, its step, and its info."""

        def builder_of(episode: Episode) -> PromptBuilder:
            words = self.tasks.tool_instructions(episode)
            return PromptBuilder(self.tokenizer, episode.tools, pictures=self.pictures, tool_instructions=words)

        return labels_in(states, builder_of, self.config.max_response_tokens, self.config.max_tokens)

    def log(self, record: Record) -> None:
        """Append a line to metrics.jsonl; warn once if the ratios of the policy loss never leave 1."""
        if "actor/ratio/moved" in record and (notice := self._watch.update(record["actor/ratio/moved"])):
            _log.warning("%s", notice)
        for line, reason in self._collapse.update(record):
            tqdm.write(f"step {record['step']}: {line}", file=sys.stderr)
            _log.warning("%s", reason)
        self.records.append(record)
        append_record(self.folder / "metrics.jsonl", record)

    def amend(self, metrics: Record) -> None:
        """Add metrics to the last line of metrics.jsonl."""
        self.records[-1] |= metrics
        write_records(self.folder / "metrics.jsonl", self.records)

    def save(self, number: int, due: bool = False) -> None:
        """Write a checkpoint if one is due or time is up; it replaces the last one as a whole.

        A BackendError says that it cannot be written; the last one stays.
        """
        self.stopped = bool(self.config.minutes) and time.monotonic() - self._began > 60 * self.config.minutes
        if not due and number % self.config.save_every and number != self.config.steps and not self.stopped:
            return
        parts = self.folder / ".checkpoint.parts"
        with writing_weights(parts):
            for name in self.optimizers:
                self.models[name].save_pretrained(parts / name)
                self.tokenizer.save_pretrained(parts / name)
                if self.pictures is not None:
                    self.pictures.image_processor.save_pretrained(parts / name)
            with (parts / "optimizers.pt").open("wb") as file:  # given a path, it does not say why it fails
                torch.save({name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}, file)
            (parts / "step.json").write_text(json.dumps({"step": number}))
        move_folder(parts, self.folder / "checkpoint")

    def _start_model(self, pictures: bool) -> str:
        """Return the model to start from, tiny-base or tiny-vision if none is named, after a warm start if any."""
        if self.config.model and not self.config.warm_start:
            return model_path(self.config.model)
        start = self.folder / "start"
        if not start.exists():
            from agent_envs.adapters.tiny.warm_start import make_warm_model

            config = (first := self.tasks.environments[0]).config
            own, splits = config.env_kwargs_of(config.split), takes_argument(str(config.env), "split")
            make_warm_model(
                start, str(config.env), model=config.model or None, steps=config.warm_start, noise=config.demo_noise,
                seed=config.seed, max_length=config.max_tokens, wrappers=config.wrappers, pictures=pictures,
                pool=None if splits else first.pool,
                env_kwargs=own, generated=own | {"data": "generated"} if splits else None,
            )  # fmt: skip
        return str(start)

    def _at(self, name: str, start: str) -> str:
        """The folder of a model: the checkpoint's, or the one to start from."""
        return str(self.resumed / name) if self.resumed else start


def _device(name: str) -> str:
    """The device to use: the one that is named, otherwise a GPU if there is one."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=name)
    except (AssertionError, NotImplementedError, RuntimeError) as e:
        raise ConfigError(f"there is no device {name!r} here: {first_line(e)}") from e
    return name


def gigabytes(config: LoopConfig, path: str) -> float:
    """Return about what a run from a model takes: weights, gradients, AdamW's moments, a micro-batch, the libraries,
    and keys and values of the episodes played at once, if all are as long as they may be.
    """
    model, width = load_model(path, device="meta"), 2 if config.dtype == "bfloat16" else 4
    trained = 1 + get_estimator(config.estimator).needs_critic
    copies = 16 * trained + 4 * (config.kl != "none") + 2 * (width == 2)  # bytes; bfloat16 plays with a copy
    played = min(config.concurrency, max(config.tasks * config.group, config.eval_tasks)) * config.max_tokens
    passes = (config.micro_tokens or fitting_tokens(model)) * token_bytes(model.config)
    cache = width * cached_numbers(model.config) * played
    return (copies * sum(p.numel() for p in model.parameters()) + passes + cache) / 1e9 + _LIBRARIES


def load_critic(path: str, device: str, seed: int = 0) -> Any:
    """Load a critic in float32: a causal language model's body with one output."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # draws the new layer
        try:
            model = AutoModelForTokenClassification.from_pretrained(
                path, dtype=torch.float32, num_labels=1, trust_remote_code=False
            )
        except UNREADABLE as e:
            raise ConfigError(f"{path} cannot be a critic: {first_line(e)}") from e
    return model.to(device).eval()


def about(episodes: Sequence[Episode]) -> Record:
    """Return the metrics of the episodes that did not break, success with its 95 % interval; none for no episodes.

    If all of them broke, the first error is a BackendError.
    """
    if not episodes:
        return {}
    if all(episode.stop_reason.broken for episode in episodes):
        why = what_failed(episodes[0].error or episodes[0].stop_reason.value)
        raise BackendError(f"all {len(episodes)} episodes of {episodes[0].env_id} broke; the first: {why}")
    played, episodes = len(episodes), [episode for episode in episodes if not episode.stop_reason.broken]
    solved = share(sum(episode.success for episode in episodes), len(episodes))
    record: Record = {
        "success": solved.value,
        "success_low": solved.low,
        "success_high": solved.high,
        "episodes": len(episodes),
        "return/mean": float(np.mean([episode.reward for episode in episodes])),
        "num_steps/mean": float(np.mean([len(episode.steps) for episode in episodes])),
        "calls/mean": float(np.mean([episode.calls for episode in episodes])),
        "tokens/response_per_episode": float(
            np.mean([sum(len(s.response_ids or ()) for s in episode.steps) for episode in episodes])
        ),
        "broken": played - len(episodes),
    }
    if any(step.time is not None for episode in episodes for step in episode.steps):  # an agent's
        failed = sum(episode.stop_reason is StopReason.AGENT_ERROR for episode in episodes)
        record |= named("agent", call_metrics([calls_made(episode) for episode in episodes]))
        record["stop/agent_error"] = failed / len(episodes)
    return record


def solved(of: Tasks, episodes: Sequence[Episode]) -> Record:
    """Return the success on a level or on one of several environments, by its name; nothing without one."""
    known = [episode.success for episode in episodes if not episode.stop_reason.broken]
    if not (of.name and episodes):
        return {}
    return {f"{of.name}/episodes": len(known), f"{of.name}/success": sum(known) / max(len(known), 1)}


def named(role: str, metrics: Mapping[str, Any]) -> Record:
    """Return metrics with a role before their names, as in ``actor/loss``."""
    return {f"{role}/{name}": value for name, value in metrics.items()}


def summary(records: Sequence[Record], out: str) -> str:
    """Return the success on held-out tasks before and after, with 95 % intervals, and where the files are."""
    return "\n".join([*success_lines(records), f"{out}/checkpoint/model", f"{out}/metrics.jsonl"])
