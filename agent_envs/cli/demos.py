"""Write episodes of an environment's own expert, or of a run, as chat in jsonl or parquet, for supervised fine-tuning.

A row has `messages` (system, user, assistant, tool; tool calls are part of the assistant's text, as the environment
reads them) and `tools` (if the environment has any), as TRL's SFTTrainer and verl's multi-turn SFT expect them, also
`tool_instructions` (the tools in words), `env`, `task_id`, `index`, `split`, `step`, `reward`, `success` and `opening`,
the number of messages before the first action. An episode is one row. If a wrapper rebuilds the prompt, each prompt is
a row, `step` is the step it starts at, and earlier actions that a window repeats are part of the opening.

examples:
  agentr1 demos --env AgentR1/GSM8KTool-v0 --n 5000 --out demos.jsonl
  agentr1 demos --env AgentR1/ALFWorld-v0 --env-kwargs '{"expert": "explore"}' --wrapper AsTool --out train.parquet
  agentr1 demos --env AgentR1/GSM8KTool-v0 --split validation --n 500 --out validation.parquet
  agentr1 demos --env AgentR1/HotpotQA-v0 --n 1000 --noise 0.3 --all --out noisy.jsonl    # with mistakes and failures
  agentr1 demos --from runs/qwen --out solved.jsonl    # the episodes that a model solved: rejection sampling

then:
  SFTTrainer(model, train_dataset=load_dataset("json", data_files="demos.jsonl", split="train"))           # TRL
  torchrun ... -m verl.trainer.sft_trainer data.train_files=train.parquet data.val_files=validation.parquet  # verl

verl's own dataset rejects steps with several calls, and gives tools with different arguments empty entries for each
other's. This one reads both, and makes the same tokens and masks as the rollout:
  data.custom_cls.path=pkg://agent_envs.adapters.verl.batch.sft_dataset data.custom_cls.name=DemonstrationDataset
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from tqdm import tqdm

from agent_envs.adapters.curriculum import registered_id
from agent_envs.checks import integer, path_suffix
from agent_envs.cli.environments import RunOptions, of_episode
from agent_envs.cli.options import File, FileOrFolder, OutputOptions, option
from agent_envs.episodes.record import read_episodes
from agent_envs.episodes.run_folder import episode_paths
from agent_envs.errors import ConfigError, DataError, PolicyError, needs_extra
from agent_envs.files import replacing
from agent_envs.messages import Message, content_parts, without_pictures
from agent_envs.pictures.folder import FOLDER, PictureFolder
from agent_envs.policies import ExpertPolicy
from agent_envs.rollout.demonstrations import Demonstration, demonstrate, demonstrated
from agent_envs.spaces import shows_pictures
from agent_envs.text import count_of
from agent_envs.wrapping.recorded import run_settings
from agent_envs.wrapping.specs import make_text_env

_SUFFIXES = (".jsonl", ".parquet")
_HOPELESS = 20
_BATCH = 1000  # rows that are turned into columns at once
_NESTED = ("messages", "tools")  # columns that come last


@dataclass(kw_only=True)
class Options(RunOptions, OutputOptions):
    out: File | None = option(..., "file to write, .jsonl or .parquet")
    from_: FileOrFolder | None = option(None, "write the solved episodes of this run or file", "--from")
    n: int = option(1000, "most episodes to write; an expert plays each on another task")
    seed: int = option(0, "seed of the order of tasks and of the noise")
    noise: float = option(0.0, "share of actions that are wrong on purpose", "--noise", "--demo-noise")
    all: bool = option(False, "write failed episodes too (default: only solved ones)")
    success: bool = option(False, "write solved episodes alone, which is the default")
    keep_duplicates: bool = option(False, "keep rows with the same conversation")
    quiet: bool = option(False, "show no progress bar")


def run(options: Options) -> str:
    out = path_suffix("--out", options.output_file(), _SUFFIXES)
    integer("--n", options.n, minimum=1)
    if options.all and options.success:
        raise ConfigError("--all writes failed episodes too: leave out --all or --success")
    if options.from_ and options.noise:
        raise ConfigError("--noise is an expert's; recorded episodes are what they are, so leave out --noise or --from")
    tally, pictured = Counter[str](), set[str]()
    with contextlib.ExitStack() as stack:
        if options.from_:
            episodes: Iterable[Sequence[Demonstration]] = recorded_episodes(options, tally, pictured)
        else:
            env = stack.enter_context(contextlib.closing(make_text_env(*(choice := options.chosen_env()))))
            pictured |= {choice.env_id} if shows_pictures(env.observation_space) else set()
            policy = ExpertPolicy(noise=options.noise, seed=options.seed)
            played = expert_episodes(env, policy, tally, seed=options.seed)
            episodes = ([replace(part, env_id=choice.env_id) for part in parts] for parts in played)
        how: dict[str, Any] = {"every": options.all, "duplicates": options.keep_duplicates}
        rows = demonstration_rows(episodes, options.n, tally, pictured=pictured, **how)
        with tqdm(rows, unit="row", desc="demonstrations", disable=options.quiet, leave=False, delay=1) as bar:
            write_rows(out, bar)
    parts = [f"{count_of(tally['rows'], 'row')} of {count_of(tally['episodes'], 'episode')} in {out}"]
    if tally["episodes"] < options.n and not options.from_:
        parts.append(f"fewer than --n {options.n}: the split has no more tasks")
    if tally["episodes"] == options.n and options.from_:
        parts.append(f"--n {options.n} is reached: episodes after these, if any, were not read")
    left_out = {
        "other": "left out as of another environment or split than --env and --split name",
        "failed": "left out as failed (--all keeps them)",
        "duplicates": "left out as the same conversation as another (--keep-duplicates keeps them)",
        "unsolvable": "left out for want of an expert",
    }
    parts += [f"{tally[name]} {what}" for name, what in left_out.items() if tally[name]]
    return "; ".join(parts)


def recorded_episodes(options: Options, tally: Counter[str], pictured: set[str]) -> Iterator[Sequence[Demonstration]]:
    """Yield the recorded episodes of --from, each with its own environment's id and words.

    Of a run of verl they are those that it trained on, unless --split names another. `tally` counts `other` ones;
    `pictured` gets the ids of the environments with pictures.
    """
    given, source, known = options.given_env(), Path(options.from_ or ""), dict[str, str]()
    for path in episode_paths([source]):
        if source.is_dir() and options.split is None and path.name.startswith("validation-"):
            continue
        settings = {} if options.bare else run_settings(Path(options.run) / "any" if options.run else path)
        for episode in read_episodes(path):
            wanted = options.split in (None, episode.reset_info.get("split"))
            if not wanted or registered_id(given.env_id or episode.env_id) != registered_id(episode.env_id):
                tally["other"] += 1
                continue
            choice = of_episode(given, settings, episode, trust=options.trust)
            if repr(choice) not in known:
                with contextlib.closing(make_text_env(*choice)) as env:
                    known[repr(choice)] = env.get_wrapper_attr("tool_instructions")
                    pictured |= {choice.env_id} if shows_pictures(env.observation_space) else set()
            yield demonstrated(episode, known[repr(choice)], choice.env_id)


def expert_episodes(
    env: gym.Env[Any, str], policy: ExpertPolicy, tally: Counter[str], *, seed: int = 0
) -> Iterator[Sequence[Demonstration]]:
    """Yield an expert's episode of each task, in an order that follows from a seed.

    `tally` counts the tasks `played`, and those that are `unsolvable`, without an expert; a PolicyError if all are.
    """
    if not env.has_wrapper_attr("num_tasks") or not env.has_wrapper_attr("expert_action"):
        raise PolicyError("the environment has no numbered tasks with an expert, so there is nothing to demonstrate")
    order = np.random.default_rng(seed).permutation(env.get_wrapper_attr("num_tasks"))
    for index in order.tolist():
        tally["played"] += 1
        try:
            yield demonstrate(env, policy, index)
        except PolicyError:
            tally["unsolvable"] += 1
            if tally["unsolvable"] >= min(_HOPELESS, len(order)) and tally["unsolvable"] == tally["played"]:
                raise


def demonstration_rows(
    episodes: Iterable[Sequence[Demonstration]], count: int, tally: Counter[str], *, pictured: Container[str] = (),
    every: bool = False, duplicates: bool = False,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the rows of `count` episodes at most.

    Failed episodes are left out unless `every` is asked for, and conversations that have been seen without
    `duplicates`. `tally` counts `episodes` and `rows` that are yielded, episodes that `failed`, and `duplicates`.
    `pictured` has the ids of the environments with pictures.
    """
    seen: set[bytes] = set()
    for parts in episodes:
        if not parts or not (every or parts[0].success):
            tally["failed"] += 1
            continue
        first_steps = accumulate((len(part.actions) for part in parts[:-1]), initial=0)
        rows = [_row(part, step, part.env_id in pictured) for part, step in zip(parts, first_steps, strict=True)]
        new = [row for row in rows if duplicates or _is_new(row, seen)]
        tally["duplicates"] += len(rows) - len(new)
        if new:
            tally.update(episodes=1, rows=len(new))
            yield from new
        if tally["episodes"] >= count:
            return


