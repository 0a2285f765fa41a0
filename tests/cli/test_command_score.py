"""`agentr1 score`: the same episodes, other rewards.

Behaviours pinned here:
1. A replay with the same arguments changes nothing; another preset or a wrapper gives what the rollout would give.
2. Texts, tokens, names and how an episode ended stay as they were recorded.
3. Observations that differ are counted, and episodes with them can be left out.
4. A function gives a return or a reward for every step; what else it gives or raises names it and the episode.
5. The file appears whole or not at all, and is never one of those that are read.
"""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from pathlib import Path

import pytest

import agent_envs
from agent_envs.episodes.record import Episode, StopReason, read_episodes, write_episodes
from agent_envs.policies import ExpertPolicy, RandomPolicy

ENV = "AgentR1/GSM8KTool-v0"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "episodes.jsonl"
    noisy, chance = ExpertPolicy(noise=0.4), RandomPolicy()
    episodes = agent_envs.run_episodes(ENV, noisy, 30, env_kwargs={"split": "test"}, progress=False)
    episodes += agent_envs.run_episodes("AgentR1/PaperSearch-v0", chance, 5, progress=False)
    tokens = dataclasses.replace(episodes[0].steps[0], prompt_ids=(1, 2), response_ids=(3,), response_logprobs=(-0.5,))
    episodes[0] = dataclasses.replace(episodes[0], steps=(tokens, *episodes[0].steps[1:]))
    write_episodes(path, episodes)
    return path


@pytest.fixture
def score(agentr1):
    """Scores stored episodes: what the command printed, and the new ones."""

    def run(path: Path, out: Path, *options: object) -> tuple[str, list[Episode]]:
        said = agentr1("score", path, "--quiet", "--out", out, *options)
        return said, list(read_episodes(out))

    return run


def test_the_same_arguments_change_nothing(stored, tmp_path, score):
    said, after = score(stored, tmp_path / "new.jsonl")
    assert after == list(read_episodes(stored))
    assert "35 episodes replayed, 35 with the same observations" in said
    assert [line.split()[:2] for line in said.splitlines()[-3:]] == [
        [ENV, "30"], ["AgentR1/PaperSearch-v0", "5"], ["all", "35"]
    ]  # fmt: skip


def test_another_preset_and_a_wrapper_give_what_the_rollout_would(stored, tmp_path, score):
    before = [episode for episode in read_episodes(stored) if episode.env_id == ENV]
    write_episodes(tmp_path / "one.jsonl", before)
    options = ("--env-kwargs", '{"reward": "agentr1"}', "--wrapper", "StepPenalty(penalty=0.25)")
    _, after = score(tmp_path / "one.jsonl", tmp_path / "new.jsonl", *options)
    played = agent_envs.run_episodes(
        ENV, ExpertPolicy(noise=0.4), 30, env_kwargs={"split": "test", "reward": "agentr1"},
        wrappers=["StepPenalty(penalty=0.25)"], progress=False,
    )  # fmt: skip
    assert [e.reward for e in after] == [e.reward for e in played] != [e.reward for e in before]
    assert after[0].steps[0].response_logprobs == (-0.5,)
    for old, new in zip(before, after, strict=True):
        assert [s.action for s in old.steps] == [s.action for s in new.steps]
        assert (old.episode_id, old.stop_reason, old.group_id) == (new.episode_id, new.stop_reason, new.group_id)
        assert new.steps[-1].info["reward_components"].keys() == {"last_number", "step"}


def test_observations_that_differ_are_counted(stored, tmp_path, score, agentr1):
    rows = [json.loads(line) for line in stored.read_text().splitlines()][:4]
    rows[1]["steps"][0]["observation"] = "Another question?"
    rows[2]["steps"].append(rows[2]["steps"][-1])  # goes on after the task's end
    rows[3]["steps"] = []
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said, after = score(tmp_path / "a.jsonl", tmp_path / "new.jsonl")
    assert "3 episodes replayed, 1 with the same observations" in said
    assert "2 replays with other observations, 1 in all, 1 by an earlier end" in said
    assert "1 episode without steps kept unchanged" in said
    assert len(after) == 4 and after[2].steps[-1].reward == 0.0
    assert len(score(tmp_path / "a.jsonl", tmp_path / "same.jsonl", "--only-same")[1]) == 2
    options = ("--env", ENV, "--env-kwargs", '{"level": 1}', "--only-same", "--out", tmp_path / "none.jsonl")
    assert "--only-same leaves no episode" in agentr1("score", stored, "--quiet", *options, status=2)
    assert not (tmp_path / "none.jsonl").exists()


def test_a_cut_episode_stays_cut(stored, tmp_path, score):
    episode = next(e for e in read_episodes(stored) if len(e.steps) > 2)
    step = dataclasses.replace(episode.steps[0], truncated=True)
    cut = dataclasses.replace(
        episode, steps=(step,), stop_reason=StopReason.CONTEXT_LENGTH, final_observation=episode.steps[1].observation
    )
    write_episodes(tmp_path / "a.jsonl", [cut])
    assert score(tmp_path / "a.jsonl", tmp_path / "b.jsonl")[1] == [cut]


