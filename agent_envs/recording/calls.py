"""One call through the proxy: passed on, recorded, and answered with what the agent asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_envs.errors import ConfigError, MissingExtraError, PromptError
from agent_envs.messages import Message, observation_pictures
from agent_envs.policies.openai.token_fields import SampledTokens, read_tokens
from agent_envs.recording.pictures import PromptPictures, shows_pictures
from agent_envs.recording.replies import (
    StreamedCompletion,
    action_text,
    error_reply,
    observed_messages,
    offered_tools,
    strip_reply,
)
from agent_envs.recording.store import EpisodeStore, FinishedError, OpenEpisode
from agent_envs.recording.upstream import HOP_BY_HOP, Upstream
from agent_envs.serving.access import holds_token
from agent_envs.serving.listener import read_body

try:
    import aiohttp
    from aiohttp import web
except ImportError as e:
    raise MissingExtraError("aiohttp", extra="record") from e

if TYPE_CHECKING:
    from agent_envs.recording.tokens import Retokenizer

__all__ = ["CallRecorder"]

_log = logging.getLogger(__name__)
_OWN_HEADERS = ("x-episode-id", "x-group-id", "x-task-index", "x-agent-id", "x-record-token")
_UNRECORDED = ("chat", "completions", "responses", "messages")  # paths that generate but are not recorded
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed", "stop", "n")
_MAX_NAME = 200
_NO_TOKENS = SampledTokens(None, None, None)
_MAX_LINE = 64 << 20


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an episode."""

    episode: OpenEpisode
    number: int
    request: dict[str, Any]
    agent: str | None
    began: float


