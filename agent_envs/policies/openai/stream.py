"""Streamed chat completions: the events in a server's bytes, and the completion that their chunks are pieces of.

Servers differ in how they stream tool calls. The index that tells calls apart may be missing, or 0 for each; the id may
change from piece to piece; the name may come with every piece; arguments may be an object.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from agent_envs.errors import BackendReplyError

DONE = "[DONE]"
"""What ends a stream, in a chunk's place."""

_LONGEST = 256 << 20  # bytes of a reply, far more than a model writes
_ONCE = frozenset({"id", "type", "index", "role", "name", "format"})  # texts within a field that do not grow


async def limited(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of a reply; a BackendReplyError if there is no end of them."""
    size = 0
    async for part in parts:
        size += len(part)
        if size > _LONGEST:
            raise BackendReplyError(f"expected a chat completion, got more than {_LONGEST >> 20} MiB")
        yield part


class Events:
    """Splits a stream of bytes into events, each with the empty line that ends it.

    Format: https://html.spec.whatwg.org/multipage/server-sent-events.html.

    >>> events = Events()
    >>> events.add(b"data: 1\\n\\nda"), events.add(b"ta: 2\\n\\n"), events.add(b"data: 3"), events.rest()
    ([b'data: 1\\n\\n'], [b'data: 2\\n\\n'], [], b'data: 3')
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._within_line = False

    def add(self, part: bytes) -> list[bytes]:
        """Return the events that are complete with this part of the stream."""
        events = []
        for line in part.splitlines(keepends=True):
            ends = not self._within_line and not line.strip(b"\r\n")
            self._within_line = not line.endswith((b"\n", b"\r"))
            self._pending.append(line)
            if ends:
                events.append(self.rest())
        return events

    def rest(self) -> bytes:
        """Return the bytes of the event that has begun."""
        event = b"".join(self._pending)
        self._pending.clear()
        return event


def event_chunks(event: bytes) -> list[Any]:
    """Return the chunks in an event, decoded from JSON, and `DONE`; a ValueError if its data are no JSON.

    >>> event_chunks(b': ping\\ndata: {"a": 1}\\n\\n'), event_chunks(b"data: [1,\\ndata: 2]\\n\\n")
    ([{'a': 1}], [[1, 2]])
    """
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    if len(lines) > 1:
        with suppress(ValueError):
            return [json.loads(b"\n".join(lines))]
    return [DONE if line == b"[DONE]" else json.loads(line) for line in lines]


class StreamedCompletion:
    """Puts the chunks of a stream together into the completion that the server would have sent whole."""

    def __init__(self) -> None:
        self.error: Any = None
        """The error that the server sent instead of a chunk, or None."""
        self._fields: dict[str, Any] = {}
        self._choices = defaultdict[int, _Choice](_Choice)
        self._ended: set[int] = set()

    @property
    def finished(self) -> bool:
        """Whether every choice is complete, and no error came."""
        return bool(self._choices) and len(self._ended) == len(self._choices) and not self.error

    def add(self, chunk: Any) -> None:
        """Add a chunk; a BackendReplyError if it is malformed."""
        if not isinstance(chunk, Mapping):
            raise BackendReplyError(f"expected a chunk of a completion as a JSON object, got {chunk!r:.200}")
        self.error = chunk.get("error") or self.error
        self._fields |= {k: v for k, v in chunk.items() if v and k not in ("choices", "error", "object")}
        parts = chunk.get("choices")
        if not isinstance(parts, list):
            if not {"error", "usage"} & chunk.keys():
                raise BackendReplyError(f"expected a chunk with choices, got {chunk!r:.200}")
            return
        for part in parts:
            delta = part.get("delta", part.get("message")) if isinstance(part, Mapping) else None
            if not isinstance(part, Mapping) or not (delta is None or isinstance(delta, Mapping)):
                raise BackendReplyError(f"expected a choice with a delta, got {part!r:.200}")
            index = part["index"] if type(part.get("index")) is int else 0
            self._choices[index].add(part, delta or {})
            if part.get("finish_reason"):
                self._ended.add(index)

    def completion(self) -> dict[str, Any]:
        """Return the completion, as far as it has come."""
        choices = [{"index": index, **choice.whole()} for index, choice in sorted(self._choices.items())]
        return {**self._fields, "choices": choices}


class _Choice:
    def __init__(self) -> None:
        self._fields: dict[str, Any] = {"finish_reason": None}
        self._pieces: dict[str, list[Any]] = {}
        self._calls: list[_Call] = []
        self._known: dict[int | str, _Call] = {}  # calls by index, and by id

    def add(self, part: Mapping[str, Any], delta: Mapping[str, Any]) -> None:
        for name, value in part.items():
            entries = value.get("content") if name == "logprobs" and isinstance(value, Mapping) else None
            if isinstance(entries, list):
                self._fields.setdefault(name, {"content": []})["content"] += entries
            elif name in ("token_ids", "response_token_ids") and isinstance(value, list):
                self._fields.setdefault(name, []).extend(value)
            elif value and name not in ("index", "delta", "message", "logprobs"):
                self._fields[name] = value
        for name, value in delta.items():
            if name == "tool_calls" and value:
                if not isinstance(value, list) or not all(isinstance(piece, Mapping) for piece in value):
                    raise BackendReplyError(f"expected parts of tool calls, got {value!r:.200}")
                for piece in value:
                    self._add_call(piece)
            elif name not in ("role", "tool_calls") and value is not None:
                self._pieces.setdefault(name, []).append(value)

    def whole(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": None, **_joined(self._pieces)}
        calls = [call.whole() for call in self._calls]
        return {**self._fields, "message": {**message, **({"tool_calls": calls} if calls else {})}}

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        index = piece["index"] if type(piece.get("index")) is int else None
        function = piece["function"] if isinstance(piece.get("function"), Mapping) else {}
        name, call_id = (value if isinstance(value, str) else "" for value in (function.get("name"), piece.get("id")))
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        call = None if index is None else self._known.get(index)
        if call is None and (index is None or not name):
            call = self._known.get(call_id)
        if call is None and self._calls and (index is None or not (name or call_id)):
            call = self._calls[-1]
        if call is None or (name and call.ends_before(name, call_id, text, index is not None)):
            call = _Call()
            self._calls.append(call)
        self._known |= {key: call for key in (index, call_id) if key not in (None, "")}
        call.id = call.id or call_id
        if name != call.name and not call.arguments:
            call.name += name
        call.arguments += [text] if text else []
        call.fields |= {k: v for k, v in piece.items() if v is not None and k not in ("index", "id", "function")}
        call.function |= {k: v for k, v in function.items() if v is not None and k not in ("name", "arguments")}


def _joined(fields: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {name: pieces[-1] if name in _ONCE else _whole(pieces) for name, pieces in fields.items()}


def _whole(pieces: list[Any]) -> Any:
    """Return a field that came in pieces: texts and lists grow, objects grow field by field, others change."""
    kinds = set(map(type, pieces))
    if kinds == {str}:
        return "".join(pieces)
    if kinds == {dict}:
        fields = defaultdict[str, list[Any]](list)
        for name, value in chain.from_iterable(piece.items() for piece in pieces):
            fields[name] += [] if value is None else [value]
        return _joined(fields)
    if not kinds <= {str, list}:
        return pieces[-1]
    entries = defaultdict[Any, list[Any]](list)  # those with an index and a type grow too
    for entry in chain.from_iterable([{"type": "text", "text": p}] if type(p) is str else p for p in pieces):
        indexed = type(entry) is dict and type(entry.get("index")) is int
        entries[(entry["index"], str(entry.get("type"))) if indexed else len(entries)].append(entry)
    return [_whole(entry) for entry in entries.values()]


class _Call:
    def __init__(self) -> None:
        self.id = self.name = ""
        self.arguments: list[str] = []
        self.fields: dict[str, Any] = {"type": "function"}
        self.function: dict[str, Any] = {}

    def ends_before(self, name: str, call_id: str, text: str, indexed: bool) -> bool:
        """Return whether a piece with a name begins another call, rather than says the name again or more of it."""
        renamed, another = name != self.name, bool(call_id and self.id and call_id != self.id)
        if not self.arguments:
            return another and (renamed or not indexed)
        if renamed or not (text.lstrip().startswith("{") or (another and not text.strip())):
            return renamed
        with suppress(ValueError, RecursionError):
            return self.arguments[-1].rstrip().endswith("}") and isinstance(json.loads("".join(self.arguments)), dict)
        return False

    def whole(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments), **self.function}
        return {**({"id": self.id} if self.id else {}), **self.fields, "function": function}
