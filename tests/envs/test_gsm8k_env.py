"""GSM8K-v0 and GSM8KTool-v0, by scripted episodes.

1. The expert wins: both environments, both tools, every level, real rows, from any state.
2. One step ends GSM8K-v0 whatever the text; an answer without a number is invalid and scores 0.
3. The released preset pays every step; the default pays once.
4. A demonstrator that errs is wrong as often as it is told to be.
"""

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import agent_envs  # noqa: F401  (registers the ids)
from agent_envs.envs.gsm8k.env import ANCHOR_LENGTH, GSM8KToolEnv
from agent_envs.envs.gsm8k.expert import worked_steps
from agent_envs.errors import ConfigError
from tests.helpers import tool_call

ONE, TOOL = "AgentR1/GSM8K-v0", "AgentR1/GSM8KTool-v0"


def base(env: gym.Env[str, str]) -> Any:
    return env.unwrapped


def call(expression: str) -> str:
    return tool_call("calculator", expression=expression)


def test_expert_wins_from_any_state():
    env = gym.make(TOOL, level=5)
    rng = np.random.default_rng(0)
    for index in range(50):
        env.reset(options={"index": index})
        for _ in range(int(rng.integers(0, 9))):
            junk = [call("1+1"), call("1/0"), "<tool_call>{", "", base(env).expert_action()]
            _, _, terminated, _, info = env.step(junk[int(rng.integers(5))])
            if terminated:
                break
        while not terminated:
            _, _, terminated, truncated, info = env.step(base(env).expert_action())
            assert terminated or not truncated
        assert info["success"]


def test_data_may_be_a_path_object(data_dir):
    path = data_dir / "gsm8k" / "train_2000.jsonl"
    for env_id in (ONE, TOOL):
        env = gym.make(env_id, data=path)
        assert env.reset(seed=0)[1]["source"] == str(path)
        assert env.spec is not None
        again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
        assert again.reset(seed=0) == env.reset(seed=0)


def test_a_solved_episode():
    env = gym.make(TOOL, level=2)
    question, info = env.reset(options={"index": 0})
    task = base(env).task
    assert question == task.question == info["anchor"]
    assert info["tool_results"] == []
    observation, reward, terminated, truncated, info = env.step(call("12*7+3"))
    assert (observation, reward, terminated, truncated) == ("87", 0.0, False, False)
    assert info["tool_results"] == [{"name": "calculator", "content": "87", "error": False}]
    assert info["anchor"] == f"{question}\n87"
    observation, _, _, _, info = env.step(call("1+1") + call("2+2"))
    assert observation == "2\n4"
    observation, _, terminated, _, info = env.step(call("2**10**9"))
    assert "too large" in observation and info["tool_results"][0]["error"] and not terminated
    observation, reward, terminated, truncated, info = env.step(f"So it is #### {task.answer}")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["reward_components"] == {"answer": 1.0}
    assert task.answer in observation


@pytest.mark.parametrize("env_id", [ONE, TOOL])
def test_a_wrong_answer_scores_nothing(env_id):
    env = gym.make(env_id)
    env.reset(options={"index": 3})
    wrong = int(base(env).task.answer) + 1
    observation, reward, terminated, _, info = env.step(f"#### {wrong}")
    assert (reward, terminated, info["success"], info["invalid_action"]) == (0.0, True, False, False)
    assert base(env).task.answer not in observation.replace(str(wrong), "")


def test_out_of_steps():
    env = gym.make(TOOL)
    env.reset(options={"index": 3})
    for _ in range(9):
        _, _, terminated, truncated, _ = env.step(call("1+1"))
        assert not terminated and not truncated
    _, reward, terminated, truncated, info = env.step(call("1+1"))
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, True, False)


def test_an_anchor_is_bounded_in_a_long_episode():
    env = GSM8KToolEnv()
    env.reset(options={"index": 3})
    for number in range(2000):
        *_, info = env.step(call(f"{number}+10000"))
    assert len(info["anchor"]) == ANCHOR_LENGTH
    assert info["anchor"].endswith("\n11998\n11999")


