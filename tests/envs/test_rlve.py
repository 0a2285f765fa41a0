"""The problems of RLVE: the same as from the package rlve-gym, task by task.

Behaviours pinned here:
1. Problems and rewards are the package's own; its own answer wins.
2. Nobody's random numbers and environment variables change.
"""

import os
import random

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401  (registers the ids)

ENV_ID = "AgentR1/RLVE-v0"
pytest.importorskip("Gym.environment", reason="needs the extra suites: pip install 'agent-envs[suites]'")


@pytest.mark.parametrize("name", ["AdditionTable", "Axis_KCenter", "BezoutIdentity", "Binario", "Sorting"])
def test_problems_are_those_of_the_package(name, episodes):
    from Gym.environments import identifier2environment
    from Gym.parameter_controllers import identifier2controller

    controller = identifier2controller[name]()
    controller.update()
    settings = controller.get_parameter_list()  # which tasks take in turn
    env = gym.make(ENV_ID, problem=name, level=1, split="test")
    hashes = os.environ.get("PYTHONHASHSEED")
    for index in range(episodes):
        state = random.getstate()
        observation, _ = env.reset(options={"index": index})
        assert random.getstate() == state and os.environ.get("PYTHONHASHSEED") == hashes
        source = identifier2environment[name]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONHASHSEED", "0")  # which the package sets
            assert source.generator(20_000_000 + index, dict(settings[index % len(settings)]))
        assert observation == source.prompt_generator()
        right = env.unwrapped.expert_action()
        for text in (right, "<answer>1 2 3</answer>", "<answer></answer>", "no answer"):
            if text is None:
                continue
            env.reset(options={"index": index})
            _, reward, terminated, _, info = env.step(text)
            wanted = source.verifier(text)
            assert (reward, terminated, info["success"]) == (wanted["reward"], True, bool(wanted["accuracy"]))
            assert text != right or info["success"]
