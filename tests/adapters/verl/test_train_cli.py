"""`agentr1 train` before anything trains: its tasks, and what --dry-run shows; what is refused is in test_refusals.py.

Behaviours pinned here:
1. A model folder without a chat template is refused before anything starts.
2. A run is resumed only with the settings it started with.
3. Held-out tasks are none of the training tasks; a longer run begins like a shorter one.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from composing import ENV, changed, composed

from agent_envs.adapters.verl.config.compose import Composed
from agent_envs.adapters.verl.config.objective import choose_layout
from agent_envs.adapters.verl.run.folder import RunFolder
from agent_envs.adapters.verl.run.process import last_error, process_environment, run_verl
from agent_envs.adapters.verl.run.tasks import (
    Tasks,
    choose_tasks,
    make_env,
    make_rows,
    training_rows,
    validation_rows,
    write_rows,
)
from agent_envs.cli.main import main
from agent_envs.episodes.run_folder import keep_settings
from agent_envs.errors import ConfigError, DataError
from benchmarks.pretraining.tokenizer import build_tokenizer


def _tasks(made: Composed) -> Tasks:
    return choose_tasks(made.run, tasks_per_step=16, validation_tasks=made.unresolved.run.validation_tasks)


def test_a_model_without_a_chat_template_is_refused(tmp_path, capsys):
    from agent_envs.adapters.tiny.model import save_model
    from benchmarks.pretraining.model import build_model

    tokenizer = build_tokenizer(["one text"], vocab_size=263)
    tokenizer.chat_template = None
    save_model(build_model(tokenizer, context_length=16_384), tokenizer, tmp_path / "model")
    assert main(["train", "--env", ENV, "--model", str(tmp_path / "model"), "--out", str(tmp_path / "run")]) == 2
    assert "has no chat template" in capsys.readouterr().err


def test_dry_run_prints_every_setting_and_writes_nothing(tmp_path, capsys):
    from omegaconf import OmegaConf

    out = tmp_path / "a run, with 'quotes'"
    given = ["train", "--env", ENV, "--steps", "7", "--out", str(out), "--dry-run", "actor_rollout_ref.rollout.n=4"]
    given += ["+trainer.note='a: 1 # b\n1e5'", "+trainer.number='1e5'"]
    assert main([*given, "--warm-start", "3", "--demo-noise", "0.25", "--wrapper", "StepPenalty(penalty=0.1)"]) == 0
    config = OmegaConf.create(capsys.readouterr().out)
    assert config.trainer.total_training_steps == 7
    assert (config.trainer.note, config.trainer.number) == ("a: 1 # b\n1e5", "1e5")
    assert config.actor_rollout_ref.rollout.n == 4  # the command line wins over the preset
    assert config.trainer.v1.trainer_mode == "agentr1_sync"
    assert config.run.updates_per_step == 2 and config.agentr1.weighting == "trajectory"  # what verl has no setting for
    assert (config.run.warm_start, config.run.demo_noise, config.run.data) == (3, 0.25, "generated")
    assert config.run.wrappers == ["StepPenalty(penalty=0.1)", "FormatReward(weight=0.1)"]
    assert config.trainer.default_local_dir == str(out / "checkpoints")
    assert not out.exists()


def settings_with_origins(*words: str) -> dict[str, str]:
    """What a dry run prints behind each setting, by its name."""
    args, path, origins = ["train", "--dry-run", *words], list[str](), dict[str, str]()
    with contextlib.redirect_stdout(out := io.StringIO()):
        assert main(args) == 0
    for line in out.getvalue().splitlines():
        if match := re.fullmatch(r"( *)'?(\w+)'?:(?:.*?  # (.+)|.*)", line):
            path[len(match[1]) // 2 :] = [match[2]]
            origins[".".join(path)] = match[3] or ""
    return origins


def test_a_dry_run_says_what_set_each_value():
    words = ["--env", "AgentR1/HelpDesk-v0", "--steps", "7", "actor_rollout_ref.rollout.n=4"]
    words += ["+agentr1.mode=separate", "+agentr1.process_rewards={format: 0.5}"]
    origins, actor = settings_with_origins(*words), "actor_rollout_ref.actor"
    expected = {
        "run.steps": "command line",
        "agentr1.process_rewards.format": "command line",
        "actor_rollout_ref.rollout.n": "command line",
        "run.warm_start": "preset/cpu-tiny.yaml",
        "data.max_prompt_length": "preset/cpu-tiny.yaml",
        f"{actor}.optim.lr": "preset/cpu-tiny.yaml: ${run.learning_rate}",
        f"{actor}.strategy": "cpu.yaml",
        f"{actor}.ppo_epochs": "",  # verl's
        "actor_rollout_ref.rollout.max_model_len": "engines.py",
        "algorithm.rollout_correction.rollout_is": "engines.py",
    }
    assert {name: origins[name] for name in expected} == expected
    words = ["--env", ENV, "--wrapper", "StepPenalty(penalty=0.1)", f"{actor}.optim={{lr:0.1}}"]
    words += ["+agentr1.agent=compact", "+agentr1.train_roles=[user]", "run.min_updates_per_step=4"]
    others = settings_with_origins(*words)
    names = ("agentr1.train_roles", "run.wrappers", f"{actor}.optim.lr", f"{actor}.optim", f"{actor}.optim.betas")
    assert [others[name] for name in names] == ["command line"] * 3 + ["", "preset/cpu-tiny.yaml"]
    assert (others["run.updates_per_step"], others["run.validation_tasks"]) == ("compose.py", "run.yaml")
    moved = settings_with_origins("--env", ENV, "--preset", "gpu-8", "--model", "some/model", "model_engine=megatron")
    assert moved[f"{actor}.megatron.seed"] == "engines.py"
    released = settings_with_origins("--preset", "any/gsm8k/grpo", "--model", "some/model", "--data", "generated")
    assert released["run.tasks_per_step"] == "release agent-r1" and released["run.model"] == "command line"


def test_a_run_is_continued_with_its_own_settings_only(tmp_path):
    out = str(tmp_path / "run")
    first = composed(out=out, steps=5).run
    path = RunFolder(first.out).settings
    keep_settings(path, first.settings())
    keep_settings(path, composed(out=out, steps=50).run.settings())  # longer: the same run
    with pytest.raises(ConfigError, match=r"holds a run with other settings \(seed was 0, now 1\)"):
        keep_settings(path, composed(out=out, seed=1).run.settings())


def sums(folder: Path, count: int) -> Path:
    """A file of problems as GSM8K's."""
    rows = [{"question": f"What is {i} and 1?", "answer": f"{i}+1=<<{i}+1={i + 1}>>{i + 1}\n#### {i + 1}"}
            for i in range(count)]  # fmt: skip
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "sums.jsonl"


