"""A policy behind any server that speaks OpenAI's chat completions: OpenAI, vLLM, SGLang, llama.cpp.

API: https://platform.openai.com/docs/api-reference/chat/create. The client is the official one with its aiohttp
transport, which many episodes at once need.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import re
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym

from agent_envs.conversation import Conversation
from agent_envs.errors import (
    BackendError,
    ConfigError,
    ContextLengthExceeded,
    EmptyGeneration,
    MissingExtraError,
)
from agent_envs.messages import Message, Observation
from agent_envs.policies.base import Response

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIPolicy"]

# How servers say that a prompt does not fit: OpenAI's code, then the words of vLLM, SGLang and llama.cpp.
_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|model's context length|exceed_context_size"
    r"|exceeds the available context|max_tokens must be at least 1, got -",
    re.IGNORECASE,
)
_CLOSE_SECONDS = 2.0

_Clients = dict[asyncio.AbstractEventLoop, tuple["AsyncOpenAI", AsyncGenerator["AsyncOpenAI", None]]]


class OpenAIPolicy:
    """Asks a chat-completions server for every action.

    The instructions are the system message, observations follow as messages. With ``tool_mode="native"`` the tools go
    to the server as ``tools=``, and the calls it returns are written in the environment's own wire format, so that
    the action is text like any other; results go back under the ids of their calls. With ``"text"`` no tools are
    sent, the system message tells them and how to call them, and the model's raw text is the action.

    One client is made per event loop and closed with it: when ``asyncio.run`` ends, at ``close``, or at exit.

    Args:
        model: The model's name at the server.
        base_url: The server's address, for example ``"http://localhost:8000/v1"``; by default the environment variable
            OPENAI_BASE_URL, or OpenAI's own.
        api_key: The key; by default the environment variable OPENAI_API_KEY. Servers at a ``base_url`` of your own
            are asked without one where neither is given.
        temperature: Sampling temperature, or None for the server's default.
        max_tokens: Tokens of one response at most, or None for no limit of ours.
        tool_mode: ``"native"`` or ``"text"``.
        logprobs: Whether to ask for the log-probabilities of the sampled tokens.
        timeout: Seconds one request may take.
        max_retries: Further attempts after a connection error, a time-out or a status that says to try again.
        request: Further arguments of each request, for example
            ``{"top_p": 0.9, "extra_body": {"top_k": 20}}``.

    Raises:
        MissingExtraError: The ``openai`` package or its aiohttp transport is not installed.
        ConfigError: No key for OpenAI's own server, or an unknown ``tool_mode``.

    A prompt or response that does not fit the context ends the episode with ``StopReason.CONTEXT_LENGTH``, a response
    without text and calls with ``StopReason.EMPTY_GENERATION``, and a server that fails after the retries with
    ``StopReason.ERROR`` (a ``BackendError`` in the traceback).
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        tool_mode: Literal["native", "text"] = "native",
        logprobs: bool = False,
        timeout: float = 600.0,
        max_retries: int = 2,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import aiohttp  # noqa: F401  the transport
            import openai  # noqa: F401
        except ImportError as e:
            raise MissingExtraError("openai[aiohttp]", extra="openai") from e
        if tool_mode not in ("native", "text"):
            raise ConfigError(f"tool_mode must be 'native' or 'text', got {tool_mode!r}")
        self.model = model
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        self.tool_mode = tool_mode
        self._api_key = api_key or os.environ.get("OPENAI_API_KEY") or ("none" if self.base_url else None)
        if self._api_key is None:
            raise ConfigError(
                "no API key: pass api_key= or set OPENAI_API_KEY; for a server of your own pass base_url="
            )
        self._timeout = timeout
        self._max_retries = max_retries
        self._request: dict[str, Any] = {"model": model, **(request or {})}
        if temperature is not None:
            self._request["temperature"] = temperature
        if max_tokens is not None:
            self._request["max_tokens"] = max_tokens
        if logprobs:
            self._request["logprobs"] = True
        self._clients: _Clients = {}
        self.close = weakref.finalize(self, _close_clients, self._clients)
        """Close every client; also done at exit."""

    def start(self, env: gym.Env[Any, str]) -> _OpenAIActor:
        return _OpenAIActor(self, env)

    async def complete(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Any:
        """One choice of the server for these messages (an ``openai.types.chat.chat_completion.Choice``).

        Raises:
            ContextLengthExceeded: The prompt does not fit, or the response was cut by the end of the context.
            BackendError: The server failed, after the retries.
        """
        import openai

        client = await self._client()
        request = {**self._request, "messages": list(messages)}
        if tools:
            request["tools"] = list(tools)
        try:
            completion = await client.chat.completions.create(**request)
        except openai.APIStatusError as e:
            if _OVERFLOW.search(f"{e.code} {e.message}"):
                raise ContextLengthExceeded(f"the server of model {self.model!r} says: {e.message}") from e
            raise self._failure(e) from e
        except (openai.OpenAIError, ValueError) as e:  # ValueError: a body that is not JSON
            raise self._failure(e) from e
        if not isinstance(completion, openai.types.chat.ChatCompletion):
            raise BackendError(
                f"model {self.model!r} at {client.base_url}: no completion but {str(completion)[:200]!r}"
            )
        if not completion.choices:
            raise BackendError(f"model {self.model!r} at {client.base_url}: a completion without choices")
        choice = completion.choices[0]
        if choice.finish_reason == "length":
            limit = self._request.get("max_completion_tokens", self._request.get("max_tokens"))
            used = completion.usage.completion_tokens if completion.usage is not None else limit
            if limit is None or used < limit:
                raise ContextLengthExceeded(
                    f"model {self.model!r} ran out of context after {used} tokens of its response"
                )
        return choice

    def _failure(self, error: Exception) -> BackendError:
        # The aiohttp transport reports a refused connection as a time-out; only the cause tells which it was.
        reasons = [e for e in (error, error.__cause__) if e is not None]
        reason = ", from ".join(f"{type(e).__name__}: {e}" for e in reasons)
        return BackendError(f"model {self.model!r} at {self.base_url or 'OpenAI'} failed: {reason}")

    async def _client(self) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for other in list(self._clients):
                if other.is_closed():
                    del self._clients[other]
            lifetime = _client_lifetime(
                base_url=self.base_url,
                api_key=self._api_key,
                timeout=self._timeout,
                max_retries=self._max_retries,
            )
            self._clients[loop] = (await anext(lifetime), lifetime)
        return self._clients[loop][0]


class _OpenAIActor:
    def __init__(self, policy: OpenAIPolicy, env: gym.Env[Any, str]) -> None:
        self._policy = policy
        self._tools = env.get_wrapper_attr("tools") if policy.tool_mode == "native" else []
        self._format_call = env.get_wrapper_attr("format_call") if self._tools else None
        self._messages: list[dict[str, Any]] = []  # as the server takes them
        self._said: dict[str, tuple[dict[str, Any], list[str | None]]] = {}  # an action as message, its calls' ids
        self._call_ids: list[str | None] = []  # of the last response's calls; None for one that was not JSON
        said = ["instructions"] if policy.tool_mode == "native" else ["instructions", "tool_instructions"]
        instructions = "\n\n".join(filter(None, (env.get_wrapper_attr(name) for name in said)))
        self._conversation = Conversation(instructions)

    async def act(self, observation: Observation, info: dict[str, Any]) -> Response:
        new, fresh = self._conversation.observe(observation, info)
        if fresh:
            self._messages, self._call_ids = [], []
        self._show(new)
        choice = await self._policy.complete(self._messages, self._tools)
        message = choice.message
        content = message.content or message.refusal or ""
        texts = [content] if content else []
        said = list(texts)
        kept = []
        call_ids: list[str | None] = []
        for call in message.tool_calls or []:
            text, well_formed = _call_text(call.function.name, call.function.arguments, self._format_call)
            texts.append(text)
            if well_formed:
                function = {"name": call.function.name, "arguments": call.function.arguments.strip() or "{}"}
                kept.append({"id": call.id, "type": "function", "function": function})
            else:
                said.append(text)  # servers refuse a history with arguments that are not JSON
            call_ids.append(call.id if well_formed else None)
        if not texts:
            raise EmptyGeneration(
                f"model {self._policy.model!r} returned no text and no call (finish_reason {choice.finish_reason!r})"
            )
        entry: dict[str, Any] = {"role": "assistant", "content": "\n".join(said)}
        if kept:
            entry["tool_calls"] = kept
        action = "\n".join(texts)
        self._conversation.respond(action)
        self._messages.append(entry)
        self._call_ids = call_ids
        self._said[action] = entry, call_ids
        logprobs = None
        if choice.logprobs is not None and choice.logprobs.content is not None:
            logprobs = tuple(token.logprob for token in choice.logprobs.content)
        return Response(action, response_logprobs=logprobs)

    def _show(self, new: Sequence[Message]) -> None:
        """Add messages as the server takes them: own responses with their calls, results under the calls' ids."""
        between: list[Message] = []  # what came after the last response
        for message in new:
            if message["role"] != "assistant":
                between.append(message)
                continue
            self._messages += self._answers(between)
            between = []
            entry, self._call_ids = self._said.get(message["content"], ({**message}, []))
            self._messages.append(entry)
        self._messages += self._answers(between)

    def _answers(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """A result under each call's id, the rest from the user."""
        ids, self._call_ids = self._call_ids, []
        results = [m["content"] for m in messages if m["role"] == "tool"]
        others: list[dict[str, Any]] = [{**m} for m in messages if m["role"] != "tool"]
        if not ids:
            return others + ([{"role": "user", "content": "\n".join(results)}] if results else [])
        if len(results) != len(ids):
            # A wrapper changed the observation, or there were calls in the text too: every id needs an answer.
            shown = "\n".join(m["content"] for m in messages)
            results, others = [shown] + ["(shown with the first call)"] * (len(ids) - 1), []
        answers = list(zip(ids, results, strict=True))
        tools = [
            {"role": "tool", "tool_call_id": call_id, "content": content}
            for call_id, content in answers
            if call_id is not None
        ]
        rest = [content for call_id, content in answers if call_id is None]
        return tools + ([{"role": "user", "content": "\n".join(rest)}] if rest else []) + others


def _call_text(name: str, arguments: str, format_call: Callable[[str, dict[str, Any]], str] | None) -> tuple[str, bool]:
    """A server's call in the environment's wire format, and whether its arguments were a JSON object.

    Arguments that are not stay as the model wrote them, in the place where they belong: the environment's parser
    says what is wrong with them.
    """
    if format_call is None:
        return f"{name}({arguments})", False
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return format_call(name, value), True
    before, _, after = format_call(name, {}).rpartition("{}")
    return before + arguments + after, False


async def _client_lifetime(**arguments: Any) -> AsyncGenerator[AsyncOpenAI, None]:
    """Yields one client. An event loop closes its open generators when it shuts down, and the client with them."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    client = AsyncOpenAI(**arguments, http_client=DefaultAioHttpClient(timeout=arguments["timeout"]))
    try:
        yield client
    finally:
        await client.close()


def _close_clients(clients: _Clients) -> None:
    """Close the clients on their loops; those of a loop that no longer runs went with it."""
    waiting = []
    for loop, (_, lifetime) in list(clients.items()):
        if loop.is_running():
            waiting.append((loop, asyncio.run_coroutine_threadsafe(_aclose(lifetime), loop)))
    clients.clear()
    for loop, future in waiting:
        if asyncio._get_running_loop() is not loop:
            concurrent.futures.wait([future], timeout=_CLOSE_SECONDS)


async def _aclose(lifetime: AsyncGenerator[Any, None]) -> None:
    await lifetime.aclose()
