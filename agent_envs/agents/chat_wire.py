"""Chat completions as programs write them: a request as a prompt, a reply as JSON, a stream as its events.

Source: https://platform.openai.com/docs/api-reference/chat. A program gets the model's calls as `tool_calls` and sends
them back in its own spelling; here they become the text again that the model wrote, so that its tokens are found.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.checks import shown
from agent_envs.errors import ConfigError
from agent_envs.messages import FunctionSpec, Message, ToolCall, ToolSpec
from agent_envs.parsers import get_parser
from agent_envs.parsers.detect import parse_recorded
from agent_envs.parsers.parser import ParsedAction
from agent_envs.policies.openai.calls import text_with_calls
from agent_envs.policies.policy import Response
from agent_envs.spaces import ROLES

_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias",
    "tool_choice", "response_format",
)  # fmt: skip
_TEXTS = ("text", "input_text", "output_text", "refusal")
_MOST_CHOICES = 16


@dataclass(frozen=True)
class Asked:
    """A request, read."""

    messages: list[Message]
    tools: list[ToolSpec]
    role: str
    """Of the model's name ``policy/ROLE``."""
    trained: bool
    """False for a name that ends in ``:untrained``."""
    count: int
    """Replies asked for."""
    limit: int
    """Most tokens of a reply; 0 for the policy's limit."""
    info: dict[str, Any]
    """What the step records: the settings that were left out, since the run samples as it samples."""


