"""Panels: the same digest means the same tasks, played to the same scores.

Behaviours pinned here:
1. Hash seeds, other Python versions, concurrency, the order of files and where they lie change neither a panel nor a
   step of a scripted policy (kinds of vectors: tests/vector).
2. A default counts as if it was given; what changes tasks or scores changes the digest, and is named.
3. `eval --panel` plays the tasks of another evaluation or nothing, and runs no code that a panel names.
4. A folder gets no episodes of tasks whose content has changed.
5. The committed scores notice a changed task and a changed score, and say which.

After a change of tasks, arguments or play that is meant: python tests/pinned/scores.py --write
"""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.cli.main import main
from agent_envs.datasets.alfworld.generate import generate_alfworld
from agent_envs.datasets.gsm8k.generated.problems import GeneratedGSM8K
from agent_envs.errors import DataError
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.registration import ENV_IDS
from agent_envs.rollout.panel import Panel, canonical, panel_of, read_panel
from agent_envs.tasks import ListedTasks
from agent_envs.text_env import TextEnv

TOOL = "AgentR1/GSM8KTool-v0"
POLICIES = [RandomPolicy(), ExpertPolicy(), ExpertPolicy(noise=0.5)]
compare_scores = runpy.run_path(str(Path(__file__).parents[1] / "pinned" / "scores.py"))["compare_scores"]


def panel(env_id: str, indices: Any = range(3), wrappers: Any = (), **kwargs: Any) -> Panel:
    env = gym.make(env_id, **kwargs)
    try:
        return panel_of(env, indices, env_id, kwargs, wrappers)
    finally:
        env.close()


def played(episodes: Any) -> list[Any]:
    """Everything that was said, done and paid."""
    steps = ([(s.observation, s.action, s.reward, s.terminated, s.truncated) for s in e.steps] for e in episodes)
    return [(said, e.final_observation, e.score) for said, e in zip(steps, episodes, strict=True)]


# -- 1. what does not matter ---------------------------------------------------------------------------------------


PYTHONS = [python for python in os.environ.get("AGENT_ENVS_TEST_PYTHONS", "").split(os.pathsep) if python]


@pytest.mark.slow  # tests/test_pinned_bytes.py plays the same ids, with whatever hash seed the tests' process has
@pytest.mark.parametrize("python", [sys.executable, *PYTHONS])
def test_another_process_plays_the_committed_panels(root, python):
    """AGENT_ENVS_TEST_PYTHONS: more interpreters with the package's base dependencies, separated as in PATH."""
    environment = {**os.environ, "PYTHONHASHSEED": "20261122", "PYTHONPATH": str(root)}
    done = subprocess.run([python, "tests/pinned/scores.py"], env=environment, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("success of random") == len(ENV_IDS), done.stdout + done.stderr


@pytest.mark.parametrize("policy", POLICIES)
def test_the_concurrency_does_not_matter(policy):
    results = [
        agent_envs.evaluate("AgentR1/HotpotQA-v0", policy, 6, env_kwargs={"split": "test"}, concurrency=concurrency)
        for concurrency in (1, 6)
    ]
    assert results[0].panel == results[1].panel and played(results[0].episodes) == played(results[1].episodes)


def _gsm8k(folder: Path) -> None:
    rows = [GeneratedGSM8K("test")[i] for i in range(12)]
    folder.mkdir()
    for shard in range(3):
        lines = [json.dumps({"question": t.question, "answer": t.solution}) for t in rows[shard::3]]
        (folder / f"test-{shard:05d}-of-00003.jsonl").write_text("\n".join(lines))
    (folder / "train.jsonl").write_text(lines[0])


def _hotpotqa(folder: Path) -> None:
    folder.mkdir()
    for split in ("train", "test"):
        rows = [
            {
                "_id": f"{split}-{i}", "question": f"Who built bridge {i}?", "answer": f"Builder {i}",
                "supporting_facts": [[f"Bridge {i}", 0]],
                "context": [[f"Bridge {j}", [f"Builder {j} built bridge {j}."]] for j in (i, i + 1)],
            }
            for i in range(6)
        ]  # fmt: skip
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))


