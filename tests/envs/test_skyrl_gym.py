"""The environments of skyrl-gym: the same as in SkyRL's own loop, row by row.

Behaviours pinned here:
1. What is said, rewards and ends are the package's own; the right answer wins.
2. Rows of a user's own are read as SkyRL reads them.
"""

import json

import gymnasium as gym
import pytest

from agent_envs.errors import DataError

ENV_ID = "AgentR1/SkyRLGym-v0"
skyrl_gym = pytest.importorskip("skyrl_gym", reason="needs the extra suites: pip install 'agent-envs[suites]'")


@pytest.mark.parametrize("name", ["aime", "gsm8k", "gsm8k_multi_turn"])
def test_40_episodes_are_those_of_skyrl(name):
    env = gym.make(ENV_ID, env=name, split="test")
    for index in range(40):
        observation, _ = env.reset(options={"index": index})
        row = env.unwrapped.task
        source = skyrl_gym.make(name, extras=dict(row.extras))
        messages, _ = source.init(list(row.prompt))
        assert observation == messages[0]["content"]
        right = env.unwrapped.expert_action()
        for text in ("no answer", "so it is #### -3", f"I think so.\n{right}" if index % 2 else "Answer: x", right):
            observation, reward, terminated, truncated, info = env.step(text)
            result = source.step(text)
            assert (reward, terminated, truncated) == (result["reward"], result["done"], False)
            assert observation == "".join(message["content"] for message in result["observations"])
            if terminated:
                break
        assert info["success"] is (reward == 1.0)


def test_rows_of_ones_own(tmp_path):
    row = {
        "data_source": "mine",
        "prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2?"}],
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": "4"},
    }
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    env = gym.make(ENV_ID, data=str(file))
    assert env.reset(seed=0)[0] == "Add.\n\n2 + 2?"
    assert env.step("#### 4")[1:3] == (1.0, True)
    file.write_text(json.dumps({**row, "prompt": []}) + "\n")
    with pytest.raises(DataError, match="line 1"):
        gym.make(ENV_ID, data=str(file))
    file.write_text(json.dumps({**row, "reward_spec": {}}) + "\n")
    with pytest.raises(DataError, match="ground_truth"):
        gym.make(ENV_ID, data=str(file)).reset(seed=0)
