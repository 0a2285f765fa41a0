"""Agents: any function of an environment and a model, played, recorded and trained.

Behaviours pinned here:
1. The loop of one call per step, written as a function, async or not, gives the same tokens, rewards and ends.
2. A prompt that continues a reply extends its sampled tokens; a changed character, message or tool list renders anew.
3. Rewards belong to the call that acted; payments to whom they were paid; what is not trained leaves its reward behind.
4. Calls that take no environment step cost no discount; two roles are two batches.
5. Every way an agent can end has its reason, and what the environment or the model broke is no fault of the agent.
6. Files of such episodes are read as they were written, with their own version; others are as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from functools import partial
from typing import Any

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.agents.builtin import best_of
from agent_envs.agents.calls import MAX_CALLS
from agent_envs.agents.loading import load_agent
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.errors import ConfigError, ContextLengthExceeded
from agent_envs.policies import ExpertPolicy
from agent_envs.policies.tokens import Sampled, TokenPolicy
from agent_envs.recording import EpisodeVerdict
from agent_envs.wrappers import RecordEpisodes

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agent_envs.adapters.estimators import EstimatorOptions, StepRows, get_estimator  # noqa: E402
from agent_envs.adapters.tiny.model import base_folder  # noqa: E402
from agent_envs.adapters.torch.batch import assemble  # noqa: E402
from agent_envs.adapters.torch.run import about  # noqa: E402
from agent_envs.adapters.trained import call_metrics, calls_made, trajectories  # noqa: E402
from agent_envs.policies.tokens import load_tokenizer  # noqa: E402

ENV = "AgentR1/GSM8KTool-v0"
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>'


class Scripted(TokenPolicy):
    """A model that says the next of some texts, cut into tokens at odd places."""

    def __init__(self, *texts: str | Exception, context_length: int = 4096) -> None:
        super().__init__(load_tokenizer(str(base_folder())), max_tokens=64, context_length=context_length)
        self.texts, self.sampled = list(texts), []

    async def sample(self, prompt_ids, max_tokens, seed, pictures=()):
        await asyncio.sleep(0)
        text = self.texts.pop(0) if self.texts else "#### 0"
        if isinstance(text, Exception):
            raise text
        ids = [i for letter in text for i in self.tokenizer.encode(letter, add_special_tokens=False)]
        ids.append(self.tokenizer.eos_token_id)
        self.sampled.append((tuple(prompt_ids), tuple(ids)))
        return Sampled(ids, [-1.0] * len(ids))


def ask(env: Any) -> list[Any]:
    return [{"role": "system", "content": env.instructions}, *env.messages]


async def plain(env, model):
    messages = ask(env)
    while not env.over:
        reply = await model.chat(messages, env.tools)
        await env.step(reply)
        messages = [*messages, reply.message, *env.messages]


def blocking(env, model):
    messages = ask(env)
    while not env.over:
        reply = model.chat(messages, env.tools)
        env.step(reply)
        messages = [*messages, reply.message, *env.messages]


def play(agent: Any, *texts: str | Exception, **settings: Any) -> Episode:
    policy = Scripted(*texts)
    episode = agent_envs.run_episode(gym.make(ENV, **settings), policy, seed=0, agent=agent)
    trained = [(s.prompt_ids, s.response_ids) for s in episode.steps if s.response_ids]
    assert sorted(trained) == sorted(policy.sampled)  # recorded is what was sampled
    return episode


@pytest.mark.parametrize("agent", [plain, blocking, "compact(after=100_000)"])
def test_the_plain_loop_as_an_agent_is_the_plain_loop(agent):
    texts = [CALL, "<tool_call>oops", CALL + " ", "#### 7"]
    loop, played = play(None, *texts), play(agent, *texts)
    for one, other in zip(loop.steps, played.steps, strict=True):
        for name in ("prompt_ids", "response_ids", "response_logprobs", "reward", "terminated", "truncated", "action"):
            assert getattr(one, name) == getattr(other, name), name
    assert [s.after for s in played.steps] == [None, 0, 1, 2] and [s.time for s in played.steps] == [0, 1, 2, 3]
    assert (loop.stop_reason, loop.calls, loop.success, loop.final_observation) == (
        *(played.stop_reason, played.calls, played.success, played.final_observation),
    )


@pytest.mark.parametrize("tool_mode", ["native", "text"])
def test_a_server_is_asked_what_the_plain_loop_asks(tool_mode, chat_server):
    """Native calls go back under their own ids, those of equal calls too."""
    pytest.importorskip("openai")

    def think(request: dict[str, Any]) -> Any:
        if len(request["messages"]) > 7:
            return "#### 7"
        number = len(request["messages"])
        call = {"name": "calculator", "arguments": {"expression": "1+1"}, "id": f"call-{number}"}
        return [call] if request.get("tools") else CALL

    requests = []
    for agent in (None, plain):
        server = chat_server(think)
        policy = agent_envs.policies.OpenAIPolicy("m", base_url=server.url, tool_mode=tool_mode)
        episode = agent_envs.run_episode(gym.make(ENV), policy, seed=0, agent=agent)
        assert episode.stop_reason is StopReason.TERMINATED, episode.error
        policy.close()
        requests.append([request["messages"] for request in server.requests])
    one, other = json.dumps(requests[0]), json.dumps(requests[1])
    assert one == other and len(requests[0]) == 4
    if tool_mode == "native":
        ids = [message["tool_call_id"] for message in requests[0][-1] if message["role"] == "tool"]
        assert len(set(ids)) == len(ids) == 3


def test_interleaved_conversations_go_on_where_they_were():
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201
    rng = random.Random(seed)

    async def agent(env, model):
        talks = [[{"role": "user", "content": f"talk {i}"}] for i in range(4)]
        for _ in range(24):
            talk = rng.choice(talks)
            reply = await model.chat(talk)
            echoed = rng.choice([reply.text, f"  {reply.text}\n"])  # clients strip and add white space
            talk += [{"role": "assistant", "content": echoed}, {"role": "user", "content": "go on"}]
            if rng.random() < 0.2:
                talk[0] = {"role": "user", "content": talk[0]["content"] + "!"}  # another conversation from here on
                del talk[1:]

    episode = play(agent, *(rng.choice(["yes", "no", "so be it"]) for _ in range(24)))
    for step in episode.steps:
        if step.after is None:
            assert len(step.observation) == 1
        else:
            before = episode.steps[step.after]
            grown = before.prompt_ids + before.response_ids
            assert step.prompt_ids[: len(grown)] == grown


def test_other_tools_are_another_conversation():
    async def agent(env, model):
        reply = await model.chat(ask(env), env.tools)
        await model.chat([*ask(env), reply.message, {"role": "user", "content": "go on"}])

    assert [step.after for step in play(agent, "hm", "hm").steps] == [None, None]


def test_rewards_belong_to_whom_they_were_paid():
    async def agent(env, model):
        wrong = await model.chat(ask(env), env.tools)
        note = await model.chat(ask(env), trained=False)
        right = await model.chat(ask(env), env.tools)
        model.pay(0.5, to=wrong, name="style")
        model.pay(0.25, to=note)
        model.pay(2)
        await env.step(f"#### {env.info['index']}", by=right)

    episode = play(agent, "a", "b", "c")
    assert [step.reward for step in episode.steps] == [0.5, 0.25, 2.0] and episode.reward == 2.75
    assert episode.steps[0].info["reward_components"] == {"style": 0.5}
    assert [s.trained for s in episode.steps] == [True, False, True]
    (part,) = trajectories(episode)
    assert [step.reward for step in part.episode.steps] == [0.75, 2.0]
    batch = assemble([episode], [0])
    assert batch.steps.rewards.tolist() == [0.75, 2.0] and batch.steps.time.tolist() == [0, 0]
    assert len(batch.start) == 2


def test_a_text_that_is_carried_out_belongs_to_the_reply_that_said_it():
    def agent(env, model):
        one, two = model.chat(ask(env)), model.chat(ask(env))
        env.step(one.text)  # not the latest
        env.call("calculator", {"expression": "2+3"})
        assert "5" in env.messages[-1]["content"] and two

    episode = play(agent, CALL, "hm")
    assert [len(step.info.get("tool_results", [])) for step in episode.steps] == [1, 1]
    assert episode.calls == 2 and episode.stop_reason is StopReason.TRUNCATED and episode.steps[-1].truncated


@pytest.mark.parametrize("name", ["reinforce", "gigpo", "gae"])
def test_thinking_twice_costs_no_discount(name):
    def returns(times, rewards):
        """Of an episode beside one that is paid nothing, with which gigpo compares it at every step."""
        n = len(times)
        step, other = torch.arange(n).repeat(2), torch.arange(2 * n) >= n
        rows = StepRows(
            torch.tensor([*rewards, *[0.0] * n]), other.long(), step, torch.zeros_like(step), other | True,
            other & False, values=torch.zeros(2 * n), anchor=step, time=torch.tensor([*times, *times]),
        )  # fmt: skip
        options = EstimatorOptions(gamma=0.5, lam=1.0, whiten=False, gigpo_norm="mean_norm")
        found = get_estimator(name)(rows, options).advantages[:n]
        return (2 * found - sum(rewards) if name == "gigpo" else found).tolist()

    assert returns([0, 1, 2], [0.0, 0.0, 1.0]) == [0.25, 0.5, 1.0]
    assert returns([0, 0, 1, 1, 2], [0.0, 0.0, 0.0, 0.0, 1.0]) == [0.25, 0.25, 0.5, 0.5, 1.0]
    draw = random.Random(3)
    rewards, times = [draw.random() for _ in range(150)], sorted(draw.choices(range(60), k=150))
    expected = [sum(0.5 ** (times[j] - times[k]) * rewards[j] for j in range(k, 150)) for k in range(150)]
    assert returns(times, rewards) == pytest.approx(expected, abs=1e-4)


def test_two_roles_are_two_batches():
    async def agent(env, model):
        first, second = model.role("first"), model.role("second/1")
        for who in (first, second, first):
            reply = await who.chat(ask(env), env.tools)
            if who is first:
                who.pay(len(reply.text), to=reply)
        second.pay(-1.0)
        await env.step("#### 1", by=reply)

    texts = [["a", "bb", "ccc"], ["d", "eeee", "f"]]
    episodes = [play(agent, *said) for said in texts]
    assert [[p.name for p in trajectories(e)] for e in episodes] == [["first", "second/1"]] * 2
    both = assemble(episodes, [0, 0])
    options = EstimatorOptions(gamma=1.0, lam=1.0)
    for name in ("reinforce", "grpo", "rloo", "gigpo", "gpg"):
        together = get_estimator(name)(both.steps, options).advantages
        for role, wanted in (("first", 0), ("second", 1)):
            alone = assemble(episodes, [0, 0], roles=[role])
            expected = get_estimator(name)(alone.steps, options).advantages
            assert torch.equal(together[both.steps.role == wanted], expected), (name, role)
    with pytest.raises(ConfigError, match="these episodes have roles: use grpo, rloo or gae"):
        get_estimator("remax")(both.steps, options)
    with pytest.raises(ConfigError, match=r"role 'white' is not among those that play \(first, second\)"):
        assemble(episodes, [0, 0], roles=["white"])


def test_solvers_of_one_episode_are_compared_with_each_other():
    async def agent(env, model):
        solvers = [model.role(f"solver/{i}", group="episode") for i in range(3)]
        answers = await asyncio.gather(*(solver.chat(ask(env)) for solver in solvers))
        for solver, answer in zip(solvers, answers, strict=True):
            solver.pay(float(answer.text == "right"))

    episodes = [play(agent, "right", "wrong", "wrong"), play(agent, "wrong", "wrong", "wrong")]
    batch = assemble(episodes, [0, 0])
    assert batch.steps.group.tolist() == [0, 0, 0, 1, 1, 1] and batch.steps.role is None
    advantages = get_estimator("grpo")(batch.steps, EstimatorOptions()).advantages
    assert advantages[0] > 0 > advantages[1] and advantages[3:].tolist() == [0.0] * 3


async def fails(env, model):
    await model.chat(ask(env))
    raise ValueError("no such plan")


async def fails_at_once(env, model):
    raise ValueError("no such plan")


async def asks_for_ever(env, model):
    while True:
        await model.chat(ask(env))


async def goes_on_after_the_end(env, model):
    await env.step(await model.chat(ask(env)))
    late = await model.chat([{"role": "user", "content": "How was it?"}])
    await env.step(late)


def catches(env, model):
    with pytest.raises(agent_envs.errors.ContextLengthExceeded):
        model.chat([{"role": "user", "content": "word " * 5000}])
    env.step(model.chat(ask(env)))


@pytest.mark.parametrize(
    ("agent", "texts", "reason", "says", "steps"),
    [
        (fails, [], StopReason.AGENT_ERROR, "no such plan", 1),
        (fails_at_once, [], StopReason.ERROR, "no such plan", 0),
        (plain, [CALL, agent_envs.errors.BackendError("it is gone")], StopReason.ERROR, "it is gone", 1),
        (asks_for_ever, [], StopReason.CALL_LIMIT, str(MAX_CALLS), MAX_CALLS),
        (goes_on_after_the_end, [], StopReason.AGENT_ERROR, "the episode is over", 2),
        (catches, [], StopReason.TERMINATED, "", 1),
        (lambda env, model: None, [], StopReason.TRUNCATED, "", 0),
        (lambda env, model: model.chat([]), [], StopReason.ERROR, "the last message must be", 0),
    ],
)
def test_every_end_has_its_reason(agent, texts, reason, says, steps):
    episode = play(agent, *texts)
    assert (episode.stop_reason, len(episode.steps)) == (reason, steps) and says in (episode.error or "")
    assert reason.broken == (reason is StopReason.ERROR)
    if agent is goes_on_after_the_end:
        assert [s.trained for s in episode.steps] == [True, False] and episode.steps[-1].terminated


def test_what_the_environment_breaks_is_no_fault_of_the_agent(monkeypatch):
    env = gym.make(ENV)
    monkeypatch.setattr(type(env.unwrapped), "step", lambda self, action: 1 / 0)
    episode = agent_envs.run_episode(env, Scripted("hm"), seed=0, agent=plain)
    assert episode.stop_reason is StopReason.ERROR and "ZeroDivisionError" in str(episode.error)


@pytest.mark.parametrize("is_async", [True, False])
def test_an_agent_that_hangs_is_left_behind(is_async):
    async def sleeps(env, model):
        await model.chat(ask(env))
        await asyncio.sleep(60)

    def blocks(env, model):
        model.chat(ask(env))
        time.sleep(3)
        env.step("late")

    began = time.monotonic()
    (episode,) = agent_envs.run_episodes(
        ENV, Scripted(), 1, agent=sleeps if is_async else blocks, step_timeout=0.5, on_error="record", progress=False
    )
    assert episode.stop_reason is StopReason.STEP_TIMEOUT and time.monotonic() - began < 3
    assert len(episode.steps) == 1 and episode.steps[0].truncated


def test_files_of_agents_have_their_own_version(tmp_path):
    loop, played = play(None, CALL, "#### 1"), play(plain, CALL, "#### 1")
    assert loop.to_dict()["schema_version"] == 1 and not {"roles", "agent"} & loop.to_dict().keys()
    assert not {"role", "trained", "time", "after"} & loop.to_dict()["steps"][0].keys()
    assert json.loads(played.to_json())["schema_version"] == 2
    agent_envs.write_episodes(tmp_path / "e.jsonl", [loop, played])
    assert list(agent_envs.read_episodes(tmp_path / "e.jsonl")) == [loop, played]


def test_calls_without_an_answer_are_noted_and_counted():
    async def agent(env, model):
        first = await model.chat(ask(env))
        with contextlib.suppress(ContextLengthExceeded):
            await model.role("reader").chat([{"role": "user", "content": "long " * 5000}])
        waiting = asyncio.ensure_future(model.chat([{"role": "user", "content": "Who?"}]))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await model.chat([*ask(env), first.message, {"role": "user", "content": "And?"}], trained=False)
        await env.step("#### 1", by=first)

    episode = play(agent, "hm", "so")
    failed = episode.reset_info["failed_calls"]
    assert [(call["call"], call["role"]) for call in failed] == [(1, "reader"), (2, "")]
    assert failed[0]["error"].startswith("ContextLengthExceeded: the prompt of step")
    assert failed[1]["error"].startswith("CancelledError")
    assert [(step.info["call"], step.info["env_steps"]) for step in episode.steps] == [(0, 1), (3, 0)]
    assert call_metrics([calls_made(episode)]) == {
        "calls": 2.0, "untrained_share": 0.5, "fresh_share": 0.5,
        "calls_failed/CancelledError": 1.0, "calls_failed/ContextLengthExceeded": 1.0,
    }  # fmt: skip
    shown = about([episode, episode])
    assert shown["agent/calls"] == 2.0 and shown["stop/agent_error"] == 0.0
    loop = play(None, "#### 1")
    assert "failed_calls" not in loop.reset_info and not [name for name in about([loop]) if "agent" in name]


def test_a_players_reward_reaches_its_latest_reply():
    class Pays(gym.Wrapper):
        def step(self, action):
            observation, _, terminated, truncated, info = self.env.step(action)
            return observation, 1.0, terminated, truncated, {**info, "rewards": {"second": -1.0, "nobody": 5.0}}

    async def agent(env, model):
        await model.role("second").chat(ask(env))
        await model.role("second").chat(ask(env))
        await env.step(await model.role("first").chat(ask(env)))

    episode = agent_envs.run_episode(Pays(gym.make(ENV)), Scripted("a", "b", "#### 1"), seed=0, agent=agent)
    assert [(step.role, step.reward) for step in episode.steps] == [("second", 0.0), ("second", -1.0), ("first", 1.0)]

    class Other(Pays):
        def step(self, action):
            return (*super().step(action)[:4], {"rewards": [5.0]})  # whatever an environment of one's own means by it

    episode = agent_envs.run_episode(Other(gym.make(ENV)), Scripted("a", "b", "#### 1"), seed=0, agent=agent)
    assert episode.error is None and [step.reward for step in episode.steps] == [0.0, 0.0, 1.0]


def test_a_judge_is_asked_and_never_trained():
    judge = Scripted("good")

    async def agent(env, model):
        reply = await model.chat(ask(env))
        verdict = await model.using(judge).chat([{"role": "user", "content": reply.text}])
        model.pay(float(verdict.text == "good"), to=reply)

    policy = Scripted("hm")
    episode = agent_envs.run_episode(gym.make(ENV), policy, seed=0, agent=agent)
    assert [(s.action, s.trained, s.reward) for s in episode.steps] == [("hm", True, 1.0), ("good", False, 0.0)]


def test_a_long_conversation_is_summed_up_by_the_model_itself():
    texts = [CALL, CALL, CALL, "Three times 2.", CALL, "#### 2"]
    after = len(play(plain, CALL, CALL, CALL, "#### 2").steps[2].prompt_ids) + 1
    episode = play(f"compact(after={after}, keep=1)", *texts, max_episode_steps=20)
    assert [step.action for step in episode.steps] == texts
    assert [step.after for step in episode.steps[:5]] == [None, 0, 1, 2, None]
    contents = [message["content"] for message in episode.steps[4].observation]
    assert contents[2] == "So far:\nThree times 2." and len(contents) == 5
    assert all(step.trained for step in episode.steps) and [s.time for s in episode.steps] == [0, 1, 2, 3, 3, 4]


def test_the_best_candidate_is_played_and_the_conversation_goes_on_with_it():
    texts = [CALL, "<tool_call>oops", CALL + " ", "#### 1", "#### 2", "#### 2"]
    episode = play("best_of(n=3)", *texts)
    assert [step.action for step in episode.steps] == texts
    assert [bool(step.info.get("tool_results")) for step in episode.steps[:3]] == [True, False, False]
    assert [(s.after, s.time) for s in episode.steps] == [(None, 0)] * 3 + [(0, 1)] * 3
    longest = partial(best_of, n=2, by=lambda env, candidates: [len(c.text) for c in candidates])
    episode = play(longest, "#### 1", CALL, "#### 2", "#### 22")
    assert [bool(step.info.get("tool_results")) for step in episode.steps] == [False, True, False, False]
    assert episode.stop_reason is StopReason.TERMINATED and [s.after for s in episode.steps[2:]] == [1, 1]
    wrong = play(partial(best_of, n=2, by=lambda env, candidates: [1.0]), "#### 1", "#### 2")
    assert "the scorer returned 1 scores for 2 candidates" in str(wrong.error)


def test_trying_candidates_leaves_no_trace(tmp_path):
    env = gym.make(ENV)
    env.reset(seed=0)
    right = env.unwrapped.task.answer
    texts = [CALL, "hm <tool_call>", "#### -5", f"#### {right}"]
    plain_loop = play(None, CALL, f"#### {right}")
    recorded = RecordEpisodes(env, path=str(tmp_path / "e.jsonl"))
    episode = agent_envs.run_episode(recorded, Scripted(*texts), seed=0, agent="best_of(n=2, by='reward')")
    played = [step for step in episode.steps if step.reward or step.info.get("tool_results")]
    assert episode.success and [step.action for step in played] == [step.action for step in plain_loop.steps]
    (stored,) = agent_envs.read_episodes(tmp_path / "e.jsonl")
    assert [step.action for step in stored.steps] == [CALL, f"#### {right}"]


def test_candidates_that_fail_are_left_out():
    assert play("best_of(n=2)", agent_envs.errors.EmptyGeneration("no"), "#### 3").steps[0].action == "#### 3"
    nothing = play("best_of(n=2)", *[agent_envs.errors.EmptyGeneration("no")] * 2)
    assert nothing.stop_reason is StopReason.EMPTY_GENERATION
    assert "n must be an integer of at least 1" in str(play("best_of(n=0)").error)
    assert "by must be" in str(play("best_of(by='luck')").error)


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("my_flow.plan", "an agent is written module:function or compact(...), and a command has a space in it; got"),
        ("compacts()", "unknown agent 'compacts'. Did you mean 'compact'?"),
        ("nowhere_at_all:plan", "agent nowhere_at_all:plan cannot be loaded"),
        ("compact(before=3)", "agent(env, model) must take two arguments"),
        (lambda env: None, "agent(env, model) must take two arguments"),
        (3, "an agent must be a function of an environment and a model, got 3"),
    ],
)
def test_what_is_no_agent_is_refused(agent, says):
    with pytest.raises(ConfigError) as caught:
        load_agent(agent)
    assert says in str(caught.value)


def test_a_score_is_the_last_replys_reward_when_the_agent_has_returned():
    seen = []

    def score(episode, env, workdir):
        seen.append((len(episode.steps), episode.steps[-1].action, env.spec.id, workdir))
        return 1.5 if "right" in episode.steps[-1].action else 0.25

    async def agent(env, model):
        await model.chat(ask(env))
        await model.chat(ask(env))

    for last, reward in (("right", 1.5), ("wrong", 0.25)):
        policy = Scripted("hm", last)
        episode = agent_envs.run_episode(gym.make(ENV), policy, seed=0, agent=agent, score=score)
        assert [s.reward for s in episode.steps] == [0.0, reward] and episode.success == (reward >= 1)
        assert episode.stop_reason is StopReason.TERMINATED and episode.steps[-1].terminated
        assert episode.score == reward
    assert seen == [(2, "right", ENV, None), (2, "wrong", ENV, None)]
    verdict = EpisodeVerdict(rewards={"0": 0.5, "1": -1.0}, success=True, info={"judge": "me"})
    episode = agent_envs.run_episode(gym.make(ENV), Scripted("a", "b"), seed=0, agent=agent, score=lambda *_: verdict)
    assert [s.reward for s in episode.steps] == [0.5, -1.0] and episode.success and episode.score == -0.5
    assert episode.steps[-1].info["judge"] == "me" and episode.stop_reason is StopReason.TERMINATED
    unknown = EpisodeVerdict(rewards={"7": 1.0})
    episode = agent_envs.run_episode(gym.make(ENV), Scripted("a", "b"), seed=0, agent=agent, score=lambda *_: unknown)
    assert episode.stop_reason is StopReason.ERROR and "there is no step of call 7" in str(episode.error)
    broken = agent_envs.run_episode(gym.make(ENV), Scripted("a", "b"), seed=0, agent=agent, score=lambda *_: 1 / 0)
    assert broken.stop_reason is StopReason.ERROR and "ZeroDivisionError" in str(broken.error)
    with pytest.raises(ConfigError, match="give agent= "):
        agent_envs.run_episode(gym.make(ENV), Scripted(), score=score)


def test_an_agent_needs_a_model_and_makes_its_own_prompts():
    with pytest.raises(ConfigError, match="an agent needs a model to ask, such as .*; ExpertPolicy is none"):
        agent_envs.run_episodes(ENV, ExpertPolicy(), 1, agent=plain)
    (episode,) = agent_envs.run_episodes(
        ENV, Scripted(), 1, agent=plain, wrappers=["ChatMessages", "SlidingWindow(k=1)"], on_error="record",
        progress=False,
    )  # fmt: skip
    assert "leave out SlidingWindow and ChatMessages" in str(episode.error)
