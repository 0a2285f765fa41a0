"""The door: a server on this machine at which programs ask the model of an episode, each at an address of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_envs._version import __version__
from agent_envs.agents import responses_wire
from agent_envs.agents.calls import AsyncHost
from agent_envs.agents.chat_wire import Wire, completion, error_body, events, read_request
from agent_envs.agents.messages_wire import as_chat, as_message, message_events
from agent_envs.agents.responses_wire import Conversations
from agent_envs.errors import (
    AgentEnvsError,
    BackendError,
    ConfigError,
    ContextLengthExceeded,
    EpisodeStop,
    PolicyError,
    PromptError,
    needs_extra,
)
from agent_envs.messages import ToolCall, ToolSpec, latest_words, observation_text
from agent_envs.per_process import PerProcess
from agent_envs.policies.model import EpisodeModel
from agent_envs.policies.openai.fields import encodable
from agent_envs.serving.listener import BackgroundServer, Listener, read_object

with needs_extra("serve"):
    from aiohttp import web

ACT: ToolSpec = {
    "type": "function",
    "function": {
        "name": "act",
        "description": "Take an action in the environment and see what comes of it.",
        "parameters": {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]},
    },
}
"""The tool of an environment whose actions are texts."""
_VERSION = "2025-06-18"
_NO_METHOD, _BAD_ARGUMENTS = -32601, -32602


async def mcp_answer(
    request: Mapping[str, Any], tools: Sequence[ToolSpec], act: Callable[[str, dict[str, Any]], Awaitable[str]]
) -> dict[str, Any] | None:
    """Return the answer to a request of MCP, as far as programs need it to call tools; None to a notification.

    Source: https://modelcontextprotocol.io/specification (JSON-RPC over streamable HTTP). `act` gives a tool's result.
    """
    if "id" not in request:
        return None
    about = {"jsonrpc": "2.0", "id": request["id"]}
    method, params = request.get("method"), request.get("params")
    params = params if isinstance(params, Mapping) else {}
    if method == "initialize":
        server = {"name": "agent_envs", "version": __version__}
        asked = params.get("protocolVersion")
        version = asked if isinstance(asked, str) else _VERSION
        return about | {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}}
    if method == "ping":
        return about | {"result": {}}
    if method == "tools/list":
        listed = [
            {"name": f["name"], "description": f["description"], "inputSchema": f["parameters"]}
            for f in (tool["function"] for tool in tools)
        ]
        return about | {"result": {"tools": listed}}
    if method != "tools/call":
        return about | {"error": {"code": _NO_METHOD, "message": f"there is no method {str(method)[:80]!r}"}}
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not any(tool["function"]["name"] == name for tool in tools) or not isinstance(arguments, dict):
        return about | {"error": {"code": _BAD_ARGUMENTS, "message": f"there is no tool {str(name)[:80]!r}"}}
    try:
        text, failed = await act(str(name), arguments), False
    except AgentEnvsError as e:
        text, failed = str(e), True
    return about | {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}


_MAX_REQUEST = 64 << 20  # bytes
_COMMENT = 10.0  # seconds between two comments in a stream whose reply is not sampled yet
_LEAVE = 2.0  # seconds that the answer to a client that has left is waited for, in case it asks again
_ATTEMPT = "x-stainless-retry-count"  # how the SDKs mark a request that they send again

_doors: PerProcess[Door] = PerProcess()


def the_door() -> Door:
    """Return this process's door, which begins to listen when it is first asked for."""
    return _doors.get("door", lambda: Door().start())


@dataclass(eq=False)
class _Answer:
    """The answer to a request, sampled or about to be."""

    reply: asyncio.Task[dict[str, Any]]
    clients: int = 0
    """How many wait for it."""

    def failed(self) -> bool:
        """Return whether it has failed, or is being given up."""
        given_up = self.reply.cancelling() > 0 or self.reply.cancelled()
        return given_up or (self.reply.done() and self.reply.exception() is not None)

    def give_up(self) -> None:
        """Cancel the sampling if nobody waits for it."""
        if not self.clients:
            self.reply.cancel()


