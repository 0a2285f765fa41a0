"""Replies of chat-completions servers, checked field by field: a server may send anything.

Format: https://platform.openai.com/docs/api-reference/chat/object. Log-probabilities are in a choice's
``logprobs.content[].logprob``, and tokens wherever a server puts them:

==========  ===================================  =====================================================================
server      request fields                       reply fields
==========  ===================================  =====================================================================
vLLM        ``return_token_ids``, ``logprobs``   ``prompt_token_ids`` beside ``choices``, a choice's ``token_ids``
SGLang      ``return_token_ids``, ``logprobs``   a choice's ``prompt_token_ids``, (``response_``)``token_ids``
vLLM        ``return_tokens_as_token_ids``       ``logprobs.content[].token`` as ``"token_id:17"``
llama.cpp   ``logprobs``                         ``logprobs.content[].id``
==========  ===================================  =====================================================================
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent_envs.errors import BackendRefusedError, BackendReplyError
from agent_envs.policies.openai.fields import is_overflow

TOKEN_REQUEST: Mapping[str, Any] = {"logprobs": True, "return_token_ids": True}
"""Request fields that make a server report the tokens it saw and sampled; OpenAI's server knows only the first."""

_TOKEN_ID = re.compile("token_id:([0-9]{1,9})")
_LARGEST_ID = 1 << 31
_LARGEST = sys.float_info.max  # NaN and huge integers do not compare below it


class SampledTokens(NamedTuple):
    """The tokens of one call; None for what the server does not report."""

    prompt_ids: tuple[int, ...] | None
    """Tokens of the prompt, shape [prompt tokens]."""
    response_ids: tuple[int, ...] | None
    """Tokens of the response as sampled, shape [response tokens]."""
    response_logprobs: tuple[float, ...] | None
    """Log-probability of each response token when it was sampled (nats), shape [response tokens]."""


def read_tokens(completion: Mapping[str, Any], choice: Mapping[str, Any]) -> SampledTokens:
    """Read the tokens of a chat completion's choice, both as JSON objects. Malformed fields count as missing.

    Log-probabilities are dropped if there are not as many as ids: which token each belongs to is unknown then.

    >>> choice = {"token_ids": [5, 2], "logprobs": {"content": [{"logprob": -0.5}, {"logprob": 0}]}}
    >>> read_tokens({"prompt_token_ids": [1, 4], "choices": [choice]}, choice)
    SampledTokens(prompt_ids=(1, 4), response_ids=(5, 2), response_logprobs=(-0.5, 0.0))
    """
    logprobs = choice.get("logprobs")
    entries = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(entries, Sequence) or not all(isinstance(entry, Mapping) for entry in entries):
        entries = None
    prompt_ids = _ids(completion.get("prompt_token_ids")) or _ids(choice.get("prompt_token_ids"))
    response_ids = _ids(choice.get("token_ids")) or _ids(choice.get("response_token_ids"))
    if response_ids is None and entries:
        response_ids = _ids([_entry_id(entry) for entry in entries])
    values = [entry.get("logprob") for entry in entries or ()]
    known = values and all(type(x) in (int, float) and -_LARGEST <= x <= _LARGEST for x in values)
    fits = known and (response_ids is None or len(values) == len(response_ids))
    return SampledTokens(prompt_ids, response_ids, tuple(map(float, values)) if fits else None)


def _ids(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return None
    return tuple(value) if all(type(i) is int and 0 <= i < _LARGEST_ID for i in value) else None


def _entry_id(entry: Mapping[str, Any]) -> int | None:
    number, token = entry.get("id"), entry.get("token")
    named = _TOKEN_ID.fullmatch(token) if number is None and isinstance(token, str) else None
    return number if named is None else int(named[1])


_MOST_TOKENS = 1 << 40  # of one request; larger counts are ignored


@dataclass(frozen=True, slots=True)
class ServerCall:
    """A tool call as a server returned it."""

    id: str
    """Its id; a new one if the server sent none, or the same one twice."""
    name: str
    arguments: str
    """The arguments, JSON as the model wrote it."""
    entry: Mapping[str, Any]
    """The call with all fields that the server sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice of a chat completion."""

    text: str
    """The content, or the refusal."""
    reasoning: str
    """The model's reasoning, if the server separates it, else ""."""
    calls: tuple[ServerCall, ...]
    """Native tool calls."""
    finish_reason: str | None
    """Why generation ended: "stop", "length", "tool_calls"..."""
    tokens: SampledTokens
    """The tokens and log-probabilities that the server returned."""
    message: Mapping[str, Any]
    """The message with all fields that the server sent."""
    usage: dict[str, int]
    """`prompt_tokens`, `completion_tokens`, `cached_tokens`, as far as the server reported them."""


def read_reply(data: Any) -> Reply:
    """Read the first choice of a chat completion, decoded from JSON.

    >>> reply = read_reply({"choices": [{"message": {"content": "5"}, "finish_reason": "stop"}]})
    >>> reply.text, reply.calls, reply.finish_reason
    ('5', (), 'stop')

    Raises:
        BackendRefusedError: It is an error that a retry would not change.
        BackendReplyError: It is not a chat completion; says what was expected and what came.
    """
    if not isinstance(data, Mapping):
        raise BackendReplyError(f"expected a chat completion as a JSON object, got {data!r:.200}")
    if error := data.get("error"):  # with status 200, or within a stream
        code = error.get("code") if isinstance(error, Mapping) else None
        refused = (type(code) is int and 400 <= code < 500 and code not in (408, 429)) or is_overflow(str(error))
        kind = BackendRefusedError if refused else BackendReplyError
        raise kind(f"expected a chat completion, got the error {error!r:.500}")
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise BackendReplyError(f"expected a completion with choices, got {data!r:.200}")
    choice = choices[0]
    if not isinstance(message := choice.get("message"), Mapping):
        raise BackendReplyError(f"expected a choice with a message, got {choice!r:.200}")
    return Reply(
        text=_text(message.get("content")) or _text(message.get("refusal")),
        reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")),
        calls=_calls(message.get("tool_calls")),
        finish_reason=finish if isinstance(finish := choice.get("finish_reason"), str) else None,
        tokens=read_tokens(data, choice),
        message=message,
        usage=_usage(data.get("usage")),
    )


def _text(value: Any) -> str:
    """Return content as a string; servers may send parts."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        texts = [part.get("text") or "" if isinstance(part, Mapping) else None for part in value]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    raise BackendReplyError(f"expected a message's content as a string, got {value!r:.200}")


def _calls(value: Any) -> tuple[ServerCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BackendReplyError(f"expected tool_calls as a list, got {value!r:.200}")
    calls: dict[str, ServerCall] = {}
    for entry in value:
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise BackendReplyError(f"expected a tool call with a function and its name, got {entry!r:.200}")
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments)
        call_id = entry.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in calls:
            call_id = f"call_{uuid.uuid4().hex[:12]}"
        calls[call_id] = ServerCall(call_id, function["name"], arguments, entry)
    return tuple(calls.values())


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _usage(value: Any) -> dict[str, int]:
    """Return the token counts that are plausible."""
    usage = _object(value)
    cached = _object(usage.get("prompt_tokens_details")).get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")} | {"cached_tokens": cached}
    plausible = {name: n for name, n in counts.items() if type(n) is int and 0 <= n <= _MOST_TOKENS}
    if plausible.get("cached_tokens", 0) > plausible.get("prompt_tokens", 0):
        del plausible["cached_tokens"]
    return plausible