FOLDERS = {
    "AgentR1/ALFWorld-v0": lambda folder, _: generate_alfworld(folder, 6, split="valid_unseen", progress=False),
    "AgentR1/GSM8K-v0": lambda folder, _: _gsm8k(folder),
    "AgentR1/HotpotQA-v0": lambda folder, _: _hotpotqa(folder),
    "AgentR1/PaperSearch-v0": lambda folder, files: files.write_literature(folder, 12, "test", 1000),
    "AgentR1/WebShop-v0": lambda folder, files: files.write_shop(folder, 20),
}


@pytest.fixture
def shuffled_folders(monkeypatch):
    """Folders are listed in another order than on the rest of this machine."""
    rng, listdir, scandir = random.Random(3), os.listdir, os.scandir

    class Scan(nullcontext):
        def __init__(self, path: Any) -> None:
            with scandir(path) as entries:
                super().__init__(iter(sorted(entries, key=lambda entry: rng.random())))

        def __iter__(self) -> Any:
            return self.enter_result

        def __next__(self) -> Any:
            return next(self.enter_result)

    def arm() -> None:
        monkeypatch.setattr(os, "listdir", lambda path=".": sorted(listdir(path), key=lambda name: rng.random()))
        monkeypatch.setattr(os, "scandir", lambda path=".": Scan(path))

    yield arm


@pytest.mark.parametrize("env_id", FOLDERS)
def test_the_order_and_the_place_of_files_do_not_matter(env_id, tmp_path, shuffled_folders, released_files):
    FOLDERS[env_id](tmp_path / "here", released_files)
    shutil.copytree(tmp_path / "here", tmp_path / "elsewhere")
    results = []
    for name in ("here", "elsewhere"):
        kwargs = {"data": str(tmp_path / name), "split": "train" if "WebShop" in env_id else "test"}
        results.append(agent_envs.evaluate(env_id, RandomPolicy(), None, env_kwargs=kwargs, concurrency=2))
        shuffled_folders()  # before the second one; the first one's folder is in no cache of that
    one, other = (result.panel for result in results)
    assert one.differences(other, "here", "elsewhere") == [] and one.digest == other.digest
    assert all(digest for _, digest in one.tasks.values())
    assert played(results[0].episodes) == played(results[1].episodes) and len(results[0].episodes) > 3


# -- 2. what matters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "given"),
    [
        (TOOL, {"level": "1-8", "parser": "hermes", "max_parallel_calls": 4}),
        (TOOL, {"max_episode_steps": 10}),
        ("AgentR1/HotpotQA-v0", {"hops": 2, "top_k": 5, "style": "tool"}),
        ("AgentR1/MuSiQue-v0", {"articles": 1000}),
        ("AgentR1/PaperSearch-v0", {"papers": 2000, "hidden": 0.4, "render_mode": "ansi"}),
        ("AgentR1/ALFWorld-v0", {"engine": "native", "families": None}),
        ("AgentR1/WebShop-v0", {"page": "shop.html"}),
    ],
)
def test_a_default_counts_as_if_it_was_given(env_id, given):
    assert panel(env_id).digest == panel(env_id, **given).digest


def test_wrappers_count_with_all_their_arguments():
    def of(*specs: Any) -> str:
        return panel(TOOL, wrappers=specs).digest

    assert of("FormatReward") == of("FormatReward()") == of("FormatReward( weight = 0.1 )")
    assert len({of(), of("FormatReward"), of("FormatReward(weight=0.2)"), of("FormatReward", "StripReasoning")}) == 4
    assert of("FormatReward", "StripReasoning") != of("StripReasoning", "FormatReward")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"level": 2}, "argument level: '1-8' there, 2 here"),
        ({"reward": "agentr1"}, "argument reward: 'terminal' there, 'agentr1' here"),
        ({"max_episode_steps": 5}, "argument max_episode_steps: 10 there, 5 here"),
        ({"split": "validation"}, "argument split: 'test' there, 'validation' here"),
        ({"tool": "check_answer"}, "digest of the tools' descriptions"),
        ({"indices": range(4)}, "task 3 only here"),
        ({"indices": (0, 2)}, "task 1 only there"),
        ({"wrappers": ["StepPenalty"]}, "wrappers: [] there"),
    ],
)
def test_what_differs_is_named(change, said):
    one, other = panel(TOOL, split="test"), panel(TOOL, **{"split": "test", **change})
    assert one.digest != other.digest
    assert said in "; ".join(one.differences(other, "there", "here"))


