"""Summaries by a model behind any server with OpenAI's chat completions.

API: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_envs.errors import BackendError, BackendReplyError, ContextLengthExceeded
from agent_envs.messages import Message, joined_content
from agent_envs.policies.openai.calls import server_content
from agent_envs.policies.openai.policy import OpenAIPolicy
from agent_envs.threads import background_loop

__all__ = ["OpenAISummary"]

_ASK = (
    "Summarise the conversation below between a user, an assistant and its tools, for the assistant, who will see the "
    "task and this summary only. Keep what was found out, what was tried and failed, names, ids and numbers as they "
    "are, and what is left to do. Answer with the summary alone, in at most {words} words."
)


class OpenAISummary:
    """Ask a chat-completions server for a summary of messages.

    The conversation is sent as quoted text in one user message, which any server and chat template accepts and in which
    nothing passes for an instruction.

    Args:
        model: The model's name on the server.
        base_url: The server's address, such as ``"http://localhost:8000/v1"``; by default the environment variable
            OPENAI_BASE_URL, or OpenAI's own server.
        api_key: The key; by default the environment variable OPENAI_API_KEY. A ``base_url`` needs none.
        words: Maximum length of the summary in words, as the prompt asks for it.
        max_tokens: Maximum length of the reply in tokens.
        temperature: Sampling temperature.
        timeout: Time limit of one attempt, and of waiting for rate limits, in seconds.
        max_retries: Number of retries after a connection error, a time-out or a status that allows them.
        prompt: The request, with ``{words}`` for the number; None for this module's own.

    Raises:
        MissingExtraError: The ``openai`` package is not installed.
        ConfigError: No key for OpenAI's own server, or an argument out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        words: int = 200,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        timeout: float = 60.0,
        max_retries: int = 2,
        prompt: str | None = None,
    ) -> None:
        self._policy = OpenAIPolicy(
            model, base_url=base_url, api_key=api_key, temperature=temperature, max_tokens=max_tokens, timeout=timeout,
            max_retries=max_retries, max_wait=timeout,
        )  # fmt: skip
        self.prompt = (_ASK if prompt is None else prompt).replace("{words}", str(words))

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenAISummary:
        return self  # copies of an environment share the client

    def __call__(self, messages: Sequence[Message]) -> str:
        """Return the summary of messages; raises a BackendError whose subclass says how the server failed."""
        said = (joined_content([f"--- {message['role']} ---", message["content"]], "\n") for message in messages)
        asked = server_content(joined_content([self.prompt, joined_content(said, "\n")], "\n\n"))
        answer = self._policy.complete([{"role": "user", "content": asked}])
        where = f"the summary by model {self._policy.model!r} at {self._policy.base_url or 'OpenAI'}"
        try:
            reply = asyncio.run_coroutine_threadsafe(answer, background_loop()).result()
        except ContextLengthExceeded as e:
            raise BackendError(f"{where} failed: {e}") from e
        text = reply.text.rpartition("</think>")[2].strip()
        if not text:
            raise BackendReplyError(f"{where} is empty (finish_reason {reply.finish_reason!r})")
        return text
