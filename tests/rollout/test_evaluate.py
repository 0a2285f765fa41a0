"""`evaluate` and `agentr1 eval`: no episode is lost or repeated, whatever the server or the operating system does.

Behaviours pinned here:
1. 40 episodes with a server that rate-limits, stalls, drops connections and replies with nonsense: none is lost.
2. What does not come back from errors is an episode with its error, is shown, not counted, and can be played again.
3. A process killed at any moment leaves a folder that the same command finishes: every episode once.
4. Other settings in the same folder are refused by name; more tasks and samples play the rest alone.
5. Figures: Wilson's interval, pass@k, pairs, tokens and cost are those of the formulas.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs import Problem
from agent_envs.episodes.record import StopReason, read_episodes
from agent_envs.episodes.statistics import pass_at_k, share
from agent_envs.errors import BackendError, ConfigError, DataError, TaskIndexError
from agent_envs.policies import ExpertPolicy, RandomPolicy, ScriptedPolicy
from agent_envs.rollout.evaluation import Prices
from agent_envs.tasks import ListedTasks
from agent_envs.text_env import Outcome, TextEnv
from tests.helpers import full_disk, own_package

TOOL_ENV = "AgentR1/GSM8KTool-v0"
TROUBLES = ["rate", "error", "drop", "half", "stall", "empty", "garbage", "no_choices", "wrong_types"]


def _model(request: dict[str, Any]) -> str | list[dict[str, Any]]:
    """A model that calls the calculator once, then answers its result."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return f"#### {last['content']}"
    return [{"name": "calculator", "arguments": {"expression": "6*7"}}]


@pytest.mark.parametrize("stream", [False, True])
def test_no_episode_of_40_is_lost(tmp_path, stream, monkeypatch, chat_server):
    pytest.importorskip("openai")
    from agent_envs.policies import OpenAIPolicy
    from agent_envs.policies.openai import client as openai_server

    monkeypatch.setattr(openai_server, "_FIRST_PAUSE", 0.02)
    rng = random.Random(32)  # draws every trouble early

    def plan(number: int, request: dict[str, Any]) -> str:
        return rng.choice(TROUBLES) if rng.random() < 0.25 else "ok"

    server = chat_server(_model, plan)
    policy = OpenAIPolicy(
        "m", base_url=server.url, timeout=1.0, stall_timeout=0.5, max_retries=12, max_in_flight=24, stream=stream
    )
    result = agent_envs.evaluate(TOOL_ENV, policy, 40, env_kwargs={"split": "test"}, out=tmp_path / "run")
    policy.close()
    assert set(server.treated) == {"ok", *TROUBLES}
    assert (result.asked, len(result.scores), result.errors) == (40, 40, 0), result.table()
    assert {score.stop_reason for score in result.scores} == {StopReason.TERMINATED}
    episodes = list(read_episodes(tmp_path / "run" / "episodes.jsonl"))
    assert len({episode.episode_id for episode in episodes}) == len(episodes) == 40
    assert all(len(episode.steps) == 2 for episode in episodes)
    assert server.most_in_flight <= 24 + server.treated["stall"]  # the server goes on with what was given up
    assert result.to_dict()["prompt_tokens"] == 40 * 2 * 100 and result.to_dict()["cached_tokens"] == 40 * 2 * 40


def test_errors_are_shown_left_out_and_played_again(tmp_path, agentr1, chat_server):
    pytest.importorskip("openai")
    server = chat_server(_model, lambda number, request: "ok" if number % 4 else "garbage")
    command = ("eval", "--env", TOOL_ENV, "--model", "m", "--base-url", server.url, "--max-retries", 0, "--n", 12,
               "--concurrency", 1, "--quiet", "--out", tmp_path / "run")  # fmt: skip
    said = agentr1(*command)
    assert "broke and are not counted" in said and "expected a chat completion as JSON" in said
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["errors"] > 0 and summary["success"]["of"] == 12 - summary["errors"]
    server.plan = lambda number, request: "ok"
    agentr1(*command)  # as it was: an error is an episode too
    assert len(server.requests) < 24
    summary = json.loads(agentr1(*command, "--retry-errors", "--json").splitlines()[-1])
    assert (summary["episodes"], summary["errors"]) == (12, 0)
    assert len(list(read_episodes(tmp_path / "run" / "episodes.jsonl"))) == 12


