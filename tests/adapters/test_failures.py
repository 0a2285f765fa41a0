"""The failure budget: what counts as broken, over which steps, and what is said when it is spent."""

import pytest

from agent_envs.adapters.run import FailureBudget
from agent_envs.episodes.record import StopReason
from agent_envs.errors import BackendError, ConfigError

GOOD = (StopReason.TERMINATED, None)
SLOW = (StopReason.STEP_TIMEOUT, "step_timeout at step 2")
DOWN = (StopReason.ERROR, "Traceback\nagent_envs.errors.BackendDownError: nothing answers")


def test_broken_episodes_are_counted_by_kind():
    given_up = (StopReason.INVALID_ACTIONS, None)  # the policy's doing, as are limits of tokens
    counts = FailureBudget(1.0).note([GOOD, SLOW, DOWN, DOWN, given_up, (StopReason.CONTEXT_LENGTH, "too long")])
    assert counts == {"broken": 3.0, "broken/BackendDownError": 2.0, "broken/step_timeout": 1.0}


def test_the_share_is_over_the_last_steps():
    budget = FailureBudget(0.2, steps=3)
    budget.note([DOWN] * 5 + [GOOD] * 5)  # a bad step does not stop a run by itself
    budget.note([GOOD] * 10)
    budget.note([GOOD] * 9 + [SLOW])  # 6 of 30 are allowed
    budget.note([GOOD] * 10)  # the first one has left the window
    budget.note([SLOW] * 5 + [GOOD] * 5)
    with pytest.raises(BackendError) as raised:
        budget.note([DOWN, DOWN] + [GOOD] * 8)
    said = str(raised.value)
    assert said.startswith("7 of the 30 episodes of the last 3 steps broke, and 20% are allowed (max_broken)")
    assert "The first of 5 step_timeout:\n| step_timeout at step 2" in said
    assert "The first of 2 BackendDownError:\n| Traceback" in said


def test_episodes_that_come_one_by_one_are_steps_of_some():
    budget = FailureBudget(0.2, steps=2, episodes=4)
    for ended in [DOWN, *[GOOD] * 6]:
        budget.add(*ended)
    with pytest.raises(BackendError, match="2 of the 8 episodes of the last 2 steps broke"):
        budget.add(*SLOW)


def test_a_wrong_limit_is_refused():
    with pytest.raises(ConfigError, match="max_broken"):
        FailureBudget(1.5)
