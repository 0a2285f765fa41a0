"""A policy that asks any server with OpenAI's chat-completions API: OpenAI, vLLM, SGLang, llama.cpp.

API: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

import asyncio
import copy
import math
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

import gymnasium as gym

from agent_envs.checks import choice, integer, number
from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendRefusedError,
    BackendReplyError,
    ConfigError,
    ContextLengthExceeded,
    EmptyGeneration,
    RunBudgetSpent,
    TokenLimitReached,
)
from agent_envs.http.addresses import server_address
from agent_envs.messages import Message, ToolSpec, content_text
from agent_envs.parsers import get_parser
from agent_envs.parsers.parser import describe_tools
from agent_envs.policies.model import ModelActor
from agent_envs.policies.openai.calls import Turn, call_text, to_openai
from agent_envs.policies.openai.client import OpenAIServer
from agent_envs.policies.openai.fields import is_overflow, quiet_cause, refused_fields, request_keys, without_keys
from agent_envs.policies.openai.reply import Reply
from agent_envs.policies.policy import Response
from agent_envs.prompts.builder import with_instructions
from agent_envs.prompts.past import Past
from agent_envs.threads import background_loop

_OWN_FIELDS = ("role", "content", "tool_calls")
_CHARACTERS_PER_TOKEN = 4  # if a server does not count tokens

_CONNECTS = 2.5  # seconds within which a server takes a connection


class OpenAIPolicy:
    """Asks a chat-completions server for every action.

    The instructions are the system message; observations follow as messages. With ``tool_mode="native"`` the tools go
    to the server as ``tools=``, the calls it returns become text in the environment's own wire format, and results go
    back under the ids of their calls. With ``"text"`` no tools are sent: the system message describes them and how to
    call them, and the model's raw text is the action.

    Args:
        model: The model's name on the server.
        base_url: The server's address, for example ``"http://localhost:8000/v1"``; by default the environment variable
            OPENAI_BASE_URL, or OpenAI's address.
        api_key: The key; by default the environment variable OPENAI_API_KEY. Servers at your own
            ``base_url`` are asked without a key if neither is set.
        temperature: Sampling temperature, or None for the server's default.
        max_tokens: Most tokens of one response, or None for no limit of this policy.
        max_episode_tokens: Prompt and response tokens that an episode may use; the response that exceeds it is still
            played.
        max_total_tokens: Prompt and response tokens of all episodes together; running requests are still played.
        tool_mode: ``"native"`` or ``"text"``.
        logprobs: Whether to ask for the log-probabilities of the sampled tokens.
        token_ids: Whether to ask for the tokens of prompt and response (``return_token_ids``: vLLM, SGLang).
        keep_reasoning: Whether reasoning that the server separates from the text goes before the action, between
            ``<think>`` and ``</think>``. The model's history has it as the server sent it, in a field of its own.
        timeout: Seconds that one attempt of a request may take.
        stream: Whether to stream replies, so that ``stall_timeout`` seconds without a byte end an attempt. Servers may
            parse native calls differently in streams: vLLM's Hermes parser drops a malformed call, which it otherwise
            returns as text, and the reply may be empty. ``tool_mode="text"`` avoids that.
        stall_timeout: See ``stream``.
        max_retries: Further attempts after a connection error, a time-out, a malformed reply, or a status that allows
            another attempt.
        max_wait: Seconds that a request may wait for rate limits in total, besides retries. All requests obey a
            ``Retry-After``.
        max_in_flight: Most requests at a time, or None for no limit.
        request: More arguments for each request, for example
            ``{"top_p": 0.9, "extra_body": {"top_k": 20}}``; None leaves one out that the policy would send.

    Raises:
        MissingExtraError: The ``openai`` package or its aiohttp transport is not installed.
        ConfigError: No key for OpenAI's server, an unknown ``tool_mode``, a ``base_url`` with a password or a query,
            or a number out of range.

    The episode ends with ``StopReason.CONTEXT_LENGTH`` if a prompt or response does not fit the context, with
    ``EMPTY_GENERATION`` after a response without text and calls, with ``TOKEN_LIMIT`` or ``RUN_BUDGET`` if the tokens
    are used up, and with ``ERROR`` (a ``BackendError`` in the traceback) if the server fails after the retries. Token
    counts are the server's; without them, four characters count as a token.
    """

    untimed = False

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
        choice("tool_mode", tool_mode, ("native", "text"))
        integer("max_retries", max_retries, minimum=0)
        limits = {"max_tokens": max_tokens, "max_episode_tokens": max_episode_tokens}
        for name, limit in {**limits, "max_total_tokens": max_total_tokens, "max_in_flight": max_in_flight}.items():
            if limit is not None:
                integer(name, limit, minimum=1)
        for name, seconds in (("timeout", timeout), ("stall_timeout", stall_timeout)):
            if seconds != math.inf:
                number(name, seconds, above=0)
        if max_wait != math.inf:
            number("max_wait", max_wait, minimum=0)
        self.model = model
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        if self.base_url is not None:
            name = "base_url (--base-url; keys go into api_key=, a query into request={'extra_query': ...})"
            server_address(name, self.base_url)
        self.tool_mode, self.keep_reasoning = tool_mode, keep_reasoning
        self.max_episode_tokens, self.max_total_tokens = max_episode_tokens, max_total_tokens
        self.used_tokens = 0
        """Prompt and response tokens of all requests so far."""
        key = api_key or os.environ.get("OPENAI_API_KEY") or ("none" if self.base_url else None)
        if key is None:
            raise ConfigError("no API key: set OPENAI_API_KEY (api_key=), or give --base-url or --policy transformers")
        sent = request or {}
        self._keys = request_keys(sent.get("extra_headers", {}), sent.get("extra_query", {})) | {key}
        self.server = OpenAIServer(
            self.base_url, key, timeout=timeout, stall_timeout=stall_timeout, max_retries=max_retries,
            max_wait=max_wait, max_in_flight=max_in_flight, stream=stream,
        )  # fmt: skip
        self.close = self.server.close
        settings = {"temperature": temperature, "max_tokens": max_tokens, "logprobs": logprobs or None}
        chosen = {name: value for name, value in settings.items() if value is not None}
        self._request: dict[str, Any] = {"model": model, **sent, **chosen}
        if token_ids:
            self._request["extra_body"] = {"return_token_ids": True, **self._request.get("extra_body", {})}

    def check_server(self) -> None:
        """Raise a BackendDownError if the server takes no connection; behind a proxy it is not asked."""
        if getproxies():
            return
        where = urlsplit(self.base_url or "https://api.openai.com")
        try:
            port = where.port or {"http": 80}.get(where.scheme, 443)
            socket.create_connection((where.hostname or "", port), timeout=_CONNECTS).close()
        except (OSError, ValueError) as e:
            raise BackendDownError(
                f"no server answers at {where.geturl()} ({e}): start it, or name another one by base_url (--base-url)"
            ) from e

    def start(self, env: gym.Env[Any, str]) -> ModelActor:
        return ModelActor(self.open(env), env)

    def open(self, env: gym.Env[Any, str]) -> _OpenAIModel:
        """Return the model in an episode of an environment."""
        return _OpenAIModel(self, env)

    def limited(self, limit: int) -> dict[str, int]:
        """Return the fields of a request by which a response has at most `limit` tokens; none if it is 0 or higher."""
        name = "max_completion_tokens" if "max_completion_tokens" in self._request else "max_tokens"
        own = self._request.get(name)
        return {name: limit} if limit and (own is None or limit < own) else {}

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **more: Any
    ) -> Reply:
        """Ask the server once; `more` arguments take precedence over the policy's.

        Raises:
            ContextLengthExceeded: The prompt does not fit, or the context cut the response off.
            RunBudgetSpent: The run has used all its tokens.
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
            message = without_keys(str(e), self._keys)
            cause = quiet_cause(e, self._keys)
            if is_overflow(message) and not isinstance(e, BackendBusyError):
                raise ContextLengthExceeded(f"the server of model {self.model!r} says: {message}") from cause
            where = self.base_url or "OpenAI"
            asked = {*request, *request.get("extra_body", {})} - {"model", "messages", "extra_body"}
            named = ", ".join(sorted(refused_fields(0, message, asked))) if isinstance(e, BackendRefusedError) else ""
            message += f"; the policy was told to send {named}: leave it out for this server" if named else ""
            raise type(e)(f"model {self.model!r} at {where} failed: {type(e).__name__}: {message}") from cause
        self.used_tokens += _token_count(reply, messages)
        limit = request.get("max_completion_tokens", request.get("max_tokens"))
        used = reply.usage.get("completion_tokens", limit)
        if reply.finish_reason == "length" and (limit is None or used < limit):
            raise ContextLengthExceeded(f"model {self.model!r} ran out of context after {used} tokens of its response")
        return reply


