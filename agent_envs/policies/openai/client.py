"""Requests to an OpenAI-compatible server that come through: retried, held back by rate limits, limited in number.

The client is the official one with its aiohttp transport, which many episodes at once need. One is made per event
loop and closed with it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import email.utils
import json
import random
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendRefusedError,
    BackendReplyError,
    BackendSlowError,
    MissingExtraError,
)
from agent_envs.policies.openai.reply import Reply, StreamedReply, read_reply

if TYPE_CHECKING:
    import openai

__all__ = ["OpenAIServer"]

_CLOSE_SECONDS = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before the first retry, doubled from one to the next
_LONGEST_REPLY = 64 << 20  # bytes: far more than a model says
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


class _Seat(NamedTuple):
    """What one event loop has of a server."""

    client: openai.AsyncOpenAI
    lifetime: AsyncGenerator[openai.AsyncOpenAI, None]
    free: asyncio.Semaphore
    """Requests that may still be sent."""


_Seats = dict[asyncio.AbstractEventLoop, _Seat]


class OpenAIServer:
    """A chat-completions server.

    Args:
        base_url: Its address, or None for OpenAI's own.
        api_key: The key.
        timeout: Seconds one attempt may take in all.
        stall_timeout: Seconds a streamed reply may be silent.
        max_retries: Further attempts of a request after a connection error, a time-out, a reply that cannot be read, or
            a status that says to try again.
        max_wait: Seconds a request waits in all because of rate limits, which are no failures: a `Retry-After` is kept
            by all requests.
        max_in_flight: Requests under way at the same time, per event loop; None for no limit.
        stream: Whether replies are streamed, so that a server that stalls is noticed early.

    Raises:
        MissingExtraError: The `openai` package or its aiohttp transport is not installed.
    """

    def __init__(
        self,
        base_url: str | None,
        api_key: str,
        *,
        timeout: float = 600.0,
        stall_timeout: float = 60.0,
        max_retries: int = 5,
        max_wait: float = 600.0,
        max_in_flight: int | None = None,
        stream: bool = False,
    ) -> None:
        try:
            import aiohttp  # noqa: F401  the transport
            import openai  # noqa: F401
        except ImportError as e:
            raise MissingExtraError("openai[aiohttp]", extra="openai") from e
        self.base_url = base_url
        self.retries = 0
        """Attempts that failed and were made again."""
        self._api_key = api_key
        self._timeout = timeout
        self._stall_timeout = stall_timeout
        self._max_retries = max_retries
        self._max_wait = max_wait
        self._max_in_flight = max_in_flight
        self._stream = stream
        self._closed_until = 0.0  # a rate limit holds every request back, not only the one that was told
        self._seats: _Seats = {}
        self.close = weakref.finalize(self, _close_clients, self._seats)
        """Close every client; also done at exit."""

    async def ask(self, request: Mapping[str, Any]) -> Reply:
        """The reply to a request of chat completions.

        Raises:
            BackendRefusedError: The server would refuse it again.
            BackendError: It failed after the retries, or the rate limit did not end in time.
        """
        seat = await self._seat()
        failures = 0
        give_up = time.monotonic() + self._max_wait
        limited = 0
        while True:
            pause = self._closed_until - time.monotonic()
            if pause > 0:  # not all at the same moment
                await asyncio.sleep(pause + random.uniform(0.0, min(1.0, pause / 4)))
            try:
                async with seat.free:
                    return await self._attempt(seat.client, request)
            except UnicodeEncodeError as e:  # half a character in somebody's text, which no server can be sent
                before, request = request, _encodable(request)
                if request == before:
                    raise BackendRefusedError(f"the request's headers cannot be sent: {e.reason}") from None
                continue
            except BackendBusyError as e:
                limited += 1
                pause = _asked_pause(e) or _pause(limited)
                if time.monotonic() + pause > give_up:
                    raise
                self._closed_until = max(self._closed_until, time.monotonic() + pause)
            except (BackendDownError, BackendReplyError, BackendSlowError) as e:
                failures += 1
                if failures > self._max_retries:
                    raise
                await asyncio.sleep(min(_asked_pause(e) or _pause(failures), _LONGEST_PAUSE))
            self.retries += 1

    async def _attempt(self, client: openai.AsyncOpenAI, request: Mapping[str, Any]) -> Reply:
        import openai

        try:
            async with asyncio.timeout(self._timeout):
                return read_reply(await (self._streamed if self._stream else _whole)(client, request))
        except openai.APIStatusError as e:
            raise _refused(e) from e
        except BackendReplyError:
            raise
        except (TimeoutError, openai.APITimeoutError) as e:
            # The aiohttp transport reports a refused connection as a time-out; only the cause tells which it was.
            if isinstance(e.__cause__, Exception) and "onnect" in str(e.__cause__):
                raise BackendDownError(f"nothing answers: {e.__cause__}") from e
            limit = f"{self._timeout:g} s in all" + (f", {self._stall_timeout:g} s of silence" if self._stream else "")
            raise BackendSlowError(f"no answer in time ({limit}): {e!r}") from e
        except openai.OpenAIError as e:
            cause = e.__cause__
            raise BackendDownError(f"{type(e).__name__}: {e}" + ("" if cause is None else f" ({cause!r})")) from e
        except UnicodeEncodeError:
            raise
        except (ValueError, RecursionError) as e:
            raise BackendReplyError(f"expected a chat completion as JSON: {e}") from e
        except OSError as e:
            raise BackendDownError(f"the connection failed: {e!r}") from e

    async def _streamed(self, client: openai.AsyncOpenAI, request: Mapping[str, Any]) -> Any:

        reply = StreamedReply()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(self._stall_timeout):
                opening = client.chat.completions.with_streaming_response.create(**{**request, **options})
                response = await stack.enter_async_context(opening)
            lines = _lines(response.iter_bytes())
            while True:
                async with asyncio.timeout(self._stall_timeout):
                    line = await anext(lines, None)
                if line is None or (line.startswith(b"data:") and line[5:].strip() == b"[DONE]"):
                    return reply.completion()
                if line.startswith(b"data:"):
                    reply.add(json.loads(line[5:]))
                elif line.startswith(b"{"):  # a server that does not stream
                    return json.loads(line + b"".join([rest async for rest in lines]))

    async def _seat(self) -> _Seat:
        loop = asyncio.get_running_loop()
        if loop not in self._seats:
            for other in list(self._seats):
                if other.is_closed():
                    del self._seats[other]
            lifetime = _client_lifetime(base_url=self.base_url, api_key=self._api_key, timeout=self._timeout)
            limit = 1 << 30 if self._max_in_flight is None else self._max_in_flight
            self._seats[loop] = _Seat(await anext(lifetime), lifetime, asyncio.Semaphore(limit))
        return self._seats[loop]


async def _whole(client: openai.AsyncOpenAI, request: Mapping[str, Any]) -> Any:
    async with client.chat.completions.with_streaming_response.create(**request) as response:
        return json.loads(b"".join([part async for part in _limited(response.iter_bytes())]))


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a body. The client's own end at U+2028 and its like too, which are part of what a model says."""
    rest = b""
    async for part in _limited(parts):
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line
    yield rest