def test_held_out_tasks_of_a_single_file_are_not_trained_on(tmp_path):
    path = sums(tmp_path, 50)
    tasks = _tasks(composed(data=str(path), steps=10))
    ((held_out, validation),) = tasks.held_out
    assert (tasks.train_split, held_out) == ("all", "all")
    assert len(validation) == 5 and len(tasks.train) == 10 * 16
    assert set(tasks.train) <= set(range(50)) - set(validation)
    first_pass = tasks.train[: 2 * 16]
    assert len(set(first_pass)) == 32 and len(set(tasks.train)) > 32  # 13 of 45 make no batch, others each time
    longer = _tasks(composed(data=str(path), steps=20))
    assert longer.train[: len(tasks.train)] == tasks.train
    with pytest.raises(ConfigError, match="of 50 tasks leaves none to train on or none to hold out"):
        _tasks(composed(data=str(path), val_fraction=0.0))


SHOP, FORMAT = "AgentR1/WebShop-v0", "FormatReward(weight=0.1)"


@pytest.mark.parametrize(
    ("env", "given", "stack"),
    [
        ("AgentR1/ALFWorld-v0", [], ["InvalidActionPenalty(penalty=0.1)", FORMAT]),
        (SHOP, ["StepPenalty"], ["NumberedActions", "StepPenalty", FORMAT]),
        (SHOP, ["NumberedActions"], ["NumberedActions", FORMAT]),
        (SHOP, ["AsTool"], ["AsTool", FORMAT]),  # in the place of numbers
        (SHOP, ["FormatReward(weight=0.2)"], ["NumberedActions", "FormatReward(weight=0.2)"]),
    ],
)
def test_wrappers_of_the_preset_give_way_to_those_given(env, given, stack):
    run = composed(env=env, wrappers=given).run
    assert list(run.wrappers) == stack
    make_env(run).close()


