"""Precision, recall and F1 of stored paper searches, by threshold and depth as the released table has them.

For each threshold from 0 to 0.9 and each depth (10000, 100, 50, 25), the papers found with at least this score are
ranked, cut at the depth, and compared with the answers by the letters of their titles, or by their arXiv ids where
`info["answer_ids"]` has them, as in the released recipe; the table holds means over episodes. Scores, ids and titles
are in `info["found"]` of the steps, answers in `info["answers"]` of the reset.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.checks import shown
from agent_envs.envs.papersearch.reward import f1
from agent_envs.episodes.record import StopReason
from agent_envs.episodes.run_folder import episode_paths
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines
from agent_envs.retrieval.papers.paper import arxiv_id, title_key
from agent_envs.text import count_of

THRESHOLDS = tuple(n / 10 for n in range(10))
DEPTHS = (10000, 100, 50, 25)


@dataclass(frozen=True, slots=True)
class PaperEpisode:
    """What the table needs of an episode."""

    task_id: str
    found: tuple[tuple[float, str], ...]
    """Score and `title_key` (or id) of each paper found, best first, each once."""
    answers: frozenset[str]
    """The `title_key`s of the answers, or their ids."""
    failed: bool = False


def score_papers(options: Any) -> str:
    """Return the table as text, or as JSON."""
    thresholds = _numbers(options.thresholds, "--thresholds", float, 0, THRESHOLDS)
    depths = _numbers(options.top_k, "--top-k", int, 1, DEPTHS)
    noted = {"episodes": 0, "errors": 0, "without_answers": 0}
    tasks: set[str] = set()

    def read() -> Iterator[PaperEpisode]:
        for path in episode_paths(options.episodes):
            for number, row in JSONLines(path).numbered():
                episode = paper_episode(row, f"{path}, line {number}")
                noted["errors"] += episode.failed
                if episode.failed and options.skip_errors:
                    continue
                noted["episodes"] += 1
                noted["without_answers"] += not episode.answers
                tasks.add(episode.task_id)
                yield episode

    rows = paper_table(read(), thresholds, depths)
    if options.json:
        return json.dumps({**noted, "tasks": len(tasks), "table": rows})
    head = f"{count_of(noted['episodes'], 'episode')} of {count_of(len(tasks), 'task')}"
    if noted["errors"]:
        head += f"; {noted['errors']} ended with an error and are {'left out' if options.skip_errors else 'counted'}"
    if noted["without_answers"]:
        head += f"; {noted['without_answers']} have no answers and count as nothing found"
    lines = [f"{'threshold':>9}  {'top_k':>7}  {'precision':>9}  {'recall':>6}  {'f1':>6}  {'papers':>6}"]
    for row in rows:
        means = f"{row['precision']:>9.4f}  {row['recall']:>6.4f}  {row['f1']:>6.4f}  {row['papers']:>6.2f}"
        lines.append(f"{row['threshold']:>9g}  {row['top_k']:>7}  {means}")
    return "\n".join([head, "", *lines])


def paper_episode(row: Any, where: str) -> PaperEpisode:
    """Read a line of an episodes.jsonl; a DataError if it is not an episode of paper search."""
    try:
        infos = [row["reset_info"], *(step["info"] for step in row["steps"])]
        failed = StopReason(row["stop_reason"]).broken
        if failed and not infos[0]:  # it failed before it began
            return PaperEpisode("", (), frozenset(), failed)
        answers = infos[0]["answers"]
        if isinstance(answers, str) or not all(isinstance(title, str) for title in answers):
            raise TypeError("'answers' must be a list of titles")
        keys, ids = list(map(title_key, answers)), list(map(arxiv_id, infos[0].get("answer_ids", ())))
        keys = keys if len(ids) in (0, len(keys)) else ids
        known = {name: key for name, key in zip(ids, keys, strict=False) if name}
        pool: dict[str, float] = {}
        for paper in (paper for info in infos for paper in info.get("found", ())):
            score, title = paper["score"], paper["title"]
            if type(score) not in (int, float) or not math.isfinite(score) or not isinstance(title, str):
                raise TypeError("'found' must be a list of {'id', 'title', 'score'}")
            name = arxiv_id(str(paper.get("id")))
            key = known.get(name, name if known and name else title_key(title))
            pool[key] = max(float(score), pool.get(key, -math.inf))
        ranked = sorted(((score, key) for key, score in pool.items()), key=lambda paper: -paper[0])
        return PaperEpisode(str(infos[0]["task_id"]), tuple(ranked), frozenset(keys), failed)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        raise DataError(
            f"{where}: not an episode of paper search with its 'answers' and 'found' papers ({type(e).__name__}: "
            f"{str(e)[:200]})"
        ) from e


def paper_table(
    episodes: Iterable[PaperEpisode], thresholds: Sequence[float] = THRESHOLDS, depths: Sequence[int] = DEPTHS
) -> list[dict[str, float]]:
    """Return the means over the episodes for each threshold (the lowest score that counts) and, within it, each depth.

    >>> found = ((0.9, "a"), (0.5, "b"), (0.2, "c"))
    >>> table = paper_table([PaperEpisode("task", found, frozenset({"a", "c"}))], [0.0, 0.5], [10, 1])
    >>> [(row["precision"], row["recall"]) for row in table]
    [(0.6666666666666666, 1.0), (1.0, 0.5), (0.5, 0.5), (1.0, 0.5)]
    """
    cells = [(threshold, depth) for threshold in thresholds for depth in depths]
    sums = [[0.0] * 4 for _ in cells]
    count = 0
    for episode in episodes:
        count += 1
        hits = [key in episode.answers for _, key in episode.found]
        for total, (threshold, depth) in zip(sums, cells, strict=True):
            papers = min(sum(score >= threshold for score, _ in episode.found), depth)
            right = sum(hits[:papers])
            precision = right / papers if papers else 0.0
            recall = right / len(episode.answers) if episode.answers else 0.0
            for column, value in enumerate((precision, recall, f1(precision, recall), papers)):
                total[column] += value
    if not count:
        raise DataError("there are no episodes to evaluate")
    names = ("threshold", "top_k", "precision", "recall", "f1", "papers")
    return [
        dict(zip(names, (*cell, *(value / count for value in total)), strict=True))
        for cell, total in zip(cells, sums, strict=True)
    ]


def _numbers(text: str | None, name: str, kind: type, least: float, default: tuple[Any, ...]) -> tuple[Any, ...]:
    if text is None:
        return default
    try:
        numbers = tuple(kind(part) for part in text.split(","))
    except ValueError:
        numbers = (math.nan,)
    if not all(math.isfinite(number) and number >= least for number in numbers):
        raise ConfigError(f"{name} must be numbers of at least {least:g}, separated by commas, got {shown(text)}")
    return numbers
