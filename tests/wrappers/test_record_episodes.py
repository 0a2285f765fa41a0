"""RecordEpisodes: every episode becomes a line, whoever steps the environment and however it ends.

1. What run_episodes returns is what is recorded, tokens and stop reasons included.
2. A reset or a close half-way records a cut episode; a reset alone records none.
3. Many processes share a file, and killing one of them at any moment leaves a file that reads and can be added to.
4. Sync and async vectors, list observations and branched episodes are recorded; ids are unique.
"""

import json
import os
import signal
import subprocess
import sys
import time

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.episodes.record import StopReason, read_episodes
from agent_envs.errors import BackendError, DataError
from agent_envs.files import JSONLines
from agent_envs.policies import ExpertPolicy, RandomPolicy, Response, ScriptedPolicy
from agent_envs.wrappers import RecordEpisodes
from tests.helpers import full_disk, tool_call

TOOL = "AgentR1/GSM8KTool-v0"


def _content(episode):
    data = episode.to_dict()
    del data["episode_id"]
    return json.dumps(data, sort_keys=True)


def _recorded(path):
    return list(read_episodes(path))


@pytest.mark.parametrize("env_id", [TOOL, "AgentR1/ALFWorld-v0", "AgentR1/HelpDesk-v0", "AgentR1/PaperSearch-v0"])
def test_what_a_rollout_returns_is_what_is_recorded(env_id, tmp_path):
    path = tmp_path / "deep" / "episodes.jsonl"
    spec = f"RecordEpisodes(path={str(path)!r})"
    played = agent_envs.run_episodes(env_id, RandomPolicy(), 3, wrappers=[spec], concurrency=2, progress=False)
    assert sorted(map(_content, _recorded(path))) == sorted(map(_content, played))
    again = agent_envs.run_episodes(env_id, ExpertPolicy(), 1, seeds=9, wrappers=[spec], progress=False)
    stored = _recorded(path)
    assert _content(stored[-1]) == _content(again[0]) and len({e.episode_id for e in stored}) == 4


def test_half_played_episodes_are_cut_and_bare_resets_are_none(tmp_path):
    env, call = RecordEpisodes(gym.make(TOOL), tmp_path), tool_call("calculator", expression="1+1")
    env.reset(seed=0)
    env.reset(seed=1)
    env.step(call)
    env.reset(seed=2)
    env.step(call)
    env.close()
    episodes = _recorded(tmp_path / "episodes.jsonl")
    assert [(e.seed, e.stop_reason, len(e.steps)) for e in episodes] == [(1, StopReason.CUT, 1), (2, StopReason.CUT, 1)]
    assert episodes[0].steps[-1].truncated and episodes[0].final_observation == "2"
    assert episodes[0].tools and episodes[0].instructions


class Answers:
    """A policy whose second answer is made by a function."""

    def __init__(self, second):
        self.second = second

    def start(self, env):
        self.texts = iter([Response(tool_call("calculator", expression="1+1"), (1, 2), (3,), (-0.5,))])
        return self

    def act(self, observation, info):
        return next(self.texts, None) or self.second()


def _fail():
    raise RuntimeError("the model is gone")


@pytest.mark.parametrize(
    ("second", "reason", "said"),
    [
        (lambda: Response("", response_ids=()), StopReason.EMPTY_GENERATION, "no token"),
        (_fail, StopReason.ERROR, "the model is gone"),
        (lambda: time.sleep(1.0), StopReason.STEP_TIMEOUT, "step_timeout at step 1"),
    ],
)
def test_the_rollouts_reasons_and_tokens_are_recorded(second, reason, said, tmp_path):
    tokens = reason is not StopReason.ERROR
    spec = f"RecordEpisodes(path={str(tmp_path)!r}, tokens={tokens})"
    timeout = 0.3 if reason is StopReason.STEP_TIMEOUT else None
    how = {"step_timeout": timeout, "on_error": "record", "progress": False}
    agent_envs.run_episodes(TOOL, Answers(second), 1, wrappers=[spec], **how)
    (episode,) = _recorded(tmp_path / "episodes.jsonl")
    assert episode.stop_reason is reason and said in episode.error
    (step,) = episode.steps
    recorded = (step.prompt_ids, step.response_logprobs)
    assert step.truncated and recorded == (((1, 2), (-0.5,)) if tokens else (None, None))


def test_an_exception_in_the_environment_is_recorded_unless_the_episode_goes_on(tmp_path):
    class Fragile(gym.Wrapper):
        def step(self, action):
            if action == "boom":
                raise BackendError("the server is gone")
            return super().step(action)

    env = RecordEpisodes(Fragile(gym.make(TOOL)), tmp_path)
    env.reset(seed=0)
    with pytest.raises(TypeError):
        env.step(None)
    env.step("#### 1")
    env.reset(seed=1)
    with pytest.raises(BackendError):
        env.step("boom")
    env.reset(seed=2)
    first, second = _recorded(tmp_path / "episodes.jsonl")
    assert first.stop_reason is StopReason.TERMINATED and first.error is None
    assert second.stop_reason is StopReason.ERROR and "the server is gone" in second.error and second.steps == ()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors_of_gymnasium_are_recorded(mode, tmp_path):
    vector = gym.make_vec(
        "AgentR1/GSM8K-v0", 3, mode, wrappers=[lambda env: RecordEpisodes(env, tmp_path / "{env}.jsonl")]
    )
    vector.reset(seed=0)
    vector.step(("#### 1", "#### 2", "hm"))
    vector.step(("", "", ""))  # the reset
    vector.step(("a", "#### 4", "b"))
    vector.close()
    episodes = _recorded(tmp_path / "AgentR1-GSM8K-v0.jsonl")
    assert len({e.episode_id for e in episodes}) == len(episodes) == 6
    assert sorted(e.steps[0].action for e in episodes) == ["#### 1", "#### 2", "#### 4", "a", "b", "hm"]