def test_functions(stored, tmp_path, monkeypatch, score, agentr1):
    monkeypatch.chdir(tmp_path)
    Path("night_rewards.py").write_text(
        "import numpy as np\n"
        "def brevity(episode): return -len(episode.steps)\n"
        "def each(episode): return np.full(len(episode.steps), 0.5)\n"
        "def text(episode): return 'high'\n"
        "def short(episode): return [1.0]\n"
        "def infinite(episode): return float('inf')\n"
        "def fails(episode): return 1 / 0\n"
    )
    _, after = score(stored, tmp_path / "a.jsonl", "--by", "night_rewards:brevity")
    assert [e.reward for e in after] == [-len(e.steps) for e in after]
    assert after[0].steps[-1].info["reward_components"] == {"night_rewards:brevity": after[0].reward}
    assert all(step.reward == 0 for e in after for step in e.steps[:-1])
    _, after = score(stored, tmp_path / "b.jsonl", "--by", "night_rewards:each")
    assert all(step.reward == 0.5 for e in after for step in e.steps)
    for name, message in (
        ("text", "must return a number"),
        ("short", "one for each of the"),
        ("infinite", "finite"),
        ("fails", "ZeroDivisionError"),
        ("nothing", "has no attribute"),
        ("../x", "module:function"),
    ):
        by = ("--by", f"night_rewards:{name}")
        assert message in agentr1("score", stored, *by, "--out", "bad.jsonl", "--quiet", status=2)
    assert not Path("bad.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--env-kwargs", '{"reward": "fame"}', "--env", ENV], "fame"),
        (["--by", "math:sqrt", "--wrapper", "FormatReward"], "--by math:sqrt does not read --wrapper"),
    ],
)
def test_bad_options(stored, tmp_path, agentr1, options, message):
    assert message in agentr1("score", stored, "--quiet", "--out", tmp_path / "a.jsonl", *options, status=2)
    assert not list(tmp_path.iterdir())


def test_the_run_says_what_the_environment_was(tmp_path, score, agentr1):
    run = tmp_path / "run"
    options = ("--env-kwargs", '{"level": 2}', "--wrapper", "StepPenalty(penalty=0.25)", "--split", "test", "--quiet")
    agentr1("eval", "--env", ENV, "--policy", "expert", "--n", 5, "--out", run, *options)
    before = list(read_episodes(run / "episodes.jsonl"))
    assert before[0].steps[0].reward == -0.25
    said, after = score(run, tmp_path / "same.jsonl")
    assert [e.reward for e in after] == [e.reward for e in before] and "5 with the same observations" in said
    _, after = score(run, tmp_path / "more.jsonl", "--wrapper", "InvalidActionPenalty")
    assert after[0].steps[0].info["reward_components"].keys() >= {"step", "invalid_action"}
    _, after = score(run, tmp_path / "bare.jsonl", "--bare", "--env-kwargs", '{"level": 2}')
    assert [e.reward for e in after] == [1.0] * 5


def test_files(stored, tmp_path, agentr1):
    assert "is one of the input files" in agentr1("score", stored, "--out", stored, "--force", status=2)
    for text, message in (("", "no episode to score"), ('{"steps": []}\n', "schema_version")):
        (tmp_path / "odd.jsonl").write_text(text)
        assert message in agentr1("score", tmp_path / "odd.jsonl", "--out", tmp_path / "a.jsonl", status=2)
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize(
    ("stored_as", "written", "named"),
    [
        ('"reward": 1.0', '"reward": null', "reward is None"),
        ('"reward": 1.0', '"reward": "1"', "reward is '1'"),
        ('"action": "', '"action": 5, "said": "', "action is 5"),
        ('"info": {', '"info": null, "more": {', "info is None"),
        ('"reset_info": {', '"reset_info": [], "more": {', "reset_info is []"),
        ('"reward": 1.0', '"reward": 1e308', ""),  # a sum that no number holds has no mean
        ('"reward": 1.0', '"reward": -Infinity', ""),
        ('"reward": 1.0', '"reward": NaN', ""),
    ],
)
def test_fields_of_other_kinds(stored, tmp_path, agentr1, stored_as, written, named):
    pytest.importorskip("matplotlib")
    text, odd = stored.read_text(encoding="utf-8"), tmp_path / "odd.jsonl"
    assert stored_as in text
    odd.write_text(text.replace(stored_as, written), encoding="utf-8")
    said = agentr1("score", odd, "--out", tmp_path / "a.jsonl", "--quiet", status=2 if named else 0)
    if named:
        assert f"a field of the episode has the wrong type: {named}" in said
    else:
        agentr1("view", odd, "--out", tmp_path / "a.html")
        agentr1("plot", odd, "--out", tmp_path / "a.png")


def test_a_large_file_is_never_in_memory(stored, tmp_path, agentr1):
    lines = [line for line in stored.read_text().splitlines() if ENV in line]
    row = json.loads(lines[0])
    row["final_observation"] = "x" * 1_000_000
    with (tmp_path / "large.jsonl").open("w") as file:
        for _ in range(20):
            file.write(json.dumps(row) + "\n")
    tracemalloc.start()
    score = ("score", tmp_path / "large.jsonl", "--quiet", "--out", tmp_path / "a.jsonl")
    agentr1(*score, "--by", "math:fsum", status=2)  # not a function of episodes
    agentr1(*score)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15_000_000
