"""`agentr1 chat`: a person and an agent with its tools, at the terminal.

Where an environment takes questions of one's own, the person asks them, and the agent's calls run as in training. In
every other environment the agent plays a task, and the person may advise it before each of its actions.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from agent_envs.cli.env_arguments import add_env_arguments, chosen_env
from agent_envs.cli.policy_arguments import add_policy_arguments, chosen_policy
from agent_envs.errors import BackendError, EpisodeStop, PromptError
from agent_envs.messages import Observation, observation_text
from agent_envs.policies.policy import Policy, Response
from agent_envs.policies.terminal import read_text, show, tolerant_streams, tool_lines
from agent_envs.text import plain
from agent_envs.threads import background_loop

__all__ = ["Chat", "add_arguments", "run"]

_EPILOG = """\
examples:
  a run's last checkpoint, with the tools that it was trained with:
    agentr1 chat --env AgentR1/HotpotQA-v0 --checkpoint runs/hotpotqa
  any model behind a server, over documents of your own:
    agentr1 chat --env AgentR1/HotpotQA-v0 --env-kwargs '{"corpus": "notes.jsonl"}' \\
        --base-url http://localhost:8000/v1 --model Qwen/Qwen3-8B
  an agent in a household, which you advise as it goes:
    agentr1 chat --env AgentR1/ALFWorld-v0 --index 3 --model models/mine

/tools shows the tools, /reset begins anew, /quit (or Ctrl-D) ends. A line that ends in a backslash goes on in the next.
"""

_COMMANDS = "/tools, /reset, /quit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 chat`."""
    parser.epilog = _EPILOG
    add_env_arguments(parser)
    add_policy_arguments(parser)
    add = parser.add_argument_group("conversation").add_argument
    add("--index", type=int, metavar="I", help="play this task and advise the agent, also where you could ask yourself")
    add("--seed", type=int, default=0, help="of the agent's sampling (default: %(default)s)")


def run(arguments: argparse.Namespace) -> str:
    """Talk until the person has had enough; what to say at the end."""
    tolerant_streams()
    env = chosen_env(arguments).make()
    try:
        chat = Chat(env, chosen_policy(arguments, seed=arguments.seed), index=arguments.index)
        chat.talk()
    finally:
        env.close()
    return f"{'questions' if chat.asks else 'tasks'}: {chat.questions}, actions: {chat.steps}"