def test_the_oracle_tool_tells():
    env = gym.make(TOOL, tool="check_answer")
    env.reset(options={"index": 3})
    answer = base(env).task.answer
    assert [spec["function"]["name"] for spec in base(env).tools] == ["calc_gsm8k_reward"]
    check = base(env).format_call("calc_gsm8k_reward", {"answer": f"${answer}.00"})
    assert env.step(check)[0] == f"The answer {answer} is right."
    assert env.step(check.replace(answer, "1" + answer))[0] == f"The answer 1{answer} is wrong."
    observation, *_, info = env.step(check.replace(answer, "x").replace(".00", ""))
    assert "no number" in observation
    assert info["tool_results"][0]["error"]
    env.reset(options={"index": 4})  # the next task's answer, not the last one's
    assert base(env).registry["calc_gsm8k_reward"].call(answer=base(env).task.answer).endswith("is right.")


def test_released_reward_pays_every_step():
    env = gym.make(TOOL, reward="agentr1", tool="check_answer")
    env.reset(options={"index": 3})
    answer = base(env).task.answer
    check = base(env).format_call("calc_gsm8k_reward", {"answer": answer})
    rewards = [env.step(check)[1], env.step(check)[1]]
    _, reward, terminated, _, info = env.step(f"#### {answer}")
    assert [*rewards, reward] == [1.0, 1.0, 1.0]
    assert terminated
    assert info["reward_components"] == {"last_number": 1.0}
    one = gym.make(ONE, reward="agentr1")
    one.reset(options={"index": 3})
    _, reward, _, _, info = one.step(f"#### {base(one).task.answer} (not 1)")
    assert (reward, info["score"], info["success"]) == (0.0, 1.0, True)


def test_a_demonstrated_mistake_keeps_operands_and_is_carried_on():
    env = gym.make(TOOL, level=2)
    rng = np.random.default_rng(0)
    for index in range(100):
        env.reset(options={"index": index})
        first = base(env).task.operations[0]
        action = base(env).demo_action(rng, 1.0)
        expressions = [f"{first.left.value}{op}{first.right.value}" for op in "+-*/"]
        assert any(f'"{expression}"' in action for expression in expressions)
        assert f'"{first.expression}"' not in action
        seen, *_ = env.step(action)
        second = base(env).demo_action(rng, 0.0)
        assert seen in second
        last, *_ = env.step(second)
        assert base(env).demo_action(rng, 0.0) == f"#### {last}"


def test_annotations_that_are_no_arithmetic_are_left_out():
    assert worked_steps("a <<2*3=6>>6 b <<x=2>>2 c <<1/0=0>> d <<5+5=10>>10\n#### 10") == (("2*3", "6"), ("5+5", "10"))


def test_rows_of_ones_own(tmp_path, play):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "1+1?", "answer": "#### 2"}\n')
    with pytest.raises(ConfigError, match="is for generated tasks"):
        gym.make(TOOL, data=str(path), level=2)
    env = gym.make(TOOL, data=str(path))
    assert env.reset(seed=0)[0] == "1+1?"
    assert play(env, 0)[:2] == (1.0, 1)  # nothing annotated: the answer at once


@pytest.mark.parametrize("kwargs", [{}, {"tool": "check_answer"}, {"data": "rows"}])
def test_an_env_can_be_copied(kwargs, data_dir):
    if "data" in kwargs:
        kwargs = {"data": str(data_dir / "gsm8k" / "train_2000.jsonl")}
    env = GSM8KToolEnv(**kwargs)
    env.reset(options={"index": 7})
    other = copy.deepcopy(env)
    assert other.tasks[3] is env.tasks[3]
    assert pickle.loads(pickle.dumps(env.tasks))[3] is env.tasks[3]  # names what to read, not the rows
    other.reset(options={"index": 8})
    assert other.expert_action() != env.expert_action()
    while not (over := other.step(other.expert_action()))[2]:
        pass
    assert over[4]["success"]  # the oracle tool knows the copy's task
