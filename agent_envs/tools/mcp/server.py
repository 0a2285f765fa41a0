"""A session with a server of the Model Context Protocol: every wait has a limit, and every way to fail an error.

What a server says is data: its words are cleaned, its tools checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent_envs._version import __version__
from agent_envs.checks import shown
from agent_envs.errors import (
    BackendDownError,
    BackendReplyError,
    BackendSlowError,
    ConfigError,
    MissingExtraError,
    check_release,
    first_line,
)
from agent_envs.text import clean_text
from agent_envs.threads import background_loop
from agent_envs.tools.listed import checked_tools
from agent_envs.tools.mcp.transports import END_SECONDS, TOLD, Address, endpoint, program

_MOST_TOOLS = 1000
_SESSION_TERMINATED = 32600  # the client's own word for an HTTP session that the server has forgotten


class Reply(NamedTuple):
    """What a tool answered."""

    text: str
    error: bool
    """Whether the tool says that it failed."""


@dataclass(slots=True)
class _Heard:
    """What a server said beside its answers."""

    said: bytearray = field(default_factory=bytearray)
    """The end of the program's standard error."""
    causes: list[Exception] = field(default_factory=list)
    """Answers that could not be read."""


class Server:
    """A session: started when made, ended by `close`, by the garbage collector, and with this process.

    Args:
        address: Where it is.
        timeout: Seconds to wait for the answer of a tool.
        start_timeout: Seconds to wait until it has listed its tools.

    Raises:
        ConfigError: The address cannot be used.
        BackendDownError: It ended, or nothing answers.
        BackendSlowError: It does not answer in time.
        BackendReplyError: What it says is not the protocol, or its tools cannot be offered.
        MissingExtraError: The package mcp is not installed.
    """

    def __init__(self, address: Address, *, timeout: float, start_timeout: float) -> None:
        check_release("mcp", "mcp")
        self.address, self._timeout = address, timeout
        self._pid, self._loop = os.getpid(), background_loop()
        self._heard = _Heard()
        self._ended = threading.Event()
        started: Future[tuple[Any, Any, dict[str, Any]]] = Future()
        self._task = asyncio.run_coroutine_threadsafe(
            _serve(address, start_timeout, self._heard, started, self._ended), self._loop
        )
        weakref.finalize(self, self._task.cancel)
        try:
            self._session, self._read, about = self._result(started, start_timeout, "start")
            self.instructions = clean_text(str(about["instructions"]))
            self.tools = checked_tools(about["tools"], str(address))
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can be asked: neither closed nor the parent process's."""
        return self._pid == os.getpid() and not self._task.done()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Call a tool. What goes wrong with the server ends the session.

        Raises:
            BackendError: As for the constructor.
        """
        if not self.alive:
            raise BackendDownError(f"{self.address} has been closed")
        future = asyncio.run_coroutine_threadsafe(_call(self._session, self._read, name, dict(arguments)), self._loop)
        try:
            return self._result(future, self._timeout, f"call {name!r}")
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """End the session and the program, with all that it started. A forked child leaves them to its parent."""
        if self._pid == os.getpid():
            self._task.cancel()
            self._ended.wait(END_SECONDS)

    def _result(self, future: Future[Any], seconds: float, what: str) -> Any:
        """Return what a request returned, or raise the typed error of what went wrong."""
        try:
            done, _ = wait({future, self._task}, timeout=seconds, return_when=FIRST_COMPLETED)
            if not done:
                raise BackendSlowError(f"{self.address} did not answer in {seconds:g} seconds: {what}")
            if future not in done:  # what comes of the request is seen at once, unless it is lost
                wait({future}, timeout=0.1)
            if future.done():
                return future.result()
            self._task.result()
            raise BackendDownError(f"{self.address} has ended: {what}")
        except BackendSlowError:
            future.cancel()
            self._task.cancel()
            raise
        except BaseException as e:
            self._task.cancel()
            if not isinstance(e, Exception):
                raise
            raise self._typed(e, what) from e

    def _typed(self, error: BaseException, what: str) -> Exception:
        """Return the error of this library for one of the protocol's package."""
        import httpx
        from mcp.shared.exceptions import McpError
        from mcp.types import CONNECTION_CLOSED

        error = self._heard.causes[0] if self._heard.causes else error
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, (BackendDownError, BackendReplyError, MissingExtraError, ConfigError)):
            return error
        closed = isinstance(error, McpError) and error.error.code in (CONNECTION_CLOSED, _SESSION_TERMINATED)
        said = clean_text(first_line(error))[:TOLD]
        if isinstance(error, httpx.TimeoutException):
            return BackendSlowError(f"{self.address} did not answer in time: {what}: {said}")
        if closed or isinstance(error, (httpx.TransportError, OSError, CancelledError)):
            words = self._heard.said.decode("utf-8", "replace").strip()
            last = f"; its standard error ends with: {words}" if words else ""
            return BackendDownError(f"{self.address} has ended or cannot be reached: {what}: {said}{last}")
        return BackendReplyError(f"{self.address} answered what it should not: {what}: {said}")


