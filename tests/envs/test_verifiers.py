"""The environments of verifiers, driven by the policy: the same as in the package's own rollouts.

Behaviours pinned here:
1. Prompts, rewards and ends are those of the package's rollout with the same responses.
2. The contract of text environments holds; a rollout that fails or stalls is a typed error.
3. A record may not name a module to import; wrong arguments are one message.
"""

import asyncio
import functools
import sys
import time
import types

import gymnasium as gym
import pytest

from agent_envs.errors import BackendReplyError, BackendSlowError, ConfigError
from agent_envs.testing import check_text_env
from agent_envs.wrapping.recorded import recorded_env

ENV_ID = "AgentR1/Verifiers-v0"
vf = pytest.importorskip("verifiers", reason="needs the extra suites: pip install 'agent-envs[suites]'")
pytest.importorskip("datasets", minversion="2.0")
from datasets import Dataset  # noqa: E402

from agent_envs.envs.verifiers import _Answer, _client  # noqa: E402


def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return str(a + b)


def _rows(count, shift):
    return Dataset.from_list([{"question": f"What is {i} + {shift}?", "answer": str(i + shift)} for i in range(count)])


def load_environment(kind="single"):
    async def right(completion, answer):
        return float(answer in completion[-1].content)

    class Guess(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **kwargs):
            said = messages[-1].content
            if said == "fail":
                raise ValueError("out of order")
            if said == "stall":
                await asyncio.sleep(100)
            if said == state["answer"]:
                state["final_env_response"] = [{"role": "user", "content": "That is it."}]
                return state["final_env_response"]
            return [{"role": "user", "content": f"{said[:20]!r} is not it."}]

    async def found(state):
        return float(state.get("final_env_response") is not None)

    common = {"dataset": _rows(200, 7), "eval_dataset": _rows(20, 1000), "system_prompt": "Be brief."}
    if kind == "tools":
        return vf.ToolEnv(tools=[add], max_turns=4, rubric=vf.Rubric(funcs=[right]), **common)
    if kind == "guess":
        return Guess(max_turns=3, rubric=vf.Rubric(funcs=[found]), **common)
    return vf.SingleTurnEnv(rubric=vf.Rubric(funcs=[right]), **common)


@pytest.fixture(autouse=True, scope="module")
def module():
    module = types.ModuleType("sums_for_verifiers")
    module.load_environment = load_environment
    sys.modules[module.__name__] = module
    yield
    del sys.modules[module.__name__]


def make(kind, **kwargs):
    return gym.make(ENV_ID, env="sums-for-verifiers", env_args={"kind": kind}, **kwargs)


@functools.cache
def _loaded(kind):
    env = load_environment(kind)
    return env, env.build_dataset()


def _source(kind, index, answers, runner):
    """The package's rollout with these responses: its output, and the prompts that it asked with."""
    (env, rows), prompts, left = _loaded(kind), [], list(answers)

    async def ask(prompt):
        prompts.append(prompt)
        return left.pop(0)

    return runner.run(env.run_rollout(rows[index], _client(ask), "policy", {})), prompts


def _played(env, index, actions):
    said = [env.reset(options={"index": index})[0]]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        said.append(observation)
        if terminated or truncated:
            break
    return said, reward, terminated, truncated, info


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


def test_rollouts_are_those_of_the_package(runner, episodes):
    single, guess, tools = make("single"), make("guess"), make("tools")
    call = tools.unwrapped.format_call("add", {"a": 1, "b": 2})
    for index in range(episodes):
        answer = str(index + 7)
        for right in (answer, "no idea"):
            output, prompts = _source("single", index, [_Answer(right)], runner)
            said, reward, terminated, truncated, _ = _played(single, index, [right])
            assert said[0] == prompts[0][-1].content == f"What is {index} + 7?"
            assert (reward, terminated, truncated) == (output["reward"], True, False)
            assert single.unwrapped.instructions == "Be brief."
        for responses in (["1", answer], ["a", "b", "c"]):
            output, prompts = _source("guess", index, map(_Answer, responses), runner)
            said, reward, terminated, truncated, _ = _played(guess, index, responses)
            assert said[: len(prompts)] == [prompt[-1].content for prompt in prompts]
            assert (reward, terminated) == (output["reward"], responses[-1] == answer) and terminated != truncated
        output, prompts = _source(
            "tools", index, [_Answer("", (("add", '{"a": 1, "b": 2}'),)), _Answer(answer)], runner
        )
        said, reward, terminated, _, info = _played(tools, index, [call, answer])
        assert said[1] == prompts[1][-1].content == "3"
        assert (reward, terminated, info["success"]) == (output["reward"], True, True)


@pytest.mark.parametrize("kind", ["single", "guess", "tools"])
def test_it_keeps_the_contract(kind):
    check_text_env(ENV_ID, env_kwargs={"env": "sums-for-verifiers", "env_args": {"kind": kind}}, vectors=False)


def test_a_rollout_that_fails_or_stalls_is_an_error():
    env = make("guess", timeout=0.5)
    env.reset(seed=0)
    with pytest.raises(BackendReplyError, match="out of order"):
        env.step("fail")
    env.reset(seed=0)
    begin = time.monotonic()
    with pytest.raises(BackendSlowError, match="0.5 seconds"):
        env.step("stall")
    assert time.monotonic() - begin < 5
    assert env.reset(seed=0)[0]


def test_splits_and_wrong_arguments():
    assert "+ 1000?" in make("single", split="test").reset(seed=0)[0]
    with pytest.raises(ConfigError, match="split"):
        make("single", split="dev")
    with pytest.raises(ConfigError, match="no_such_module"):
        gym.make(ENV_ID, env="no_such_module")
    with pytest.raises(ConfigError, match="env_args"):
        make("single", timeout=5) and gym.make(ENV_ID, env="sums-for-verifiers", env_args={"kind": object()})
    with pytest.raises(ConfigError, match="a record may not set"):
        recorded_env({"env": ENV_ID, "env_kwargs": {"env": "antigravity"}}, "run.json")
