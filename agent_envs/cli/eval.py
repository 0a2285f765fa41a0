"""`agentr1 eval`: evaluate a policy on an environment's tasks; a stopped evaluation can be resumed."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

from agent_envs.checks import shown
from agent_envs.cli.arguments import (
    EnvChoice,
    add_env_arguments,
    add_policy_arguments,
    chosen_env,
    chosen_policies,
    policy_settings,
)
from agent_envs.cli.engines import add_engine_arguments, chosen_engine, policies_there
from agent_envs.errors import BackendError, ConfigError
from agent_envs.rollout.evaluation import Prices, read_prices
from agent_envs.rollout.panel import Panel, read_panel
from agent_envs.wrapping.recorded import recorded_env

__all__ = ["add_arguments", "run"]

_RANGE = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?")
_MOST_INDICES = 10_000_000
_EPILOG = """examples:
  agentr1 eval --env AgentR1/GSM8KTool-v0 --policy expert --n 200
  agentr1 eval --env AgentR1/ALFWorld-v0 --model Qwen/Qwen3-4B --base-url http://localhost:8000/v1 --out runs/qwen
  agentr1 eval --checkpoint runs/mine                       # in the environment that it was trained in
  agentr1 eval ... --samples 8 --temperature 0.8            # pass@1, pass@2, pass@4, pass@8
  agentr1 eval ... --out runs/qwen                          # run it again to resume; with a larger --n to play more
  agentr1 eval ... --ray auto --workers 64 --concurrency 4096          # on a Ray cluster
  agentr1 eval --panel runs/qwen --policy expert --out runs/expert     # the same tasks: agentr1 compare takes both
  agentr1 view runs/qwen                                    # show the episodes as a page