def written(policy: OpenAIPolicy, messages: Sequence[Mapping[str, Any]], what: str) -> str:
    """Wait for the text, without its reasoning, that a policy's model writes after messages; `what` it is, for errors.

    Raises:
        BackendError: The server failed, the messages do not fit the context, or the text is empty.
    """
    where = f"{what} by model {policy.model!r} at {policy.base_url or 'OpenAI'}"
    try:
        reply = asyncio.run_coroutine_threadsafe(policy.complete(messages), background_loop()).result()
    except ContextLengthExceeded as e:
        raise BackendError(f"{where} failed: {e}") from e
    if not (text := reply.text.rpartition("</think>")[2].strip()):
        raise BackendReplyError(f"{where} is empty (finish_reason {reply.finish_reason!r})")
    return text


def _token_count(reply: Reply, messages: Sequence[Mapping[str, Any]]) -> int:
    prompt, response = reply.usage.get("prompt_tokens"), reply.usage.get("completion_tokens")
    if prompt is None:
        prompt = sum(_characters(message.get("content") or "") for message in messages) // _CHARACTERS_PER_TOKEN
    if response is None:
        response = (len(reply.text) + sum(len(call.arguments) for call in reply.calls)) // _CHARACTERS_PER_TOKEN
    return prompt + response


