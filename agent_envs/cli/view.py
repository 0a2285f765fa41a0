"""`agentr1 view`: turn stored episodes into an HTML page, or follow a run in a browser."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from agent_envs.cli.arguments import add_address, add_episodes, add_output_arguments, output_file
from agent_envs.errors import ConfigError, DataError

if TYPE_CHECKING:
    from agent_envs.viewer.shape import Numbered

__all__ = ["add_arguments", "run"]

_PAGE = "episodes.html"
_EPILOG = """\
Open the file in any browser. The list filters by run, training step, phase, split, sample, family and more, searches in
all texts, groups by task and compares two runs on the same tasks; an episode shows each step with its prompt, thought,
call, result and reward, its tokens if they were recorded, and the right answer where the task has one. "?" on the page
lists the keys. Many episodes lie in a folder beside the page: keep the two together.

With --serve, a browser follows the runs instead: new episodes and training curves appear as they are written. The
address that is printed holds the token.

examples:
  agentr1 view runs/eval --out eval.html
  agentr1 view runs/mine/episodes/validation-000040.jsonl --tokenizer runs/mine/model   # tokens as text
  agentr1 view runs/before runs/after --title "before and after"
  agentr1 view --serve runs/mine                                                  # a training that goes on
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add_episodes(parser)
    add = parser.add_argument
    add_output_arguments(parser, "page to write", _PAGE)
    add("--title", help="title of the page (default: the paths)")
    add("--tokenizer", metavar="DIR", help="Hugging Face folder or name, to show sampled tokens as text")
    add(
        "--answers", choices=("none", "generated", "all"), default="generated",
        help="for which data right answers are looked up, in the tasks themselves; released data may take long to open "
        "(default: %(default)s)",
    )  # fmt: skip
    add("--trust", action="store_true", help="let a run name code and paths of data for --answers (docs/security.md)")
    add("--serve", action="store_true", help="follow the episodes in a browser instead of writing a page")
    add_address(add, port=0)


def run(arguments: argparse.Namespace) -> str:
    from agent_envs.viewer.answers import RightAnswers
    from agent_envs.viewer.shape import piece_decoder, shown_episode

    title = arguments.title or ", ".join(map(str, arguments.episodes[:3]))
    decode = None if arguments.tokenizer is None else piece_decoder(arguments.tokenizer)
    with ExitStack() as stack:
        answers = stack.enter_context(RightAnswers(released=arguments.answers == "all", trust=arguments.trust))

        def shaped(episode: Numbered) -> Mapping[str, Any]:
            shown = shown_episode(episode, decode)
            if arguments.answers != "none":
                shown["answer"], shown["answer_from"] = answers.find(episode.record, episode.origin.path)
            return shown

        return (_serve if arguments.serve else _write)(arguments, title, shaped)


def _write(arguments: argparse.Namespace, title: str, shaper: Any) -> str:
    from tqdm import tqdm

    from agent_envs.episodes.files import episode_paths
    from agent_envs.viewer.write import numbered_records, training_curves, write_view

    out = output_file(arguments)
    records = numbered_records(episode_paths(arguments.episodes))
    first = next(records, None)
    if first is None:
        raise DataError(f"{', '.join(arguments.episodes)}: no complete episode yet")
    records = itertools.chain([first], records)
    shown = tqdm(records, unit="episode", desc="reading", leave=False, disable=None)
    count = write_view(shown, out, title=title, shaper=shaper, curves=training_curves(arguments.episodes))
    beside = out.with_name(f"{out.name.removesuffix('.html')}_files")
    return f"{count} episodes in {out}" + (f" and {beside}" if beside.is_dir() else "")


def _serve(arguments: argparse.Namespace, title: str, shaper: Any) -> str:
    from agent_envs.cli.pages import serve_page
    from agent_envs.serving.access import read_token
    from agent_envs.viewer.feed import EpisodeFeed
    from agent_envs.viewer.live import live_server

    if arguments.out != _PAGE:
        raise ConfigError("--serve writes no page; leave out --out")
    feed = EpisodeFeed(arguments.episodes, shaper)
    token = read_token(arguments.token_file)
    return serve_page(live_server(feed, title, host=arguments.host, port=arguments.port, token=token))
