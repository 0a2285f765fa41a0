"""`agentr1 view`: stored episodes as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 view`."""
    add = parser.add_argument
    add("episodes", nargs="+", metavar="PATH", help="episodes.jsonl, or a folder with such files (a run's --out)")
    add("--out", metavar="FILE", default="episodes.html", help="the page to write (default: %(default)s)")
    add("--title", help="its title (default: the first path)")
    add("--tokenizer", metavar="DIR", help="Hugging Face folder or name; shows sampled tokens as text")


def run(arguments: argparse.Namespace) -> str:
    """Write the page; what to tell the user."""
    from tqdm import tqdm

    from agent_envs.view import episode_paths, read_records, write_view

    records = tqdm(read_records(episode_paths(arguments.episodes)), unit="episode", desc="reading", leave=False)
    title = arguments.title or str(arguments.episodes[0])
    count = write_view(records, arguments.out, title=title, tokenizer=arguments.tokenizer)
    return f"{count} episodes in {Path(arguments.out)}"