class Wire:
    """The replies that a program has got, by which it is known what the model wrote where the program repeats it."""

    def __init__(self, env: gym.Env[Any, str], model: Any) -> None:
        self.tools: list[ToolSpec] = env.get_wrapper_attr("tools")
        self._model = model
        self._parser = env.get_wrapper_attr("parser") if env.has_wrapper_attr("parser") else get_parser("hermes")
        self._said: dict[str, list[str]] = {}

    def read(self, text: str, tools: Sequence[ToolSpec]) -> ParsedAction:
        """Return the parts of a reply; a malformed call is text, as other servers return it."""
        if not tools:
            return ParsedAction(text)
        parsed = self._parser.parse(text)
        if not any(isinstance(call, ToolCall) for call in parsed.calls):
            parsed = parse_recorded(text, [tool["function"]["name"] for tool in tools]) or parsed
        if any(not isinstance(call, ToolCall) for call in parsed.calls):
            return ParsedAction(text)
        return parsed

    def note(self, text: str, parsed: ParsedAction) -> None:
        """Note what a program gets for a reply."""
        calls = [(call.name, call.arguments) for call in parsed.calls if isinstance(call, ToolCall)]
        texts = self._said.setdefault(_spelling(parsed.text, calls), [])
        if text not in texts:
            texts.append(text)

    def text(
        self, content: str, calls: Sequence[tuple[str, Any]], before: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> str:
        """Return what the model wrote where a program repeats a reply; else the calls in the environment's format."""
        texts = self._said.get(_spelling(content, calls), [])
        for text in texts[:0:-1]:  # several are spelled alike: the one that answered this very prompt
            reply: Message = {"role": "assistant", "content": text}
            if self._model.past.known([*before, reply], tools):
                return text
        if texts:
            return texts[0]
        written = [(name, json.dumps(arguments)) for name, arguments in calls]
        return text_with_calls(content, written, lambda *call: self._parser.format(ToolCall(*call)))


def _spelling(text: str, calls: Sequence[tuple[str, Any]]) -> str:
    return json.dumps([text.strip(), [list(call) for call in calls]], sort_keys=True)


def asked_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a request; a ConfigError if it has none."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise ConfigError("expected a request with 'messages', a list of one or more objects")
    return messages


def role_of(message: Mapping[str, Any]) -> str:
    """Return who says a message, under the name that it has in `ROLES`; an unknown one as it is."""
    role = str(message.get("role"))
    return {"developer": "system", "function": "tool"}.get(role, role)


def read_request(body: Mapping[str, Any], wire: Wire) -> Asked:
    """Return what a chat completion asks for; a ConfigError if that is malformed or nothing the model can see."""
    messages = asked_messages(body)
    name, colon, mark = str(body.get("model", "policy")).partition(":")
    role = name.partition("/")[2] if name.startswith("policy/") else ""
    limit, count = (body.get(key) for key in ("max_completion_tokens", "n"))
    limit = body.get("max_tokens") if limit is None else limit
    for key, value in (("max_tokens", limit), ("n", count)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"{key} must be an integer of at least 1, got {shown(value)}")
    if (count or 1) > _MOST_CHOICES:
        raise ConfigError(f"n must be at most {_MOST_CHOICES}, got {count}")
    tools = _tools(body.get("tools"))
    offered = wire.tools if _shape(tools) == _shape(wire.tools) else tools
    ignored = sorted(name for name in _SAMPLING if body.get(name) not in (None, [], {}))
    info = {"ignored": ignored} if ignored else {}
    return Asked(
        _messages(messages, wire, offered),
        offered,
        role,
        not (colon and mark == "untrained"),
        count or 1,
        limit or 0,
        info,
    )


def _messages(given: Sequence[Mapping[str, Any]], wire: Wire, tools: Sequence[ToolSpec]) -> list[Message]:
    read: list[Message] = []
    names: dict[str, str] = {}  # of calls, by id
    for number, message in enumerate(given):
        role = role_of(message)
        if role not in ROLES:
            raise ConfigError(f"message {number}: the role must be system, user, assistant or tool, got {shown(role)}")
        content = text_of(message.get("content"))
        if role == "assistant":
            calls = []
            for call in message.get("tool_calls") or ():
                function = call.get("function") if isinstance(call, Mapping) else None
                if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
                    raise ConfigError(f"message {number}: expected tool_calls with a function's name and arguments")
                try:
                    arguments = json.loads(function.get("arguments") or "{}")
                except (TypeError, ValueError) as e:
                    raise ConfigError(f"message {number}: the arguments of {function['name']} are not JSON") from e
                calls.append((function["name"], arguments))
                names[str(call.get("id"))] = function["name"]
            content = wire.text(content, calls, read, tools)
        entry: Message = {"role": role, "content": content}  # type: ignore[typeddict-item]
        if role == "tool":
            entry["name"] = names.get(str(message.get("tool_call_id")), str(message.get("name") or "tool"))
        read.append(entry)
    if read[-1]["role"] == "assistant":
        raise ConfigError("the last message is the assistant's: a reply that continues one is not supported")
    return read


def text_of(content: Any) -> str:
    """Return the words of a message's content, in any of the APIs; a ConfigError if a part is something else."""
    texts = []
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        text = part.get("refusal" if kind == "refusal" else "text") if kind in _TEXTS else None
        if not isinstance(text, str):
            raise ConfigError(f"a part of the type {kind!r} cannot be shown to this model")
        texts.append(text)
    return "".join(texts)


def _tools(given: Any) -> list[ToolSpec]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise ConfigError(f"tools must be a list, got {shown(given)}")
    tools: list[ToolSpec] = []
    for tool in given:
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if kind != "function":
            raise ConfigError(f"the tool type {kind!r} runs at a provider; offer it as a function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ConfigError("a tool needs a function with a name")
        tools.append(offered_tool(function))
    return tools


def offered_tool(function: Mapping[str, Any]) -> ToolSpec:
    """Return a function that a request offers, in the form that chat templates take."""
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    about: FunctionSpec = {
        "name": function["name"], "description": function.get("description") or "", "parameters": schema
    }  # fmt: skip
    return {"type": "function", "function": about}


def _shape(tools: Sequence[ToolSpec]) -> list[Any]:
    """Return what tools are known by, whatever a client has added to their schemas."""
    functions = [tool["function"] for tool in tools]
    return [(f["name"], f.get("description", ""), {*f["parameters"].get("properties", {})}) for f in functions]


def completion(replies: Sequence[Response], body: Mapping[str, Any], wire: Wire, asked: Asked) -> dict[str, Any]:
    """Return replies as a chat completion."""
    choices = []
    for index, reply in enumerate(replies):
        parsed = wire.read(reply.text, asked.tools)
        wire.note(reply.text, parsed)
        calls = [
            {"id": f"call_{reply.number}_{i}", "type": "function",
             "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for i, call in enumerate(parsed.calls) if isinstance(call, ToolCall)
        ]  # fmt: skip
        message: dict[str, Any] = {"role": "assistant", "content": parsed.text or (None if calls else "")}
        message |= {"tool_calls": calls} if calls else {}
        message |= {"reasoning_content": parsed.reasoning} if parsed.reasoning else {}
        reason = "length" if reply.cut else "tool_calls" if calls else "stop"
        choices.append({"index": index, "message": message, "finish_reason": reason})
    counted = [
        reply.usage
        or {"prompt_tokens": len(reply.prompt_ids or ()), "completion_tokens": len(reply.response_ids or ())}
        for reply in replies
    ]
    prompt = counted[0].get("prompt_tokens", 0)
    written = sum(each.get("completion_tokens", 0) for each in counted)
    usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": str(body.get("model", "policy")),
        "choices": choices,
        "usage": usage,
    }


def events(reply: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a completion as the events of a stream."""
    about = {name: reply[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(**more: Any) -> bytes:
        return b"data: " + json.dumps({**about, **more}).encode("ascii")

    for choice in reply["choices"]:
        delta = dict(choice["message"])
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
        yield chunk(choices=[{"index": choice["index"], "delta": delta, "finish_reason": None}])
        end = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        yield chunk(choices=[end])
    if isinstance(body.get("stream_options"), Mapping) and body["stream_options"].get("include_usage"):
        yield chunk(choices=[], usage=reply["usage"])
    yield b"data: [DONE]"


def error_body(status: int, message: str, *, too_long: bool = False, code: str | None = None) -> dict[str, Any]:
    """Return an error in the form that clients of OpenAI's and of Anthropic's API read; a prompt may be too long."""
    error = {
        "message": f"prompt is too long: {message}" if too_long else message,
        "type": "server_error" if status >= 500 else "invalid_request_error",
        "param": None,
        "code": "context_length_exceeded" if too_long else code,
    }
    return {"type": "error", "error": error}
