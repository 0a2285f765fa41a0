"""An agent's episode for trainers that ask the model themselves: prompts come out of it, texts go into it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import gymnasium as gym

from agent_envs.agents.loading import Agent
from agent_envs.episodes.record import Episode
from agent_envs.errors import BackendError
from agent_envs.messages import Message, ToolSpec, content_text
from agent_envs.policies.model import ModelActor
from agent_envs.policies.openai.calls import to_openai
from agent_envs.policies.policy import Response
from agent_envs.prompts.builder import with_instructions
from agent_envs.rollout.one import run_episode
from agent_envs.threads import run_in_thread

Messages = list[dict[str, Any]]


class EpisodeByHand:
    """Plays an agent in a thread, and hands over the prompts of its model one at a time.

    Whoever made the environment closes it; seed and options are those of the reset.
    """

    def __init__(
        self, env: gym.Env[Any, str], agent: str | Agent, *, seed: int | None, options: Mapping[str, Any] | None
    ) -> None:
        self.episode: Episode | None = None
        """The episode, once it has ended."""
        self._words: str = env.get_wrapper_attr("tool_instructions")
        self._prompts: SimpleQueue[tuple[Messages, Future[Response]] | None] = SimpleQueue()
        self._asked: Future[Response] | None = None
        self._playing = run_in_thread(self._play, env, agent, seed, options)

    def next(self, text: str | None = None) -> Messages | None:
        """Answer the last prompt with a text, and return the next one; None at the end of the episode.

        Prompts are as OpenAI-compatible servers take them, tools in words and results as the user's.
        """
        if self._asked is not None and self._asked.set_running_or_notify_cancel():  # otherwise nobody waits any more
            self._asked.set_result(Response(text or ""))
        if (received := self._prompts.get()) is not None:
            prompt, self._asked = received
            return prompt
        self._asked, self.episode = None, self._playing.result()
        if self.episode.stop_reason.broken:
            raise BackendError(self.episode.error or self.episode.stop_reason.value)
        return None

    def close(self) -> None:
        """End the episode, whatever it waits for."""
        while self.episode is None:
            if self._asked is not None:
                self._asked.cancel()
            if (received := self._prompts.get()) is None:
                self.episode = self._playing.result()
            else:
                self._asked = received[1]

    def _play(self, env: gym.Env[Any, str], agent: str | Agent, seed: int | None, options: Any) -> Episode:
        try:
            return run_episode(env, self, agent=agent, seed=seed, options=options)
        finally:
            self._prompts.put(None)

    # -- the model, on the loop of the episode -------------------------------------------------------------------------

    def start(self, env: gym.Env[Any, str]) -> ModelActor:
        """Return what plays without an agent."""
        return ModelActor(self, env)

    def open(self, env: gym.Env[Any, str]) -> EpisodeByHand:
        """Return the model in the episode: this very object."""
        return self

    def fork(self, number: int) -> EpisodeByHand:
        """Return the model with the same past: whoever answers keeps it."""
        return self

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Return about how many tokens a prompt has."""
        return sum(len(content_text(message["content"])) for message in messages) // 4

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, task_id: str = "", limit: int = 0,
        ordered: bool = True,
    ) -> Response:  # fmt: skip
        """Hand a prompt over, and wait for the text."""
        asked: Future[Response] = Future()
        self._prompts.put((to_openai(with_instructions(messages, self._words if tools else "")), asked))
        return await asyncio.wrap_future(asked)
