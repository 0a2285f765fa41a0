"""The arguments that commands share: which environment, and who plays.

Behaviours pinned here:
1. An environment's id that is nearly right is answered by the right one; bad arguments and wrappers are named.
2. Only what was given reaches the environment and the policy.
3. An option that a policy does not read is refused, one that it needs is asked for.
"""

from __future__ import annotations

import argparse

import pytest

from agent_envs.cli.arguments import (
    POLICIES,
    EnvChoice,
    add_env_arguments,
    add_policy_arguments,
    chosen_env,
    chosen_policy,
    policy_settings,
)
from agent_envs.errors import AgentEnvsError, ConfigError
from agent_envs.policies import ExpertPolicy, RandomPolicy


def _parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_env_arguments(parser)
    add_policy_arguments(parser)
    return parser.parse_args(["--env", "AgentR1/GSM8KTool-v0", *argv])


def test_only_what_was_given_reaches_the_environment() -> None:
    assert chosen_env(_parsed()) == EnvChoice("AgentR1/GSM8KTool-v0")
    argv = ["--split", "test", "--env-kwargs", '{"operations": 2}', "--wrapper", "FormatReward(weight=0.2)"]
    choice = chosen_env(_parsed(*argv))
    assert choice.env_kwargs == {"operations": 2, "split": "test"}
    assert choice.wrappers == ("FormatReward(weight=0.2)",)
    env = EnvChoice("AgentR1/GSM8KTool-v0", {"split": "test"}, choice.wrappers).make(render_mode="ansi")
    assert type(env).__name__ == "FormatReward" and env.render_mode == "ansi" and env.unwrapped.split == "test"


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("gsm8ktool", {}, "Did you mean 'AgentR1/GSM8KTool-v0'"),  # no namespace, no version, other case
        ("AgentR1/GSM8KTool-v7", {}, "Did you mean 'AgentR1/GSM8KTool-v0'"),
        ("AgentR1/GSM9KTool-v0", {}, "Did you mean 'AgentR1/GSM8KTool-v0'"),
        ("no_such_module:Mine-v0", {}, "unknown environment 'no_such_module:Mine-v0'"),
        ("a b/c d", {}, "unknown environment 'a b/c d'. There are: 'AgentR1/ALFWorld-v0'"),
        ("AgentR1/GSM8KTool-v0", {"colour": "red"}, "does not take 'colour'. There are: 'data', .*'tool_timeout'"),
        ("AgentR1/GSM8KTool-v0", {"split": 3}, "split must be a string, got 3"),
        ("AgentR1/GSM8KTool-v0", {"split": "tset"}, "split must be one of .* Did you mean 'test'"),
    ],
)
def test_an_environment_that_cannot_be_made(env_id: str, kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EnvChoice(env_id, dict(kwargs)).make()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env-kwargs", "{"], "--env-kwargs is not valid JSON"),
        (["--env-kwargs", "[1]"], "--env-kwargs must be a JSON object"),
        (["--env-kwargs", '{"split": "test"}'], "use --split"),
        (["--wrapper", "FormatRewards"], "Did you mean 'FormatReward'"),
    ],
)
def test_arguments_of_an_environment_that_cannot_be_read(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen_env(_parsed(*argv))


def test_policies_get_their_options() -> None:
    expert = chosen_policy(_parsed("--policy", "expert", "--demo-noise", "0.25"), seed=3)
    assert isinstance(expert, ExpertPolicy) and (expert.noise, expert.seed) == (0.25, 3)
    assert isinstance(chosen_policy(_parsed("--policy", "random")), RandomPolicy)
    assert policy_settings(_parsed("--policy", "random")) == {"policy": "random"}
    argv = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--temperature", "0", "--timeout", "3"]
    assert policy_settings(_parsed(*argv)) == {
        "policy": "openai",
        "model": "m",
        "base_url": "http://127.0.0.1:9/v1",
        "temperature": 0.0,
    }


def test_an_openai_policy_from_the_command_line() -> None:
    pytest.importorskip("openai")
    pytest.importorskip("aiohttp")
    argv = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--top-p", "0.9", "--tool-mode", "text"]
    policy = chosen_policy(_parsed(*argv, "--request", '{"seed": 1}'))
    assert (policy.model, policy.tool_mode) == ("m", "text")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--policy", "expertt"], "unknown policy 'expertt'. Did you mean 'expert'"),
        ([], "--policy openai needs --model"),
        (["--policy", "expert", "--model", "m"], "--policy expert does not read --model"),
        (["--policy", "random", "--logprobs"], "--policy random does not read --logprobs"),
        (["--policy", "expert", "--demo-noise", "2"], "noise must be a number from 0 to 1"),
        (["--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--request", "7"], "--request must be a JSON object"),
        (["--model", "m", "--base-url", "localhost:8000/v1"], "--base-url must be a URL such as http://"),
        (["--model", "./no/such"], "--model ./no/such: there is no such folder"),
    ],
)
def test_options_that_do_not_fit_a_policy(argv: list[str], message: str) -> None:
    with pytest.raises(AgentEnvsError, match=message):
        chosen_policy(_parsed(*argv))


def test_every_option_of_a_policy_can_be_given() -> None:
    given = set(vars(_parsed()))
    for name, kind in POLICIES.items():
        assert set(kind.options) <= given, name
        assert set(kind.needs) <= set(kind.options), name


def test_a_folder_or_a_checkpoint_is_run_in_this_process(tmp_path) -> None:
    assert policy_settings(_parsed("--model", str(tmp_path)))["policy"] == "transformers"
    assert policy_settings(_parsed("--checkpoint", "runs/mine", "--device", "cpu")) == {
        "policy": "transformers",
        "checkpoint": "runs/mine",
    }
    assert policy_settings(_parsed("--model", str(tmp_path), "--base-url", "http://h/v1"))["policy"] == "openai"
    assert policy_settings(_parsed("--model", "Qwen/Qwen3-4B"))["policy"] == "openai"
    with pytest.raises(ConfigError, match="--policy transformers does not read --engine"):
        chosen_policy(_parsed("--model", str(tmp_path), "--engine", "{}"))
    with pytest.raises(AgentEnvsError, match="either --model FOLDER or --checkpoint"):
        chosen_policy(_parsed("--policy", "transformers"))