def test_the_order_of_tasks_does_not_matter_but_is_kept():
    one, other = panel(TOOL, [2, 0, 1]), panel(TOOL, range(3))
    assert one.digest == other.digest and list(one.tasks) == [2, 0, 1]


@pytest.fixture
def changed_answer(monkeypatch):
    """Task 459 of the generated problems has another answer, as after a change of the generator or of a file."""
    get, source = GeneratedGSM8K.get, GeneratedGSM8K.shared("test")

    def changed(self: Any, index: int) -> Any:
        task = get(self, index)
        return task._replace(answer="7") if index == 459 else task

    monkeypatch.setattr(GeneratedGSM8K, "get", changed)
    monkeypatch.setattr(source, "_get", source.get)


def test_a_gold_answer_is_content(request):
    before = panel(TOOL, [458, 459], split="test")
    assert Panel.from_dict(json.loads(json.dumps(before.to_dict())), "the file") == before
    request.getfixturevalue("changed_answer")
    after = panel(TOOL, [458, 459], split="test")
    assert before.tasks[458] == after.tasks[458] and before.tasks[459][1] != after.tasks[459][1]


def test_a_file_counts_by_its_content(tmp_path):
    """A corpus that an argument names may lie anywhere, but must be the same."""
    made = []
    for name, text in (("a", "Rome is a city."), ("b", "Rome is a city."), ("c", "Rome was a city.")):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "passages.jsonl"
        file.write_text(json.dumps({"id": "1", "title": "Rome", "text": text}))
        made.append(panel("AgentR1/HotpotQA-v0", corpus=str(file)))
    assert made[0].digest == made[1].digest != made[2].digest
    assert "argument corpus" in made[0].differences(made[2], "a", "c")[0]


def test_the_size_of_the_corpus_beside_real_rows_counts(tmp_path):
    _hotpotqa(tmp_path / "all")
    shutil.copytree(tmp_path / "all", tmp_path / "less")
    rows = [json.loads(line) for line in (tmp_path / "less" / "test.jsonl").read_text().splitlines()]
    for row in rows:
        row["context"] = row["context"][:1]
    (tmp_path / "less" / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    one, other = (panel("AgentR1/HotpotQA-v0", data=str(tmp_path / n), split="test") for n in ("all", "less"))
    assert one.differences(other, "there", "here") == ["documents that the tasks search: 7 there, 6 here"]


def test_prepared_data_is_the_same_as_a_path(tmp_path, monkeypatch):
    _gsm8k(tmp_path / "gsm8k")
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))
    paths = ("official", str(tmp_path / "gsm8k"))
    assert len({panel("AgentR1/GSM8K-v0", data=path, split="test").digest for path in paths}) == 1


def test_environments_without_known_tasks_have_panels():
    env = gym.make("CartPole-v1")
    one = panel_of(env, range(2), "CartPole-v1", {})
    assert list(one.tasks.values()) == [("", "")] * 2 and one.content["arguments"]["max_episode_steps"] == 500


class Riddle:
    """A task without a base class, and with a set in it."""

    def __init__(self, number: int) -> None:
        self.task_id, self.answers = f"riddle/{number}", {f"answer {i}" for i in range(number, number + 5)}


class Riddles(TextEnv):
    def open_tasks(self) -> Any:
        return ListedTasks([Riddle(number) for number in range(3)], "generated", "train")


def test_tasks_of_any_form_have_content():
    words = {f"answer {i}" for i in range(50)}
    assert canonical(Riddle(0))["answers"] == [f"answer {i}" for i in range(5)] and canonical(words) == sorted(words)
    env = Riddles()
    one, other = (panel_of(env, range(3), "riddles", {}) for _ in range(2))
    assert one == other and len(set(one.tasks.values())) == 3 and one.tasks[1][0] == "riddle/1"


# -- 3. and 4. playing a panel -------------------------------------------------------------------------------------


