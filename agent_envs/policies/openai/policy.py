"""A policy behind any server that speaks OpenAI's chat completions: OpenAI, vLLM, SGLang, llama.cpp.

API: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import gymnasium as gym

from agent_envs.errors import (
    BackendError,
    ConfigError,
    ContextLengthExceeded,
    EmptyGeneration,
    RunBudgetSpent,
    TokenLimitReached,
)
from agent_envs.messages import Message, Observation
from agent_envs.policies.openai.calls import answer_calls, call_text
from agent_envs.policies.openai.client import OpenAIServer
from agent_envs.policies.openai.reply import Reply
from agent_envs.policies.policy import Response
from agent_envs.prompts.conversation import Conversation

__all__ = ["OpenAIPolicy"]

# How servers say that a prompt does not fit: OpenAI's code, then the words of vLLM, SGLang and llama.cpp.
_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|model's context length|exceed_context_size"
    r"|exceeds the available context|max_tokens must be at least 1, got -",
    re.IGNORECASE,
)
_SHORTEST_KEY = 8
_CHARACTERS_PER_TOKEN = 4  # where a server does not count


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
        max_episode_tokens: Prompt and response tokens an episode may use; the response that passes it is still played.
        max_total_tokens: Prompt and response tokens of all episodes together; requests under way are still played.
        tool_mode: ``"native"`` or ``"text"``.
        logprobs: Whether to ask for the log-probabilities of the sampled tokens.
        token_ids: Whether to ask for the tokens of prompt and response (``return_token_ids``: vLLM, SGLang).
        keep_reasoning: Whether what the server tells apart as reasoning goes before the action, between ``<think>``
            and ``</think>``. The model is shown its own words without it, as servers want it.
        timeout: Seconds one attempt of a request may take.
        stream: Whether replies are streamed, so that a silence of ``stall_timeout`` seconds ends an attempt. Servers
            read native calls in streams in their own way: vLLM's Hermes parser leaves out a malformed call, which it
            returns as text otherwise, and the reply may be empty; ``tool_mode="text"`` has all of it.
        stall_timeout: See ``stream``.
        max_retries: Further attempts after a connection error, a time-out, a reply that cannot be read, or a status
            that says to try again.
        max_wait: Seconds a request waits in all for the end of rate limits, beside the retries. All requests keep a
            ``Retry-After``.
        max_in_flight: Requests under way at the same time, or None for no limit of ours.
        request: Further arguments of each request, for example
            ``{"top_p": 0.9, "extra_body": {"top_k": 20}}``.

    Raises:
        MissingExtraError: The ``openai`` package or its aiohttp transport is not installed.
        ConfigError: No key for OpenAI's own server, an unknown ``tool_mode``, a ``base_url`` with a password, or a
            number out of its range.

    A prompt or response that does not fit the context ends the episode with ``StopReason.CONTEXT_LENGTH``, a response
    without text and calls with ``StopReason.EMPTY_GENERATION``, used-up tokens with ``TOKEN_LIMIT`` or ``RUN_BUDGET``,
    and a server that fails after the retries with ``StopReason.ERROR`` (a ``BackendError`` in the traceback). Tokens
    are counted as the server reports them, four characters a token where it does not.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        max_episode_tokens: int | None = None,
        max_total_tokens: int | None = None,
        tool_mode: Literal["native", "text"] = "native",
        logprobs: bool = False,
        token_ids: bool = False,
        keep_reasoning: bool = False,
        timeout: float = 600.0,
        stream: bool = False,
        stall_timeout: float = 60.0,
        max_retries: int = 5,
        max_wait: float = 600.0,
        max_in_flight: int | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        if tool_mode not in ("native", "text"):
            raise ConfigError(f"tool_mode must be 'native' or 'text', got {tool_mode!r}")
        for name, value, least in (
            ("max_tokens", max_tokens, 1),
            ("max_episode_tokens", max_episode_tokens, 1),
            ("max_total_tokens", max_total_tokens, 1),
            ("max_in_flight", max_in_flight, 1),
            ("max_retries", max_retries, 0),
            ("max_wait", max_wait, 0),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value!r}")
        for name, seconds in (("timeout", timeout), ("stall_timeout", stall_timeout)):
            if not seconds > 0:
                raise ConfigError(f"{name} must be above 0 seconds, got {seconds!r}")
        self.model = model
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        if self.base_url is not None and "@" in urlsplit(self.base_url).netloc:
            raise ConfigError("base_url holds a user or a password, which would be written down; pass api_key=")
        self.tool_mode = tool_mode
        self.max_episode_tokens = max_episode_tokens
        self.max_total_tokens = max_total_tokens
        self.keep_reasoning = keep_reasoning
        self.used_tokens = 0
        """Prompt and response tokens of all requests so far."""
        key = api_key or os.environ.get("OPENAI_API_KEY") or ("none" if self.base_url else None)
        if key is None:
            raise ConfigError(
                "no API key: pass api_key= or set OPENAI_API_KEY; for a server of your own pass base_url="
            )
        self._key = key
        self.server = OpenAIServer(
            self.base_url,
            key,
            timeout=timeout,
            stall_timeout=stall_timeout,
            max_retries=max_retries,
            max_wait=max_wait,
            max_in_flight=max_in_flight,
            stream=stream,
        )
        self.close = self.server.close
        """Close every client; also done at exit."""
        self._request: dict[str, Any] = {"model": model, **(request or {})}
        if temperature is not None:
            self._request["temperature"] = temperature
        if max_tokens is not None:
            self._request["max_tokens"] = max_tokens
        if logprobs:
            self._request["logprobs"] = True
        if token_ids:
            self._request["extra_body"] = {"return_token_ids": True, **self._request.get("extra_body", {})}

    def start(self, env: gym.Env[Any, str]) -> _OpenAIActor:
        return _OpenAIActor(self, env)

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **more: Any
    ) -> Reply:
        """One reply of the server to these messages.

        Args:
            messages: The prompt.
            tools: Their specs, empty for none.
            more: Further arguments of this request; they win.

        Raises:
            ContextLengthExceeded: The prompt does not fit, or the response was cut by the end of the context.
            RunBudgetSpent: All tokens of the run are used.
            BackendError: The server failed, after the retries.
        """
        if self.max_total_tokens is not None and self.used_tokens >= self.max_total_tokens:
            raise RunBudgetSpent(f"the run has used {self.used_tokens} of {self.max_total_tokens} tokens")
        request = {**self._request, "messages": list(messages), **more}
        if tools:
            request["tools"] = list(tools)
        try:
            reply = await self.server.ask(request)
        except BackendError as e:
            said = self._hidden(str(e))
            cause = e if said == str(e) else None  # a traceback shows its causes
            if _OVERFLOW.search(said):
                raise ContextLengthExceeded(f"the server of model {self.model!r} says: {said}") from cause
            where = self.base_url or "OpenAI"
            raise type(e)(f"model {self.model!r} at {where} failed: {type(e).__name__}: {said}") from cause
        self.used_tokens += _token_count(reply, messages)
        if reply.finish_reason == "length":
            limit = request.get("max_completion_tokens", request.get("max_tokens"))
            used = reply.usage.get("completion_tokens", limit)
            if limit is None or used < limit:
                raise ContextLengthExceeded(
                    f"model {self.model!r} ran out of context after {used} tokens of its response"
                )
        return reply

    def _hidden(self, text: str) -> str:
        """What a server said without the key, which some repeat; one that is no secret ("none", "EMPTY") stays."""
        return text.replace(self._key, "(the key)") if len(self._key) >= _SHORTEST_KEY else text


def _token_count(reply: Reply, messages: Sequence[Mapping[str, Any]]) -> int:
    """Prompt and response tokens of one request."""
    prompt, response = reply.usage.get("prompt_tokens"), reply.usage.get("completion_tokens")
    if prompt is None:
        prompt = sum(len(str(message.get("content", ""))) for message in messages) // _CHARACTERS_PER_TOKEN
    if response is None:
        response = (len(reply.text) + sum(len(call.arguments) for call in reply.calls)) // _CHARACTERS_PER_TOKEN
    return prompt + response


class _Said(NamedTuple):
    """A response of the server."""

    entry: dict[str, Any]
    """As message."""
    call_ids: list[str | None]
    """Ids of its calls; None for one that is shown as text: its arguments are no JSON, or no tools were sent."""
    calls: str
    """The calls in the environment's wire format, at the end of the action; "" where one was no JSON."""