def test_a_server_that_is_gone_ends_it(tmp_path):
    policy = ScriptedPolicy([])  # an error at the first step
    with pytest.raises(BackendError, match="gave up after 5 broken episodes in a row, .* the script has 0 actions"):
        agent_envs.evaluate(TOOL_ENV, policy, 50, concurrency=2, give_up_after=5, out=tmp_path / "run")
    assert 5 <= len(list(read_episodes(tmp_path / "run" / "episodes.jsonl"))) <= 7
    assert agent_envs.evaluate(TOOL_ENV, policy, 50, give_up_after=None, out=tmp_path / "run").errors == 50
    for n, first in ((50, 8), (3, 3)):
        with pytest.raises(BackendError, match=f"gave up after {first} broken episodes in a row"):
            agent_envs.evaluate(TOOL_ENV, policy, n, concurrency=1)
    more = agent_envs.evaluate(TOOL_ENV, ExpertPolicy(), 4, out=tmp_path / "more")
    assert more.errors == 0
    assert agent_envs.evaluate(TOOL_ENV, policy, 6, out=tmp_path / "more").errors == 2  # some did work
    with pytest.raises(ConfigError, match="policy must be an object with start"):
        agent_envs.evaluate(TOOL_ENV, "expert", 3)


_SLOW = """
import sys, time
import agent_envs
from agent_envs.policies import ScriptedPolicy

def act(observation, info):
    time.sleep(0.004)
    return "#### 1"

agent_envs.evaluate("AgentR1/GSM8K-v0", ScriptedPolicy(act), 300, samples=2, concurrency=8, out=sys.argv[1])
"""


def test_a_killed_evaluation_goes_on(tmp_path):
    rng = random.Random(1)
    folder = tmp_path / "run"
    counts = []
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", _SLOW, str(folder)], env=own_package())
        deadline = time.monotonic() + 60
        goal = (counts[-1] if counts else 0) + rng.randint(5, 60)
        while process.poll() is None and time.monotonic() < deadline and _lines(folder) < goal:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with (folder / "episodes.jsonl").open("ab") as file:
            file.write(b'{"schema_version": 1, "env')  # what a torn write leaves
        counts.append(_lines(folder))
    assert counts == sorted(counts) and 0 < counts[0] < counts[-1] <= 600
    before = (folder / "episodes.jsonl").read_bytes()
    result = agent_envs.evaluate("AgentR1/GSM8K-v0", ScriptedPolicy(["#### 1"]), 300, samples=2, out=folder)
    assert len(result.scores) == 600
    assert (folder / "episodes.jsonl").read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    names = [episode.episode_id for episode in read_episodes(folder / "episodes.jsonl")]
    assert len(names) == len(set(names)) == 600


def _lines(folder: Path) -> int:
    path = folder / "episodes.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_folder_belongs_to_its_settings(tmp_path):
    policy = ExpertPolicy()

    def play(n: int = 4, **changed: Any) -> Any:
        return agent_envs.evaluate(
            TOOL_ENV, policy, n, **{"out": tmp_path / "run", "settings": {"policy": "expert"}, **changed}
        )

    assert play().success.value == 1.0
    first = (tmp_path / "run" / "episodes.jsonl").read_bytes()
    assert len(play().scores) == 4 and (tmp_path / "run" / "episodes.jsonl").read_bytes() == first
    assert len(play(6, samples=2).scores) == 12  # more of the same
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes().startswith(first)
    assert len(play(3).scores) == 3  # a part of what is there
    with pytest.raises(ConfigError, match="seed was 0, now 1"):
        play(seed=1)
    with pytest.raises(ConfigError, match="policy was 'expert', now 'other'"):
        play(settings={"policy": "other"})
    with pytest.raises(ConfigError, match="env_kwargs was"):
        play(env_kwargs={"split": "test"})
    from agent_envs.episodes.run_folder import EpisodeLog

    with EpisodeLog(tmp_path / "other", {}), pytest.raises(ConfigError, match="another process is using"):
        EpisodeLog(tmp_path / "other", {})
    (tmp_path / "run" / "episodes.jsonl").write_bytes(b"[1]\n" + first)
    with pytest.raises(DataError, match="line 1: expected a JSON object"):
        play()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "episodes.jsonl").write_bytes(first)
    with pytest.raises(ConfigError, match="holds files of an unknown run: episodes.jsonl without run.json"):
        play(out=tmp_path / "foreign")