@dataclass
class _Guest:
    """An episode whose model can be asked."""

    log: Any
    """Its `CallLog`."""
    model: EpisodeModel
    wire: Wire
    env: Any
    """Its `PlayedEnv`."""
    conversations: Conversations = field(default_factory=dict)
    answers: dict[str, _Answer] = field(default_factory=dict)
    """Running and given answers, by the request's body."""


class Door(BackgroundServer):
    """Answers chat completions, Anthropic's messages and OpenAI's responses with the model that the address names."""

    def __init__(self) -> None:
        self.listener = Listener(
            "127.0.0.1", 0, None, _refused, max_body=_MAX_REQUEST, stalled_seconds=600.0,
            paths="/e/KEY/v1/chat/completions, /messages, /responses, /models and /e/KEY/mcp",
            statuses={ContextLengthExceeded: 400, ConfigError: 400, PolicyError: 400, PromptError: 400,
                      EpisodeStop: 400, RecursionError: 400, BackendError: 502, AgentEnvsError: 400},
        )  # fmt: skip
        self._guests: dict[str, _Guest] = {}

    async def open(self) -> None:
        """Start listening, on the running loop."""
        routes = [
            web.head("/e/{key}{path:(/|/api/hello)?}", self._models),  # a program looks whether anybody is there
            web.get("/e/{key}/v1/models", self._models),
            web.post("/e/{key}/mcp", self._mcp),
            web.post("/e/{key}/v1/{api:chat/completions|messages|responses}", self._ask),
            web.post("/e/{key}/v1/messages/count_tokens", self._count),
        ]
        await self.listener.open(routes, handler_cancellation=True)

    def admit(self, log: Any, model: EpisodeModel, env: Any) -> str:
        """Return an episode's address, which is void when the episode ends, and stays so."""
        if not log.on_end:
            self._guests[log.key] = _Guest(log, model, Wire(log.env, model), env)
            log.on_end.append(lambda: self._guests.pop(log.key, None))
        return f"{self.url}/e/{log.key}"

    def _guest(self, request: web.Request) -> _Guest:
        guest = self._guests.get(request.match_info["key"])
        if guest is None:
            raise web.HTTPGone(reason="this episode is over: its address no longer answers")
        return guest

    async def _models(self, request: web.Request) -> web.Response:
        self._guest(request)
        return web.json_response(
            {"object": "list", "data": [{"id": "policy", "object": "model", "owned_by": "agentr1"}]}
        )

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        guest, body = self._guest(request), await _body(request)
        return await self._send(request, *as_completion(request.match_info["api"], body, guest.conversations))

    async def _mcp(self, request: web.Request) -> web.StreamResponse:
        guest, loop = self._guest(request), asyncio.get_running_loop()

        async def act(name: str, arguments: dict[str, Any]) -> str:
            if not isinstance(guest.log.host, AsyncHost):
                raise PolicyError("a blocking agent calls env.call itself; the tools are offered to programs")
            playing = guest.log.host.episode.loop

            async def acted() -> str:
                if guest.env.tools:
                    return await guest.env.call(name, arguments)
                action = str(arguments.get("action", ""))
                await guest.log.host.run(guest.log.take, action, None, ToolCall(name, arguments))
                return observation_text(latest_words(guest.env.observation))

            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(acted(), playing), loop=loop)

        answer = await mcp_answer(await _body(request), guest.env.tools or [ACT], act)
        return web.Response(status=202) if answer is None else web.json_response(answer)

    async def _count(self, request: web.Request) -> web.Response:
        guest = self._guest(request)
        body = await _body(request)
        with _reading():
            asked = read_request(as_chat(body), guest.wire)
        return web.json_response({"input_tokens": guest.model.count(asked.messages, asked.tools)})

    async def _send(
        self, request: web.Request, body: Mapping[str, Any], answered: Callable[[Any], Any],
        told: Callable[[Any], Iterator[bytes]],
    ) -> web.StreamResponse:  # fmt: skip
        """Answer in the words of an API, whole or as a stream, in which comments come as long as nothing is sampled."""
        reply = asyncio.ensure_future(self._reply(request, body))
        if not body.get("stream"):
            return web.json_response(answered(await reply))
        response = None
        try:
            while not (await asyncio.wait({reply}, timeout=_COMMENT))[0]:
                response = response or _stream()
                await response.prepare(request)
                await response.write(b": sampling\n\n")
            events = told(answered(reply.result()))
        except AgentEnvsError as e:
            if response is None:
                raise  # an answer with a status of its own
            error = error_body(502, str(e), too_long=isinstance(e, ContextLengthExceeded))
            events = iter([b"event: error\ndata: " + json.dumps(error).encode("ascii")])
        finally:
            reply.cancel()
        return await streamed(request, events, response)

    async def _reply(self, request: web.Request, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the completion that a request gets; one that is sent again, that of the first."""
        guest = self._guest(request)
        asked = json.dumps(body, sort_keys=True)
        again = request.headers.get(_ATTEMPT, "0") != "0"
        answer = guest.answers.get(asked) if again else None
        if answer is None or answer.failed():
            answer = guest.answers[asked] = _Answer(asyncio.ensure_future(self._answer(guest, body)))
        answer.clients += 1
        try:
            return await asyncio.shield(answer.reply)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(_LEAVE, answer.give_up)
            raise
        finally:
            answer.clients -= 1

    async def _answer(self, guest: _Guest, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the episode's model on the loop that plays it."""
        with _reading():
            asked = read_request(body, guest.wire)
        loop = guest.log.host.episode.loop

        def ask() -> Any:
            waiting = guest.log.ask(
                guest.model, asked.messages, asked.tools, asked.role, asked.trained, asked.limit, asked.info,
                ordered=False,
            )  # fmt: skip
            return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(waiting, loop))

        replies = await asyncio.gather(*(ask() for _ in range(asked.count)))
        return completion(replies, body, guest.wire, asked)


