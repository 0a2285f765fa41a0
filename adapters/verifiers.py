"""Environments of this package in verifiers: loaded by its commands, played by its clients, scored by a rubric.

    env = verifiers.load_environment("agent_envs.adapters.verifiers", gym_id="AgentR1/GSM8KTool-v0")

    vf-eval agent_envs.adapters.verifiers -a '{"gym_id": "AgentR1/GSM8KTool-v0"}' -m MODEL -b http://localhost:8000/v1

Tools are passed to the server natively, as ``tools=``; the calls it returns are written in the environment's own wire
format and run by the environment. Token ids are those of verifiers.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import gymnasium as gym

from agent_envs.adapters.by_hand import EpisodeByHand
from agent_envs.adapters.run import MAX_BROKEN, FailureBudget
from agent_envs.adapters.task_rows import begin, first_prompts, make_dataset
from agent_envs.agents.loading import Agent, load_agent
from agent_envs.checks import choice, integer
from agent_envs.episodes.plain import to_json_types
from agent_envs.episodes.record import StopReason
from agent_envs.errors import BackendError, ConfigError, check_release, needs_extra
from agent_envs.policies.openai.calls import answer_calls, call_text
from agent_envs.prompts.conversation import Conversation
from agent_envs.rewards import total
from agent_envs.wrapping.specs import make_text_env

with needs_extra("suites"):
    import verifiers as vf

check_release("verifiers", "suites")


def load_environment(
    gym_id: str = "AgentR1/GSM8KTool-v0",
    split: str = "train",
    eval_split: str | None = "test",
    num_train: int = 1000,
    num_eval: int = 100,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    tool_mode: Literal["native", "text"] = "native",
    max_turns: int | None = None,
    seed: int = 0,
    max_broken: float = MAX_BROKEN,
    agent: str | Agent | None = None,
) -> VerifiersTextEnv:
    """Load an environment; ``verifiers.load_environment`` and ``vf-eval`` call this.

    Args:
        gym_id: As for ``gymnasium.make``.
        split: The split to train on.
        eval_split: The split to evaluate on; None for the first tasks of ``split``.
        num_train: Tasks of ``split``, or all if there are fewer; -1 for all. Each is reset once for its prompt.
        num_eval: Tasks of ``eval_split``, likewise.
        env_kwargs: Further arguments of the environment (``data``, ``parser``...).
        wrappers: Specs such as ``"FormatReward(weight=0.1)"``, innermost first.
        tool_mode: ``"native"``: the server gets the tools and returns calls; ``"text"``: the system message describes
            the tools, and the model's text contains the calls.
        max_turns: Turns after which an episode is truncated; None for the environment's own limit.
        seed: Seed of every reset: with the index it determines how an episode begins, as in the dataset's prompt.
        max_broken: Share of the last 96 rollouts that may break; more end the run.
        agent: Plays the episodes with the model, as in ``run_episodes``: each prompt is a step of the trajectory. Its
            tools are described in words, with ``tool_mode="text"``.

    Raises:
        ConfigError: The environment does not exist, or the arguments do not fit.
    """
    choice("tool_mode", tool_mode, ("native", "text"))
    if agent is not None:
        agent = load_agent(agent)
        if tool_mode == "native":
            raise ConfigError("an agent's calls are read from the model's text: give tool_mode='text' with agent=")
    if max_turns is not None:
        integer("max_turns", max_turns, minimum=1)
    maker = _Maker(gym_id, dict(env_kwargs or {}), tuple(wrappers), tool_mode, seed, agent)
    with closing(maker.make(split)) as env:
        tools = env.get_wrapper_attr("tools") if tool_mode == "native" else []
    return VerifiersTextEnv(
        maker,
        max_turns or 0,
        max_broken,
        dataset=partial(maker.dataset, split, num_train),
        eval_dataset=None if eval_split is None else partial(maker.dataset, eval_split, num_eval),
        tool_defs=[vf.Tool(**tool["function"]) for tool in tools],
        rubric=_rubric(),
    )


def _rubric() -> vf.Rubric:
    """The reward is the sum of the environment's own; the rest are metrics, named by their functions."""

    async def episode_return(state: vf.State) -> float:
        return total(step["reward"] for step in state["env_steps"])

    async def success(state: vf.State) -> float:
        return float(_last_info(state).get("success", False))

    async def score(state: vf.State) -> float:
        return float(_last_info(state).get("score", 0.0))

    async def invalid_actions(state: vf.State) -> float:
        return float(sum(bool(step["info"].get("invalid_action", False)) for step in state["env_steps"]))

    async def truncated(state: vf.State) -> float:
        return float(any(step["truncated"] for step in state["env_steps"]))

    funcs = [episode_return, success, score, invalid_actions, truncated]
    return vf.Rubric(funcs=funcs, weights=[1.0, 0.0, 0.0, 0.0, 0.0])


