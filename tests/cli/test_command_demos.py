"""`agentr1 demos`: what an expert did, as rows that trainers take.

Behaviours pinned here:
1. A row is the conversation of the rollout; the same seed writes the same bytes; no task comes twice.
2. Failed episodes are left out unless asked for; the same conversation is written once.
3. A prompt that is built anew begins another row.
4. Both formats hold the same rows; TRL reads the one and verl the other, with the loss on responses alone.
5. Nothing is left of a command that fails.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs import Problem
from agent_envs.cli.demos import demonstration_rows, expert_episodes, write_rows
from agent_envs.cli.main import main
from agent_envs.errors import DataError, PolicyError
from agent_envs.policies import ExpertPolicy
from agent_envs.rollout.demonstrations import without_nulls
from agent_envs.tasks import ListedTasks
from agent_envs.text_env import Outcome, TextEnv

ENV = "AgentR1/GSM8KTool-v0"


@pytest.fixture
def demos(agentr1):
    """Writes demonstrations; what the command printed, and the rows of a JSON lines file."""

    def run(out: Path, *options: object, env: str = ENV) -> tuple[str, list[dict[str, Any]]]:
        said = agentr1("demos", "--env", env, "--quiet", "--out", out, *options)
        return said, [json.loads(line) for line in out.read_text().splitlines()] if out.suffix == ".jsonl" else []

    return run


def test_a_row_is_the_conversation_of_the_rollout(tmp_path, demos):
    said, rows = demos(tmp_path / "a.jsonl", "--n", 30, "--seed", 3, "--split", "test")
    assert f"30 rows of 30 episodes in {tmp_path / 'a.jsonl'}" in said
    assert len({row["index"] for row in rows}) == 30 and {row["split"] for row in rows} == {"test"}
    for row in rows[:5]:
        env = gym.make(ENV, split="test")
        question, _ = env.reset(options={"index": row["index"]})
        opening, rest = row["messages"][: row["opening"]], row["messages"][row["opening"] :]
        assert opening == [
            {"role": "system", "content": env.unwrapped.instructions},
            {"role": "user", "content": question},
        ]
        assert row["tools"] == env.unwrapped.tools and row["success"] and row["step"] == 0
        ended = False
        while not ended:
            action = rest.pop(0)
            assert action["role"] == "assistant"
            _, _, ended, _, info = env.step(action["content"])
            shown = [rest.pop(0)["content"] for _ in info["tool_results"]]
            assert ended or shown == [result["content"] for result in info["tool_results"]]
        assert info["success"] and not rest
    demos(tmp_path / "b.jsonl", "--n", 30, "--seed", 3, "--split", "test")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert demos(tmp_path / "c.jsonl", "--n", 30, "--seed", 4, "--split", "test")[1] != rows


def test_noise_and_failed_episodes(tmp_path, demos):
    options = ("--n", 40, "--noise", 0.5, "--env-kwargs", '{"level": 2}')
    said, good = demos(tmp_path / "good.jsonl", *options)
    assert "left out as failed" in said and len(good) == 40 and all(row["success"] for row in good)
    _, every = demos(tmp_path / "all.jsonl", *options, "--all")
    assert len(every) == 40 and 0 < sum(row["success"] for row in every) < 40


def test_a_prompt_built_anew_begins_another_row(tmp_path, demos):
    _, rows = demos(tmp_path / "a.jsonl", "--n", 4, "--wrapper", "RebuildPrompt", env="AgentR1/PaperSearch-v0")
    steps: dict[str, list[int]] = {}
    for row in rows:
        steps.setdefault(row["task_id"], []).append(row["step"])
        assert [m["role"] for m in row["messages"]] == ["system", "user", "assistant"]
    assert len(rows) > len(steps) == 4 and all(each == [*range(len(each))] for each in steps.values())


class _Few(TextEnv):
    """Tasks 0 to 5: the word of task i is i // 2, so that pairs are the same; task 4 has no expert."""

    def open_tasks(self) -> Any:
        return ListedTasks([Problem(f"few/{i}", f"Say {i // 2}.", str(i // 2)) for i in range(6)], "generated", "all")

    def begin(self, task: Any) -> tuple[str, None]:
        return task.question, None

    def act(self, action: str) -> Outcome:
        right = action == self.task.answer
        return Outcome("", float(right), True, score=float(right), success=right)

    def expert_action(self) -> str | None:
        return None if self.task.task_id == "few/4" else str(self.task.answer)


def test_duplicates_and_tasks_without_an_expert():
    tally = Counter()
    rows = list(demonstration_rows(expert_episodes(_Few(), ExpertPolicy(), tally), 10, tally))
    assert sorted(row["messages"][-1]["content"] for row in rows) == ["0", "1", "2"]
    assert tally == {"episodes": 3, "rows": 3, "played": 6, "duplicates": 2, "unsolvable": 1}
    assert "tools" not in rows[0]
    episodes = expert_episodes(_Few(), ExpertPolicy(), tally)
    assert len(list(demonstration_rows(episodes, 10, Counter(), duplicates=True))) == 5

    class Without(_Few):
        def expert_action(self) -> None:
            return None

    with pytest.raises(PolicyError, match="has no expert"):
        list(expert_episodes(Without(), ExpertPolicy(), Counter()))


def test_more_than_there_are_tasks(tmp_path, demos):
    row = {"question": "2 + 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    said, rows = demos(tmp_path / "a.jsonl", "--n", 5, "--data", tmp_path / "rows.jsonl")
    assert len(rows) == 1 and "fewer than --n 5: the split has no more tasks" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "a.csv"], ".jsonl, .parquet"),
        (["--out", "a.jsonl", "--n", "0"], "--n must be an integer of at least 1"),
        (["--out", "a.jsonl", "--wrapper", "Nothing"], "unknown wrapper"),
        (["--out", "a.jsonl", "--seed", "-1"], "seed must be"),
    ],
)
def test_bad_options_leave_nothing(tmp_path, monkeypatch, agentr1, options, message):
    monkeypatch.chdir(tmp_path)
    assert message in agentr1("demos", "--env", ENV, "--quiet", *options, status=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_write_that_ends_early_leaves_the_file_as_it_was(tmp_path, name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")

    def rows():
        yield {"messages": [{"role": "user", "content": "a"}]}
        raise KeyboardInterrupt

    (tmp_path / name).write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write_rows(tmp_path / name, rows())
    with pytest.raises(DataError, match="there is no episode to write"):
        write_rows(tmp_path / name, [])
    assert (tmp_path / name).read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture(scope="module", params=[ENV, "AgentR1/PaperSearch-v0", "AgentR1/ALFWorld-v0"])
def both_formats(request, tmp_path_factory):
    """Rows of an environment, and the table of the same episodes."""
    pytest.importorskip("pyarrow")
    files = [tmp_path_factory.mktemp("demos") / name for name in ("a.jsonl", "a.parquet")]
    for file in files:
        assert main(["demos", "--env", request.param, "--quiet", "--n", "6", "--out", str(file)]) == 0
    return [json.loads(line) for line in files[0].read_text().splitlines()], str(files[1])


def test_both_formats_hold_the_same(both_formats):
    pandas = pytest.importorskip("pandas")
    rows, table = both_formats
    frame = pandas.read_parquet(table, dtype_backend="pyarrow")
    assert [without_nulls(row) for row in frame.to_dict("records")] == rows


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from agent_envs.adapters.tiny.model import load_base

    return load_base()[1]


@pytest.mark.filterwarnings("ignore")
def test_verl_trains_on_the_responses_alone(tokenizer, both_formats):
    pytest.importorskip("verl")
    from omegaconf import OmegaConf
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
    from verl.utils.import_utils import load_extern_object

    ours = load_extern_object("pkg://agent_envs.adapters.verl.batch.sft_dataset", "DemonstrationDataset")
    rows, table = both_formats
    config = OmegaConf.create({"max_length": 16384, "pad_mode": "no_padding", "ignore_input_ids_mismatch": True})
    for kind in (ours, MultiTurnSFTDataset):
        dataset = kind(table, tokenizer, config)
        assert len(dataset) == 6
        for row, said in zip((dataset[i] for i in range(6)), rows, strict=True):
            answers = [m["content"] for m in said["messages"] if m["role"] == "assistant"]
            trained = tokenizer.decode(row["input_ids"][row["loss_mask"].bool()])
            assert [part.strip() for part in trained.split("<|im_end|>")][:-1] == answers
            if kind is ours:
                assert "null" not in tokenizer.decode(row["input_ids"])
    padded = ours(table, tokenizer, OmegaConf.create({"max_length": 16384}))[0]
    assert {len(column) for column in padded.values()} == {16384}
    assert padded["attention_mask"].sum() == len(ours(table, tokenizer, config)[0]["input_ids"])
    short = ours(table, tokenizer, OmegaConf.create({"max_length": 8, "truncation": "left"}))[0]
    assert {len(column) for column in short.values()} == {8}
    with pytest.raises(DataError, match="max_length=8"):
        ours(table, tokenizer, OmegaConf.create({"max_length": 8}))[0]


def test_trl_trains_on_it(tmp_path, tokenizer, monkeypatch, demos):
    datasets = pytest.importorskip("datasets", minversion="2.0")
    pytest.importorskip("trl")
    import warnings

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl import SFTConfig, SFTTrainer

        from benchmarks.pretraining.model import build_model

        demos(tmp_path / "a.jsonl", "--n", 8, env="AgentR1/PaperSearch-v0")
        rows = datasets.load_dataset(
            "json", data_files=str(tmp_path / "a.jsonl"), split="train", cache_dir=str(tmp_path / "cache")
        )
        assert [tool["function"]["name"] for tool in rows[0]["tools"]] == ["search", "expand", "finish"]
        assert "null" not in json.dumps(rows[0]["tools"]) and "null" not in json.dumps(rows[0]["messages"])
        config = SFTConfig(
            output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=2, report_to="none",
            use_cpu=True, bf16=False, max_length=4096, logging_strategy="no", save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        model = build_model(tokenizer, context_length=4096)
        trainer = SFTTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
        assert trainer.train().global_step == 1


@pytest.mark.parametrize("wrappers", [[], ["--wrapper", "RebuildPrompt(history=1)"]])
def test_the_solved_episodes_of_a_run(tmp_path, wrappers, agentr1):
    """Those of an expert's run are the rows that demonstrating writes; failed ones are left out."""
    run = ("--policy", "expert", "--split", "test", "--indices", "0-9", "--out", tmp_path / "run", "--quiet")
    agentr1("eval", "--env", ENV, "--demo-noise", 0.4, *wrappers, *run)
    wins = [e for e in agent_envs.read_episodes(tmp_path / "run" / "episodes.jsonl") if e.success]
    for source in ("run", "run/episodes.jsonl"):
        out = tmp_path / f"{len(source)}.jsonl"
        printed = agentr1("demos", "--from", tmp_path / source, "--keep-duplicates", "--out", out)
        assert "left out as failed" in printed
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["index"] for row in rows if not row["step"]] == [e.reset_info["index"] for e in wins]
        said = [[m["content"] for m in row["messages"][row["opening"] :] if m["role"] == "assistant"] for row in rows]
        assert [text for texts in said for text in texts] == [step.action for e in wins for step in e.steps]
        assert 0 < len(wins) < 10 and all(row["tools"] and row["tool_instructions"] for row in rows)
    agentr1("demos", "--from", tmp_path / "run", "--noise", 0.5, "--out", tmp_path / "x.jsonl", status=2)


def test_training_episodes_of_several_environments(tmp_path, agentr1):
    """Held-out episodes are no supervised data unless asked for; a row has its own environment's id and words."""
    hotpot, run = "AgentR1/HotpotQA-v0", tmp_path / "run"
    (run / "episodes").mkdir(parents=True)
    several = [{"env": f"agent_envs:{ENV}", "env_kwargs": {"level": 1}}, {"env": hotpot, "env_kwargs": {}}]
    (run / "run.json").write_text(json.dumps({**several[0], "mixed": several}))
    for name, split in (("train", "train"), ("validation", "test")):
        for env in (ENV, hotpot):
            how = ("--policy", "expert", "--split", split, "--indices", "0-2", "--quiet")
            agentr1("eval", "--env", env, *how, "--out", tmp_path / name / env)
            with (run / "episodes" / f"{name}-000001.jsonl").open("a") as file:
                file.write((tmp_path / name / env / "episodes.jsonl").read_text())

    def rows(*options: object) -> list[dict[str, Any]]:
        out = tmp_path / "rows.jsonl"
        said = agentr1("demos", "--from", run, "--success", "--force", "--trust", *options, "--out", out)
        assert ("is reached" in said) == ("--n" in options)
        return [json.loads(line) for line in out.read_text().splitlines()]

    assert Counter((row["env"], row["split"]) for row in rows()) == {
        (f"agent_envs:{ENV}", "train"): 3, (hotpot, "train"): 3,
    }  # fmt: skip
    for row in rows("--n", 6):
        name = "calculator" if "GSM8K" in row["env"] else "search"
        assert name in row["tool_instructions"] or name in str(row["tools"])
    assert {row["split"] for row in rows("--split", "test")} == {"test"}
    assert {row["env"] for row in rows("--env", hotpot)} == {hotpot}
    agentr1("demos", "--from", run, "--all", "--success", "--out", tmp_path / "x.jsonl", status=2)