async def _limited(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The parts of a body that is no larger than any reply: a packed one could fill the memory."""
    import openai

    size = 0
    try:
        async for part in parts:
            size += len(part)
            if size > _LONGEST_REPLY:
                raise BackendReplyError(f"expected a chat completion, got more than {_LONGEST_REPLY >> 20} MiB")
            yield part
    except (BackendError, TimeoutError, openai.OpenAIError, OSError):
        raise
    except Exception as e:  # the transport's own errors, which have no public base
        raise BackendDownError(f"the reply broke off: {e!r}") from e


def _encodable(value: Any) -> Any:
    """JSON-able values with U+FFFD for every surrogate that has no other half."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_encodable(name): _encodable(entry) for name, entry in value.items()}
    return [_encodable(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _refused(error: openai.APIStatusError) -> BackendError:
    """The error of a status: whether to wait, to try again or to give up."""
    status = error.status_code
    said = f"status {status}: {error.message}" + (f" ({error.code})" if error.code else "")
    if status == 429 and error.code == "insufficient_quota":
        return BackendRefusedError(said)
    if status == 429 or (status in (503, 529) and "retry-after" in error.response.headers):
        return BackendBusyError(said)
    return BackendDownError(said) if status in _RETRIED or status >= 500 else BackendRefusedError(said)


def _asked_pause(error: BackendError) -> float | None:
    """Seconds the server asks to wait, None where it does not say, or says that the time is over."""
    response = getattr(error.__cause__, "response", None)
    if response is None:
        return None
    try:
        if "retry-after-ms" in response.headers:
            seconds = float(response.headers["retry-after-ms"]) / 1000
        else:
            text = response.headers.get("retry-after", "")
            date = not text[:1].isdigit()
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time() if date else float(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def _pause(attempt: int) -> float:
    """Seconds before a further attempt, the first being 1."""
    return min(_FIRST_PAUSE * 2.0 ** (attempt - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1.0)


async def _client_lifetime(**arguments: Any) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    """Yields one client. An event loop closes its open generators when it shuts down, and the client with them."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    client = AsyncOpenAI(**arguments, max_retries=0, http_client=DefaultAioHttpClient(timeout=arguments["timeout"]))
    try:
        yield client
    finally:
        await client.close()


def _close_clients(seats: _Seats) -> None:
    """Close the clients on their loops; those of a loop that no longer runs went with it."""
    waiting = []
    for loop, seat in list(seats.items()):
        if loop.is_running():
            waiting.append((loop, asyncio.run_coroutine_threadsafe(_aclose(seat.lifetime), loop)))
    seats.clear()
    for loop, future in waiting:
        if asyncio._get_running_loop() is not loop:
            concurrent.futures.wait([future], timeout=_CLOSE_SECONDS)


async def _aclose(lifetime: AsyncGenerator[Any, None]) -> None:
    await lifetime.aclose()