def _row(demonstration: Demonstration, step: int, pictured: bool) -> dict[str, Any]:
    info = demonstration.info
    row: dict[str, Any] = {
        "env": demonstration.env_id,
        "task_id": str(info.get("task_id", "")),
        "split": str(info.get("split", "")),
        "index": int(info.get("index", 0)),
        "step": step,
        "reward": demonstration.reward,
        "success": demonstration.success,
        "opening": len(demonstration.opening),
        "messages": demonstration.messages,
    }
    if pictured:
        # A column has one type: every content is a list of parts, and the pictures are a column of their own.
        whole: list[Message] = [{**m, "content": content_parts(m["content"])} for m in demonstration.messages]
        row["messages"], row["images"] = without_pictures(whole)
    if demonstration.tools:
        row |= {"tools": list(demonstration.tools), "tool_instructions": demonstration.tool_instructions}
    return row


def _is_new(row: dict[str, Any], seen: set[bytes]) -> bool:
    pictures, before = [picture.digest for picture in row.get("images", ())], len(seen)
    text = json.dumps([row["messages"], row.get("tools"), *pictures], sort_keys=True).encode()
    seen.add(hashlib.blake2b(text, digest_size=16).digest())
    return len(seen) > before


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as .jsonl or .parquet, by the suffix; the file appears whole or, with a DataError, not at all.

    Pictures are in ``pictures`` beside the file, whose rows have their paths from there.
    """
    if table := path.suffix == ".parquet":
        with needs_extra("data"):  # before anything is played
            import pyarrow.parquet  # noqa: F401
    with replacing(path) as partial:
        written = _write_parquet(partial, rows) if table else _write_lines(partial, path, rows)
        if not written:
            raise DataError(f"there is no episode to write to {path}; --all keeps failed ones too")


def _write_lines(file: Path, path: Path, rows: Iterable[dict[str, Any]]) -> bool:
    """Write a row per line, and the pictures of the rows beside the file that this one becomes."""
    folder = PictureFolder(path)
    with file.open("w", encoding="ascii") as lines:
        for row in rows:
            if "images" in row:
                folder.add(row["images"])
                row = {**row, "images": [f"{FOLDER}/{picture.digest}.png" for picture in row["images"]]}
            lines.write(json.dumps(row) + "\n")
        return lines.tell() > 0


def _write_parquet(file: Path, rows: Iterable[dict[str, Any]]) -> bool:
    """Write a table with the columns, and the keys of messages and tools, that any row has."""
    import pyarrow.parquet

    tables: list[Any] = []
    rows = iter(rows)
    try:
        while batch := list(islice(rows, _BATCH if tables else 1)):
            if any("images" in row for row in batch):
                raise DataError("a parquet file of demonstrations cannot hold pictures yet; write a .jsonl file")
            tables.append(pyarrow.Table.from_struct_array(pyarrow.array(batch)))
        if tables:
            table = pyarrow.concat_tables(tables, promote_options="permissive")
            columns = sorted(table.column_names, key=lambda name: name in _NESTED)
            pyarrow.parquet.write_table(table.select(columns), file)
    except pyarrow.ArrowException as e:
        raise DataError(f"a parquet column cannot hold these tools ({e!s:.200}); write a .jsonl file") from e
    return bool(tables)