class CallRecorder:
    """Answers ``/v1/...``: records chat completions and passes everything else through, but not its own token.

    The retokenizer, if any, makes the tokens that the server does not report.
    """

    def __init__(
        self, upstream: Upstream, store: EpisodeStore, token: str | None, retokenizer: Retokenizer | None
    ) -> None:
        self._upstream, self._store, self._token, self._retokenizer = upstream, store, token, retokenizer
        self._pictures = PromptPictures(store.pictures)

    async def settled(self, episode: OpenEpisode, seconds: float) -> bool:
        """Wait until no call of the episode is running; return whether that happened in time."""
        deadline = time.monotonic() + seconds
        while episode.running and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        return not episode.running

    async def chat(self, request: Any) -> Any:
        """Answer a chat completion, and record it."""
        name = _episode_name(request)
        if name is None:
            ways = f"send the header X-Episode-Id, or use the base URL http://{request.host}/episodes/ID/v1"
            return error_reply(400, f"the request does not name its episode: {ways}")
        body = _body(await read_body(request))
        index = request.headers.get("X-Task-Index")
        if index is not None and not (index.isascii() and index.isdecimal() and len(index) < 19):
            raise ConfigError(f"X-Task-Index must be an integer of at least 0, got {index!r:.80}")
        group = _checked_name("X-Group-Id", request.headers.get("X-Group-Id"))
        agent = _checked_name("X-Agent-Id", request.headers.get("X-Agent-Id"))
        episode = self._store.episode(name, group, None if index is None else int(index))
        call = _Call(episode, episode.calls, body, agent, time.monotonic())
        episode.calls += 1
        episode.running += 1
        try:
            return await self._answer(request, call)
        finally:
            episode.running -= 1
            episode.touched = time.monotonic()

    async def other(self, request: Any) -> Any:
        """Pass anything else through; within an episode, refuse other ways to generate: they would not be recorded."""
        tail = request.match_info["tail"]
        if ".." in tail.split("/"):
            return error_reply(404, f"there is no /v1/{tail}")
        generates = request.method == "POST" and tail.split("/")[0] in _UNRECORDED
        if generates and _episode_name(request) is not None:
            return error_reply(404, f"only /v1/chat/completions is recorded, not /v1/{tail}: use chat completions")
        data = await read_body(request)
        try:
            async with self._upstream.request(
                request.method, tail, self._passed_on(request), params=request.query, data=data or None
            ) as reply:
                response = web.StreamResponse(status=reply.status, headers=_reply_headers(reply))
                await response.prepare(request)
                async for part in reply.content.iter_any():
                    await response.write(part)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, TimeoutError) as e:
            return _upstream_failed(e)

    async def _answer(self, request: Any, call: _Call) -> Any:
        streaming = False
        try:
            async with self._upstream.chat(call.request, self._passed_on(request), request.query) as (reply, data):
                kind = reply.headers.get("Content-Type", "")
                streaming = data is None and reply.status < 400 and kind.startswith("text/event-stream")
                if streaming:
                    return await self._stream(request, call, reply)
                return await self._whole(call, reply, await reply.read() if data is None else data)
        except (aiohttp.ClientError, TimeoutError) as e:
            self._store.add_failure(call.episode, call.number, f"upstream: {type(e).__name__}: {e}")
            return _upstream_failed(e)
        except (asyncio.CancelledError, ConnectionError):
            if not streaming:
                self._store.add_failure(call.episode, call.number, "the client went away before the answer")
            raise

    async def _whole(self, call: _Call, reply: Any, data: bytes) -> Any:
        headers = {**_reply_headers(reply), "X-Call-Index": str(call.number)}
        try:
            completion = json.loads(data)
        except (ValueError, RecursionError):
            completion = None
        if reply.status >= 400 or not _is_completion(completion):
            text = data[:2000].decode("utf-8", "replace")
            self._store.add_failure(call.episode, call.number, f"upstream: {reply.status}: {text}")
            return web.Response(status=reply.status, body=data, headers=headers)
        await self._record(call, completion)
        strip_reply(completion, call.request)
        return web.Response(status=reply.status, body=json.dumps(completion).encode("ascii"), headers=headers)

    async def _stream(self, request: Any, call: _Call, reply: Any) -> Any:
        headers = {**_reply_headers(reply), "X-Call-Index": str(call.number)}
        response = web.StreamResponse(status=reply.status, headers=headers)
        try:
            whole = await self._relay(request, response, call, reply)
        except (OSError, FinishedError) as e:
            _log.error("call %d of episode %r cannot be recorded: %s", call.number, call.episode.episode_id, e)
            whole = False
        if not whole and request.transport is not None:
            request.transport.abort()  # a regular end would tell the client that this was all
        return response

    async def _relay(self, request: Any, response: Any, call: _Call, reply: Any) -> bool:
        """Pass a stream on; the step is on disk before the client gets the last event. Return whether it got all."""
        streamed, recorded, rest = StreamedCompletion(), False, b""
        try:
            await response.prepare(request)
            async for part in reply.content.iter_any():
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > _MAX_LINE:
                    raise aiohttp.ClientError(f"an event has more than {_MAX_LINE} bytes")
                out = []
                for line in lines:
                    line, ends = _event(line, streamed, call.request)
                    if ends and not recorded and streamed.finished:
                        recorded = await self._record(call, streamed.completion)
                    out.append(line + b"\n")
                if out:
                    await response.write(b"".join(out))
            if rest:  # a last line without an end
                await response.write(_event(rest, streamed, call.request)[0])
        except (aiohttp.ClientError, TimeoutError, ConnectionError, asyncio.CancelledError) as e:
            # Once every choice is complete the agent has all of it, whoever hangs up first.
            if not recorded and streamed.finished and streamed.error is None:
                await asyncio.shield(self._record(call, streamed.completion))
            elif not recorded:
                by_upstream = isinstance(e, (aiohttp.ClientError, TimeoutError)) and not _client_left(request)
                error = f"upstream: the stream broke off: {e}" if by_upstream else "the client went away"
                self._store.add_failure(call.episode, call.number, error, streamed.text)
            if isinstance(e, asyncio.CancelledError):
                raise
            return False
        if not recorded and streamed.finished and streamed.error is None:
            await self._record(call, streamed.completion)
        elif not recorded:
            error = json.dumps(streamed.error)[:2000] if streamed.error else "the stream broke off"
            self._store.add_failure(call.episode, call.number, f"upstream: {error}", streamed.text)
        with contextlib.suppress(ConnectionError):  # it is recorded even if the client is gone
            await response.write_eof()
        return True

    async def _record(self, call: _Call, completion: Mapping[str, Any]) -> bool:
        """Record a call as steps, one per choice."""
        messages, problems = call.request["messages"], list[str]()
        if shows_pictures(messages):
            observed, problems = await asyncio.to_thread(self._pictures.observed, messages)
        else:
            observed = observed_messages(messages)
        rows = [await self._row(call, completion, choice, observed, problems) for choice in completion["choices"]]
        self._store.add_steps(call.episode, call.number, rows, list(offered_tools(call.request.get("tools"))))
        return True

    async def _row(
        self,
        call: _Call,
        completion: Mapping[str, Any],
        choice: Mapping[str, Any],
        observed: list[Message],
        problems: list[str],
    ) -> dict[str, Any]:
        request, message = call.request, choice["message"]
        tokens = read_tokens(completion, choice)
        source = "server" if tokens.prompt_ids and tokens.response_ids else "none"
        note = None
        if problems:
            tokens, source, note = _NO_TOKENS, "none", f"the prompt has a picture that is not recorded: {problems[0]}"
        elif source == "none" and self._retokenizer is not None:
            try:
                tokens = await asyncio.to_thread(_retokenized, self._retokenizer, call.request, choice, tokens)
                source = "tokenizer"
            except PromptError as e:
                note = str(e)
        info: dict[str, Any] = {
            "call": call.number,
            "choice": choice.get("index", 0),
            "model": completion.get("model") or request.get("model"),
            "finish_reason": choice.get("finish_reason"),
            "tokens": source,
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
        return {name: value for name, value in request.headers.items() if name.lower() not in own}


def _retokenized(
    tokenizer: Retokenizer, request: Mapping[str, Any], choice: Mapping[str, Any], reported: SampledTokens
) -> SampledTokens:
    """Return the tokens that the server reported, the others made from the texts."""
    prompt_ids, text = tokenizer.prompt(request)
    prompt_ids = reported.prompt_ids or prompt_ids
    if reported.response_ids:
        return reported._replace(prompt_ids=prompt_ids)
    return SampledTokens(prompt_ids, tokenizer.response(request, text, choice), None)


def _event(line: bytes, streamed: StreamedCompletion, request: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Return a line of a stream as the client gets it, and whether it ends the stream."""
    if not line.startswith(b"data:"):
        return line, False
    data = line.removeprefix(b"data:").strip()
    if data == b"[DONE]":
        return line, True
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        return line, False
    if not isinstance(chunk, dict):
        return line, False
    streamed.add(chunk)
    strip_reply(chunk, request)
    return b"data: " + json.dumps(chunk).encode("ascii"), False


def _is_completion(reply: Any) -> bool:
    choices = reply.get("choices") if isinstance(reply, dict) else None
    whole = isinstance(choices, list) and all(
        isinstance(c, dict) and isinstance(c.get("message"), dict) for c in choices
    )
    return bool(choices) and whole


def _episode_name(request: Any) -> str | None:
    name = request.match_info.get("episode") or request.headers.get("X-Episode-Id")
    return _checked_name("the episode's name", name)


def _checked_name(what: str, name: str | None) -> str | None:
    if name is not None and not (name and len(name) <= _MAX_NAME and name.isprintable()):
        raise ConfigError(f"{what} must have 1 to {_MAX_NAME} printable characters, got {name!r:.80}")
    return name


def _body(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"the request is not JSON: {e}") from e
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise ConfigError("expected a request with 'messages', a list of objects")
    return body


def _reply_headers(reply: Any) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name.lower() not in (*HOP_BY_HOP, "set-cookie")}


def _upstream_failed(error: Exception) -> Any:
    if isinstance(error, TimeoutError):
        return error_reply(504, "the upstream server did not answer in time")
    return error_reply(502, f"the upstream server failed: {type(error).__name__}: {error}")


def _client_left(request: Any) -> bool:
    return request.transport is None or request.transport.is_closing()
