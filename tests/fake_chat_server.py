"""An OpenAI-compatible server in this process that misbehaves as real ones do, by a plan for each request.

`ChatServer(think, plan)`: `think(request)` is the model, which gives a text, a list of calls, a whole `completion` or a
status with a body; `plan(number, request)` names how request `number` (from 0) is treated:

    ok            a whole reply, streamed where the request asks for it
    slow          the same, a twentieth of a second later
    rate          429 with Retry-After
    quota         429 for good
    error         500
    drop          the connection closes without a word
    half          the connection closes in the middle of the body (or stream)
    stall         silence until the server is closed (in the middle of a stream)
    empty         an empty body
    garbage       a body that is not JSON
    no_choices    a completion without choices
    wrong_types   a completion whose fields have other types

A plan that gives bytes has them sent as they are, and the connection closed.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

Think = Callable[[dict[str, Any]], str | list[dict[str, Any]] | dict[str, Any] | tuple[int, Any]]
Plan = Callable[[int, dict[str, Any]], str | bytes]


class ChatServer:
    """Serves on the loopback from a thread of its own until `close`."""

    def __init__(self, think: Think, plan: Plan | None = None, *, retry_after: str = "0.05") -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.treated: Counter[str] = Counter()
        self.in_flight = self.most_in_flight = self.connections = 0
        self.think, self._retry_after = think, retry_after
        self.plan: Plan = plan or (lambda number, request: "ok")
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; requests that stall break off."""

        async def stop() -> None:
            self._server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        request = json.loads(await reader.readexactly(int(headers["content-length"])))
        number = len(self.requests)
        self.requests.append(request)
        self.keys.append(headers.get("authorization"))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            how = self.plan(number, request)
            if isinstance(how, bytes):
                writer.write(how)
                await writer.drain()
                return False
            self.treated[how] += 1
            return await self._treat(how, request, writer)
        finally:
            self.in_flight -= 1

    async def _treat(self, how: str, request: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        stream = bool(request.get("stream"))
        said = self.think(request)
        if isinstance(said, tuple):
            return await _send(writer, said[0], json.dumps(said[1]).encode(), "Retry-After-Ms: 1\r\n")
        body = json.dumps(said if isinstance(said, dict) else completion(said)).encode()
        if how == "slow":
            await asyncio.sleep(0.05)
        if how == "drop":
            return False
        if how == "rate":
            limited = json.dumps({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}).encode()
            return await _send(writer, 429, limited, f"Retry-After: {self._retry_after}\r\n")
        if how == "quota":
            return await _send(writer, 429, b'{"error": {"message": "pay first", "code": "insufficient_quota"}}')
        if how == "error":
            return await _send(writer, 500, b'{"error": {"message": "out of luck"}}')
        if how == "page":
            return await _send(writer, 501, b"<html>\n<p>Unsupported method\n</html>")
        if how == "stall" and not stream:
            await asyncio.sleep(3600)
        broken = {
            "empty": b"",
            "garbage": b"<html>bad gateway</html>",
            "no_choices": json.dumps({**json.loads(body), "choices": []}).encode(),
            "wrong_types": json.dumps({"choices": [{"message": {"content": {"a": 1}, "tool_calls": 7}}]}).encode(),
        }
        if how in broken:
            return await _send(writer, 200, broken[how])
        if stream:
            return await self._stream(how, json.loads(body), writer)
        if how == "half":
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
            await writer.drain()
            return False
        return await _send(writer, 200, body)

    async def _stream(self, how: str, whole: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        chunks = list(streamed(whole))
        for number, chunk in enumerate(chunks):
            if number == len(chunks) // 2 and how == "half":
                return False
            if number == len(chunks) // 2 and how == "stall":
                await asyncio.sleep(3600)
            writer.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await writer.drain()
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        return False


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: str = "") -> bool:
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"HTTP/1.1 {status} X\r\n{kind}{headers}\r\n".encode() + body)
    await writer.drain()
    return True


def completion(
    said: str | list[dict[str, Any]] | None, words: str | None = None, *, used: int = 10,
    message: dict[str, Any] | None = None, **choice: Any,
) -> dict[str, Any]:  # fmt: skip
    """A chat completion that says a text or, perhaps after some words, makes calls.

    A call is {"name", "arguments"} and perhaps {"id"}; arguments that are a text are sent as they are. What `message`
    and `choice` hold is added to the message and to its choice.
    """
    message = {"role": "assistant", "content": words if isinstance(said, list) else said, **(message or {})}
    if isinstance(said, list):
        message["tool_calls"] = [
            {
                "id": call.get("id", f"call-{i}"),
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": a if isinstance(a := call["arguments"], str) else json.dumps(a),
                },
            }
            for i, call in enumerate(said)
        ]
    usage = {
        "prompt_tokens": 100, "completion_tokens": used, "total_tokens": 100 + used,
        "prompt_tokens_details": {"cached_tokens": 40},
    }  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": "stop", **choice}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


def streamed(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a completion: a few characters each, then the usage."""
    choice = whole["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    text = message.get("content") or ""
    deltas += [{"content": text[i : i + 4]} for i in range(0, len(text), 4)]
    for place, call in enumerate(message.get("tool_calls", [])):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{**call, "index": place, "function": {**call["function"], "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": place, "function": {"arguments": arguments[i : i + 5]}}]}
            for i in range(0, len(arguments), 5)
        ]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    return [*chunks, {"choices": [], "usage": whole["usage"]}]


def broken_rule(messages: list[dict[str, Any]]) -> str | None:
    """What a strict server would refuse: unanswered calls, unknown ids, arguments that are not JSON."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"no call has the id {message['tool_call_id']}"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return f"calls without an answer: {waiting}"
        for entry in message.get("tool_calls", []):
            json.loads(entry["function"]["arguments"])
            waiting.append(entry["id"])
    return f"calls without an answer: {waiting}" if waiting else None
