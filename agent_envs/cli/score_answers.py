"""The official metrics of question answering, for a file of predictions or stored episodes: `agentr1 score`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_envs.datasets.qa.rows import aliases_file, has_answer, read_aliases
from agent_envs.envs.qa.official import Gold, Stated, official_scores, read_gold, read_predictions
from agent_envs.episodes.files import episode_paths
from agent_envs.episodes.record import read_episodes
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines
from agent_envs.messages import observation_text
from agent_envs.tasks import read_rows

__all__ = ["score_answers"]

_OF_FACTS = ("sp_", "evi_", "joint_", "support_")


def score_answers(options: Any) -> str:
    """Return the metrics as text, or as JSON, by the options of `agentr1 score`."""
    dataset, names = options.by, ", ".join(options.episodes)
    if options.gold is None:
        raise ConfigError(f"--by {dataset} compares with the data set's rows; give --gold FILE")
    rows = Path(options.gold)
    aliases = (
        read_aliases(Path(options.aliases) if options.aliases else aliases_file(rows), demonyms=True)
        if dataset == "2wiki"
        else {}
    )
    golds = {
        index: read_gold(dataset, row, where, aliases)
        for index, (row, where) in enumerate(read_rows(rows))
        if has_answer(row) and not (isinstance(row, dict) and row.get("answerable") is False)
    }
    predictions = Path(options.episodes[0])
    episodes = len(options.episodes) > 1 or _holds_episodes(predictions)
    if episodes:
        pairs = list(_answered(episode_paths(options.episodes), golds))
    else:
        stated = read_predictions(dataset, predictions)
        pairs = [(stated.get(gold.question_id, Stated()), gold) for gold in golds.values()]
        if not any(gold.question_id in stated for _, gold in pairs):
            raise DataError(f"{names}: no prediction is of a question in {options.gold}")
    if not pairs:
        raise DataError(f"{names}: every episode broke, or has no step")
    totals: dict[str, float] = {}
    for prediction, gold in pairs:
        for name, score in official_scores(dataset, prediction, gold).items():
            if not (episodes and name.startswith(_OF_FACTS)):
                totals[name] = totals.get(name, 0.0) + score
    means = {name: total / len(pairs) for name, total in totals.items()}
    missing = sum(prediction.answer is None for prediction, _ in pairs)
    if options.json:
        return json.dumps({"questions": len(pairs), "missing": missing, "metrics": means})
    head = f"{len(pairs)} {'episodes' if episodes else 'questions'}"
    if missing:
        head += f", {missing} without an answer"
    return "\n".join([head, "", *(f"{name:<12}  {mean:.4f}" for name, mean in means.items())])


def _holds_episodes(path: Path) -> bool:
    if path.suffix != ".jsonl" or path.is_dir():
        return path.suffix != ".json"
    first = next(JSONLines(path).numbered(), None)
    return first is not None and "steps" in first[1]


def _answered(paths: Iterable[Path], golds: dict[int, Gold]) -> Iterator[tuple[Stated, Gold]]:
    """Yield each episode's final answer, "" without one, and its row; broken episodes are left out."""
    for path, episode in ((file, episode) for file in paths for episode in read_episodes(file)):
        if episode.stop_reason.broken or not episode.steps:
            continue
        gold = None if episode.index is None else golds.get(episode.index)
        first = observation_text(episode.steps[0].observation)
        if gold is None or " ".join(gold.question.split()) not in " ".join(first.split()):
            raise DataError(f"{path}: {episode.episode_id!r} does not ask the question of gold row {episode.index}")
        yield Stated(str(episode.steps[-1].info.get("answer", ""))), gold