class AsMessages(gym.ObservationWrapper):
    """One list of messages that grows in place, as a careless wrapper might keep it."""

    def __init__(self, env):
        super().__init__(env)
        self.messages = []

    def observation(self, observation):
        self.messages.append({"role": "user", "content": observation})
        return self.messages


def test_list_observations_are_copied(tmp_path):
    env = RecordEpisodes(AsMessages(gym.make(TOOL)), tmp_path)
    agent_envs.run_episode(env, ExpertPolicy(), seed=0)
    (episode,) = _recorded(tmp_path / "episodes.jsonl")
    assert [len(step.observation) for step in episode.steps] == list(range(1, len(episode.steps) + 1))
    assert episode.steps[0].observation[0]["role"] == "user"


def test_branches_are_episodes_of_their_own(tmp_path):
    env = RecordEpisodes(gym.make(TOOL), tmp_path)
    env.reset(seed=0)
    env.step(tool_call("calculator", expression="1+1"))
    point = agent_envs.snapshot(env)
    env.step("#### 1")
    agent_envs.restore(env, point)
    env.step("#### 2")
    episodes = _recorded(tmp_path / "episodes.jsonl")
    assert [[s.action for s in e.steps][1:] for e in episodes] == [["#### 1"], ["#### 2"]]
    assert len({e.episode_id for e in episodes}) == 2


_WRITER = """
import sys
from agent_envs.files import JSONLines
path, name, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.stdout.write("ready\\n"); sys.stdout.flush()
for i in range(count):
    JSONLines(path).append({"writer": name, "number": i, "fill": name * size})
"""


def _writer(path, name, size, count):
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, path, name, str(size), str(count)], stdout=subprocess.PIPE, text=True
    )


def test_processes_share_a_file_and_killing_them_breaks_no_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    killed = [_writer(path, name, 3_000_000, 10_000) for name in "ab"]
    steady = _writer(path, "c", 10, 200)
    for process in killed:
        process.stdout.readline()
    time.sleep(0.4)
    for process in killed:
        process.send_signal(signal.SIGKILL)
    for process in [*killed, steady]:
        process.wait(60)
        process.stdout.close()
    JSONLines(path).append({"writer": "d", "number": 0})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for name in "abc":
        numbers = [row["number"] for row in rows if row["writer"] == name]
        assert numbers == list(range(len(numbers)))
    assert sum(row["writer"] == "c" for row in rows) == 200 and rows[-1]["writer"] == "d"


def test_a_half_line_is_left_out_by_readers_and_cut_off_by_the_next_writer(tmp_path):
    path = tmp_path / "episodes.jsonl"
    env = RecordEpisodes(gym.make("AgentR1/GSM8K-v0"), path)
    agent_envs.run_episode(env, ExpertPolicy(), seed=0)
    whole = path.read_bytes()
    for length in (1, 100, len(whole) - 1, len(whole) + 70_000):
        path.write_bytes(whole + (whole + b" " * 100_000)[:length].replace(b"\n", b" ").rstrip(b"} ") + b"x")
        assert len(_recorded(path)) == 1
        agent_envs.run_episode(env, ScriptedPolicy(["#### 1"]), seed=1)
        assert [e.seed for e in _recorded(path)] == [0, 1]


def test_a_full_disk_is_an_error_that_leaves_the_file_as_it_was(tmp_path):
    env = RecordEpisodes(gym.make("AgentR1/GSM8K-v0"), tmp_path)
    agent_envs.run_episode(env, ExpertPolicy(), seed=0)
    path = tmp_path / "episodes.jsonl"
    before = path.read_bytes()
    env.reset(seed=1)
    with full_disk(len(before) + 10), pytest.raises(BackendError, match="File too large"):
        env.step("#### 1")
    assert path.read_bytes() == before


def test_an_info_without_a_json_form_is_named(tmp_path):
    class Odd(gym.Wrapper):
        def step(self, action):
            *rest, info = self.env.step(action)
            return *rest, {**info, "parts": {"model": object()}}

    env = RecordEpisodes(Odd(gym.make(TOOL)), tmp_path / "a.jsonl")
    env.reset(seed=0)
    with pytest.raises(DataError, match="'parts': 'model': a value of type object has no JSON form.*leave it out"):
        env.step("#### 1")


def test_paths_name_the_process_and_the_spec_makes_the_same_wrapper(tmp_path):
    env = RecordEpisodes(gym.make(TOOL), tmp_path / "{host}" / "{pid}.jsonl")
    other = gym.make(env.spec)
    agent_envs.run_episode(other, ExpertPolicy(), seed=0)
    (file,) = tmp_path.glob("*/*")
    assert file.name == f"{os.getpid()}.jsonl"
