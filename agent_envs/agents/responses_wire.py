"""OpenAI's responses API, translated on both sides of the chat wire: requests, replies and the events of streams.

Source: https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_envs.agents.chat_wire import text_of
from agent_envs.checks import shown
from agent_envs.errors import ConfigError

_KEPT = ("model", "stream", "temperature", "top_p", "tool_choice")

Conversations = dict[str, list[dict[str, Any]]]
"""Chat messages of the conversation up to and with each response, by its id, for `previous_response_id`."""


def as_chat(body: Mapping[str, Any], earlier: Conversations) -> dict[str, Any]:
    """Return a request as a chat completion's; a ConfigError if it is malformed or asks for what there is not."""
    if body.get("background"):
        raise ConfigError("'background' responses are not supported: ask and wait")
    before = body.get("previous_response_id")
    if before is not None and before not in earlier:
        raise ConfigError(f"there is no response {shown(before)} in this episode")
    asked = body.get("input")
    items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ConfigError("expected a request with 'input', a text or a list of objects")
    messages: list[dict[str, Any]] = [*earlier[before]] if before is not None else []
    messages = [message for message in messages if message["role"] != "system"]
    if body.get("instructions"):
        messages.insert(0, {"role": "system", "content": body["instructions"]})
    for item in items:
        _add(messages, item)
    tools = list(_functions(body.get("tools") or ()))
    chat = {name: body[name] for name in _KEPT if body.get(name) is not None}
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = body["max_output_tokens"]
    return {**chat, "messages": messages, **({"tools": tools} if tools else {})}


def _functions(tools: Iterable[Any], space: str = "") -> Iterator[dict[str, Any]]:
    """Yield tools as a chat completion's; those of a namespace have its name before theirs."""
    for tool in tools:
        kind = tool.get("type")
        if kind == "namespace":
            yield from _functions(tool["tools"], tool["name"])
        elif kind == "function":
            about = {name: value for name, value in tool.items() if name != "type"}
            yield {"type": kind, "function": about | {"name": _name(tool["name"], space)}}
        else:
            yield {"type": kind}


def _name(name: str, space: str | None) -> str:
    return f"{space}__{name}" if space else name


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Add an item of the input; the words and the calls of a reply are one message."""
    kind = item.get("type", "message")
    if kind == "reasoning":
        return
    last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    if kind == "message":
        entry = {"role": item.get("role"), "content": text_of(item.get("content"))}
        if entry["role"] == "assistant" and last is not None:
            last["content"] += entry["content"]
        else:
            messages.append(entry)
    elif kind == "function_call":
        function = {"name": _name(item["name"], item.get("namespace")), "arguments": item.get("arguments")}
        if last is None:
            messages.append(last := {"role": "assistant", "content": ""})
        last["tool_calls"] = [
            *last.get("tool_calls", ()), {"id": item.get("call_id"), "type": "function", "function": function}
        ]  # fmt: skip
    elif kind == "function_call_output":
        output = text_of(item.get("output"))
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
    else:
        raise ConfigError(f"an item of the type {kind!r} cannot be shown to this model")


def as_response(
    reply: Mapping[str, Any], body: Mapping[str, Any], chat: Mapping[str, Any], earlier: Conversations
) -> dict[str, Any]:
    """Return a chat completion as a response, and note its conversation."""
    said, number = reply["choices"][0]["message"], reply["id"].replace("chatcmpl-", "resp_")
    earlier[number] = [
        *chat["messages"],
        {name: said[name] for name in ("role", "content", "tool_calls") if name in said},
    ]
    cut = reply["choices"][0]["finish_reason"] == "length"
    output: list[dict[str, Any]] = []
    if said.get("reasoning_content"):
        summary = [{"type": "summary_text", "text": said["reasoning_content"]}]
        output.append({"id": f"rs_{uuid.uuid4().hex}", "type": "reasoning", "summary": summary})
    if said.get("content") or not said.get("tool_calls"):
        part: dict[str, Any] = {"type": "output_text", "text": said.get("content") or "", "annotations": []}
        about = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "status": "completed"}
        output.append({**about, "content": [part]})
    spaced = {}
    for space in body.get("tools") or ():
        for tool in space["tools"] if space.get("type") == "namespace" else ():
            spaced[_name(tool["name"], space["name"])] = {"name": tool["name"], "namespace": space["name"]}
    for call in said.get("tool_calls") or ():
        item = {"id": f"fc_{uuid.uuid4().hex}", "type": "function_call", "call_id": call["id"], "status": "completed"}
        output.append({**item, **call["function"], **spaced.get(call["function"]["name"], {})})
    usage = reply.get("usage") or {}
    read, written = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    return {
        "id": number,
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "model": reply["model"],
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": body.get("previous_response_id"),
        "temperature": None,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": None,
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        },
    }


def response_events(response: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and the data of the events in which a response is streamed."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        filled = {"message": "content", "function_call": "arguments", "reasoning": "summary"}[item["type"]]
        empty: dict[str, Any] = {filled: "" if filled == "arguments" else []}
        status = {"status": "in_progress"} if "status" in item else {}
        yield "response.output_item.added", {"output_index": index, "item": {**item, **empty, **status}}
        if item["type"] == "message":
            (part,), text = item["content"], {**place, "content_index": 0}
            yield "response.content_part.added", {**text, "part": {**part, "text": ""}}
            yield "response.output_text.delta", {**text, "delta": part["text"], "logprobs": []}
            yield "response.output_text.done", {**text, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**text, "part": part}
        elif item["type"] == "function_call":
            yield "response.function_call_arguments.delta", {**place, "delta": item["arguments"]}
            done = {**place, "arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", done
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield f"response.{response['status']}", {"response": response}