def _characters(content: Any) -> int:
    """Return the length of a message's words; what a picture costs only the server knows."""
    return sum(len(part.get("text", "")) for part in content) if isinstance(content, list) else len(str(content))


class _OpenAIModel:
    """The server's model in one episode: see `EpisodeModel`."""

    def __init__(self, policy: OpenAIPolicy, env: gym.Env[Any, str]) -> None:
        self.policy = policy
        self.past = Past[tuple[Turn, int]]()
        self._tools = tools = env.get_wrapper_attr("tools")
        self._format_call = env.get_wrapper_attr("format_call") if tools else None
        self._tool_words = env.get_wrapper_attr("tool_instructions") if tools else ""
        self._turns: dict[str, Turn] = {}  # by action
        self._used_tokens: list[int] = []  # of each request of the episode; forks share the list

    def fork(self, number: int) -> _OpenAIModel:
        """See `EpisodeModel.fork`; the server does the sampling."""
        other = copy.copy(self)
        other.past, other._turns = self.past.copy(), {**self._turns}
        return other

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Return about how many tokens a prompt has."""
        return sum(_characters(message["content"]) for message in messages) // _CHARACTERS_PER_TOKEN

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, task_id: str = "", limit: int = 0,
        ordered: bool = True,
    ) -> Response:  # fmt: skip
        if tools and self.policy.tool_mode == "text":
            words = self._tool_words if tools == self._tools else describe_tools(tools, get_parser("hermes"))
            messages, tools = with_instructions(messages, words), ()
        digests = self.past.digests(messages, tools)
        after = self.past.longest(messages, digests)[1]
        own = (
            known[0] if (known := self.past.reply(message, digest)) is not None else self._own_turn(message)
            for digest, message in zip(digests, messages, strict=True)
            if message["role"] == "assistant"
        )
        sent = to_openai(messages, turn=lambda _: next(own))
        budget = self.policy.max_episode_tokens
        if budget is not None and sum(self._used_tokens) >= budget:
            raise TokenLimitReached(f"the episode has used {sum(self._used_tokens)} of {budget} tokens")
        number = len(self._used_tokens)
        self._used_tokens.append(0)
        reply = await self.policy.complete(sent, tools, **self.policy.limited(limit))
        self._used_tokens[number] = _token_count(reply, sent)
        texts = [reply.text] if reply.text else []
        shown = list(texts)
        native = []
        call_ids: list[str | None] = []
        for call in reply.calls:
            text, well_formed = call_text(call.name, call.arguments, self._format_call)
            texts.append(text)
            if restored := well_formed and bool(tools):
                function = {**call.entry["function"], "arguments": call.arguments.strip() or "{}"}
                native.append({**call.entry, "id": call.id, "type": "function", "function": function})
            else:
                shown.append(text)  # servers reject a history with malformed arguments, or with calls but no tools
            call_ids.append(call.id if restored else None)
        if not texts:
            reason = f"finish_reason {reply.finish_reason!r}"
            raise EmptyGeneration(f"model {self.policy.model!r} returned no text and no call ({reason})")
        content = reply.message.get("content") if len(native) == len(reply.calls) else "\n".join(shown)
        message = {"role": "assistant", "content": content, **({"tool_calls": native} if native else {})}
        message |= {k: v for k, v in reply.message.items() if k not in _OWN_FIELDS and v not in (None, "", [], {})}
        action = "\n".join(texts)
        if self.policy.keep_reasoning and reply.reasoning:
            action = f"<think>\n{reply.reasoning.strip()}\n</think>\n{action}"
        calls = "\n".join(texts[len(texts) - len(reply.calls) :]) if len(native) == len(reply.calls) else ""
        self._turns[action] = turn = Turn(message, call_ids, calls)
        self.past.add(digests, action, (turn, number))
        cut = reply.finish_reason == "length"
        return Response(action, *reply.tokens, reply.usage or None, number=number, after=after and after[1], cut=cut)

    def _own_turn(self, message: Message) -> Turn:
        """Return the response that a message of the environment repeats, even without its reasoning."""
        content = content_text(message["content"])
        if content in self._turns:
            return self._turns[content]
        for turn in reversed(self._turns.values()):
            if turn.calls and content.endswith(turn.calls):
                text = content[: -len(turn.calls)].rstrip("\n")
                known = {name: turn.message[name] for name in ("role", "tool_calls")}
                return turn._replace(message={**known, "content": text})
        return Turn({**message}, [], "")
