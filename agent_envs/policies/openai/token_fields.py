"""Token ids and log-probabilities in chat completions, read from wherever a server puts them.

==========  ===================================  =====================================================================
server      request fields                       reply fields
==========  ===================================  =====================================================================
vLLM        ``return_token_ids``, ``logprobs``   ``prompt_token_ids`` beside ``choices``, a choice's ``token_ids``
SGLang      ``return_token_ids``, ``logprobs``   a choice's ``prompt_token_ids``, (``response_``)``token_ids``
vLLM        ``return_tokens_as_token_ids``       ``logprobs.content[].token`` as ``"token_id:17"``
llama.cpp   ``logprobs``                         ``logprobs.content[].id``
==========  ===================================  =====================================================================

All of them put log-probabilities into a choice's ``logprobs.content[].logprob``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TOKEN_REQUEST: Mapping[str, Any] = {"logprobs": True, "return_token_ids": True}
"""Request fields that make a server report the tokens it saw and sampled; OpenAI's server knows only the first."""

_TOKEN_ID = "token_id:"
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
    if number is None and isinstance(token, str) and token.startswith(_TOKEN_ID):
        digits = token.removeprefix(_TOKEN_ID)
        return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 10 else None
    return number
