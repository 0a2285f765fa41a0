"""Nothing that a policy or a user writes takes memory, time or a stack trace without bound.

1. A refused action leaves a stub wherever actions are kept: transcript, prompts, records.
2. An episode ends when its text reaches the limit, in the rollout and in the recorder.
3. The longest action that is read is answered in seconds by every id (parsers: test_parsers.py); longer ones at once.
4. Reset options, snapshots and paths that cannot be used are a sentence; so is a full disk.
5. A row or an entry of a data file has a longest length.
"""

import errno
import json
import os
import time
import tracemalloc

import gymnasium as gym
import pytest

import agent_envs
from agent_envs import ENV_IDS, Episode, StopReason, run_episode
from agent_envs.cli.main import main
from agent_envs.episodes import record
from agent_envs.episodes.plain import text_bytes
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, DataError
from agent_envs.files import replacing
from agent_envs.json_stream import JSONStream
from agent_envs.policies import ScriptedPolicy
from agent_envs.registration import PICTURE_IDS
from agent_envs.retrieval import BM25Retriever
from agent_envs.tasks import read_rows
from agent_envs.text_env import MAX_ACTION_LENGTH
from agent_envs.wrappers import ChatMessages, RebuildPrompt, RecordEpisodes
from tests.helpers import full_disk

HUGE = "<tool_call>" * (1 << 18)  # 3 MB, of which no copy may be kept
PATHS = {
    "long": "x" * 5000,
    "long file": "x" * 5000 + ".jsonl",
    "deep": "/".join(["y" * 200] * 30),
    "NUL": "a\0b",
    "nobody's home": "~nobody-of-this-name/x",
    "surrogate": "a\udcff.jsonl",
    "below a file": f"{__file__}/x.jsonl",
}


# 1. stubs


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_refused_action_leaves_a_stub(env_id, tmp_path):
    env = gym.make(env_id, render_mode="ansi", max_episode_steps=20)
    for wrapped in (env, ChatMessages(env), RebuildPrompt(env), RecordEpisodes(env, tmp_path)):
        wrapped.reset(seed=0)
        tracemalloc.start()
        for _ in range(3):
            observation, _, terminated, _, info = wrapped.step(HUGE)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert info["invalid_action"] and not terminated
        assert kept < 1 << 20
        assert len(str(observation)) < 1 << 20
    wrapped.close()
    assert (tmp_path / "episodes.jsonl").stat().st_size < 1 << 20
    assert f"[cut: {len(HUGE)} characters, at most {MAX_ACTION_LENGTH} are read]" in env.render()


def test_a_rollout_keeps_a_stub():
    env = gym.make("AgentR1/GSM8KTool-v0")
    episode = run_episode(env, ScriptedPolicy([HUGE, "#### 1"]))
    assert len(episode.steps[0].action) < 2000 and episode.steps[0].info["invalid_action"]
    assert episode.steps[1].action == "#### 1"


def test_the_longest_action_is_an_argument():
    env = gym.make("AgentR1/GSM8KTool-v0", max_action_length=10)
    env.reset(seed=0)
    assert env.step("#### 12345")[2]
    env.reset(seed=0)
    assert env.step("#### 123456")[0] == "The text has 11 characters; at most 10 are read."
    with pytest.raises(ConfigError, match="max_action_length"):
        gym.make("AgentR1/GSM8KTool-v0", max_action_length=0)


# 2. the size of an episode


def test_an_endless_episode_ends_at_the_limit(monkeypatch, tmp_path):
    monkeypatch.setattr("agent_envs.episodes.builder.MAX_EPISODE_BYTES", 100_000)
    env = RecordEpisodes(gym.make("AgentR1/ALFWorld-v0", max_episode_steps=1000), tmp_path)
    long = "look " + "x" * 10_000
    episode = run_episode(env, ScriptedPolicy([long] * 100), seed=1)
    assert episode.stop_reason is StopReason.SIZE_LIMIT and not episode.stop_reason.broken
    assert 5 < len(episode.steps) < 12 and episode.steps[-1].truncated
    env.reset(seed=1)
    for _ in range(20):  # whoever steps it: what comes after the limit is played but not recorded
        env.step(long)
    env.close()
    read = list(agent_envs.read_episodes(tmp_path / "episodes.jsonl"))
    assert [each.stop_reason for each in read] == [StopReason.SIZE_LIMIT] * 2
    assert len(read[1].steps) == len(episode.steps)
    assert Episode.from_dict(episode.to_dict()) == episode


def test_usual_episodes_are_far_from_the_limit():
    env = ChatMessages(gym.make("AgentR1/ALFWorld-v0"))
    episode = run_episode(env, ScriptedPolicy(["look"] * 50))
    assert text_bytes([step.to_dict() for step in episode.steps]) < record.MAX_EPISODE_BYTES / 50


# 3. time

IDS = (*ENV_IDS, *PICTURE_IDS)
HOSTILE = ["<tool_call>{", "[", "\U0001f600", "\u0130", "(", "1+", "search[a", "\\boxed{", "<think>", "a ", '{"a":']