EVAL = ("eval", "--env", TOOL, "--policy", "expert", "--seed", 3, "--quiet", "--out")


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of an evaluation of five tasks, which no test changes."""
    folder = tmp_path_factory.mktemp("evaluated") / "first"
    assert main([*map(str, EVAL), str(folder), "--n", "5"]) == 0
    return folder


def test_eval_prints_keeps_and_plays_a_panel(first, tmp_path, agentr1):
    stored = read_panel(first)
    assert json.loads((first / "summary.json").read_text())["panel"] == stored.digest
    assert f"panel         {stored.name} " in agentr1("eval", "--panel", first, "--policy", "random", "--quiet")
    for given in (first, first / "panel.json"):
        said = agentr1("eval", "--panel", given, "--policy", "random", "--json", "--quiet")
        assert json.loads(said)["panel"] == stored.digest
    again = tmp_path / "again"
    agentr1("eval", "--panel", first, "--policy", "expert", "--out", again, "--quiet")
    one, other = (sorted(agent_envs.read_episodes(f / "episodes.jsonl"), key=lambda e: e.index) for f in (first, again))
    assert played(one) == played(other) and [e.index for e in one] == sorted(stored.tasks)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--env-kwargs", '{"level": 3}'], "argument level: '1-8' in the panel, 3 here; the content of 5 tasks"),
        (["--wrapper", "StepPenalty"], "wrappers: [] in the panel, "),
        (["--env", "AgentR1/GSM8K-v0"], "environment: 'AgentR1/GSM8KTool-v0' in the panel, 'AgentR1/GSM8K-v0' here"),
        (["--n", "3"], "give only one of --n, --all, --indices and --panel"),
        (["--run", "runs/other"], "give either --run or --panel"),
    ],
)
def test_another_panel_is_refused(first, more, said, agentr1):
    assert said in agentr1("eval", "--panel", first, "--policy", "expert", "--quiet", *more, status=2)


def test_changed_content_is_refused(tmp_path, changed_answer, monkeypatch, agentr1):
    command = ("eval", "--env", TOOL, "--policy", "expert", "--out", tmp_path / "run", "--quiet", "--n")
    agentr1(*command, 2)
    monkeypatch.undo()
    said = agentr1("eval", "--panel", tmp_path / "run", "--policy", "random", "--quiet", status=2)
    assert "the content of task 459 is not the same" in said
    said = agentr1(*command, 3, status=2)  # nor is it mixed with what was played
    assert "holds episodes of other tasks: the content of task 459" in said


def test_more_tasks_go_into_the_same_folder(first, tmp_path, agentr1):
    folder = shutil.copytree(first, tmp_path / "more")
    agentr1(*EVAL, folder, "--n", 7)
    assert len(read_panel(folder).tasks) == 7


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["tasks"].pop(), "was changed after it was written"),
        (lambda data: data.update(tasks=[["0", "a", "b"]]), "not a panel"),
        (lambda data: data.pop("content"), "not a panel"),
        (lambda data: data.update(content=[]), "not a panel"),
    ],
)
def test_broken_panels_are_refused(first, tmp_path, change, said):
    data = json.loads((first / "panel.json").read_text())
    change(data)
    (tmp_path / "panel.json").write_text(json.dumps(data))
    with pytest.raises(DataError, match=said):
        read_panel(tmp_path)


def test_a_panel_runs_no_code(first, tmp_path, agentr1):
    data = json.loads((first / "panel.json").read_text())
    for name, value in (("env", "antigravity:X-v0"), ("wrappers", ["antigravity:geohash()"])):
        (tmp_path / "panel.json").write_text(json.dumps({**data, name: value}))
        said = agentr1("eval", "--panel", tmp_path, "--policy", "expert", "--quiet", status=2)
        assert "which a record may not set" in said
    assert "antigravity" not in sys.modules


# -- 5. committed scores -------------------------------------------------------------------------------------------


def test_committed_scores_notice_a_changed_task(changed_answer):
    same, said = compare_scores(TOOL)
    assert not same and said.startswith("tasks: ") and "the content of task 459 is not the same" in said


def test_committed_scores_notice_changed_play(monkeypatch):
    from agent_envs.envs.gsm8k.env import GSM8KToolEnv

    answer = GSM8KToolEnv.answer
    monkeypatch.setattr(GSM8KToolEnv, "answer", lambda self, text: answer(self, "#### 0"))
    same, said = compare_scores(TOOL)
    assert not same and "play: " in said and "expert on task 459 and 19 more (score 1 then, 0 now)" in said
