"""The arguments that commands share: which environment, and who plays.

Behaviours pinned here:
1. An environment's id that is nearly right is answered by the right one; bad arguments and wrappers are named.
2. Only what was given reaches the environment and the policy.
3. An option that a policy does not read is refused, one that it needs is asked for.
4. A run's environment, arguments and wrappers are those that it was trained with; what is given wins, and is said.
5. A module:name on the command line is found in the current folder, which is searched for nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import sys

import pytest

from agent_envs.cli.main import _OWN_CODE
from agent_envs.cli.options import add_options
from agent_envs.cli.policy import POLICIES, PolicyOptions
from agent_envs.errors import AgentEnvsError, ConfigError
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.wrapping.recorded import RecordedEnv
from agent_envs.wrapping.specs import make_text_env


def _options(*argv: str) -> PolicyOptions:
    parser = argparse.ArgumentParser()
    add_options(parser, PolicyOptions)
    return PolicyOptions(**vars(parser.parse_args(argv)))


def _parsed(*argv: str) -> PolicyOptions:
    return _options("--env", "AgentR1/GSM8KTool-v0", *argv)


def test_only_what_was_given_reaches_the_environment():
    assert _parsed().chosen_env() == RecordedEnv("AgentR1/GSM8KTool-v0", {}, ())
    argv = ["--split", "test", "--env-kwargs", '{"operations": 2}', "--wrapper", "FormatReward(weight=0.2)"]
    choice = _parsed(*argv).chosen_env()
    assert choice.env_kwargs == {"operations": 2, "split": "test"}
    assert choice.wrappers == ("FormatReward(weight=0.2)",)
    env = make_text_env("AgentR1/GSM8KTool-v0", {"split": "test", "render_mode": "ansi"}, choice.wrappers)
    assert type(env).__name__ == "FormatReward" and env.render_mode == "ansi" and env.unwrapped.split == "test"


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("gsm8ktool", {}, "Did you mean 'AgentR1/GSM8KTool-v0'"),  # no namespace, no version, other case
        ("AgentR1/GSM8KTool", {}, "unknown environment 'AgentR1/GSM8KTool'. Did you mean 'AgentR1/GSM8KTool-v0'"),
        ("AgentR1/GSM9KTool-v0", {}, "Did you mean 'AgentR1/GSM8KTool-v0'"),
        ("no_such_module.envs:Mine-v0", {}, "named 'no_such_module'; run this in the folder that has it, or install"),
        ("a b/c d", {}, "unknown environment 'a b/c d'. There are: 'AgentR1/ALFWorld-v0'"),
        ("agent_envs:AgentR1/GSM8k-v0", {}, "does not register 'AgentR1/GSM8k-v0'. Did you mean 'AgentR1/GSM8K-v0'"),
        ("json:Mine-v0", {}, "the module 'json' does not register 'Mine-v0'. It registers none."),
        ("AgentR1/GSM8KTool-v0", {"colour": "red"}, "does not take 'colour'. There are: 'data', .*'tool_timeout'"),
        ("AgentR1/GSM8KTool-v0", {"split ": "test"}, "does not take 'split '. Did you mean 'split'"),
        ("AgentR1/Remote-v0", {}, "RemoteEnv needs the argument 'url'$"),
        ("AgentR1/GSM8KTool-v0", {"split": 3}, "split must be a string, got 3"),
        ("AgentR1/GSM8KTool-v0", {"split": "tset"}, "split must be one of .* Did you mean 'test'"),
    ],
)
def test_an_environment_that_cannot_be_made(env_id, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_text_env(env_id, kwargs, ())


def test_a_folder_that_is_not_installed_is_said_to_be_one(tmp_path, monkeypatch):
    (tmp_path / "half_a_task" / "half_a_task").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="only a folder here; install the package in it: pip install -e half_a_task"):
        make_text_env("half_a_task:Mine-v0", {}, ())


def test_policies_get_their_options():
    expert = _parsed("--policy", "expert", "--demo-noise", "0.25").chosen_policies(seed=3)[0]
    assert isinstance(expert, ExpertPolicy) and (expert.noise, expert.seed) == (0.25, 3)
    assert isinstance(_parsed("--policy", "random").chosen_policies()[0], RandomPolicy)
    assert _parsed("--policy", "random").policy_settings() == {"policy": "random"}
    argv = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--temperature", "0", "--timeout", "3"]
    assert _parsed(*argv).policy_settings() == {
        "policy": "openai",
        "model": "m",
        "base_url": "http://127.0.0.1:9/v1",
        "temperature": 0.0,
    }


def test_an_openai_policy_from_the_command_line():
    pytest.importorskip("openai")
    pytest.importorskip("aiohttp")
    argv = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--top-p", "0.9", "--tool-mode", "text"]
    policy = _parsed(*argv, "--request", '{"seed": 1}').chosen_policies()[0]
    assert (policy.model, policy.tool_mode) == ("m", "text")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env-kwargs", "{"], "--env-kwargs is not valid JSON such as '{\"key\": 1}'"),
        (["--env-kwargs", "[1]"], "--env-kwargs must be a JSON object"),
        (["--env-kwargs", '{"split": "test"}'], "use --split"),
        (["--wrapper", "FormatRewards"], "Did you mean 'FormatReward'"),
        (["--policy", "expertt"], "unknown policy 'expertt'. Did you mean 'expert'"),
        ([], "--policy openai needs --model"),
        (["--policy", "expert", "--model", "m"], "--policy expert does not read --model"),
        (["--policy", "random", "--logprobs"], "--policy random does not read --logprobs"),
        (["--policy", "expert", "--demo-noise", "2"], "noise must be a number from 0 to 1"),
        (["--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--request", "7"], "--request must be a JSON object"),
        (["--model", "m", "--base-url", "localhost:8000/v1"], "must be a server's address such as 'http://"),
        (["--model", "./no/such"], "--model ./no/such: there is no such folder"),
        (["--model", ".", "--engine", "{}"], "--policy transformers does not read --engine"),
        (["--policy", "transformers"], "either --model FOLDER or --checkpoint"),
    ],
)
def test_options_that_do_not_fit(argv, message):
    with pytest.raises(AgentEnvsError, match=message):
        options = _parsed(*argv)
        options.chosen_env()
        options.chosen_policies()


def test_an_option_names_policies_that_read_it():
    read = {name for each in dataclasses.fields(PolicyOptions) for name in each.metadata.get("of", "").split()}
    assert read == POLICIES.keys() - {"random"}


def test_a_folder_or_a_checkpoint_is_run_in_this_process(tmp_path):
    assert _parsed("--model", str(tmp_path)).policy_settings()["policy"] == "transformers"
    assert _parsed("--checkpoint", "runs/mine", "--device", "cpu").policy_settings() == {
        "policy": "transformers",
        "checkpoint": "runs/mine",
    }
    assert _parsed("--model", str(tmp_path), "--base-url", "http://h/v1").policy_settings()["policy"] == "openai"
    assert _parsed("--model", "Qwen/Qwen3-4B").policy_settings()["policy"] == "openai"


@pytest.fixture
def run(tmp_path):
    """The folder of a training run, as far as commands read it."""
    settings = {
        "env": "AgentR1/GSM8KTool-v0", "env_kwargs": {"level": 1, "reward": "terminal"}, "data": "generated",
        "split": "train", "wrappers": ["StepPenalty(penalty=0.25)"], "algo": "grpo", "response_length": 48,
    }  # fmt: skip
    for inside in ("checkpoints/global_step_3/actor", "checkpoint/model"):  # of verl and of the PyTorch loop
        (tmp_path / "run" / inside).mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text(json.dumps(settings))
    return tmp_path / "run"


def _chosen(*argv: str) -> RecordedEnv:
    return _options(*argv).chosen_env()


@pytest.mark.parametrize(
    "inside", ["", "checkpoints/global_step_3", "checkpoints/global_step_3/actor", "checkpoint/model"]
)
@pytest.mark.parametrize("option", ["--run", "--checkpoint"])
def test_a_run_says_what_it_was_trained_in(run, inside, option, capsys):
    recorded = RecordedEnv("AgentR1/GSM8KTool-v0", {"level": 1, "reward": "terminal"}, ("StepPenalty(penalty=0.25)",))
    assert _chosen(option, str(run / inside)) == recorded
    said = capsys.readouterr().err
    assert 'run.json: AgentR1/GSM8KTool-v0, {"level": 1, "reward": "terminal"}, StepPenalty(penalty=0.25)' in said
    given = ("--env-kwargs", '{"level": 3}', "--wrapper", "FormatReward", "--split", "test")
    choice = _chosen(option, str(run / inside), *given)
    assert choice.env_kwargs == {"level": 3, "reward": "terminal", "split": "test"}
    assert choice.wrappers == ("FormatReward",)
    said = capsys.readouterr().err
    assert "level is 3, in the run 1" in said
    assert "wrappers are FormatReward, in the run StepPenalty(penalty=0.25)" in said
    assert _chosen(option, str(run / inside), "--env", "AgentR1/GSM8K-v0") == RecordedEnv("AgentR1/GSM8K-v0", {}, ())
    assert "--env is AgentR1/GSM8K-v0, in " in capsys.readouterr().err
    assert _chosen(option, str(run / inside), "--bare") == RecordedEnv("AgentR1/GSM8KTool-v0", {}, ())
    assert capsys.readouterr().err.endswith("run.json: AgentR1/GSM8KTool-v0\n")  # nothing of what is ignored


def test_a_checkpoint_writes_as_much_as_in_training(run):
    for inside in ("", "checkpoints/global_step_3/actor"):
        source = ("--checkpoint", str(run / inside))
        assert _parsed(*source).policy_settings()["max_tokens"] == 48
        assert _parsed(*source, "--max-tokens", "7").policy_settings()["max_tokens"] == 7
    assert "max_tokens" not in _parsed("--model", str(run)).policy_settings()
    for name, value in (("response_length", "many"), ("max_response_tokens", 0)):  # verl's, the PyTorch loop's
        (run / "run.json").write_text(json.dumps({name: value}))
        with pytest.raises(ConfigError, match=f"{name} in .*run.json must be"):
            _parsed("--checkpoint", str(run)).policy_settings()


def test_a_run_may_have_the_name_of_a_folder_in_one(run):
    for name in ("actor", "model"):
        assert _chosen("--run", str(run.rename(run.parent / name))).env_id == "AgentR1/GSM8KTool-v0"
        run = run.parent / name


def test_a_run_is_evaluated_played_and_demonstrated_in_its_environment(run, tmp_path, monkeypatch, agentr1):
    evaluate = ("eval", "--policy", "expert", "--n", 4, "--json", "--quiet", "--out", tmp_path / "eval")
    settings = json.loads(agentr1(*evaluate, "--run", run))["settings"]
    assert settings["env_kwargs"] == {"level": 1, "reward": "terminal", "split": "test"}
    assert settings["wrappers"] == ["StepPenalty(penalty=0.25)"]
    agentr1("demos", "--run", run, "--n", 2, "--quiet", "--out", tmp_path / "demos.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "demos.jsonl").read_text().splitlines()]
    assert all("train/1/" in row["task_id"] and row["reward"] < 1 for row in rows)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "test/1/" in agentr1("play", "--run", tmp_path / "eval", "--seed", 0)


@pytest.mark.parametrize(
    ("content", "argv", "message"),
    [
        (None, ["--policy", "expert"], "give --env ID.* or --run DIR"),
        (None, ["--run", "RUN"], "run.json: there is no such file; name the --out of"),
        (None, ["--checkpoint", "RUN"], "run.json: there is no such file; name the --out .* or an --env"),
        ({"seed": 0}, ["--run", "RUN"], "run.json: it names no environment"),
    ],
)
def test_a_run_that_names_nothing_is_refused(tmp_path, content, argv, message):
    if content is not None:
        (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        _chosen(*(word.replace("RUN", str(tmp_path)) for word in argv))


def test_a_run_that_names_code_is_refused_without_trust(run):
    (run / "run.json").write_text(json.dumps({"env": "os:Evil-v0", "env_kwargs": {}, "wrappers": []}))
    with pytest.raises(ConfigError, match="--trust"):
        _chosen("--run", str(run))
    assert _chosen("--run", str(run), "--trust").env_id == "os:Evil-v0"
    assert _chosen("--run", str(run), "--env", "os:Evil-v0").env_id == "os:Evil-v0"  # the user names it


def test_each_environment_of_a_run_of_several_has_its_own_arguments_and_wrappers(run):
    settings = json.loads((run / "run.json").read_text())
    ids = ("AgentR1/GSM8KTool-v0", "AgentR1/GSM8K-v0", "AgentR1/HelpDesk-v0")
    settings["mixed"] = [{"env": env_id, "weight": 1 / 3, "env_kwargs": {}} for env_id in ids]
    settings["mixed"][1] |= {"env_kwargs": {"level": 2}}  # with the wrappers of the whole run, as in the PyTorch loop
    settings["mixed"][2] |= {"wrappers": ["FormatReward"]}  # with wrappers of its own, as in verl's runs
    (run / "run.json").write_text(json.dumps(settings))
    source = ("--checkpoint", str(run), "--env")
    assert _chosen(*source, ids[1]) == RecordedEnv(ids[1], {"level": 2}, ("StepPenalty(penalty=0.25)",))
    assert _chosen(*source, ids[2]) == RecordedEnv(ids[2], {}, ("FormatReward",))


def test_own_code_is_found_in_the_current_folder_where_the_command_line_names_it(tmp_path, monkeypatch, agentr1):
    source = 'import gymnasium as gym\nclass Brief(gym.Wrapper):\n    instructions = "Be brief."\n'
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path not in ("", ".", str(tmp_path))])
    solved = ("eval", "--env", "AgentR1/GSM8K-v0", "--policy", "expert", "--n", 1, "--quiet")
    agentr1(*solved)
    assert str(tmp_path) not in sys.path  # it may be a run that somebody else recorded
    agentr1(*solved, "--wrapper", "mine:Brief", "--out", "run")
    assert json.loads((tmp_path / "run" / "episodes.jsonl").read_text())["instructions"] == "Be brief."


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("games:2048-v0", True),
        ("--env=reg:Mine-v0=0.7", True),
        ('{"opponent":"mine:move"}', True),
        ("+agentr1.process_rewards=[mine:f]", True),
        ("http://localhost:8000/v1", False),
        ("localhost:8000", False),
        ('{"level":1, "url": "http://h:80"}', False),
    ],
)
def test_which_arguments_name_own_code(word, names):
    assert bool(_OWN_CODE.search(f"--option\n{word}")) == names