Intervals are Wilson's for success and pass@k, Student's t over tasks for means; docs/evaluation.md has the formulas."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_env_arguments(parser, split="test, or all of a single file")
    tasks = parser.add_argument_group("tasks").add_argument
    tasks(
        "--n", type=int, metavar="N",
        help="number of tasks, drawn from the split (default: 100, or all of a smaller split)",
    )  # fmt: skip
    tasks("--all", action="store_true", help="play every task of the split")
    tasks("--indices", metavar="LIST", help="tasks to play, such as 0-99,150")
    tasks("--panel", metavar="FILE", help="play the tasks of another evaluation: its --out, or the panel.json in it")
    tasks("--samples", type=int, default=1, metavar="K", help="episodes per task, for pass@k (default: 1)")
    tasks("--seed", type=int, default=0, help="seed of the drawn tasks and of policies that draw (default: 0)")
    add_policy_arguments(parser)
    run_ = parser.add_argument_group("run").add_argument
    run_(
        "--out", metavar="DIR", help="folder for episodes.jsonl and summary.json; run the same command again to resume"
    )
    run_("--retry-errors", action="store_true", help="replay episodes that an error or a time-out ended")
    run_("--concurrency", type=int, default=32, metavar="N", help="episodes played at the same time (default: 32)")
    run_("--step-timeout", type=float, metavar="SECONDS", help="end an episode if a step takes longer")
    run_("--episode-timeout", type=float, metavar="SECONDS", help="end an episode that takes longer")
    run_(
        "--token-budget", type=int, metavar="N",
        help="start no more episodes once N tokens are used, those in --out included",
    )  # fmt: skip
    run_(
        "--give-up-after", type=int, default=100, metavar="N",
        help="stop after N errors in a row, or where the first 8 episodes all fail; 0 for never (default: 100)",
    )  # fmt: skip
    run_("--price-in", type=float, metavar="P", help="price of a million prompt tokens")
    run_("--price-out", type=float, metavar="P", help="price of a million response tokens")
    run_(
        "--price-cached", type=float, metavar="P",
        help="price of a million cached prompt tokens (default: as --price-in)",
    )  # fmt: skip
    run_("--prices", metavar="FILE", help='JSON file: {"MODEL": {"prompt": 2.5, "completion": 10, "cached": 1.25}}')
    add_engine_arguments(parser, policy=True)
    run_("--json", action="store_true", help="print one JSON object instead of the table")
    run_("--quiet", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> str:
    from agent_envs.rollout.evaluate import evaluate
    from agent_envs.text_env import TextEnv

    chosen = (arguments.n is not None, arguments.all, arguments.indices is not None, arguments.panel is not None)
    if sum(chosen) > 1:
        raise ConfigError("give only one of --n, --all, --indices and --panel")
    indices = None if arguments.indices is None else _indices(arguments.indices)
    panel = None if arguments.panel is None else read_panel(arguments.panel)
    choice = _chosen_env(arguments, panel)
    env = choice.make()
    if "split" not in choice.env_kwargs and isinstance(env.unwrapped, TextEnv):
        one_file = Path(choice.env_kwargs.get("data", "")).is_file()
        choice.env_kwargs["split"] = "all" if one_file else "test"
        try:
            choice.make().close()
        except ConfigError as e:
            if not isinstance(e.__cause__, TypeError):
                raise
            del choice.env_kwargs["split"]  # an environment that takes no such argument
    env.close()
    prices, engine = _prices(arguments), chosen_engine(arguments)
    samples = max(arguments.samples, 1)
    make_policies = chosen_policies if engine is None else policies_there
    evaluation = evaluate(
        choice.env_id,
        make_policies(arguments, samples, seed=arguments.seed),
        None if arguments.all else 100 if arguments.n is None else arguments.n,
        samples=arguments.samples,
        indices=indices,
        panel=panel,
        seed=arguments.seed,
        env_kwargs=choice.env_kwargs,
        wrappers=choice.wrappers,
        out=arguments.out,
        settings=policy_settings(arguments),
        retry_errors=arguments.retry_errors,
        concurrency=arguments.concurrency,
        step_timeout=arguments.step_timeout,
        episode_timeout=arguments.episode_timeout,
        token_budget=arguments.token_budget,
        give_up_after=arguments.give_up_after or None,
        prices=prices,
        engine=engine or "threads",
        progress=not arguments.quiet,
    )
    if evaluation.scores and evaluation.errors == len(evaluation.scores):
        kept = "" if evaluation.folder is None else f"; the episodes are in {evaluation.folder}"
        raise BackendError(f"all {evaluation.errors} episodes broke: {evaluation.scores[0].error}{kept}")
    if arguments.json:
        return json.dumps(evaluation.to_dict())
    who = " ".join(filter(None, (evaluation.settings["policy"], arguments.model, arguments.checkpoint)))
    split = choice.env_kwargs.get("split", "")
    where = f"{choice.env_id}, split {split}" if split else choice.env_id
    lines = [f"{where}, policy {who}: {evaluation.table()}"]
    played = len(evaluation.scores)
    tasks = evaluation.asked // evaluation.samples
    if arguments.n is not None and tasks < arguments.n:
        lines.append(f"the split has {tasks} tasks, fewer than --n {arguments.n}")
    if played < evaluation.asked:
        lines.append(f"{evaluation.asked - played} episodes were not played: the token budget is used up")
    if evaluation.folder is not None:
        lines.append(f"episodes      {evaluation.folder / 'episodes.jsonl'}")
        lines.append(f"look at them  agentr1 view {shlex.quote(str(evaluation.folder))}")
    return "\n".join(lines)


def _chosen_env(arguments: argparse.Namespace, panel: Panel | None) -> EnvChoice:
    """Return the environment of the arguments, which need not repeat what the panel says."""
    if panel is None:
        return chosen_env(arguments)
    if arguments.run is not None:
        raise ConfigError("give either --run or --panel: a panel has an environment of its own")
    given = chosen_env(argparse.Namespace(**{**vars(arguments), "env": arguments.env or panel.env, "bare": True}))
    recorded = recorded_env(
        panel.to_dict(),
        arguments.panel,
        env_id=arguments.env or "",
        env_kwargs=given.env_kwargs,
        wrappers=given.wrappers,
        trust=bool(arguments.trust),
    )
    return EnvChoice(*recorded)


def _indices(text: str) -> list[int]:
    """Return the numbers in a list of numbers and ranges.

    >>> _indices("0-2,7")
    [0, 1, 2, 7]
    """
    indices: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ConfigError(f"--indices must be numbers and ranges such as 0-99,150, got {shown(text)}")
        first, last = int(found[1]), int(found[2] or found[1])
        if not 0 <= last - first < _MOST_INDICES:
            raise ConfigError(
                f"--indices holds the range {part.strip()}, which is empty or longer than {_MOST_INDICES:,}"
            )
        indices += range(first, last + 1)
    return indices


def _prices(arguments: argparse.Namespace) -> Prices | None:
    given = (arguments.price_in, arguments.price_out, arguments.price_cached)
    if arguments.prices is not None:
        if any(price is not None for price in given):
            raise ConfigError("give either --prices or --price-in, --price-out and --price-cached")
        return read_prices(arguments.prices, arguments.model)
    if all(price is None for price in given):
        return None
    return Prices(arguments.price_in or 0.0, arguments.price_out or 0.0, arguments.price_cached)