def test_tasks_are_drawn_once_each_and_more_of_them_begin_with_the_same():
    def indices(n: int | None, **more: Any) -> list[int]:
        result = agent_envs.evaluate(TOOL_ENV, ExpertPolicy(), n, env_kwargs={"split": "test"}, **more)
        return [score.index for score in result.scores]

    few, many = indices(5), indices(10)
    assert many[:5] == few and len(set(many)) == 10 and few != sorted(few)
    assert indices(5, seed=1) != few
    assert indices(None, indices=[3, 1, 3]) == [3, 1]
    with pytest.raises(TaskIndexError, match="tasks 0 to 999, got index 1000"):
        indices(None, indices=[1000])
    for bad in (
        {"samples": 0},
        {"indices": []},
        {"indices": ["3"]},
        {"indices": [1.5]},
        {"seed": -1},
        {"step_timeout": 0.0},
        {"concurrency": 0},
    ):
        with pytest.raises(ConfigError):
            indices(3, **bad)


def test_a_full_disk_loses_no_episode(tmp_path, agentr1):
    command = ("eval", "--env", TOOL_ENV, "--policy", "random", "--n", 30, "--quiet", "--out")
    path = tmp_path / "run" / "episodes.jsonl"
    with full_disk(30_000):
        assert "episodes.jsonl cannot be written" in agentr1(*command, tmp_path / "run", status=1)
        assert path.stat().st_size <= 30_000 and path.read_bytes().endswith(b"\n")  # no half line for others to follow
        played = path.read_bytes()
    with full_disk(1000):
        said = agentr1(*command, tmp_path / "run", "--retry-errors", status=1)
        assert "episodes.jsonl cannot be written" in said
    with full_disk(10):
        assert "run.json cannot be written" in agentr1(*command, tmp_path / "new", status=1)
    assert path.read_bytes() == played
    agentr1(*command, tmp_path / "run")
    assert path.read_bytes().startswith(played)


def test_errors_of_tasks_that_were_not_asked_for_stay(tmp_path):
    def play(policy: Any, **more: Any) -> Any:
        return agent_envs.evaluate(TOOL_ENV, policy, out=tmp_path / "run", concurrency=1, **more)

    play(ScriptedPolicy([]), indices=[1, 2], give_up_after=None)
    assert play(ExpertPolicy(), indices=[2, 3], retry_errors=True).errors == 0
    kept = {episode.index: episode.stop_reason for episode in read_episodes(tmp_path / "run" / "episodes.jsonl")}
    assert kept == {1: StopReason.ERROR, 2: StopReason.TERMINATED, 3: StopReason.TERMINATED}


def test_what_is_secret_is_not_written_down(tmp_path, chat_server, agentr1):
    pytest.importorskip("openai")
    request = {"top_p": 0.5, "extra_headers": {"X-Key": "hush"}, "extra_query": {"sig": "hush"}}
    command = ("eval", "--env", TOOL_ENV, "--model", "m", "--base-url", chat_server(_model).url, "--n", 1, "--quiet")
    said = agentr1(*command, "--request", json.dumps(request), "--out", tmp_path / "run")
    files = [path.read_text() for path in (tmp_path / "run").iterdir()]
    assert len(files) == 5 and not any("hush" in text for text in [*files, said])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["request"] == {
        "top_p": 0.5, "extra_headers": ["X-Key"], "extra_query": ["sig"],
    }  # fmt: skip


def test_functions_as_environments_go_on_too(tmp_path):
    def make() -> gym.Env[Any, str]:
        return gym.make(TOOL_ENV)

    for n in (2, 4):
        result = agent_envs.evaluate(make, ExpertPolicy(), n, wrappers=[lambda env: env], out=tmp_path / "run")
    assert len(result.scores) == 4 and str(result) == result.table() and "scores" not in repr(result)


def test_what_a_server_says_is_inert_in_the_terminal():
    def act(observation: str, info: dict[str, Any]) -> str:
        raise BackendError("\x1b[2J\u202eowned\x07")

    result = agent_envs.evaluate(TOOL_ENV, ScriptedPolicy(act), 3, give_up_after=None)
    assert result.errors == 3 and "\\x1b[2J\\u202eowned\\x07" in result.table() and "\x1b" not in result.table()


