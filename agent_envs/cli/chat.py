"""Chat with an agent: a model of a server, a folder or a run's checkpoint, with an environment's tools.

You ask, the agent calls tools and answers, as in training. The environment takes questions of your own: GSM8K, question
answering, paper search. In any other, let the agent play with `agentr1 eval`, and look at it with `agentr1 view`.

examples:
  a run's last checkpoint, with the tools it was trained with:
    agentr1 chat --checkpoint runs/hotpotqa
  any model behind a server, over documents of your own:
    agentr1 chat --env AgentR1/HotpotQA-v0 --env-kwargs '{"corpus": "notes.jsonl"}' \\
        --base-url http://localhost:8000/v1 --model Qwen/Qwen3-8B
  an agent of your own, which answers each question as it likes:
    agentr1 chat --agent my_flow:plan_and_work --checkpoint runs/plan

/tools shows the tools, /reset starts over, /quit (or Ctrl-D) ends. A backslash at the end of a line continues it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.agents.loading import AgentPolicy, with_agent
from agent_envs.cli.options import Spec, option
from agent_envs.cli.policy import PolicyOptions
from agent_envs.errors import BackendError, ConfigError, EpisodeStop, PromptError, what_failed
from agent_envs.messages import Observation, observation_text
from agent_envs.policies.policy import Policy, Response
from agent_envs.policies.terminal import read_text, show, tool_lines
from agent_envs.registration import env_name
from agent_envs.rollout.one import run_episode
from agent_envs.threads import background_loop
from agent_envs.wrapping.specs import make_text_env

_COMMANDS = "/tools, /reset, /quit"


@dataclass(kw_only=True)
class Options(PolicyOptions):
    group = "conversation"
    seed: int = option(0, "seed of the agent's sampling")
    agent: Spec | None = option(None, "module:function or compact(...) that asks the model (default: a call per step)")


def run(options: Options) -> str:
    with contextlib.closing(make_text_env(*options.chosen_env())) as env:
        [policy] = options.chosen_policies(seed=options.seed)
        getattr(policy, "check_server", lambda: None)()
        chat = Chat(env, with_agent(policy, options.agent))
        chat.talk()
    return f"questions: {chat.questions}, actions: {chat.steps}"


class Chat:
    """A person's conversation with an agent; an environment that takes no questions is a ConfigError."""

    def __init__(self, env: gym.Env[Any, str], policy: Policy) -> None:
        if "question" not in getattr(env.unwrapped, "reset_options", ()):
            raise ConfigError(f"{env_name(env)} takes no questions; let the agent play it with agentr1 eval")
        self.env = env
        self.policy = policy
        self.questions = 0
        """Questions asked so far."""
        self.steps = 0
        """Actions so far."""
        self._actor: Any = None
        self._acting = False  # whether the agent is acting, which Ctrl-C stops

    def talk(self) -> None:
        """Talk until /quit or the end of the input; without a terminal, a BackendError of the server ends it too."""
        show(f"{env_name(self.env)}. Ask a question. Also: {_COMMANDS}.")
        self._show_tools()
        while True:
            try:
                if not self._turn():
                    return
            except EOFError:
                return
            except (EpisodeStop, PromptError) as e:  # a full context, an empty answer, messages that do not fit
                self._forget(str(e) or type(e).__name__)
            except BackendError as e:
                if not sys.stdin.isatty():
                    raise
                self._forget(str(e))
            except KeyboardInterrupt:
                if not self._acting:
                    return
                self._forget("stopped")

    def _show_tools(self) -> None:
        show(tool_lines(self.env.get_wrapper_attr("tools")) or "(no tools: actions are texts)")

    def _forget(self, why: str) -> None:
        self._actor, self._acting = None, False
        show(f"({why}: the conversation starts over)")

    def _turn(self) -> bool:
        """Do what the person's next line asks for, and return whether to go on."""
        text = read_text("you> ")
        word = text.strip()
        if word == "/reset":
            self._actor = None
            show("(started over)")
        elif word == "/tools":
            self._show_tools()
        elif word.startswith("/") and " " not in word and word != "/quit":
            show(f"Unknown command {word}; there are {_COMMANDS}.")
        elif word and word != "/quit":
            self._agent(text) if isinstance(self.policy, AgentPolicy) else self._answer(text)
        return word != "/quit"

    def _answer(self, question: str) -> None:
        """Let the agent answer a question, in the same conversation as the questions before."""
        observation, info = self.env.reset(options={"question": question})
        if observation_text(observation).strip() != question.strip():
            show(observation_text(observation))
        self.questions += 1
        if self._actor is None:
            self._actor = self.policy.start(self.env)
        terminated = truncated = False
        while not (terminated or truncated):
            self._acting = True
            response = self._response(observation, info)
            if response.empty:
                raise EpisodeStop("the agent wrote nothing")
            self.steps += 1
            show(f"agent> {response.text}")
            observation, _, terminated, truncated, info = self.env.step(response.text)
            self._acting = False
            if results := info.get("tool_results"):
                _show_results(results)
            elif not terminated:  # the observation after an answer only tells the score
                show(observation_text(observation))
        if not terminated:
            show("(the step limit ended it)")

    def _agent(self, question: str) -> None:
        """Have an agent answer a question, which is an episode, and show what it did."""
        self._acting = True
        episode = run_episode(self.env, self.policy, options={"question": question})
        self._acting = False
        self.questions, self.steps = self.questions + 1, self.steps + len(episode.steps)
        for step in episode.steps:
            show(f"{step.role or 'agent'}> {step.action}")
            _show_results(step.info.get("tool_results", []))
        if episode.error:
            show(f"({what_failed(episode.error)})")

    def _response(self, observation: Observation, info: dict[str, Any]) -> Response:
        action = self._actor.act(observation, info)
        if inspect.isawaitable(action):
            future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(action, None), background_loop())
            try:
                action = future.result()
            finally:
                future.cancel()  # no effect once it is done
        return Response(action) if isinstance(action, str) else action


def _show_results(results: list[dict[str, Any]]) -> None:
    for result in results:
        show(f"{'error of ' if result['error'] else ''}{result['name'] or 'tool'}> {result['content']}")
