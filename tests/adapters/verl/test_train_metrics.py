"""The record of a run: metrics over several starts, the checkpoint that a start goes on from, intervals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from agent_envs.adapters.run import append_record, read_records, write_records
from agent_envs.adapters.verl.run.checkpoints import last_step
from agent_envs.adapters.verl.run.folder import join_logs, read_log
from agent_envs.episodes.statistics import Interval, difference, share


def _log(path: Path, lines: list[tuple[int, dict[str, float]]], torn: str = "") -> Path:
    path.write_text("".join(json.dumps({"step": s, "data": d}) + "\n" for s, d in lines) + torn)
    return path


def test_a_later_start_replaces_what_it_plays_again(tmp_path: Path) -> None:
    first = _log(tmp_path / "a", [(0, {"v": 0}), (1, {"r": 1}), (2, {"r": 2}), (3, {"r": 3})], torn='{"step": 4, "da')
    second = _log(tmp_path / "b", [(3, {"r": 30}), (4, {"r": 40})])
    records = join_logs([(0, first), (2, second)])
    seen = [{"v": 0}, {"r": 1}, {"r": 2}, {"r": 30}, {"r": 40}]
    assert records == [{"step": step} | data for step, data in enumerate(seen)]


def test_validation_after_a_resume_joins_the_step_it_belongs_to(tmp_path: Path) -> None:
    first = _log(tmp_path / "a", [(1, {"r": 1}), (2, {"r": 2})])
    second = _log(tmp_path / "b", [(2, {"v": 0.5}), (3, {"r": 3})])
    assert join_logs([(0, first), (2, second)])[1] == {"step": 2, "r": 2, "v": 0.5}


def test_a_fresh_start_forgets_one_without_a_checkpoint(tmp_path: Path) -> None:
    first = _log(tmp_path / "a", [(0, {"v": 1}), (1, {"r": 1})])
    assert join_logs([(0, first), (0, tmp_path / "missing")]) == [{"step": 0, "v": 1}]


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    path = _log(tmp_path / "a", [(1, {"r": 1})], torn='{"step": 2')
    records, offset = read_log(path)
    assert [r["step"] for r in records] == [1]
    with path.open("a") as file:
        file.write(', "data": {"r": 2}}\n')
    assert read_log(path, offset)[0] == [{"step": 2, "r": 2}]


def test_a_run_goes_on_from_its_last_whole_checkpoint(tmp_path: Path) -> None:
    assert last_step(tmp_path) == 0
    for step in (2, 10, 11):
        (tmp_path / f"global_step_{step}").mkdir()
    for step in (2, 10):  # a kill came before the end of the last one, and while its number was written
        (tmp_path / f"global_step_{step}" / "data.pt").touch()
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("")
    assert last_step(tmp_path) == 10 and tracker.read_text() == "10"


def test_records_are_json_whatever_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_records(path, [{"step": 1, "a": math.nan}])
    append_record(path, {"step": 2, "a": math.inf, "b": 1.5})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == read_records(path) == [{"step": 1, "a": None}, {"step": 2, "a": None, "b": 1.5}]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("interval", "value", "low", "high"),
    [
        (share(0, 10), 0.0, 0.0, 0.278),  # Wilson: never empty at the edge
        (share(10, 10), 1.0, 0.722, 1.0),
        (share(0, 0), math.nan, 0.0, 1.0),  # nothing was tried
        (difference(0.5, 256, 0.5, 256), 0.0, -0.086, 0.086),
        (difference(0.0, 10, 0.0, 10), 0.0, -0.221, 0.221),  # Agresti-Caffo: not empty either
    ],
)
def test_intervals(interval: Interval, value: float, low: float, high: float) -> None:
    assert tuple(interval) == pytest.approx((value, low, high), abs=1e-3, nan_ok=True)
