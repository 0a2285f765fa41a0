"""Summaries by a model behind any server with OpenAI's chat completions.

API: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from agent_envs import checks
from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendReplyError,
    BackendSlowError,
    ConfigError,
    needs_extra,
)
from agent_envs.messages import Message, joined_content
from agent_envs.policies.openai.calls import server_content
from agent_envs.policies.openai.keys import bare_address, quiet_cause, without_keys

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
        timeout: Time limit of one request in seconds.
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
        with needs_extra("openai"):
            import openai
        checks.number("timeout", timeout, above=0)
        self.model = model
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        key = api_key or os.environ.get("OPENAI_API_KEY") or ("none" if self.base_url else None)
        if key is None:
            raise ConfigError("no API key: pass api_key= or set OPENAI_API_KEY; for your own server pass base_url=")
        if self.base_url is not None and self.base_url != bare_address(self.base_url):
            raise ConfigError("base_url contains a user, a password or a query, which would be recorded; pass api_key=")
        self._key = key
        self.prompt = (_ASK if prompt is None else prompt).replace("{words}", str(words))
        self.max_tokens = max_tokens
        self.temperature = temperature
        self._client = openai.OpenAI(base_url=self.base_url, api_key=key, timeout=timeout, max_retries=max_retries)

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenAISummary:
        return self  # copies of an environment share the client

    def __call__(self, messages: Sequence[Message]) -> str:
        """Return the summary of messages; raises a BackendError whose subclass says how the server failed."""
        try:
            return self._ask(messages)
        except BackendError as e:
            raise type(e)(without_keys(str(e), {self._key})) from quiet_cause(e, {self._key})

    def _ask(self, messages: Sequence[Message]) -> str:
        import openai

        said = (joined_content([f"--- {message['role']} ---", message["content"]], "\n") for message in messages)
        conversation: Any = server_content(joined_content([self.prompt, joined_content(said, "\n")], "\n\n"))
        where = f"the summary by model {self.model!r} at {self.base_url or 'OpenAI'}"
        try:
            completion = self._client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": conversation}],
                max_tokens=self.max_tokens,
                temperature=self.temperature,
            )
        except openai.APITimeoutError as e:
            raise BackendSlowError(f"{where} did not come in time: {e}") from e
        except openai.APIConnectionError as e:
            raise BackendDownError(f"{where} failed: nothing answers: {e.__cause__ or e}") from e
        except openai.RateLimitError as e:
            raise BackendBusyError(f"{where} was refused for now: {e}") from e
        except openai.OpenAIError as e:
            raise BackendError(f"{where} failed: {type(e).__name__}: {str(e)[:500]}") from e
        except ValueError as e:
            raise BackendReplyError(f"{where} failed: the reply is not JSON: {e}") from e
        if not isinstance(completion, openai.types.chat.ChatCompletion) or not completion.choices:
            raise BackendReplyError(f"{where} failed: the reply is no completion: {str(completion)[:200]!r}")
        content = (completion.choices[0].message.content or "").rpartition("</think>")[2].strip()
        if not content:
            reason = completion.choices[0].finish_reason
            raise BackendReplyError(f"{where} is empty (finish_reason {reason!r})")
        return content
