"""Files of episodes in which steps go on from earlier ones.

Behaviours pinned here:
1. Whatever an agent's steps share with those that they go on from, they are read back whole.
2. A file of a hundred calls of one conversation grows with what is new in it, not with the square of its length.
3. A row that shares what is not there is refused.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agent_envs
from agent_envs.episodes import plain
from agent_envs.episodes.record import Episode, Step, StopReason
from agent_envs.errors import DataError
from agent_envs.pictures.picture import as_picture


def _episode(steps: list[Step]) -> Episode:
    return Episode("Toy-v0", "e", "g", 0, 0, "Act.", (), {}, tuple(steps), "over", StopReason.TERMINATED)


def _step(observation: list, action: str, prompt: tuple[int, ...], response: tuple[int, ...], **more: object) -> Step:
    return Step(observation, action, 0.0, False, False, {}, prompt, response, None, time=0, **more)  # type: ignore[arg-type]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
@given(st.data())
def test_steps_are_read_as_they_were(data):
    words, tokens = st.sampled_from(["a", "b ", "ü"]), st.lists(st.integers(0, 5), max_size=4)
    steps: list[Step] = []
    for number in range(data.draw(st.integers(1, 7))):
        after = data.draw(st.none() | st.integers(0, number - 1)) if number else None
        new = [{"role": "user", "content": data.draw(words)}]
        prompt = tuple(data.draw(tokens))
        if after is not None:
            before = steps[after]
            echo = data.draw(st.sampled_from([before.action, before.action.strip(), "changed"]))
            new = [*before.observation, {"role": "assistant", "content": echo}, *new]
            new = [{**m, "content": data.draw(words)} if data.draw(st.booleans()) and i == 1 else m
                   for i, m in enumerate(new)]  # fmt: skip
            prompt = (*before.prompt_ids, *before.response_ids, *prompt) if data.draw(st.booleans()) else prompt
        steps.append(_step(new, data.draw(words), prompt, tuple(data.draw(tokens)), after=after))
    episode = _episode(steps)
    row = json.loads(episode.to_json())
    assert Episode.from_dict(row) == episode
    assert row["schema_version"] == 2
    assert all(len(r["observation"]) == 1 for r, s in zip(row["steps"], steps, strict=True) if s.after is None)


def test_pictures_are_shared_too(tmp_path):
    pictures = [as_picture(np.full((2, 3, 3), 9 * i, np.uint8)) for i in range(3)]
    steps: list[Step] = []
    talk: list = []
    for number, picture in enumerate(pictures):
        talk = [*talk, {"role": "user", "content": [{"type": "image", "image": picture}]}]
        steps.append(_step(talk, "go", (1,) * (number + 1), (), prompt_pictures=tuple(pictures[: number + 1]),
                           after=number - 1 if number else None))  # fmt: skip
        talk = [*talk, {"role": "assistant", "content": "go"}]
    agent_envs.write_episodes(tmp_path / "e.jsonl", [_episode(steps)])
    assert list(agent_envs.read_episodes(tmp_path / "e.jsonl")) == [_episode(steps)]
    rows = json.loads((tmp_path / "e.jsonl").read_text())["steps"]
    assert [len(row["prompt_pictures"]) for row in rows] == [1, 1, 1] and rows[2]["shared"] == [4, 2, 2]


def test_a_long_conversation_is_small():
    steps: list[Step] = []
    talk: list = []
    tokens: tuple[int, ...] = ()
    for number in range(100):
        talk = [*talk, {"role": "user", "content": f"page {number} " + "words " * 70}]
        tokens = (*tokens, *range(20_000, 20_100))
        steps.append(_step(talk, f"reply {number}", tokens, (7,) * 10, after=number - 1 if number else None))
        talk = [*talk, {"role": "assistant", "content": f"reply {number}"}]
        tokens = (*tokens, *(7,) * 10)
    episode = _episode(steps)
    text = episode.to_json()
    apart = _episode([replace(step, after=None) for step in steps]).to_json()
    assert len(text) < 150_000 and len(apart) > 40 * len(text)
    assert Episode.from_dict(json.loads(text)) == episode


@pytest.mark.parametrize(
    ("after", "shared"),
    [
        (1, [1, 0, 0]),  # itself
        (-1, [1, 0, 0]),
        (True, [1, 0, 0]),
        (None, [1, 0, 0]),
        (0, [3, 0, 0]),  # more messages than there are
        (0, [0, 4, 0]),
        (0, [-1, 0, 0]),
        (0, [1, 0]),
        (0, [1, "1", 0]),
        (0, {"1": 1}),
        (0, 3),
    ],
)
def test_a_row_that_shares_what_is_not_there_is_refused(after, shared):
    first = [{"role": "user", "content": "a"}]
    steps = [_step(first, "b", (1, 2), (3,)), _step([], "c", (), (4,), after=0)]
    row = json.loads(_episode(steps).to_json())
    row["steps"][1] |= {"after": after, "shared": shared}
    with pytest.raises(DataError, match="wrong type"):
        Episode.from_dict(row)


def test_rows_that_cost_more_than_they_hold_are_refused(monkeypatch):
    monkeypatch.setattr(plain, "_LONGEST", 100)
    first = [{"role": "user", "content": "a"}]
    steps = [_step(first, "b", tuple(range(20)), (3,)), *[_step([], "c", (), (4,), after=0) for _ in range(5)]]
    row = json.loads(_episode(steps).to_json())
    assert len(Episode.from_dict(row).steps) == 6
    for step in row["steps"][1:]:
        step["shared"] = [0, 0, 0]  # each time, what it may go on from is laid out
    with pytest.raises(DataError, match="with step 0"):
        Episode.from_dict(row)
