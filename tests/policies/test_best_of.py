"""Best of n: which candidate is played, that the conversation goes on with it, and that scoring leaves no trace.

Behaviours pinned here:
1. Majority, log-probability, reward and a function choose as they say; ties go to the first.
2. The conversation goes on with the candidate that was played, and with it alone.
3. Trying candidates on the environment changes nothing of it, its step limit included.
4. Candidates that fail are left out while there are others.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.cli.main import main
from agent_envs.episodes.record import StopReason
from agent_envs.errors import ConfigError, EmptyGeneration
from agent_envs.policies import BestOfN, ExpertPolicy, RandomPolicy, Response
from agent_envs.policies.best_of import score_logprob, score_majority
from agent_envs.wrappers import RecordEpisodes

ENV = "AgentR1/GSM8KTool-v0"


class Canned:
    """Fork i answers entry i of the step's row; it keeps what it said."""

    def __init__(self, *rows: list[Any]) -> None:
        self.rows = rows
        self.said: tuple[Any, ...] = ()
        self.number = 0
        self.seen: list[tuple[Any, ...]] = []

    def start(self, env: gym.Env[Any, str]) -> Canned:
        return self

    def fork(self, number: int) -> Canned:
        other = Canned(*self.rows)
        other.said, other.number, other.seen = self.said, number, self.seen
        return other

    async def act(self, observation: Any, info: dict[str, Any]) -> Response:
        self.seen.append(self.said)
        answer = self.rows[len(self.said)][self.number]
        if isinstance(answer, Exception):
            raise answer
        self.said = (*self.said, answer)
        return answer if isinstance(answer, Response) else Response(answer, usage={"prompt_tokens": 3})


def _call(expression: str) -> str:
    return gym.make(ENV).get_wrapper_attr("format_call")("calculator", {"expression": expression})


def test_the_conversation_goes_on_with_what_was_played():
    policy = Canned([_call("1+1"), _call("2+2"), f"{_call('2+2')} "], ["#### 1", "#### 2", "#### 2"])
    episode = agent_envs.run_episode(gym.make(ENV), BestOfN(policy, 3), seed=0)
    assert [step.action for step in episode.steps] == [_call("2+2"), "#### 2"]
    assert policy.seen == [()] * 3 + [(_call("2+2"),)] * 3
    assert episode.steps[0].usage == {"prompt_tokens": 9}


def test_scores():
    candidates = [
        Response("a", response_logprobs=(-1.0, -1.0)),
        Response("b", response_logprobs=(-0.5,)),
        Response("b "),
    ]
    assert score_majority(gym.make(ENV), "", {}, candidates) == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert score_logprob(gym.make(ENV), "", {}, candidates[:2]) == [-1.0, -0.5]
    longest = BestOfN(
        Canned(["#### 1", "so #### 2"]), 2, score=lambda env, seen, info, some: [len(c.text) for c in some]
    )
    assert agent_envs.run_episode(gym.make(ENV), longest, seed=0).steps[0].action == "so #### 2"
    broken = BestOfN(Canned(["#### 1", "#### 2"]), 2, score=lambda env, seen, info, some: [1.0])
    assert "1 scores for 2 candidates" in str(agent_envs.run_episode(gym.make(ENV), broken, seed=0).error)


def test_trying_candidates_leaves_no_trace():
    env = gym.make(ENV)
    env.reset(seed=0)
    right = env.unwrapped.task.answer
    policy = Canned([_call("6*7")] * 3, ["#### -5", f"#### {right}", "nothing"])
    episode = agent_envs.run_episode(env, BestOfN(policy, 3, "reward"), seed=0)
    assert episode.success and len(episode.steps) == 2
    plain = agent_envs.run_episode(
        gym.make(ENV), agent_envs.policies.ScriptedPolicy([_call("6*7"), f"#### {right}"]), seed=0
    )
    assert [s.info for s in episode.steps] == [s.info for s in plain.steps]
    lake = agent_envs.run_episode(gym.make(ENV, max_episode_steps=2), BestOfN(RandomPolicy(), 4, "reward"), seed=0)
    assert lake.stop_reason in (StopReason.TRUNCATED, StopReason.TERMINATED) and len(lake.steps) <= 2


def test_what_is_tried_is_not_recorded(tmp_path):
    recorded = RecordEpisodes(gym.make("AgentR1/GSM8K-v0"), path=str(tmp_path / "e.jsonl"))
    policy = Canned(["#### -5", "#### -6", "#### -7"])
    episode = agent_envs.run_episode(recorded, BestOfN(policy, 3, "reward"), seed=0)
    (stored,) = agent_envs.read_episodes(tmp_path / "e.jsonl")
    assert [step.action for step in stored.steps] == [step.action for step in episode.steps] == ["#### -5"]


def test_candidates_that_fail():
    policy = Canned([ValueError("no"), "#### 3", EmptyGeneration("nothing")])
    assert agent_envs.run_episode(gym.make(ENV), BestOfN(policy, 3), seed=0).steps[0].action == "#### 3"
    policy = Canned([ValueError("no"), EmptyGeneration("nothing")])
    assert agent_envs.run_episode(gym.make(ENV), BestOfN(policy, 2), seed=0).stop_reason is StopReason.EMPTY_GENERATION
    episode = agent_envs.run_episode(gym.make(ENV), BestOfN(ExpertPolicy(), 2), seed=0)
    assert "those of ExpertPolicy cannot" in str(episode.error)
    for arguments in ((0, "majority"), (2, "best")):
        with pytest.raises(ConfigError):
            BestOfN(policy, *arguments)


@pytest.fixture
def server(fake_chat):
    replies = iter(range(10**6))

    def think(request: dict[str, Any]) -> Any:
        if request["messages"][-1]["role"] != "tool":
            return [{"name": "calculator", "arguments": {"expression": f"{next(replies) % 4}+1"}}]
        assert len(request["messages"]) == 4  # system, question, one call of the candidates, its result
        return f"#### {request['messages'][-1]['content']}"

    server = fake_chat.ChatServer(think)
    yield server
    server.close()


def test_a_server_from_the_command_line(server, capsys):
    pytest.importorskip("openai")
    command = ["eval", "--env", ENV, "--model", "m", "--base-url", server.url, "--n", "4", "--quiet", "--best-of", "4"]
    assert main(command) == 0
    assert len(server.requests) == 4 * 2 * 4
    assert "3,200 prompt" in capsys.readouterr().out
    assert main(["eval", "--env", ENV, "--policy", "random", "--best-by", "reward"]) == 2


def test_the_tokens_of_every_candidate_count(server):
    pytest.importorskip("openai")
    policy = agent_envs.policies.OpenAIPolicy("m", base_url=server.url, max_episode_tokens=440)  # 110 a request
    episode = agent_envs.run_episode(gym.make(ENV), BestOfN(policy, 4), seed=0)
    assert episode.stop_reason is StopReason.TOKEN_LIMIT and len(episode.steps) == 1 and len(server.requests) == 4
    policy.close()