class _OpenAIActor:
    def __init__(self, policy: OpenAIPolicy, env: gym.Env[Any, str]) -> None:
        self._policy = policy
        tools = env.get_wrapper_attr("tools")
        self._tools = tools if policy.tool_mode == "native" else []
        self._format_call = env.get_wrapper_attr("format_call") if tools else None
        self._messages: list[dict[str, Any]] = []  # as the server takes them
        self._said: dict[str, _Said] = {}  # by the action
        self._used_tokens: list[int] = []  # by each request of the episode; forks add to the same
        self._call_ids: list[str | None] = []  # of the last response's calls; None for one that was not JSON
        said = ["instructions"] if policy.tool_mode == "native" else ["instructions", "tool_instructions"]
        instructions = "\n\n".join(filter(None, (env.get_wrapper_attr(name) for name in said)))
        self._conversation = Conversation(instructions)

    def fork(self, number: int) -> _OpenAIActor:
        """See `ForkingActor`; the server draws."""
        other = copy.copy(self)
        other._conversation = self._conversation.fork()
        other._messages, other._call_ids, other._said = [*self._messages], [*self._call_ids], {**self._said}
        return other

    async def act(self, observation: Observation, info: dict[str, Any]) -> Response:
        new, fresh = self._conversation.observe(observation, info)
        if fresh:
            self._messages, self._call_ids = [], []
        self._show(new)
        limit = self._policy.max_episode_tokens
        if limit is not None and sum(self._used_tokens) >= limit:
            raise TokenLimitReached(f"the episode has used {sum(self._used_tokens)} of {limit} tokens")
        reply = await self._policy.complete(self._messages, self._tools)
        self._used_tokens.append(_token_count(reply, self._messages))
        texts = [reply.text] if reply.text else []
        said = list(texts)
        kept = []
        call_ids: list[str | None] = []
        for call in reply.calls:
            text, well_formed = call_text(call.name, call.arguments, self._format_call)
            texts.append(text)
            restored = well_formed and bool(self._tools)
            if restored:
                function = {"name": call.name, "arguments": call.arguments.strip() or "{}"}
                kept.append({"id": call.id, "type": "function", "function": function})
            else:
                said.append(text)  # servers refuse a history with arguments that are no JSON, or calls without tools
            call_ids.append(call.id if restored else None)
        if not texts:
            raise EmptyGeneration(
                f"model {self._policy.model!r} returned no text and no call (finish_reason {reply.finish_reason!r})"
            )
        entry: dict[str, Any] = {"role": "assistant", "content": "\n".join(said)}
        if kept:
            entry["tool_calls"] = kept
        action = "\n".join(texts)
        if self._policy.keep_reasoning and reply.reasoning:
            action = f"<think>\n{reply.reasoning.strip()}\n</think>\n{action}"
        self._conversation.respond(action)
        self._messages.append(entry)
        self._call_ids = call_ids
        calls = "\n".join(texts[len(texts) - len(reply.calls) :]) if len(kept) == len(reply.calls) else ""
        self._said[action] = _Said(entry, call_ids, calls)
        return Response(action, reply.prompt_ids, reply.response_ids, reply.logprobs, reply.usage or None)

    def _show(self, new: Sequence[Message]) -> None:
        """Add messages as the server takes them: own responses with their calls, results under the calls' ids."""
        between: list[Message] = []  # what came after the last response

        def answer() -> None:
            self._messages += answer_calls(self._call_ids, between)
            self._call_ids = []
            between.clear()

        for message in new:
            if message["role"] != "assistant":
                between.append(message)
                continue
            answer()
            said = self._recognised(message)
            self._call_ids = said.call_ids
            self._messages.append(said.entry)
        answer()

    def _recognised(self, message: Message) -> _Said:
        """An own response among the messages of an environment, also where its reasoning was taken out."""
        content = message["content"]
        if content in self._said:
            return self._said[content]
        for said in reversed(self._said.values()):
            if said.calls and content.endswith(said.calls):
                before = content[: -len(said.calls)].rstrip("\n")
                return said._replace(entry={**said.entry, "content": before})
        return _Said({**message}, [], "")