def test_samples_of_policies_that_draw_differ_and_runs_are_the_same():
    policies = [RandomPolicy(seed=k) for k in range(4)]
    first, again = (agent_envs.evaluate(TOOL_ENV, policies, 3, samples=4).episodes for _ in range(2))
    actions = [[step.action for step in episode.steps] for episode in first]
    assert actions == [[step.action for step in episode.steps] for episode in again]
    assert actions[0] != actions[1]
    with pytest.raises(ConfigError, match="expected 2, got 4"):
        agent_envs.evaluate(TOOL_ENV, policies, 3, samples=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"panel": 3}, "panel must be a Panel, as read_panel.path. returns one, got 3"),
        ({"panel": "runs/mine"}, "panel must be a Panel, .*, got 'runs/mine'"),
        ({"out": 3}, "out must be the path of a folder, got 3"),
    ],
)
def test_arguments_of_another_kind(arguments, message):
    with pytest.raises(ConfigError, match=message):
        agent_envs.evaluate(TOOL_ENV, ExpertPolicy(), 1, **arguments)


def test_the_figures_are_those_of_the_formulas():
    def act(observation: str, info: dict[str, Any]) -> str:
        return f"#### {solved.get(info['task_id'], 0)}"

    env = gym.make("AgentR1/GSM8K-v0", split="test")
    solved: dict[str, Any] = {}
    for index in range(6):
        env.reset(options={"index": index})
        solved[env.unwrapped.task.task_id] = env.unwrapped.expert_action().rpartition("####")[2].strip()
    result = agent_envs.evaluate(
        "AgentR1/GSM8K-v0", ScriptedPolicy(act), env_kwargs={"split": "test"}, indices=range(20)
    )
    assert result.success == result.reward == result.score == share(6, 20)
    data = result.to_dict()
    assert data["success"]["of"] == 20 and data["stop_reasons"] == {"terminated": 20} and data["cost"] is None
    noisy = [ExpertPolicy(noise=0.4, seed=k) for k in range(4)]
    result = agent_envs.evaluate(TOOL_ENV, noisy, 20, samples=4)
    groups: dict[int, list[bool]] = {}
    for score in result.scores:
        groups.setdefault(score.index, []).append(score.success)
    for k in (1, 2, 4):
        expected = sum(pass_at_k(4, sum(group), k) for group in groups.values()) / 20
        assert result.pass_at(k).value == pytest.approx(expected)
    assert result.pass_at(1) == pytest.approx(result.success)
    solved = agent_envs.evaluate(TOOL_ENV, ExpertPolicy(), 5, samples=2)
    assert solved.pass_at(2) == share(5, 5)  # five solved tasks are no proof that all would be
    assert set(result.to_dict()["pass_at"]) == {"1", "2", "4"}
    low, high = result.success.low, result.success.high
    assert share(20 * result.success.value, 20).low <= low <= high <= share(20 * result.success.value, 20).high


def test_a_budget_of_tokens_ends_it_and_a_larger_one_goes_on(tmp_path, chat_server):
    pytest.importorskip("openai")
    from agent_envs.policies import OpenAIPolicy

    url = chat_server(_model).url
    policy = OpenAIPolicy("m", base_url=url)
    play: Any = partial(agent_envs.evaluate, TOOL_ENV, policy, 20, out=tmp_path / "run", concurrency=1)
    played = [play(token_budget=budget, prices=Prices(1.0, 2.0, 0.5)) for budget in (1000, 1000, 2000, None)]
    assert [len(result.scores) for result in played] == [5, 5, 10, 20]  # 220 tokens each
    assert played[-1].cost == pytest.approx(20 * 2 * (60 * 1.0 + 40 * 0.5 + 10 * 2.0) / 1e6)
    policy.close()
    hard = OpenAIPolicy("m", base_url=url, max_total_tokens=500)
    result = agent_envs.evaluate(TOOL_ENV, hard, 20, concurrency=1)
    assert len(result.scores) == 2  # the third was cut by the budget: it does not count, and is played another time
    hard.close()
    short = OpenAIPolicy("m", base_url=url, max_episode_tokens=100)
    assert agent_envs.evaluate(TOOL_ENV, short, 3).to_dict()["stop_reasons"] == {"token_limit": 3}
    short.close()


def test_a_file_is_evaluated_as_a_whole(data_dir, agentr1):
    path = data_dir / "gsm8k" / "train_2000.jsonl"
    said = agentr1("eval", "--env", TOOL_ENV, "--policy", "expert", "--data", path, "--n", 5, "--quiet")
    assert "split all, policy expert: 5 of 5 episodes" in said