class Chat:
    """A person's conversation with an agent.

    Args:
        env: Where the agent acts.
        policy: The agent.
        index: The task to play; None where the person asks, or to have one drawn.
        ask: From a prompt to what the person writes; raises EOFError at the end.
        show: Shows untrusted text.
    """

    def __init__(
        self,
        env: gym.Env[Any, str],
        policy: Policy,
        *,
        index: int | None = None,
        ask: Callable[[str], str] = read_text,
        show: Callable[[str], None] = show,
    ) -> None:
        self.env = env
        self.policy = policy
        self.index = index
        self.asks = index is None and "question" in getattr(env.unwrapped, "reset_options", ())
        """Whether the person asks; else the agent plays a task."""
        self.questions = 0
        """Questions asked so far, or tasks played."""
        self.steps = 0
        """Actions so far."""
        self._ask = ask
        self._show = show
        self._actor: Any = None
        self._acting = False  # whether the agent is at it, which Ctrl-C stops
        self._interactive = sys.stdin.isatty()

    def talk(self) -> None:
        """Talk until /quit or the end of the input.

        Raises:
            ConfigError: The environment cannot be asked, or has no such task.
            BackendError: What serves the model failed, and nobody is there to try again.
        """
        self._greet()
        while True:
            try:
                if self.asks:
                    self._turn()
                else:
                    self._game()
            except EOFError:
                return
            except _Anew:
                self._actor = None
                self._show("(begun anew)")
            except (EpisodeStop, PromptError) as e:  # the context is full, nothing was said, messages do not fit
                self._forget(str(e) or type(e).__name__)
            except BackendError as e:
                if not self._interactive:
                    raise
                self._forget(str(e))
            except KeyboardInterrupt:
                if not self._acting:
                    return
                self._forget("stopped")

    def _greet(self) -> None:
        name = self.env.unwrapped.spec.id if self.env.unwrapped.spec is not None else type(self.env.unwrapped).__name__
        what = "Ask a question" if self.asks else "The agent plays; Enter goes on, words are advice"
        self._show(f"{name}. {what}. Also: {_COMMANDS}.")
        self._show_tools()

    def _show_tools(self) -> None:
        self._show(tool_lines(self.env.get_wrapper_attr("tools")) or "(no tools: actions are texts)")

    def _forget(self, why: str) -> None:
        self._actor, self._acting = None, False
        self._show(f"({why}: the conversation begins anew)")

    def _words(self, prompt: str) -> str:
        """What the person says, commands carried out."""
        while True:
            text = self._ask(prompt)
            word = text.strip()
            if word == "/quit":
                raise EOFError
            if word == "/reset":
                raise _Anew
            if word == "/tools":
                self._show_tools()
            elif word.startswith("/") and " " not in word:
                self._show(f"There is no {word}; there are {_COMMANDS}.")
            else:
                return text

    def _turn(self) -> None:
        """One question and all the agent does to answer it; the conversation goes on from one to the next."""
        question = self._words("you> ")
        if not question.strip():
            return
        observation, info = self.env.reset(options={"question": question})
        if observation_text(observation).strip() != question.strip():
            self._show(observation_text(observation))
        self.questions += 1
        if self._actor is None:
            self._actor = self.policy.start(self.env)
        over = False
        while not over:
            observation, info, over, cut = self._step(observation, info)
            if cut:
                self._show("(the step limit ended it)")

    def _game(self) -> None:
        """One task, with advice between the steps."""
        observation, info = self.env.reset(options=None if self.index is None else {"index": self.index})
        self._actor = self.policy.start(self.env)
        self.questions += 1
        self._show(f"\ntask {info.get('task_id', '')}\n{observation_text(observation)}")
        over = False
        while not over:
            observation = _advised(observation, self._words("advice> ").strip())
            observation, info, over, cut = self._step(observation, info)
            if over:
                end = "the step limit ended it" if cut else "solved" if info.get("success") else "over, not solved"
                self._show(f"({end}, score {info.get('score', 0.0):g})")
        self._actor = None
        self._words("Enter for another task> ")

    def _step(self, observation: Observation, info: dict[str, Any]) -> tuple[Observation, dict[str, Any], bool, bool]:
        """The agent's next action and what came of it: observation, info, whether it is over, and by the limit."""
        self._acting = True
        response = self._response(observation, info)
        if response.empty:
            raise EpisodeStop("the agent said nothing")
        self.steps += 1
        self._show(f"agent> {response.text}")
        observation, _, terminated, truncated, info = self.env.step(response.text)
        self._acting = False
        results = info.get("tool_results", [])
        for result in results:
            self._show(f"{'error of ' if result['error'] else ''}{result['name'] or 'tool'}> {result['content']}")
        if not results and not (terminated and self.asks):  # what an environment says to an answer is for its score
            self._show(observation_text(observation))
        return observation, info, bool(terminated or truncated), bool(truncated and not terminated)

    def _response(self, observation: Observation, info: dict[str, Any]) -> Response:
        action = self._actor.act(observation, info)
        if inspect.isawaitable(action):
            future = asyncio.run_coroutine_threadsafe(_awaited(action), background_loop())
            try:
                action = future.result()
            finally:
                future.cancel()  # no effect once it is done
        return Response(action) if isinstance(action, str) else action


class _Anew(Exception):  # noqa: N818  not an error
    """The person wants to begin anew."""


async def _awaited(action: Any) -> Any:
    return await action


def _advised(observation: Observation, advice: str) -> Observation:
    """The observation with the person's words after it.

    >>> _advised("You see a door.", "Open it.")
    'You see a door.\\n\\nAdvice: Open it.'
    """
    if not advice:
        return observation
    if isinstance(observation, str):
        return f"{observation}\n\nAdvice: {plain(advice)}"
    return [*observation, {"role": "user", "content": f"Advice: {advice}"}]
