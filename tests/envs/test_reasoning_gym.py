"""The problems of reasoning-gym: the same as from the package, task by task.

Questions, answers and scores are the package's own; its own answer wins.
"""

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401  (registers the ids)

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