@pytest.mark.parametrize(("given", "wrappers"), [([], [FORMAT]), (["run.wrappers=[]"], [])])
def test_a_dry_run_says_which_wrappers_there_are_and_what_memory_it_takes(given, wrappers, capsys):
    assert main(["train", "--env", ENV, "--dry-run", *given]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.endswith(f", wrappers {json.dumps(wrappers)}")
    assert [line for line in others if re.fullmatch(r"# memory: about [45]\.\d GB", line)]


def test_generated_tasks_have_a_held_out_split_of_their_own():
    tasks = _tasks(composed(steps=3))
    assert (tasks.train_split, tasks.held_out[0][0]) == ("train", "validation")
    assert len(tasks.train) == 3 * 16 and len(tasks.held_out[0][1]) == 512
    other = _tasks(composed(steps=3, seed=1))
    assert other.train != tasks.train and other.held_out == tasks.held_out


def test_seen_and_unseen_are_both_held_out_and_never_trained_on():
    run = composed(env="AgentR1/ALFWorld-v0", steps=3).run
    for split in ("train", "valid_seen", "validation"):
        tasks = choose_tasks(replace(run, split=split), tasks_per_step=16, validation_tasks=256)
        sizes = {name: len(indices) for name, indices in tasks.held_out}
        expected = {"valid_seen": 128, "valid_unseen": 128} if split == "train" else {"valid_unseen": 256}
        assert sizes == expected, split


def test_validation_sets_are_those_named_and_whole():
    run = composed("run.validation_tasks=null", "run.validation=[test,validation,nowhere]")
    tasks = _tasks(run)
    assert [(name, sorted(indices)) for name, indices in tasks.held_out] == [
        (name, list(range(1000))) for name in ("test", "validation")
    ]
    assert run.verl().data.val_batch_size is None
    with pytest.raises(ConfigError, match="none of the splits to validate on: nowhere"):
        _tasks(composed("run.validation=[nowhere]"))


def test_several_environments_share_every_batch_by_their_weights(capsys):
    house = "AgentR1/ALFWorld-v0"
    options = {"env": [f"{ENV}=3", f"{house}=1"], "steps": 3, "env_kwargs": json.dumps({house: {"size": 2}})}
    run = composed(**options).run
    assert [(each.env, each.weight) for each in run.mixed] == [(ENV, 0.75), (house, 0.25)]
    assert [part.env_kwargs.get("size") for part in run.parts()] == [None, 2]
    tasks = [choose_tasks(part, tasks_per_step=16, validation_tasks=8) for part in run.parts()]
    rows = training_rows(run, tasks, 16, trust=False)
    counts = [[row["env_id"] for row in rows[i : i + 16]].count(ENV) for i in range(0, 48, 16)]
    assert counts == [12, 12, 12] and len(rows) == 48
    of_house = next(row for row in rows if row["env_id"] == house)
    assert json.loads(of_house["env_kwargs"])["size"] == 2 and "InvalidActionPenalty" in of_house["wrappers"]
    held_out = [
        (row["env_id"], json.loads(row["env_kwargs"])["split"]) for row in validation_rows(run, tasks, trust=False)
    ]
    assert Counter(held_out) == {(ENV, "validation"): 8, (house, "valid_seen"): 4, (house, "valid_unseen"): 4}
    given = [word for name, share in ((ENV, 3), (house, 1)) for word in ("--env", f"{name}={share}")]
    assert main(["train", *given, "--dry-run"]) == 0
    assert f"# 0.25 of the tasks: {house}, arguments" in capsys.readouterr().out


def test_files_of_rows_are_tasks_or_name_their_environments(tmp_path):
    problems = sums(tmp_path, 5)
    written = tmp_path / "rows.parquet"
    write_rows(written, [
        *make_rows("AgentR1/GSM8K-v0", [7, 2], env_kwargs={"split": "test"}),
        *make_rows("AgentR1/ALFWorld-v0", [1], wrappers=["AsTool"]),
    ])  # fmt: skip
    made = composed(f"data.train_files={problems}", f"data.val_files=[{written}]", steps=2)
    assert made.verl().data.train_files == [str(made.run.out.resolve() / "data" / "train.parquet")]
    rows = training_rows(made.run, [], 4, trust=False)
    assert [row["extra_info"]["index"] for row in rows[:4]] != [0, 1, 2, 3] and len(rows) == 8
    assert {row["extra_info"]["index"] for row in rows} == set(range(5))
    assert {row["env_id"] for row in rows} == {ENV} and str(problems) in rows[0]["env_kwargs"]
    found = [(row["env_id"], row["extra_info"]) for row in validation_rows(made.run, [], trust=False)]
    assert found == [
        ("AgentR1/GSM8K-v0", {"index": 7, "phase": "validation"}),
        ("AgentR1/GSM8K-v0", {"index": 2, "phase": "validation"}),
        ("AgentR1/ALFWorld-v0", {"index": 1, "phase": "validation"}),
    ]


@pytest.fixture(scope="module")
def file_of_rows(tmp_path_factory):
    """A path, and a run that validates on the rows there."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    write_rows(path, make_rows("AgentR1/GSM8K-v0", [0]))
    return path, composed(f"data.val_files={path}").run


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ({"env_id": "os:system"}, ConfigError, "names 'os:system' as its environment"),
        ({"env_kwargs": '{"data": "/etc/passwd"}'}, ConfigError, "names '/etc/passwd' as the argument 'data'"),
        ({"env_kwargs": "{"}, DataError, "row 0: expected a task's extra_info.index"),
        *(
            ({"extra_info": extra}, DataError, "row 0: expected a task's extra_info.index (and its seed, if any)")
            for extra in ({"index": -1}, {"index": 1.7}, {"index": True}, {"index": 0, "seed": "x"})
        ),
    ],
)
def test_rows_of_files_name_only_what_they_may(row, error, message, file_of_rows):
    path, run = file_of_rows
    write_rows(path, [{**make_rows("AgentR1/GSM8K-v0", [0])[0], **row}])
    with pytest.raises(error, match=re.escape(message)):
        validation_rows(run, [], trust=False)


def test_files_without_rows_and_files_that_are_no_parquet_are_refused(file_of_rows):
    """A pass over no rows would never fill a batch."""
    path, run = file_of_rows
    pq = pytest.importorskip("pyarrow.parquet")
    write_rows(path, make_rows("AgentR1/GSM8K-v0", [0]))
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(DataError, match="rows.parquet has no rows"):
        validation_rows(run, [], trust=False)
    path.write_text("no parquet")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        validation_rows(run, [], trust=False)


def test_files_are_named_by_their_paths(tmp_path):
    for name, value in (("train", "null"), ("val", "[]"), ("train", "[a.parquet,2]"), ("val", "''")):
        with pytest.raises(ConfigError, match=f"data.{name}_files must be a file of rows or a list of them"):
            composed(f"data.{name}_files={value}")
    with pytest.raises(DataError, match=f"data.val_files: there is no file {tmp_path}/none.parquet"):
        composed(f"data.val_files=[{tmp_path}/none.parquet]")


def test_goals_of_files_are_bought_in_the_runs_catalogue(data_dir):
    rows, shop = data_dir / "agentr1_release" / "webshop", str(data_dir / "webshop")
    given = (f"data.train_files=[{rows / 'train.parquet'}]", f"data.val_files={rows / 'test.parquet'}")
    run = composed(*given, env="AgentR1/WebShop-v0", data=shop, env_kwargs='{"site": "agentr1-small"}', steps=2).run
    made = [training_rows(run, [], 4, trust=False)[0], validation_rows(run, [], trust=False)[0]]
    for row, name in zip(made, ("train", "test"), strict=True):
        kwargs = json.loads(row["env_kwargs"])
        assert (kwargs["data"], kwargs["goals"], kwargs["split"]) == (shop, str(rows / f"{name}.parquet"), "all")


def test_the_real_queries_of_the_release_are_its_test_split():
    tasks = _tasks(composed("run.validation=[real]", env="AgentR1/PaperSearch-v0", steps=1))
    assert [name for name, _ in tasks.held_out] == ["test"]


def test_threads_are_those_that_were_asked_for_or_those_of_torch(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert process_environment(cpu=True)["OMP_NUM_THREADS"] == "3"
    monkeypatch.delenv("OMP_NUM_THREADS")
    for count, told in ((5, "5"), (64, "8")):
        monkeypatch.setattr("torch.get_num_threads", lambda count=count: count)
        assert process_environment(cpu=True)["OMP_NUM_THREADS"] == told


def test_the_last_error_of_a_log_is_found(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        "step:1\n(TaskRunnerV1 pid=7) Traceback\n(TaskRunnerV1 pid=7) ValueError: no such thing\nshutting down\n"
    )
    assert last_error(log) == "ValueError: no such thing"
    begin = log.stat().st_size
    with log.open("a") as file:
        file.write("killed\n")
    assert last_error(log, begin) == "no Python error was printed"  # that of an earlier start is not this one's
    log.write_text(
        "\x1b[36m(TaskRunner pid=7)\x1b[0m agent_envs.errors.BackendError: every episode failed; the first one:\n"
        "\x1b[36m(TaskRunner pid=7)\x1b[0m the prompt of step 0 has 77 tokens (a) and (b)\n"
    )
    assert last_error(log).endswith("failed; the first one: the prompt of step 0 has 77 tokens (a) and (b)")
    log.write_text("RuntimeError: The size of tensor a (3) must match tensor b (4) at 1\n")
    assert last_error(log) == "RuntimeError: The size of tensor a (3) must match tensor b (4) at 1"


def test_version_and_help(capsys):
    import agent_envs

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == agent_envs.__version__
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    assert "--demo-noise" in capsys.readouterr().out


def test_logs_lie_in_the_runs_folder_on_a_cluster_too(tmp_path, monkeypatch):
    from omegaconf import OmegaConf

    started = {}

    class Ended:
        returncode = 0

        def __init__(self, command: list[str], **how: object) -> None:
            started.update(command=command, **how)

        def poll(self) -> int:
            return 0

    for name in ("TENSORBOARD_DIR", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("agent_envs.adapters.verl.run.process.subprocess.Popen", Ended)
    log, run = tmp_path / "starts" / "000-from-0.jsonl", composed(out=str(tmp_path))
    run_verl(run.verl(), RunFolder(tmp_path), log, 0)
    config = OmegaConf.load(started["command"][-1])
    assert config.trainer.total_training_steps == 20
    variables = config.ray_kwargs.ray_init.runtime_env.env_vars
    expected = {"VERL_FILE_LOGGER_PATH": log, "TENSORBOARD_DIR": tmp_path / "tensorboard", "WANDB_DIR": tmp_path}
    for name, place in expected.items():
        assert variables[name] == started["env"][name] == str(place)
    for temporary, chosen in (("/var/tmp", "/var/tmp"), (str(tmp_path), "/tmp")):  # too long for a socket's path
        monkeypatch.setattr("tempfile.tempdir", temporary)
        run_verl(run.verl(), RunFolder(tmp_path), log, 0)
        assert str(Path(started["env"]["RAY_TMPDIR"]).parent) == chosen


def test_a_threshold_may_be_two_bounds_in_a_text():
    config = composed("algorithm.rollout_correction.rollout_is_threshold=0.5_5.0").verl()
    assert config.algorithm.rollout_correction.rollout_is_threshold == "0.5_5.0"


def test_a_folder_of_released_games_without_held_out_splits_is_divided(data_dir):
    """ALFWorld notices a missing split only when its games are opened, not when the environment is made."""
    games = str(data_dir / "alfworld" / "json_2.1.1")
    tasks = _tasks(composed(env="AgentR1/ALFWorld-v0", data=games, split="valid_train", val_fraction=0.2, steps=2))
    ((held_out, validation),) = tasks.held_out
    assert tasks.train_split == held_out == "valid_train"
    assert validation and not set(tasks.train) & set(validation)


def test_trees_are_the_default_on_a_cpu_where_everything_takes_them(tmp_path):
    usual = composed().verl()

    def chosen(*settings: str, family: str = "qwen2") -> str:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
        return choose_layout(changed(usual, f"actor_rollout_ref.model.path={tmp_path}", *settings))

    assert chosen() == "tree"
    assert chosen("agentr1.layout=steps") == "steps"
    assert chosen("trainer.device=cuda") == chosen(family="gpt2") == "merged"
    assert chosen("actor_rollout_ref.model.lora_rank=8") == chosen("agentr1.mode=colocate") == "merged"
    assert chosen("actor_rollout_ref.model.use_fused_kernels=True") == "merged"
    (other := tmp_path / "critic").mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    assert chosen("critic.enable=True", f"critic.model.path={other}") == "merged"
    (other / "config.json").unlink()
    assert chosen("critic.enable=True", f"critic.model.path={other}") == "merged"  # verl says what is wrong