@dataclass(frozen=True)
class _Maker:
    """Makes an environment and the conversation with its model."""

    gym_id: str
    env_kwargs: dict[str, Any]
    wrappers: tuple[str, ...]
    tool_mode: str
    seed: int
    agent: Agent | None = None

    def make(self, split: str) -> gym.Env[Any, str]:
        kwargs = {**self.env_kwargs, "split": split}
        return make_text_env(self.gym_id, kwargs, self.wrappers, reader="the adapter to verifiers")

    def dataset(self, split: str, count: int) -> Any:
        """The rows of a split: prompt, and info with split and index."""
        env = self.make(split)
        tasks = env.get_wrapper_attr("num_tasks")
        indices = range(tasks if count < 0 else min(count, tasks))
        prompts = first_prompts(env, indices, seed=self.seed, tools=self.tool_mode != "native")
        rows = [{"prompt": p, "answer": "", "info": json.dumps({"split": split, "index": i})} for i, p in prompts]
        return make_dataset(rows)


@dataclass(slots=True)
class _Running:
    """An episode in progress."""

    env: gym.Env[Any, str]
    conversation: Conversation
    format_call: Callable[[str, dict[str, Any]], str] | None
    fresh: bool = False
    hand: EpisodeByHand | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class VerifiersTextEnv(vf.MultiTurnEnv):
    """Episodes of an environment, one turn per step; made by ``load_environment``.

    ``state["env_steps"]`` has per step its ``action``, ``reward``, ``terminated``, ``truncated`` and ``info``; a
    trajectory step's ``reward`` is the step's own. A prompt that a wrapper rebuilds replaces the next turn's
    prompt. If an environment's backend fails, the rollout ends with an ``InfraError``; if too many of the last rollouts
    did, the next one raises a ``BackendError``, which ends the run.
    """

    def __init__(self, maker: _Maker, turn_limit: int, max_broken: float = MAX_BROKEN, **kwargs: Any) -> None:
        # verifiers stops at max_turns before the environment sees the last turn, so the limit is applied here
        super().__init__(max_turns=-1, **kwargs)
        self._maker, self._turn_limit = maker, turn_limit
        self._running: dict[str, _Running] = {}
        self._failures, self._spent = FailureBudget(max_broken), ""

    async def setup_state(self, state: vf.State) -> vf.State:
        """Start the row's task; a BackendError if too many of the last rollouts broke."""
        if self._spent:
            raise BackendError(self._spent)
        info = state["info"]
        state["env_steps"] = []

        def started() -> _Running:
            env = self._maker.make(info["split"])
            conversation, seed = begin(env, tools=self._maker.tool_mode != "native"), self._maker.seed
            options = {"index": info["index"]}
            if self._maker.agent is not None:
                hand = EpisodeByHand(env, self._maker.agent, seed=seed, options=options)
                return _Running(env, conversation, None, hand=hand)
            observation, reset_info = env.reset(seed=seed, options=options)
            conversation.observe(observation, reset_info)
            native = self._maker.tool_mode == "native" and env.get_wrapper_attr("tools")
            return _Running(env, conversation, env.get_wrapper_attr("format_call") if native else None)

        try:
            self._running[state["trajectory_id"]] = await asyncio.to_thread(started)
        except BackendError as e:
            raise vf.InfraError(str(e)) from e
        return state

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        """Return the environment's answer to the last message, and end the rollout if the episode has ended."""
        running = self._running[state["trajectory_id"]]
        action, call_ids = _action(messages[-1], running.format_call)
        async with running.lock:
            running.conversation.respond(action)
            try:
                observation, reward, terminated, cut, info = await asyncio.to_thread(running.env.step, action)
            except BackendError as e:
                raise vf.InfraError(str(e)) from e
        steps = state["env_steps"]
        cut = not terminated and (cut or 0 < self._turn_limit <= len(steps) + 1)
        step = {"action": action, "reward": float(reward), "terminated": bool(terminated), "truncated": bool(cut)}
        steps.append({**step, "info": to_json_types(info)})
        state["trajectory"][-1]["reward"] = float(reward)
        new, running.fresh = running.conversation.observe(observation, info)
        answers: Any = new if running.fresh else answer_calls(call_ids, new)
        if terminated or cut:
            state["final_env_response"] = answers
            state["is_truncated"] = bool(state.get("is_truncated")) or bool(cut)
        return answers

    async def get_prompt_messages(self, state: vf.State) -> vf.Messages:
        """Return the next prompt: the messages so far with the new ones, or the prompt that a wrapper rebuilt."""
        running = self._running[state["trajectory_id"]]
        if running.hand is not None:
            return await self._agent_prompt(state, running.hand)
        messages = await super().get_prompt_messages(state)
        if not state["trajectory"] or not running.fresh or state.get("final_env_response") is not None:
            return messages
        return messages[-len(running.conversation.messages) :]

    async def _agent_prompt(self, state: vf.State, hand: EpisodeByHand) -> vf.Messages:
        """Give the agent what the model said, and return its next prompt; at its end note the steps."""
        said = state["trajectory"][-1]["completion"][-1] if state["trajectory"] else None
        full = 0 < self._turn_limit <= len(state["trajectory"])
        try:
            text = None if said is None else _action(said, None)[0]
            prompt = await asyncio.to_thread(hand.next, text)
        except BackendError as e:
            raise vf.InfraError(str(e)) from e
        if prompt is not None and not full:
            return prompt
        await asyncio.to_thread(hand.close)
        assert hand.episode is not None
        steps, unanswered = hand.episode.steps, hand.episode.reset_info.get("failed_calls", ())
        paid = {step.info["call"]: step.reward for step in steps if "call" in step.info}  # others asked no model
        calls = sorted([*paid, *(failed["call"] for failed in unanswered)])
        for own, call in zip(state["trajectory"], calls, strict=False):
            own["reward"] = paid.get(call, 0.0)
        state["env_steps"] = [
            {"action": s.action, "reward": s.reward, "terminated": s.terminated, "truncated": s.truncated,
             "info": to_json_types(s.info)} for s in steps
        ]  # fmt: skip
        state["final_env_response"] = []
        state["is_truncated"] = bool(state.get("is_truncated")) or prompt is not None
        return []

    @vf.cleanup
    async def close_env(self, state: vf.State) -> None:
        """Close the episode's environment, and count how it ended."""
        error = state.get("error")
        invalid = isinstance(error, vf.InvalidModelResponseError)
        broken = isinstance(error, (vf.InfraError, vf.ModelError)) and not invalid
        said = "".join(traceback.format_exception(error)) if broken else None
        try:
            self._failures.add(StopReason.ERROR if broken else StopReason.TERMINATED, said)
        except BackendError as e:  # verifiers goes on with the other rollouts of a group: the next one ends the run
            self._spent = str(e)
        if (running := self._running.pop(state["trajectory_id"], None)) is not None:
            if running.hand is not None:
                await asyncio.to_thread(running.hand.close)
            await asyncio.to_thread(running.env.close)


def _action(message: Any, format_call: Callable[[str, dict[str, Any]], str] | None) -> tuple[str, list[str]]:
    """Return a response as text for the environment, and the ids of its calls."""
    content = message.content or ""
    if not isinstance(content, str):
        content = "".join(part.get("text") or "" for part in content)
    calls = message.tool_calls or []
    texts = [content] if content else []
    texts += [call_text(call.name, call.arguments, format_call)[0] for call in calls]
    return "\n".join(texts), [call.id for call in calls]


def _last_info(state: vf.State) -> Mapping[str, Any]:
    steps = state["env_steps"]
    return steps[-1]["info"] if steps else {}
