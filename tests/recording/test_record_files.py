"""What a recorder leaves on disk, and finds there again.

1. Its start knows the episodes that have ended from their file, and removes what a kill cut off within a line.
2. What was said to be written is there, once, whenever the disk is full (kills: tests/attacks/test_recorder.py).
"""

import json
from contextlib import contextmanager

import pytest

from agent_envs.episodes.record import read_episodes
from agent_envs.errors import ConfigError, DataError
from agent_envs.recording import EpisodeStore, EpisodeVerdict
from tests.helpers import full_disk

ROW = {"observation": [{"role": "user", "content": "?"}], "action": "a", "info": {"call": 0}}
ROW |= {"prompt_ids": [1], "response_ids": [2], "response_logprobs": [-0.5]}


def play(store, name, reward=1.0):
    """An episode of one call."""
    episode = store.episode(name)
    store.add_steps(episode, 0, [ROW], [])
    store.finish(episode, EpisodeVerdict(reward=reward))


@contextmanager
def opened(folder):
    store = EpisodeStore(folder)
    try:
        yield store
    finally:
        store.close()


def test_a_start_knows_what_has_ended(tmp_path):
    with opened(tmp_path) as store:
        for name in ("a", 'said "episode_id": "no"', "\u2028\\"):
            play(store, name)
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines(keepends=True)
    compact = json.dumps({**json.loads(lines[0]), "episode_id": "b"}, separators=(",", ":"))  # somebody edited the file
    (tmp_path / "episodes.jsonl").write_text("".join([*lines, compact, "\n", lines[0][:9]]))
    with opened(tmp_path) as store:
        assert store.finished.keys() == {"a", "b", 'said "episode_id": "no"', "\u2028\\"}
        assert store.finished["a"] == EpisodeVerdict(reward=1.0).digest
        assert store.finished["a"] != EpisodeVerdict(reward=2.0).digest
        play(store, "new")


def test_a_start_removes_what_a_kill_cut_off(tmp_path):
    with opened(tmp_path) as store:
        play(store, "ended")
        episode = store.episode("open")
        store.add_steps(episode, 0, [ROW], [])
    files = {path: path.read_bytes() for path in (episode.path, tmp_path / "episodes.jsonl")}
    for path in files:
        with path.open("ab") as file:
            file.write(b'{"sche')
    with opened(tmp_path) as store:
        assert {path: path.read_bytes() for path in files} == files and store.open["open"].steps == 1


def test_a_file_of_something_else_is_refused(tmp_path):
    for content in (b'{"a": 1}\n', b"[]\n", b"{\n", b"[" * 100_000 + b"\n"):
        (tmp_path / "episodes.jsonl").write_bytes(content)
        with pytest.raises(DataError, match="not an episode|not valid JSON|expected a JSON object"):
            EpisodeStore(tmp_path)
        EpisodeStore(tmp_path / "other").close()  # and the folder is not locked for ever
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot write to the folder"):
        EpisodeStore(tmp_path / "file")


def test_a_full_disk_loses_nothing_that_was_answered(tmp_path):
    with opened(tmp_path) as store:
        play(store, "before")
        size = (tmp_path / "episodes.jsonl").stat().st_size
        episode = store.episode("x")
        store.add_steps(episode, 0, [ROW], [])
        with full_disk(episode.path.stat().st_size + 40), pytest.raises(OSError):
            store.add_steps(episode, 1, [ROW], [])
        with full_disk(size + 40), pytest.raises(OSError):
            store.finish(episode, EpisodeVerdict(reward=1.0))
        assert "x" not in store.finished and episode.steps == 1
        store.add_steps(episode, 1, [ROW], [])
        store.finish(episode, EpisodeVerdict(reward=2.0))
    assert [(e.episode_id, len(e.steps), e.reward) for e in read_episodes(tmp_path / "episodes.jsonl")] == [
        ("before", 1, 1.0),
        ("x", 2, 2.0),
    ]
    with opened(tmp_path) as store:
        assert len(store.finished) == 2 and not store.open


def test_a_full_disk_leaves_no_group_that_is_not_in_the_file(tmp_path):
    with opened(tmp_path) as store:
        size = store.episode("x").path.stat().st_size
        with full_disk(size + 10), pytest.raises(OSError):
            store.episode("x", "group", 3)
        store.episode("x", "group", 3)
    with opened(tmp_path) as store:
        assert (store.open["x"].group_id, store.open["x"].index) == ("group", 3)