async def _serve(
    address: Address, start_timeout: float, heard: _Heard, started: Future[Any], ended: threading.Event
) -> None:
    """Keep a session open until this task is cancelled."""
    from mcp import ClientSession, types

    unreadable = asyncio.Event()

    async def heed(message: Any) -> None:
        if isinstance(message, Exception):
            heard.causes.append(message)
            unreadable.set()

    try:
        async with contextlib.AsyncExitStack() as stack:
            streams = program(address, heard.said) if address.command else endpoint(address, start_timeout)
            read, write = await stack.enter_async_context(streams)
            client = types.Implementation(name="agent-envs", version=__version__)
            session = await stack.enter_async_context(
                ClientSession(read, write, client_info=client, message_handler=heed)
            )
            about = await session.initialize()
            tools: list[Any] = []
            cursor: str | None = None
            while True:
                params = types.PaginatedRequestParams(cursor=cursor)
                page = await _asked(session, types.ListToolsRequest(params=params))
                tools += page.get("tools") or []
                cursor = page.get("nextCursor")
                if len(tools) > _MOST_TOOLS:
                    raise BackendReplyError(f"{address} lists more than {_MOST_TOOLS} tools")
                if not cursor:
                    break
            started.set_result((session, read, {"tools": tools, "instructions": about.instructions or ""}))
            await unreadable.wait()
    finally:
        ended.set()


async def _asked(session: Any, request: Any) -> dict[str, Any]:
    """Return a result unchecked: the client's own classes refuse all of it where one entry is odd."""
    from mcp import types

    result = await session.send_request(types.ClientRequest(request), types.Result)
    return result.model_extra or {}


async def _call(session: Any, read: Any, name: str, arguments: dict[str, Any]) -> Reply:
    """Call a tool. An error that the server answers is the tool's; one that ends the connection is raised."""
    from mcp import types
    from mcp.shared.exceptions import McpError

    params = types.CallToolRequestParams(name=name, arguments=arguments)
    try:
        result = await _asked(session, types.CallToolRequest(params=params))
    except McpError as e:
        lost = not read.statistics().open_send_streams  # where the client answers for the server
        if lost or e.error.code == _SESSION_TERMINATED:
            raise
        return Reply(clean_text(e.error.message) or f"failed with code {e.error.code}", error=True)
    parts = result.get("content") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"expected a list of parts under 'content', got {shown(parts)}")
    texts = [_part_text(part) for part in parts]
    if not texts and result.get("structuredContent") is not None:
        texts = [json.dumps(result["structuredContent"], ensure_ascii=False)]
    return Reply(clean_text("\n".join(texts)), result.get("isError") is True)


def _part_text(part: dict[str, Any]) -> str:
    """Return a part of a result as text; pictures and sounds are named, not shown."""
    resource = part.get("resource")
    places = (part, resource) if isinstance(resource, dict) else (part,)
    text = next((place["text"] for place in places if isinstance(place.get("text"), str)), None)
    if text is None and part.get("type") != "text":
        names = (place.get(key) for key in ("uri", "mimeType") for place in places)
        text = f"[{part.get('type')}: {next(filter(None, names), 'no type')}]"
    return text or ""
