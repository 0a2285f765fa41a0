"""Write stored episodes as an HTML page: a list with filters, and every step. Or follow a run in a browser.

Open the file in any browser; --open does so, and a page that this command made is replaced. The list filters by run,
training step, phase, split, sample, family and more, searches in all texts, groups by task and compares two runs on the
same tasks; an episode shows each step with its prompt, thought, call, result and reward, its tokens if they were
recorded, and the right answer where the task has one. "?" on the page lists the keys. For very many episodes, --serve
opens sooner than a page that holds them all.

With --serve, a browser follows the runs instead: new episodes and training curves appear as they are written. The
address that is printed holds the token.

examples:
  agentr1 view runs/eval --open
  agentr1 view runs/mine/episodes/validation-000040.jsonl --tokenizer runs/mine/model   # tokens as text
  agentr1 view runs/before runs/after --title "before and after"
  agentr1 view --serve runs/mine                                                  # a training that goes on
"""

from __future__ import annotations

import itertools
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_envs.cli.options import AddressOptions, EpisodeOptions, File, Folder, OutputOptions, option, serve_page
from agent_envs.errors import ConfigError, DataError
from agent_envs.text import count_of

if TYPE_CHECKING:
    from agent_envs.viewer.shape import Numbered

_PAGE = "episodes.html"
_OURS = b'<meta name="generator" content="agentr1">'  # near the beginning of a page
_LARGE = 100  # megabytes of a page


@dataclass(kw_only=True)
class Options(EpisodeOptions, OutputOptions, AddressOptions):
    out: File | None = option(_PAGE, "page to write")
    open: bool = option(False, "open the page that was written in a browser")
    title: str | None = option(None, "title of the page (default: the paths)")
    tokenizer: Folder | None = option(None, "Hugging Face folder or name, to show sampled tokens as text")
    answers: str = option("generated", "for which data right answers are shown", choices=("none", "generated", "all"))
    trust: bool = option(False, "let a run name code and paths of data for --answers (docs/security.md)")
    serve: bool = option(False, "follow the episodes in a browser instead of writing a page")
    port: int = option(0, "port to listen on, 0 for any")


def run(options: Options) -> str:
    from agent_envs.viewer.answers import RightAnswers
    from agent_envs.viewer.shape import piece_decoder, shown_episode

    title = options.title or ", ".join(map(str, options.episodes[:3]))
    decode = None if options.tokenizer is None else piece_decoder(options.tokenizer)
    with RightAnswers(released=options.answers == "all", trust=options.trust) as answers:

        def shaped(episode: Numbered) -> Mapping[str, Any]:
            shown = shown_episode(episode, decode)
            if options.answers != "none":
                shown["answer"], shown["answer_from"] = answers.find(episode.record, episode.origin.path)
            return shown

        return (_serve if options.serve else _write)(options, title, shaped)


def _write(options: Options, title: str, shaper: Any) -> str:
    from tqdm import tqdm

    from agent_envs.episodes.run_folder import episode_paths
    from agent_envs.viewer.write import numbered_records, training_curves, write_view

    out = Path(options.out or "")
    if out.is_file():
        with out.open("rb") as file:
            options.force |= _OURS in file.read(200)
    out = options.output_file()
    records = numbered_records(episode_paths(options.episodes))
    first = next(records, None)
    if first is None:
        raise DataError(f"{', '.join(options.episodes)}: no complete episode yet")
    shown = tqdm(itertools.chain([first], records), unit="episode", desc="reading", leave=False, disable=None)
    count = write_view(shown, out, title=title, shaper=shaper, curves=training_curves(options.episodes))
    megabytes = out.stat().st_size >> 20
    hint = f", which has {megabytes} MB; --serve opens sooner" if megabytes > _LARGE else ""
    if options.open and not webbrowser.open(out.absolute().as_uri()):
        hint += "; there is no browser here to open it"
    return f"{count_of(count, 'episode')} in {out}{hint}"


def _serve(options: Options, title: str, shaper: Any) -> str:
    from agent_envs.viewer.feed import EpisodeFeed, live_server

    if options.out != _PAGE or options.open:
        raise ConfigError("--serve writes no page, and prints an address to open; leave out --out and --open")
    feed = EpisodeFeed(options.episodes, shaper)
    return serve_page(live_server(feed, title, host=options.host, port=options.port, token=options.token()))