def _stream() -> web.StreamResponse:
    return web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})


async def streamed(
    request: web.Request, told: Iterable[bytes], response: web.StreamResponse | None = None
) -> web.StreamResponse:
    """Answer with the events of a stream, or go on with one that has begun."""
    response = response or _stream()
    with contextlib.suppress(ConnectionError):  # the reply is recorded even if the client is gone
        await response.prepare(request)
        for event in told:
            await response.write(event + b"\n\n")
        await response.write_eof()
    return response


async def _body(request: web.Request) -> dict[str, Any]:
    return encodable(await read_object(request))


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Say that a request is malformed where reading it fails on a value of another kind than its API has there."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        if isinstance(e, AgentEnvsError):
            raise
        raise ConfigError(f"the request is malformed: {type(e).__name__}: {e}") from e


def as_completion(
    api: str, body: dict[str, Any], conversations: Conversations
) -> tuple[dict[str, Any], Callable[[Any], Any], Callable[[Any], Iterator[bytes]]]:
    """Return a request as a chat completion's, what makes an answer of the completion, and events of the answer.

    An answer to OpenAI's responses is added to the conversations. A ConfigError says that the request is malformed.
    """
    if api == "chat/completions":
        return body, lambda reply: reply, lambda reply: events(reply, body)
    with _reading():
        if api == "messages":
            return as_chat(body), as_message, lambda message: _named(message_events(message))
        chat = responses_wire.as_chat(body, conversations)
    return (
        chat,
        lambda reply: responses_wire.as_response(reply, body, chat, conversations),
        lambda response: _named(responses_wire.response_events(response)),
    )


def _named(told: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[bytes]:
    """Yield events that say their name in their data too, numbered."""
    for number, (kind, data) in enumerate(told):
        value = json.dumps({"type": kind, "sequence_number": number, **data})
        yield f"event: {kind}\ndata: {value}".encode("ascii")


def _refused(status: int, message: str, error: Exception) -> web.Response:
    status = 404 if status == 410 else status  # of an episode that is over
    body = error_body(status, message, too_long=isinstance(error, ContextLengthExceeded))
    return web.json_response(body, status=status)