@pytest.mark.parametrize("env_id", IDS)
def test_the_longest_action_takes_seconds(env_id):
    env = gym.make(env_id)
    for part, unit in [(1, HOSTILE[0]), *((8, unit) for unit in HOSTILE)]:  # most of them an eighth as long
        env.reset(seed=0)
        text = unit * (MAX_ACTION_LENGTH // part // len(unit))
        begun = time.process_time()
        env.step(text)
        assert time.process_time() - begun < 5 / part, unit  # a fifth of it where nothing else runs


# 4. sentences


@pytest.mark.parametrize("env_id", IDS)
def test_reset_options_that_are_none(env_id):
    env = gym.make(env_id)
    for options in (5, "index", [1], {1: 2}, 0, ""):
        with pytest.raises(ConfigError, match="options must be a dictionary"):
            env.reset(seed=0, options=options)
        with pytest.raises(ConfigError, match="restore needs what"):
            env.unwrapped.restore(options)


def path_arguments() -> list[tuple[str, str]]:
    tables = {"QA": ("corpus", "retriever"), "MuSiQue": ("corpus", "retriever"), "Paper": ("corpus", "backend")}
    tables["WebShop"] = ("prices", "goals", "page")
    return [
        (env_id, name) for env_id in IDS for name in ("data", *next((t for w, t in tables.items() if w in env_id), ()))
    ]


@pytest.mark.parametrize(("env_id", "argument"), path_arguments())
def test_a_path_that_cannot_be_used_is_a_sentence(env_id, argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, path in PATHS.items():
        if argument == "page" and name in ("nobody's home", "surrogate"):
            continue  # names that a page may have
        with pytest.raises(AgentEnvsError) as caught:
            gym.make(env_id, render_mode="human" if argument == "page" else None, **{argument: path}).reset(seed=0)
        assert len(str(caught.value)) < 700, name


def test_commands_answer_such_paths_with_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "text": "a", "question": "1 + 1?", "answer": "#### 2"}\n')
    for arguments in (
        ["eval", "--env", "AgentR1/GSM8K-v0", "--data", "x" * 5000, "--policy", "expert"],
        ["eval", "--env", "AgentR1/GSM8K-v0", "--policy", "expert", "--n", "1", "--out", "x" * 5000],
        ["index", "x" * 5000, "--out", "index"],
        ["index", "rows.jsonl", "--out", "x" * 5000],
        ["prepare", "gsm8k", "--from", "x" * 5000],
        ["prepare", "gsm8k", "--from", "rows.jsonl", "--out", "x" * 5000],
        ["demos", "--env", "AgentR1/GSM8K-v0", "--n", "1", "--out", "x" * 5000 + ".jsonl"],
        ["score", "x" * 5000, "--out", "o.jsonl"],
        ["view", "x" * 5000],
        ["plot", "x" * 5000],
    ):
        assert main(arguments) in (1, 2), arguments[:2]
        said = capsys.readouterr().err
        assert said.startswith("agentr1: ") and said.count("\n") < 4, said


def test_a_full_disk_in_a_helper_of_index(tmp_path, monkeypatch):
    from agent_envs.retrieval.bm25 import retriever

    monkeypatch.setattr(retriever, "_SMALL_CORPUS", 0)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"id": str(i), "text": f"word{i} " * 20}) + "\n" for i in range(3000)))
    with full_disk(500_000), pytest.raises(BackendError, match=os.strerror(errno.EFBIG)):
        BM25Retriever.build(rows, tmp_path / "index", processes=1)


def test_a_device_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"), replacing(pipe) as partial:
        partial.write_text("x")
    assert pipe.is_fifo()


# 5. lines


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_row_without_end_is_refused(name, tmp_path):
    file = tmp_path / name
    with file.open("wb") as opened:
        opened.write(b'{"a": "')
        opened.seek(1 << 30)
        opened.write(b"x")  # after a hole of 1 GiB
    begun = time.monotonic()
    tracemalloc.start()
    with pytest.raises(DataError, match="line 1: not valid JSON"):
        next(read_rows(file))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200 << 20 and time.monotonic() - begun < 20


def test_an_entry_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("agent_envs.json_stream.MAX_ROW_BYTES", 1 << 21)
    file = tmp_path / "a.json"
    file.write_text('[{"a": "' + "x" * (8 << 20))
    with pytest.raises(DataError, match="after entry 0.*longer than 2 MiB"):
        list(JSONStream(file).rows())


def test_a_long_line_in_a_corpus(tmp_path, capsys):
    file = tmp_path / "corpus.jsonl"
    with file.open("wb") as opened:
        opened.write(b'{"id": "1", "text": "a"}\n{"id": "2", "text": "')
        opened.seek(1 << 30)
        opened.write(b"x")
    assert main(["index", str(file), "--out", str(tmp_path / "index"), "--quiet"]) == 2
    assert "line 2: longer than 64 MiB" in capsys.readouterr().err
