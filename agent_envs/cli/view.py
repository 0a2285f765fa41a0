"""`agentr1 view`: turn stored episodes into one HTML page."""

from __future__ import annotations

import argparse
import itertools

from agent_envs.cli.arguments import add_episodes, add_output_arguments, output_file
from agent_envs.errors import DataError

__all__ = ["add_arguments", "run"]

_EPILOG = """\
Open the file in any browser. The list filters by environment, family, stop reason, success and return; an episode shows
each step with its prompt, thought, call, result and reward, and its tokens if they were recorded.

examples:
  agentr1 view runs/eval --out eval.html
  agentr1 view runs/mine/episodes/val-000040.jsonl --tokenizer runs/mine/model   # tokens as text
  agentr1 view runs/before runs/after --title "before and after"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_episodes(parser)
    add = parser.add_argument
    add_output_arguments(parser, "page to write", "episodes.html")
    add("--title", help="title of the page (default: the first path)")
    add("--tokenizer", metavar="DIR", help="Hugging Face folder or name, to show sampled tokens as text")


def run(arguments: argparse.Namespace) -> str:
    from tqdm import tqdm

    from agent_envs.episodes.files import episode_paths, read_records
    from agent_envs.episodes.html import write_view

    out = output_file(arguments)
    records = read_records(episode_paths(arguments.episodes))
    first = next(records, None)
    if first is None:
        raise DataError(f"{', '.join(arguments.episodes)}: no complete episode yet")
    records = itertools.chain([first], records)
    shown = tqdm(records, unit="episode", desc="reading", leave=False, disable=None)
    title = arguments.title or str(arguments.episodes[0])
    count = write_view(shown, out, title=title, tokenizer=arguments.tokenizer)
    return f"{count} episodes in {out}"
