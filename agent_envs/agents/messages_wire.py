"""Anthropic's messages API, translated on both sides of the chat wire: requests, replies and the events of streams.

Source: https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_envs.agents.chat_wire import asked_messages, text_of
from agent_envs.checks import shown
from agent_envs.errors import ConfigError

_BILLING = "x-anthropic-billing-header"  # a line that programs put into their system text, other with each version
_SIGNATURE = "agentr1"  # of thinking, which need not come back


def as_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as a chat completion's; a ConfigError if it is malformed or shows what the model cannot see."""
    messages = asked_messages(body)
    system = "\n".join(text_of([part]) for part in _blocks(body.get("system")))
    system = "\n".join(line for line in system.split("\n") if not line.startswith(_BILLING)).strip()
    said: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    listed = body.get("tools") or ()
    texts = {tool.get("name"): f"<function>{json.dumps(_tool(tool).get('function'))}</function>\n" for tool in listed}
    for message in messages:
        said += _messages(str(message.get("role")), _blocks(message.get("content")), texts)
    tools = [_tool(tool) for tool in listed if not tool.get("defer_loading")]
    settings = {
        name: body[name] for name in ("model", "max_tokens", "stream", "temperature", "top_p", "top_k") if name in body
    }
    stop = {"stop": body["stop_sequences"]} if body.get("stop_sequences") else {}
    return {**settings, **stop, "messages": said, **({"tools": tools} if tools else {})}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if "input_schema" not in tool or not isinstance(tool.get("name"), str):
        return {"type": tool.get("type")}
    about = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return {"type": "function", "function": about}


def _blocks(content: Any) -> Sequence[Mapping[str, Any]]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise ConfigError(f"content must be a text or a list of blocks, got {shown(content)}")
    return content


def _messages(role: str, blocks: Sequence[Mapping[str, Any]], found: Mapping[Any, str]) -> list[dict[str, Any]]:
    """Return a message's blocks as chat messages: results first, in their order, then the words.

    A tool that a program keeps back until the model has searched for it is shown where it was `found`, and not before.
    """
    results, texts, calls = [], [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_use":
            function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind == "tool_result":
            parts = _blocks(block.get("content"))
            content = "".join(found[part["tool_name"]] if "tool_name" in part else text_of([part]) for part in parts)
            results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(text_of([block]))
    words = {"role": role, "content": "".join(texts) if role == "assistant" else "\n".join(texts)}
    if role == "assistant":
        return [words | ({"tool_calls": calls} if calls else {})]
    return [*results, *([words] if texts or not results else [])]


def as_message(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat completion as a message."""
    choice = reply["choices"][0]
    said, content, usage = choice["message"], [], reply.get("usage") or {}
    if said.get("reasoning_content"):
        content.append({"type": "thinking", "thinking": said["reasoning_content"], "signature": _SIGNATURE})
    if said.get("content"):
        content.append({"type": "text", "text": said["content"]})
    for call in said.get("tool_calls") or ():
        function = call["function"]
        block = {"type": "tool_use", "id": call["id"], "name": function["name"]}
        content.append({**block, "input": _arguments(function["arguments"] or "{}")})
    ends = {"tool_calls": "tool_use", "length": "max_tokens"}
    return {
        "id": reply["id"].replace("chatcmpl-", "msg_"),
        "type": "message",
        "role": "assistant",
        "model": reply["model"],
        "content": content,
        "stop_reason": ends.get(choice["finish_reason"], "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": usage.get("prompt_tokens", 0), "output_tokens": usage.get("completion_tokens", 0)},
    }


def _arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments; those that a model has malformed stand under a name that no tool has."""
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": text}


def message_events(message: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and the data of the events in which a message is streamed."""
    usage = {**message["usage"], "output_tokens": 0}
    yield "message_start", {"message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    for index, block in enumerate(message["content"]):
        if block["type"] == "tool_use":
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        elif block["type"] == "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            start, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        yield "content_block_start", {"index": index, "content_block": start}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"delta": end, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
    yield "message_stop", {}
