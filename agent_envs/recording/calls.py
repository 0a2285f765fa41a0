"""One call through the proxy: passed on, recorded, and answered with what the agent asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_envs.agents.chat_wire import asked_messages
from agent_envs.agents.door import as_completion, streamed
from agent_envs.errors import BackendReplyError, ConfigError, needs_extra
from agent_envs.messages import Message, observation_pictures
from agent_envs.policies.openai.fields import request_keys, without_keys
from agent_envs.policies.openai.reply import SampledTokens, read_tokens
from agent_envs.policies.openai.stream import DONE, Events, StreamedCompletion, event_chunks, limited
from agent_envs.recording.replies import (
    PromptPictures,
    action_text,
    error_reply,
    observed_messages,
    offered_tools,
    shows_pictures,
    strip_reply,
)
from agent_envs.recording.store import EpisodeStore, FinishedError, OpenEpisode
from agent_envs.recording.upstream import UPSTREAM_ERRORS, Upstream
from agent_envs.serving.access import holds_token
from agent_envs.serving.listener import read_body, read_object

with needs_extra("serve"):
    from aiohttp import web

_log = logging.getLogger(__name__)
_OWN_HEADERS = ("x-episode-id", "x-group-id", "x-task-index", "x-agent-id", "x-record-token", "x-judge-token")
_REPLY_HEADERS = re.compile(
    r"content-type|retry-after(-ms)?|x-should-retry|x-request-id|x-ratelimit-.*|openai-.*", re.IGNORECASE
)
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed", "stop", "n")
_MAX_NAME = 200
_NO_TOKENS = SampledTokens(None, None, None)


@dataclass(frozen=True, slots=True)
class _Call:
    episode: OpenEpisode
    number: int
    request: dict[str, Any]
    agent: str | None
    began: float


class CallRecorder:
    """Answers ``/v1/...``: records chat completions, and what is translated to them, passes a few other requests on but
    for its own token, and refuses the rest.
    """

    def __init__(self, upstream: Upstream, store: EpisodeStore, token: str | None) -> None:
        self._upstream, self._store, self._token = upstream, store, token
        self._pictures = PromptPictures(store.pictures)

    async def settled(self, episode: OpenEpisode, seconds: float) -> bool:
        """Wait until no call of the episode is running; return whether that happened in time."""
        deadline = time.monotonic() + seconds
        while episode.running and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        return not episode.running

    async def answer(self, request: Any) -> Any:
        """Answer a request below ``/v1``, by the path that its address means."""
        parts = [part for part in request.match_info["tail"].split("/") if part not in ("", ".")]
        episode = request.match_info.get("episode") or request.headers.get("X-Episode-Id")
        path, name = "/".join(parts), _checked_name("the episode's name", episode)
        if (request.method, path) == ("POST", "chat/completions"):
            return await self._chat(request, name)
        if (request.method, path) in (("POST", "messages"), ("POST", "responses")):
            return await self._translated(request, path, name)
        if request.method == "GET" and parts[:1] == ["models"] and ".." not in parts:
            return await self._pass_on(request, path, None)
        if (request.method, path) == ("POST", "embeddings") and name is None:
            return await self._pass_on(request, path, await read_body(request))
        within = " of an episode" if name is not None else ""
        here = f"{request.method} /v1/{path}{within}"
        recorded = "only /v1/chat/completions is recorded, and /v1/messages and /v1/responses by translation"
        return error_reply(404, f"{here} is neither recorded nor passed on; {recorded}")

    async def _translated(self, request: Any, path: str, name: str | None) -> Any:
        """Answer a request of Anthropic's messages or OpenAI's responses by a chat completion."""
        body, episode = await read_object(request), self._store.open.get(str(name))
        conversations = {} if episode is None else episode.conversations
        chat, answered, told = as_completion(path, body, conversations)
        reply = await self._chat(request, name, {**chat, "stream": False})
        if reply.status >= 400:
            return reply
        answer = answered(json.loads(reply.body))
        if (episode := self._store.open.get(str(name))) is not None:  # its first call has opened it
            episode.conversations.update(conversations)
        return await streamed(request, told(answer)) if body.get("stream") else web.json_response(answer)

    async def _pass_on(self, request: Any, path: str, data: bytes | None) -> Any:
        headers = self._passed_on(request)
        try:
            async with self._upstream.request(request.method, path, headers, params=request.query, data=data) as reply:
                body = b"".join([part async for part in limited(reply.content.iter_any())])
                return web.Response(status=reply.status, body=self._told(body), headers=self._reply_headers(reply))
        except UPSTREAM_ERRORS as e:
            return self._upstream_failed(e)

    async def _chat(self, request: Any, name: str | None, given: dict[str, Any] | None = None) -> Any:
        if name is None:
            ways = f"send the header X-Episode-Id, or use the base URL http://{request.host}/episodes/ID/v1"
            return error_reply(400, f"the request does not name its episode: {ways}")
        body = await read_object(request) if given is None else given
        asked_messages(body)
        index = request.headers.get("X-Task-Index")
        if index is not None and not (index.isascii() and index.isdecimal() and len(index) < 19):
            raise ConfigError(f"X-Task-Index must be an integer of at least 0, got {index!r:.80}")
        group = _checked_name("X-Group-Id", request.headers.get("X-Group-Id"))
        agent = _checked_name("X-Agent-Id", request.headers.get("X-Agent-Id"))
        episode = self._store.episode(name, group, None if index is None else int(index))
        episode.keys |= request_keys(request.headers, request.query) | self._upstream.keys
        call = _Call(episode, episode.calls, body, agent, time.monotonic())
        episode.calls += 1
        episode.running += 1
        try:
            return await self._answer(request, call)
        finally:
            episode.running -= 1
            episode.touched = time.monotonic()

    async def _answer(self, request: Any, call: _Call) -> Any:
        streaming = False
        try:
            asked = self._upstream.chat(call.request, self._passed_on(request), request.query)
            async with asked as (reply, data):
                kind = reply.headers.get("Content-Type", "")
                streaming = data is None and reply.status < 400 and kind.startswith("text/event-stream")
                if streaming:
                    return await self._stream(request, call, reply)
                data = b"".join([part async for part in limited(reply.content.iter_any())]) if data is None else data
                return await self._whole(call, reply, data)
        except UPSTREAM_ERRORS as e:
            self._failed(call, f"upstream: {type(e).__name__}: {e}")
            return self._upstream_failed(e)
        except (asyncio.CancelledError, ConnectionError):
            if not streaming:
                self._failed(call, "the client went away before the answer")
            raise

    async def _whole(self, call: _Call, reply: Any, data: bytes) -> Any:
        headers = {**self._reply_headers(reply), "X-Call-Index": str(call.number)}
        try:
            completion = json.loads(data)
        except (ValueError, RecursionError):
            completion = None
        if reply.status >= 400 or not _is_completion(completion):
            self._failed(call, f"upstream: {reply.status}: {data.decode('utf-8', 'replace')}")
            return web.Response(status=reply.status, body=self._told(data), headers=headers)
        await self._record(call, completion)
        strip_reply(completion, call.request)
        body = self._told(json.dumps(completion).encode("ascii"))
        return web.Response(status=reply.status, body=body, headers=headers)

    async def _stream(self, request: Any, call: _Call, reply: Any) -> Any:
        headers = {**self._reply_headers(reply), "X-Call-Index": str(call.number)}
        response = web.StreamResponse(status=reply.status, headers=headers)
        try:
            whole = await self._relay(request, response, call, reply)
        except (OSError, FinishedError, RecursionError) as e:
            _log.error("call %d of episode %r cannot be recorded: %s", call.number, call.episode.episode_id, e)
            whole = False
        if not whole and request.transport is not None:
            request.transport.abort()  # a regular end would tell the client that this was all
        return response

    async def _relay(self, request: Any, response: Any, call: _Call, reply: Any) -> bool:
        """Pass a stream on; the step is on disk before the client gets the last event. Return whether it got all."""
        streamed, events, recorded = StreamedCompletion(), Events(), False
        try:
            await response.prepare(request)
            async for part in limited(reply.content.iter_any()):
                out = []
                for event in events.add(part):
                    event, ends = _read_event(event, streamed, call.request)
                    if ends and not recorded and streamed.finished:
                        recorded = await self._record(call, streamed.completion())
                    out.append(event)
                if out:
                    await response.write(self._told(b"".join(out)))
            rest, _ = _read_event(events.rest(), streamed, call.request)
            if rest:  # a last event without an end
                await response.write(self._told(rest))
        except (*UPSTREAM_ERRORS, ConnectionError, asyncio.CancelledError) as e:
            # Once every choice is complete the agent has all of it, whoever hangs up first.
            if not recorded and streamed.finished:
                await asyncio.shield(self._record(call, streamed.completion()))
            elif not recorded:
                client_left = request.transport is None or request.transport.is_closing()
                by_upstream = isinstance(e, UPSTREAM_ERRORS) and not client_left
                error = f"upstream: the stream broke off: {e}" if by_upstream else "the client went away"
                self._failed(call, error, streamed)
            if isinstance(e, asyncio.CancelledError):
                raise
            return False
        if not recorded and streamed.finished:
            await self._record(call, streamed.completion())
        elif not recorded:
            error = json.dumps(streamed.error) if streamed.error else "the stream broke off"
            self._failed(call, f"upstream: {error}", streamed)
        with contextlib.suppress(ConnectionError):  # it is recorded even if the client is gone
            await response.write_eof()
        return True

    async def _record(self, call: _Call, completion: Mapping[str, Any]) -> bool:
        messages, problems = call.request["messages"], list[str]()
        if shows_pictures(messages):
            observed, problems = await asyncio.to_thread(self._pictures.observed, messages)
        else:
            observed = observed_messages(messages)
        rows = [self._row(call, completion, choice, observed, problems) for choice in completion["choices"]]
        tools = list(offered_tools(call.request.get("tools")))
        self._store.add_steps(call.episode, call.number, rows, tools)
        return True

    def _failed(self, call: _Call, error: str, streamed: StreamedCompletion | None = None) -> None:
        choices = streamed.completion()["choices"] if streamed is not None else []
        partial = action_text(choices[0]["message"]) if choices else None if streamed is None else ""
        self._store.add_failure(call.episode, call.number, error, partial)

    def _row(
        self,
        call: _Call,
        completion: Mapping[str, Any],
        choice: Mapping[str, Any],
        observed: list[Message],
        problems: list[str],
    ) -> dict[str, Any]:
        request, message = call.request, choice["message"]
        tokens = read_tokens(completion, choice)
        note = None
        if problems:
            tokens, note = _NO_TOKENS, f"the prompt has a picture that is not recorded: {problems[0]}"
        info: dict[str, Any] = {
            "call": call.number,
            "choice": choice.get("index", 0),
            "model": completion.get("model") or request.get("model"),
            "finish_reason": choice.get("finish_reason"),
            "tokens": "server" if tokens.prompt_ids and tokens.response_ids else "none",
            "message": message,
            "usage": completion.get("usage"),
            "sampling": {key: request[key] for key in _SAMPLING if key in request},
            "seconds": round(time.monotonic() - call.began, 4),
        }
        info |= {key: value for key, value in (("agent", call.agent), ("tokens_error", note)) if value is not None}
        row = {"observation": observed, "action": action_text(message), "info": info, **tokens._asdict()}
        pictures = observation_pictures(observed)
        return row | ({"prompt_pictures": pictures} if pictures and tokens.prompt_ids else {})

    def _passed_on(self, request: Any) -> dict[str, str]:
        """Return the request's headers that are meant for the model's server."""
        own = {*_OWN_HEADERS}
        if self._token is not None and holds_token(request.headers.get("Authorization", ""), self._token):
            own.add("authorization")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in own}
        if "x-api-key" in request.headers and "Authorization" not in headers:  # as Anthropic's clients send it
            headers["Authorization"] = f"Bearer {request.headers['x-api-key']}"
        return headers

    def _told(self, data: bytes) -> bytes:
        """Return an answer without what agents must not know."""
        return without_keys(data.decode("latin-1"), self._upstream.keys).encode("latin-1")

    def _reply_headers(self, reply: Any) -> dict[str, str]:
        headers = {name: value for name, value in reply.headers.items() if _REPLY_HEADERS.fullmatch(name)}
        return {name: without_keys(value, self._upstream.keys) for name, value in headers.items()}

    def _upstream_failed(self, error: Exception) -> Any:
        if isinstance(error, TimeoutError):
            return error_reply(504, "the upstream server did not answer in time")
        said = without_keys(str(error), self._upstream.keys)
        return error_reply(502, f"the upstream server failed: {type(error).__name__}: {said}")


def _read_event(event: bytes, streamed: StreamedCompletion, request: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return an event of a stream as the client gets it, and whether it ends the stream."""
    try:
        chunks = event_chunks(event)
    except (ValueError, RecursionError):
        return event, False
    changed = False
    for chunk in chunks:
        with contextlib.suppress(BackendReplyError, RecursionError):
            if chunk != DONE:
                streamed.add(chunk)
        changed |= strip_reply(chunk, request)
    if changed:
        data = [b"data: " + (DONE if chunk == DONE else json.dumps(chunk)).encode("ascii") + b"\n" for chunk in chunks]
        rest = [line for line in event.splitlines(keepends=True) if not line.startswith(b"data:")]
        event = b"".join([*data, *rest])
    return event, DONE in chunks


def _is_completion(reply: Any) -> bool:
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices:
        return False
    return all(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in choices)


def _checked_name(what: str, name: str | None) -> str | None:
    if name is not None and not (name and len(name) <= _MAX_NAME and name.isprintable()):
        raise ConfigError(f"{what} must have 1 to {_MAX_NAME} printable characters, got {name!r:.80}")
    return name
