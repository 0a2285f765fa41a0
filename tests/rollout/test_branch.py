"""Groups that grow from inner states of an episode.

1. every episode begins with the steps of the first one up to its state, tokens included, and goes on from exactly there
2. environments, wrappers and conversations are restored: what happens after the same actions is the same
3. where branches begin; sizes; episodes that end at once
4. the group trains as one tree
5. what is refused
"""

import zlib

import pytest

import agent_envs
from agent_envs.adapters.batches import build_batch
from agent_envs.adapters.trees import sort_rows
from agent_envs.errors import ConfigError
from agent_envs.policies import ExpertPolicy
from agent_envs.policies.policy import Response
from agent_envs.wrapping.specs import make_text_env


class Walker:
    """Takes one of the available actions, by a hash of what was said so far and of the fork; its tokens are bytes."""

    untimed = False

    def open(self, env):
        return WalkerModel(self, env)


class WalkerModel:
    def __init__(self, policy, env, branch=""):
        self.policy, self.env, self.branch = policy, env, branch

    def fork(self, number):
        return WalkerModel(self.policy, self.env, f"{self.branch}#{number}")

    async def ask(self, messages, tools=(), *, task_id="", limit=0, ordered=True):
        said = "".join(message["content"] for message in messages).encode()
        actions = self.env.unwrapped.available_actions()
        action = actions[zlib.crc32(said + self.branch.encode()) % len(actions)]
        return Response(action, tuple(said), tuple(action.encode()), (-1.0,) * len(action.encode()))


ENV = ("AgentR1/ALFWorld-v0", {"size": 1, "max_episode_steps": 6}, ("StepPenalty(penalty=0.25)",))


@pytest.fixture
def env():
    made = make_text_env(*ENV)
    yield made
    made.close()


def replayed(episode):
    """The rewards and observations of an episode's actions in a fresh environment."""
    env = make_text_env(*ENV)
    env.reset(options={"index": episode.index})
    out = [env.step(step.action)[:4] for step in episode.steps]
    env.close()
    return out


def test_branches_are_whole_episodes_that_part_where_they_should(env):
    first, *others = agent_envs.branch(env, Walker(), 5, at=[2, 4, 99], options={"index": 3})
    assert len(first.steps) == 6
    for other, begin in zip(others, [2, 4, 2, 4], strict=True):
        assert other.steps[:begin] == first.steps[:begin]
        assert other.steps[begin].prompt_ids == first.steps[begin].prompt_ids
        assert (other.group_id, other.index, other.reset_info) == (first.group_id, first.index, first.reset_info)
        assert other.episode_id != first.episode_id
        seen = [step.observation for step in other.steps[1:]] + [other.final_observation]
        for step, after, (observation, reward, terminated, truncated) in zip(
            other.steps, seen, replayed(other), strict=True
        ):
            assert (after, step.reward, step.terminated, step.truncated) == (observation, reward, terminated, truncated)
    assert len({tuple(step.action for step in episode.steps) for episode in (first, *others)}) > 2
    assert all(other.stop_reason == first.stop_reason for other in others)  # step counts are restored too


def test_states_are_drawn_among_the_inner_ones_and_the_group_is_one_tree(env):
    episodes = agent_envs.branch(env, Walker(), 6, seed=5, options={"index": 1})
    assert len(episodes) == 6
    first = episodes[0]
    for other in episodes[1:]:
        assert other.steps[0] == first.steps[0]
    again = agent_envs.branch(env, Walker(), 6, seed=5, options={"index": 1})
    assert [[s.action for s in e.steps] for e in again] == [[s.action for s in e.steps] for e in episodes]
    batch = build_batch(episodes)
    rows = sort_rows(batch.input_ids, batch.offsets)
    assert (rows.shared == 0).sum() == 1  # one root
    assert rows.nodes < 0.6 * rows.lengths.sum()
    assert len(agent_envs.branch(env, Walker(), 1, options={"index": 1})) == 1


def test_an_agent_that_does_something_else_cannot_branch(env):
    calls = []

    async def agent(env, model):
        calls.append(1)
        while not env.over:
            await env.step(await model.chat([{"role": "user", "content": f"{len(calls)}: {env.observation}"}]))

    first, other = agent_envs.branch(env, Walker(), 2, at=[2], options={"index": 3}, agent=agent)
    assert first.error is None and "is not deterministic, so it cannot branch" in other.error


def test_what_is_refused(env):
    with pytest.raises(ConfigError, match="ExpertPolicy cannot branch: it asks no model"):
        agent_envs.branch(env, ExpertPolicy(), 2)
    assert len(agent_envs.branch(env, Walker(), 2, at=[99], options={"index": 3})) == 1  # it took 6 steps
    with pytest.raises(ConfigError, match="size must be"):
        agent_envs.branch(env, Walker(), 0)
