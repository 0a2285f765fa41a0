"""An environment over the tool `python`, as a package of somebody else's, keeps the contract."""

import gymnasium as gym
import pytest

from agent_envs.testing import check_text_env


def test_an_environment_from_outside_keeps_the_contract(load_file):
    pytest.importorskip("fcntl", reason="the sandbox needs Linux")
    load_file("tests/sandbox/sales_task.py")
    try:
        check_text_env("Mine/Sales-v0", tasks=3)
    finally:
        del gym.registry["Mine/Sales-v0"]
