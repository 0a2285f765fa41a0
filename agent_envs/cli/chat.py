"""Chat with an agent: a model of a server, a folder or a run's checkpoint, with an environment's tools.

You ask, the agent calls tools and answers, as in training. In environments that take no questions, it plays a task, and
you may advise it before each action.

examples:
  a run's last checkpoint, with the tools it was trained with:
    agentr1 chat --checkpoint runs/hotpotqa
  any model behind a server, over documents of your own:
    agentr1 chat --env AgentR1/HotpotQA-v0 --env-kwargs '{"corpus": "notes.jsonl"}' \\
        --base-url http://localhost:8000/v1 --model Qwen/Qwen3-8B
  an agent in a household that you advise as it plays:
    agentr1 chat --env AgentR1/ALFWorld-v0 --index 3 --model models/mine
  an agent of your own, which answers each question as it likes:
    agentr1 chat --agent my_flow:plan_and_work --checkpoint runs/plan

/tools shows the tools, /reset starts over, /quit (or Ctrl-D) ends. A backslash at the end of a line continues it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.agents.loading import AgentPolicy, with_agent
from agent_envs.cli.options import option
from agent_envs.cli.policy import PolicyOptions
from agent_envs.errors import BackendError, ConfigError, EpisodeStop, PromptError
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
    """Whom one talks with, and about what."""

    group = "conversation"
    index: int | None = option(None, "play this task and advise the agent, even if the environment takes questions")
    seed: int = option(0, "seed of the agent's sampling")
    agent: str | None = option(
        None, "what answers with the model: module:function, or compact(...) (default: a call per step)", metavar="SPEC"
    )


def run(options: Options) -> str:
    """Talk until the person quits, and report how much was played."""
    env = make_text_env(*options.chosen_env())
    try:
        policy = options.chosen_policy(seed=options.seed)
        getattr(policy, "check_server", lambda: None)()
        policy = with_agent(policy, options.agent)
        chat = Chat(env, policy, index=options.index)
        chat.talk()
    finally:
        env.close()
    return f"{'questions' if chat.asks else 'tasks'}: {chat.questions}, actions: {chat.steps}"


class Chat:
    """A person's conversation with an agent that plays task `index`, or takes questions where it is None.

    Where the environment takes no questions, a task is drawn.
    """

    def __init__(self, env: gym.Env[Any, str], policy: Policy, *, index: int | None = None) -> None:
        self.env = env
        self.policy = policy
        self.index = index
        self.asks = index is None and "question" in getattr(env.unwrapped, "reset_options", ())
        """Whether the person asks questions; otherwise the agent plays a task."""
        if isinstance(policy, AgentPolicy) and not self.asks:
            raise ConfigError("--agent answers questions: give an environment that takes them, and no --index")
        self.questions = 0
        """Questions asked so far, or tasks played."""
        self.steps = 0
        """Actions so far."""
        self._actor: Any = None
        self._acting = False  # whether the agent is acting, which Ctrl-C stops
        self._interactive = sys.stdin.isatty()

    def talk(self) -> None:
        """Talk until /quit or the end of the input; without a terminal, a BackendError of the server ends it too."""
        what = "Ask a question" if self.asks else "The agent plays; press Enter to continue, or write advice"
        show(f"{env_name(self.env)}. {what}. Also: {_COMMANDS}.")
        self._show_tools()
        while True:
            try:
                if self.asks:
                    self._turn()
                else:
                    self._game()
            except EOFError:
                return
            except _StartOver:
                self._actor = None
                show("(started over)")
            except (EpisodeStop, PromptError) as e:  # a full context, an empty answer, messages that do not fit
                self._forget(str(e) or type(e).__name__)
            except BackendError as e:
                if not self._interactive:
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

    def _words(self, prompt: str) -> str:
        """Return what the person writes, after carrying out commands."""
        while True:
            text = read_text(prompt)
            word = text.strip()
            if word == "/quit":
                raise EOFError
            if word == "/reset":
                raise _StartOver
            if word == "/tools":
                self._show_tools()
            elif word.startswith("/") and " " not in word:
                show(f"Unknown command {word}; there are {_COMMANDS}.")
            else:
                return text

    def _turn(self) -> None:
        """Ask one question and let the agent answer it, in the same conversation as the questions before."""
        question = self._words("you> ")
        if not question.strip():
            return
        if isinstance(self.policy, AgentPolicy):
            self._agent(question)
            return
        observation, info = self.env.reset(options={"question": question})
        if observation_text(observation).strip() != question.strip():
            show(observation_text(observation))
        self.questions += 1
        if self._actor is None:
            self._actor = self.policy.start(self.env)
        over = False
        while not over:
            observation, info, over, cut = self._step(observation, info)
            if cut:
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
            show(f"({episode.error.strip().splitlines()[-1]})")

    def _game(self) -> None:
        """Play one task, with advice between the steps."""
        observation, info = self.env.reset(options=None if self.index is None else {"index": self.index})
        self._actor = self.policy.start(self.env)
        self.questions += 1
        show(f"\ntask {info.get('task_id', '')}\n{observation_text(observation)}")
        over = False
        while not over:
            observation = _advised(observation, self._words("advice> ").strip())
            observation, info, over, cut = self._step(observation, info)
            if over:
                end = "the step limit ended it" if cut else "solved" if info.get("success") else "over, not solved"
                show(f"({end}, score {info.get('score', 0.0):g})")
        self._actor = None
        self._words("Enter for another task> ")

    def _step(self, observation: Observation, info: dict[str, Any]) -> tuple[Observation, dict[str, Any], bool, bool]:
        """Play the agent's next action; return observation, info, whether it is over, and whether by the limit."""
        self._acting = True
        response = self._response(observation, info)
        if response.empty:
            raise EpisodeStop("the agent wrote nothing")
        self.steps += 1
        show(f"agent> {response.text}")
        observation, _, terminated, truncated, info = self.env.step(response.text)
        self._acting = False
        results = info.get("tool_results", [])
        _show_results(results)
        if not results and not (terminated and self.asks):  # the observation after an answer only tells the score
            show(observation_text(observation))
        return observation, info, bool(terminated or truncated), bool(truncated and not terminated)

    def _response(self, observation: Observation, info: dict[str, Any]) -> Response:
        action = self._actor.act(observation, info)
        if inspect.isawaitable(action):
            future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(action, None), background_loop())
            try:
                action = future.result()
            finally:
                future.cancel()  # no effect once it is done
        return Response(action) if isinstance(action, str) else action


class _StartOver(Exception):  # noqa: N818  not an error
    """The person wants to start over."""


def _show_results(results: list[dict[str, Any]]) -> None:
    for result in results:
        show(f"{'error of ' if result['error'] else ''}{result['name'] or 'tool'}> {result['content']}")


def _advised(observation: Observation, advice: str) -> Observation:
    """Return the observation followed by the person's advice.

    >>> _advised("You see a door.", "Open it.")
    'You see a door.\\n\\nAdvice: Open it.'
    """
    if not advice:
        return observation
    if isinstance(observation, str):
        return f"{observation}\n\nAdvice: {advice}"
    return [*observation, {"role": "user", "content": f"Advice: {advice}"}]
