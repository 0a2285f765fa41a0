"""Play tasks of an environment with any policy; print success, reward and pass@k with confidence intervals.

examples:
  agentr1 eval --env AgentR1/GSM8KTool-v0 --policy expert --n 200
  agentr1 eval --env AgentR1/ALFWorld-v0 --model Qwen/Qwen3-4B --base-url http://localhost:8000/v1 --out runs/qwen
  agentr1 eval --checkpoint runs/mine                       # in the environment that it was trained in
  agentr1 eval ... --samples 8 --temperature 0.8            # pass@1, pass@2, ..., and pass^2, ...: all of k solved
  agentr1 eval ... --out runs/qwen                          # run it again to resume; with a larger --n to play more
  agentr1 eval ... --ray auto --workers 64 --concurrency 4096          # on a Ray cluster
  agentr1 eval --panel runs/qwen --policy expert --out runs/expert     # the same tasks: agentr1 compare takes both
  agentr1 view runs/qwen                                    # show the episodes as a page

Intervals are Wilson's for success and pass@k, Student's t over tasks for means; docs/evaluation.md has the formulas.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from agent_envs.checks import argument_names, shown
from agent_envs.cli.options import AgentOptions, FileOrFolder, Folder, Seconds, arguments_of, given_options, option
from agent_envs.cli.policy import PolicyOptions
from agent_envs.errors import BackendError, ConfigError
from agent_envs.registration import env_maker_of
from agent_envs.rollout.evaluation import Prices
from agent_envs.rollout.panel import read_panel
from agent_envs.rollout.ray_engine import RayEngine
from agent_envs.text import count_of
from agent_envs.wrapping.recorded import recorded_env
from agent_envs.wrapping.specs import make_text_env

_RANGE = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?")
_MOST_INDICES = 10_000_000


@dataclass(kw_only=True)
class _TaskOptions:
    group = "tasks"
    n: int | None = option(None, "number of tasks, drawn from the split (default: 100, or all of a smaller split)")
    all: bool = option(False, "play every task of the split")
    indices: str | None = option(None, "tasks to play, such as 0-99,150", metavar="LIST")
    panel: FileOrFolder | None = option(None, "play the tasks of another evaluation: its --out, or a panel.json")
    samples: int = option(1, "episodes per task, for pass@k and pass^k")
    seed: int = option(0, "seed of the drawn tasks and of policies that draw")


@dataclass(kw_only=True)
class _ClusterOptions:
    group = "cluster: play on the workers of a Ray cluster (docs/scaling.md)"
    ray: str | None = option(
        None, "its address, such as auto (none: one on this machine)", metavar="ADDRESS", nargs="?", const="local"
    )
    workers: int | None = option(None, "with --ray: number of workers (default: one per processor)")
    gpus_per_worker: float | None = option(None, "with --ray: GPUs of each worker's policy, such as 0.5")

    def chosen_engine(self) -> RayEngine | None:
        """Return the cluster that was named, None for this process."""
        if self.ray is not None:
            return RayEngine(None if self.ray == "local" else self.ray, self.workers, self.gpus_per_worker or 0.0)
        for name, value in (("--workers", self.workers), ("--gpus-per-worker", self.gpus_per_worker)):
            if value is not None:
                raise ConfigError(f"{name} is for the workers of --ray; give --ray too, or leave it out")
        return None


@dataclass(kw_only=True)
class Options(PolicyOptions, AgentOptions, _TaskOptions, _ClusterOptions):
    group = "run"
    split: str | None = option(None, "split to take tasks from (default: test, or all of a single file)")
    out: Folder | None = option(None, "for episodes.jsonl and summary.json; run the same command again to resume")
    retry_errors: bool = option(False, "replay episodes that an error or a time-out ended")
    concurrency: int = option(32, "episodes played at the same time")
    step_timeout: Seconds | None = option(None, "end an episode if a step takes longer")
    episode_timeout: Seconds | None = option(None, "end an episode that takes longer")
    token_budget: int | None = option(None, "start no more episodes once N tokens are used, those in --out included")
    give_up_after: int = option(100, "stop after N errors in a row, or if the first 8 episodes all fail; 0 for never")
    price_in: float | None = option(None, "price of a million prompt tokens")
    price_out: float | None = option(None, "price of a million response tokens")
    price_cached: float | None = option(None, "price of a million cached prompt tokens (default: as --price-in)")
    json: bool = option(False, "print one JSON object instead of the table")
    quiet: bool = option(False, "show no progress bar")


def run(options: Options) -> str:
    from agent_envs.rollout.evaluate import evaluate
    from agent_envs.text_env import TextEnv

    if len(given_options(options, ["n", "all", "indices", "panel"])) > 1:
        raise ConfigError("give only one of --n, --all, --indices and --panel")
    indices = None if options.indices is None else _indices(options.indices)
    panel = None if options.panel is None else read_panel(options.panel)
    if panel is None:
        choice = options.chosen_env()
    elif options.run is not None:
        raise ConfigError("give either --run or --panel: a panel has an environment of its own")
    else:  # the arguments need not repeat what the panel says
        choice = recorded_env(panel.to_dict(), str(options.panel), **options.given_env()._asdict(), trust=options.trust)
    with contextlib.closing(make_text_env(*choice)) as env:
        has_splits = isinstance(env.unwrapped, TextEnv) and "split" in argument_names(type(env.unwrapped))
    if has_splits and "split" not in choice.env_kwargs:
        with contextlib.suppress(TypeError):  # of a function that makes it and takes no split
            inspect.signature(env_maker_of(choice.env_id)).bind_partial(split="test")
            choice.env_kwargs["split"] = "all" if Path(choice.env_kwargs.get("data", "")).is_file() else "test"
    prices = None
    if given_options(options, ["price_in", "price_out", "price_cached"]):
        prices = Prices(options.price_in or 0.0, options.price_out or 0.0, options.price_cached)
    engine = options.chosen_engine()
    make_policies = options.chosen_policies if engine is None else options.policies_there
    players = make_policies(max(options.samples, 1), seed=options.seed)
    settings = {
        **arguments_of(evaluate, options),
        **choice._asdict(),
        "policy": players,
        "n": None if options.all else 100 if options.n is None else options.n,
        "indices": indices,
        "panel": panel,
        "settings": options.policy_settings() | given_options(options, ["agent", "score"]),
        "give_up_after": options.give_up_after or None,
        "prices": prices,
        "engine": engine or "threads",
    }
    evaluation = evaluate(**settings, progress=not options.quiet)
    played = len(evaluation.scores)
    if played and evaluation.errors == played:
        place = "" if evaluation.folder is None else f"; the episodes are in {evaluation.folder}"
        raise BackendError(f"{played} of {played} episodes broke: {evaluation.scores[0].error}{place}")
    if options.json:
        return json.dumps(evaluation.to_dict())
    who = " ".join(filter(None, (evaluation.settings["policy"], options.model, options.checkpoint)))
    where = f"{choice.env_id}, split {split}" if (split := choice.env_kwargs.get("split")) else choice.env_id
    lines = [f"{where}, policy {who}: {evaluation.table()}"]
    tasks = evaluation.asked // evaluation.samples
    if options.n is not None and tasks < options.n:
        lines.append(f"the split has {count_of(tasks, 'task')}, fewer than --n {options.n}")
    if played < evaluation.asked:
        lines.append(f"{count_of(evaluation.asked - played, 'episode')} not played: the token budget is used up")
    if evaluation.folder is not None:
        lines.append(f"episodes      {evaluation.folder / 'episodes.jsonl'}")
        lines.append(f"look at them  agentr1 view {shlex.quote(str(evaluation.folder))} --open")
    return "\n".join(lines)


def _indices(text: str) -> list[int]:
    """Return the numbers in a list of numbers and ranges.

    >>> _indices("0-2,7")
    [0, 1, 2, 7]
    """
    indices: list[int] = []
    for part in text.split(","):
        if (match := _RANGE.fullmatch(part.strip())) is None:
            raise ConfigError(f"--indices must be numbers and ranges such as 0-99,150, got {shown(text)}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < _MOST_INDICES:
            raise ConfigError(
                f"--indices holds the range {part.strip()}, which is empty or longer than {_MOST_INDICES:,}"
            )
        indices += range(first, last + 1)
    return indices
