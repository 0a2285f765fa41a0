"""Requests to an OpenAI-compatible server, with retries, rate limits and a maximum at a time.

The client is the official one with its aiohttp transport, which many concurrent episodes need. It lives on an event
loop of its own, which all that ask share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import weakref
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendRefusedError,
    BackendReplyError,
    BackendSlowError,
    needs_extra,
)
from agent_envs.http.pool import retry_after
from agent_envs.per_process import PerProcess
from agent_envs.policies.openai.fields import encodable, extra_fields, is_overflow, refused_fields, without_fields
from agent_envs.policies.openai.reply import Reply, read_reply
from agent_envs.policies.openai.stream import DONE, Events, StreamedCompletion, event_chunks, limited
from agent_envs.threads import LoopThread

if TYPE_CHECKING:
    import openai

_CLOSE_SECONDS = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before the first retry, doubled from one to the next
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


class _Connection(NamedTuple):
    thread: LoopThread
    client: openai.AsyncOpenAI
    free: asyncio.Semaphore
    """Requests that may still be sent."""


@dataclass(eq=False, repr=False)
class OpenAIServer:
    """A chat-completions server; `OpenAIPolicy` explains the settings."""

    base_url: str | None
    api_key: str
    timeout: float = field(kw_only=True)
    stall_timeout: float = field(kw_only=True)
    max_retries: int = field(kw_only=True)
    max_wait: float = field(kw_only=True)
    max_in_flight: int | None = field(kw_only=True)
    stream: bool = field(kw_only=True)

    def __post_init__(self) -> None:
        with needs_extra("openai", "openai[aiohttp]"):
            import aiohttp  # noqa: F401  the transport
            import openai  # noqa: F401
        self.retries = 0
        """Attempts that failed and were repeated."""
        self._refused: set[str] = set()  # fields that the server does without
        self._closed_until = 0.0  # a rate limit holds back all requests, not only the one that hit it
        self._connection: PerProcess[_Connection] = PerProcess()
        self.close = weakref.finalize(self, _close, self._connection)
        """Close the client; also done at exit."""

    async def ask(self, asked: Mapping[str, Any]) -> Reply:
        """Send a chat-completions request and return the reply.

        ``stream_options``, and the fields of earlier replies, are left out once the server has refused them. After
        the retries, or where they would not help (a BackendRefusedError), it raises a BackendError.
        """
        own = self._connection.get("", self._connect)
        return await asyncio.wrap_future(own.thread.submit(self._ask(own, asked)))

    async def _ask(self, own: _Connection, asked: Mapping[str, Any]) -> Reply:
        options = {"stream": True, "stream_options": {"include_usage": True}} if self.stream else {}
        request = {name: value for name, value in {**options, **asked}.items() if value is not None}
        added = {*options} - {*asked, "stream"}
        optional = added | extra_fields(request["messages"])
        left_out = {*self._refused}
        give_up = time.monotonic() + self.max_wait
        failures = delays = 0
        while True:
            if (pause := self._closed_until - time.monotonic()) > 0:  # spread the requests a little
                await asyncio.sleep(pause + random.uniform(0.0, min(1.0, pause / 4)))
            sent = {name: value for name, value in request.items() if name not in left_out & added}
            sent["messages"] = without_fields(request["messages"], left_out)
            try:
                async with own.free:
                    reply = await self._attempt(own.client, sent)
                self._refused |= left_out
                return reply
            except UnicodeEncodeError as e:  # a lone surrogate, which cannot be sent
                previous, request = request, encodable(request)
                if request == previous:
                    raise BackendRefusedError(f"the request's headers cannot be sent: {e.reason}") from None
                continue
            except BackendError as e:
                refused = refused_fields(getattr(e.__cause__, "status_code", 0), str(e), optional - left_out)
                left_out |= refused
                if isinstance(e, BackendBusyError) and not refused:
                    delays += 1
                    pause = _requested_pause(e) or _pause(delays)
                    if time.monotonic() + pause > give_up:
                        raise
                    self._closed_until = max(self._closed_until, time.monotonic() + pause)
                elif not refused:
                    failures += 1
                    if isinstance(e, BackendRefusedError) or failures > self.max_retries:
                        raise
                    await asyncio.sleep(min(_requested_pause(e) or _pause(failures), _LONGEST_PAUSE))
            self.retries += 1

    async def _attempt(self, client: openai.AsyncOpenAI, request: Mapping[str, Any]) -> Reply:
        import openai

        try:
            async with asyncio.timeout(self.timeout):
                return read_reply(await self._completion(client, request))
        except openai.APIStatusError as e:
            raise _refused(e) from e
        except (BackendReplyError, UnicodeEncodeError):
            raise
        except (TimeoutError, openai.APITimeoutError) as e:
            # The aiohttp transport reports a refused connection as a time-out; only the cause tells them apart.
            if isinstance(e.__cause__, Exception) and "onnect" in str(e.__cause__):
                raise BackendDownError(f"nothing answers: {e.__cause__}") from e
            limit = f"{self.timeout:g} s" + (f", {self.stall_timeout:g} s without a byte" if self.stream else "")
            raise BackendSlowError(f"no answer in time ({limit}): {e!r}") from e
        except openai.OpenAIError as e:
            cause = e.__cause__
            raise BackendDownError(f"{type(e).__name__}: {e}" + ("" if cause is None else f" ({cause!r})")) from e
        except (ValueError, RecursionError) as e:
            raise BackendReplyError(f"expected a chat completion as JSON: {e}") from e
        except OSError as e:
            raise BackendDownError(f"the connection failed: {e!r}") from e

    async def _completion(self, client: openai.AsyncOpenAI, request: Mapping[str, Any]) -> Any:
        """Return a completion as JSON, whole or put together from what is streamed."""
        reply, events = StreamedCompletion(), Events()
        stall = self.stall_timeout if self.stream else None
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(stall):
                opening = client.chat.completions.with_streaming_response.create(**request)
                parts = _parts(await stack.enter_async_context(opening))
            begun = ended = False
            while not ended:
                async with asyncio.timeout(stall):
                    part = await anext(parts, None)
                if not begun and (not self.stream or (part or b"").lstrip().startswith(b"{")):  # not a stream
                    return json.loads((part or b"") + b"".join([rest async for rest in parts]))
                begun, ended = True, part is None
                for event in [events.rest()] if part is None else events.add(part):
                    for chunk in event_chunks(event):
                        if chunk == DONE:
                            ended = True
                        else:
                            reply.add(chunk)
        if reply.error:
            return {"error": reply.error}
        if not reply.finished:
            raise BackendReplyError("the stream broke off: no finish_reason")
        return reply.completion()

    def _connect(self) -> _Connection:
        from openai import AsyncOpenAI, DefaultAioHttpClient

        client = AsyncOpenAI(
            base_url=self.base_url, api_key=self.api_key, timeout=self.timeout, max_retries=0,
            http_client=DefaultAioHttpClient(timeout=self.timeout),
        )  # fmt: skip
        limit = 1 << 30 if self.max_in_flight is None else self.max_in_flight
        return _Connection(LoopThread("agent_envs-openai"), client, asyncio.Semaphore(limit))


async def _parts(response: Any) -> AsyncIterator[bytes]:
    import openai

    try:
        async for part in limited(response.iter_bytes()):
            yield part
    except (BackendError, TimeoutError, openai.OpenAIError, OSError):
        raise
    except Exception as e:  # the transport's own errors have no public base class
        raise BackendDownError(f"the reply broke off: {e!r}") from e


def _refused(error: openai.APIStatusError) -> BackendError:
    """Return the error for a status, whose type says whether to wait, to retry or to give up."""
    status, body = error.status_code, error.body
    said = body.get("message", body) if isinstance(body, Mapping) else body
    said = error.message if not said else said if isinstance(said, str) else json.dumps(said)
    details = ", ".join(detail for detail in (error.code, error.param) if isinstance(detail, str))
    message = f"status {status}: {' '.join(said.split()):.2000}" + (f" ({details})" if details else "")
    if is_overflow(message):
        return BackendRefusedError(message)
    message += "; the address of a server mostly ends in /v1" if status == 404 else ""
    if status == 429 and error.code == "insufficient_quota":
        return BackendRefusedError(message)
    if status == 429 or (status in (503, 529) and "retry-after" in error.response.headers):
        return BackendBusyError(message)
    return BackendDownError(message) if status in _RETRIED or status >= 500 else BackendRefusedError(message)


def _requested_pause(error: BackendError) -> float:
    """Return the seconds that the server asks to wait, or 0."""
    response = getattr(error.__cause__, "response", None)
    return 0.0 if response is None else retry_after(response.headers)


def _pause(attempt: int) -> float:
    """Return the seconds to wait before a retry, which count from 1."""
    return min(_FIRST_PAUSE * 2.0 ** (attempt - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1.0)


def _close(connection: PerProcess[_Connection]) -> None:
    if own := connection.pop(""):
        own.thread.end(own.client.close(), _CLOSE_SECONDS)