class NoSplitEnv(TextEnv):
    """A task without splits."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)

    def open_tasks(self) -> Any:
        return ListedTasks([Problem(f"task {i}", "Go.", "") for i in range(7)], "generated", "generated")

    def begin(self, task: Any) -> tuple[str, Any]:
        return "Go.", None

    def act(self, action: str) -> Outcome:
        return Outcome("Done.", 1.0, True, success=True)

    def expert_action(self) -> str:
        return "go"


def made_without_a_split(render_mode: str | None = None) -> NoSplitEnv:
    class SplitEnv(NoSplitEnv):
        def __init__(self, split: str = "train") -> None:
            TextEnv.__init__(self, split=split)

    return SplitEnv()


gym.register("Test/NoSplit-v0", NoSplitEnv, max_episode_steps=3)
gym.register("Test/MadeWithoutSplit-v0", made_without_a_split, max_episode_steps=3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["Test/MadeWithoutSplit-v0"], "7 of 7 episodes"),
        (["Test/NoSplit-v0"], "Test/NoSplit-v0, policy expert: 7 of 7 episodes, 7 tasks"),
        (["Test/NoSplit-v0", "--n", 8], "the split has 7 tasks, fewer than --n 8"),
    ],
)
def test_an_environment_without_splits(options, said, agentr1):
    assert said in agentr1("eval", "--policy", "expert", "--quiet", "--env", *options)


def test_a_command_that_only_met_errors_fails(agentr1, chat_server):
    pytest.importorskip("openai")
    server = chat_server(lambda request: "", lambda number, request: "no_choices")
    command = ("eval", "--env", TOOL_ENV, "--model", "m", "--base-url", server.url, "--max-retries", 0, "--n", 2)
    assert "gave up after 2 broken episodes in a row" in agentr1(*command, "--quiet", status=1)
    assert "2 of 2 episodes broke" in agentr1(*command, "--quiet", "--give-up-after", 0, status=1)


def test_the_command(agentr1):
    said = agentr1("eval", "--env", "AgentR1/ALFWorld-v0", "--policy", "expert", "--indices", "0-9,20", "--quiet")
    assert "AgentR1/ALFWorld-v0, split test, policy expert: 11 of 11 episodes, 11 tasks" in said
    assert "success" in said and "look_at_obj_in_light" in said and "stop reasons  terminated 11" in said
    lake = ("eval", "--env", "FrozenLake-v1", "--wrapper", "TextGame", "--env-kwargs", '{"is_slippery": true}')
    # no split, no task count
    assert "pass@2" in agentr1(*lake, "--policy", "random", "--n", 20, "--samples", 2, "--quiet")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--n", "0"], "n must be an integer of at least 1"),
        (["--n", "3", "--all"], "give only one of --n, --all, --indices and --panel"),
        (["--indices", "3-x"], "--indices must be numbers and ranges"),
        (["--split", "tset"], "tset"),
        (["--price-in", "-1"], "prices must be numbers of at least 0"),
        (["--price-out", "nan"], "prices must be numbers of at least 0"),
        (["--give-up-after", "-1"], "give_up_after must be an integer of at least 1"),
    ],
)
def test_options_that_do_not_fit(argv, message, agentr1):
    assert message in agentr1("eval", "--env", TOOL_ENV, "--policy", "expert", "--quiet", *argv, status=2)


def test_a_pair_is_solved_if_both_of_its_tasks_are():
    kwargs = {"split": "twins", "level": 1, "domains": "library"}
    played = agent_envs.evaluate("AgentR1/HelpDesk-v0", ExpertPolicy(), env_kwargs=kwargs, indices=range(7), samples=2)
    assert played.pairs == [[1.0, 1.0]] * 3 and played.to_dict()["pairs"]["of"] == 3  # of task 6 there is no twin
    scores = [replace(s, success=s.episode_id != "3/1") for s in played.scores]
    assert sorted(replace(played, scores=scores).pairs) == [[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert "both of a pair" in played.table()
    alone = agent_envs.evaluate("AgentR1/HelpDesk-v0", ExpertPolicy(), env_kwargs={**kwargs, "split": "test"}, n=2)
    assert alone.to_dict()["pairs"] is None and "pair" not in alone.table()
