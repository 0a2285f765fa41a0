"""How a server is reached: a program behind the guard, or an address. Neither can send more than it may."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import BackendReplyError, ConfigError
from agent_envs.http.addresses import names_this_machine, server_address
from agent_envs.parsers.json_calls import load_json

TOLD = 2000
"""Characters of a server's own words in an error."""
END_SECONDS = 3.0
"""Until a closed server's processes have ended."""

_GUARD = Path(__file__).with_name("guard.py")
_LONGEST_MESSAGE = 16 << 20  # bytes
_LONGEST_ANSWER = 64 << 20  # bytes of one HTTP answer, which a stream of events is too


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is: a program to run, or an address."""

    command: tuple[str, ...] = ()
    """The program and its arguments; it speaks over standard input and output."""
    url: str = ""
    """Otherwise the address of a server that speaks over HTTP ("Streamable HTTP")."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that the program gets beside HOME, LANG, PATH, TERM, USER and the like."""
    token_variable: str = ""
    """Name of the environment variable whose value is sent as bearer token."""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError("give either command=[...], a program and its arguments, or url='http://...'")
        if self.command and shutil.which(self.command[0]) is None:
            raise ConfigError(f"command: there is no program {shown(self.command[0])} that can be run here")
        if self.url:
            server_address("url", self.url, query=True)
        for name in (*self.environment, *filter(None, [self.token_variable])):
            if name not in os.environ:
                raise ConfigError(f"the environment variable {shown(name)} is not set")

    def __str__(self) -> str:
        return f"the MCP server {self.url or ' '.join(self.command)}"[:300]


@contextlib.asynccontextmanager
async def program(address: Address, said: bytearray) -> AsyncIterator[tuple[Any, Any]]:
    """Run a program behind the guard, and yield the streams of its messages."""
    import anyio
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage
    from pydantic import ValidationError

    variables = {**get_default_environment(), **{name: os.environ[name] for name in address.environment}}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *address.command,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=variables, start_new_session=True, limit=_LONGEST_MESSAGE,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    silent = anyio.Event()
    to_session, read = anyio.create_memory_object_stream[Any](0)
    write, from_session = anyio.create_memory_object_stream[Any](0)

    async def receive() -> None:
        async with to_session:
            while True:
                try:
                    line = await stdout.readline()
                except ValueError as e:
                    raise BackendReplyError(f"{address} sent a line of over {_LONGEST_MESSAGE} bytes") from e
                if not line:
                    with anyio.move_on_after(0.2):  # its last words are on their way
                        await silent.wait()
                    return
                try:
                    message = JSONRPCMessage.model_validate_json(line)
                except ValidationError:
                    try:  # with lone surrogates, which Python's and JavaScript's JSON have
                        message = JSONRPCMessage.model_validate(load_json(line.decode("utf-8", "replace")))
                    except ValueError:  # a greeting or a log, which do not belong there
                        continue
                await to_session.send(SessionMessage(message))

    async def listen() -> None:
        while piece := await stderr.read(1 << 16):
            said[:] = (said + piece)[-TOLD:]
        silent.set()

    async def send() -> None:
        async with from_session:
            async for message in from_session:
                stdin.write(message.message.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n")
                with contextlib.suppress(ConnectionError):  # it has ended, as reading shows
                    await stdin.drain()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(receive)
            group.start_soon(listen)
            group.start_soon(send)
            try:
                yield read, write
            finally:
                group.cancel_scope.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        end = time.monotonic() + END_SECONDS
        while process.returncode is None and time.monotonic() < end:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)
        stdin.close()


@contextlib.asynccontextmanager
async def endpoint(address: Address, start_timeout: float) -> AsyncIterator[tuple[Any, Any]]:
    """Open a session over HTTP, and yield the streams of its messages."""
    import httpx
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Accept-Encoding": "identity"}
    if address.token_variable:
        headers["Authorization"] = f"Bearer {os.environ[address.token_variable]}"
    timeout = httpx.Timeout(start_timeout, read=None)  # each request has a limit of its own
    async with (
        httpx.AsyncClient(
            headers=headers,
            timeout=timeout,
            trust_env=not names_this_machine(address.url),
            event_hooks={"response": [_bounded]},
        ) as client,
        streamable_http_client(address.url, http_client=client) as (read, write, _),
    ):
        yield read, write


async def _bounded(response: Any) -> None:
    """Have an answer fail when it becomes too long, or is packed."""
    import httpx

    class Bounded(httpx.AsyncByteStream):
        def __init__(self, stream: httpx.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._stream:
                size += len(piece)
                if size > _LONGEST_ANSWER:
                    raise httpx.DecodingError(f"the answer has over {_LONGEST_ANSWER} bytes")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed, which was not asked for")
    response.stream = Bounded(response.stream)
