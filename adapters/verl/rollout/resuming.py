"""The client of asynchronous training: a response that an update of the weights has cut is written to its end.

verl's client asks again with what has been written so far and joins the parts (workers/rollout/llm_server.py:323), but
keeps neither which tokens are of which weights, nor the place in the request's random numbers: the second part would
repeat the first one's draws.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from agent_envs.adapters.verl.rollout.cpu_rollout import ROLLOUT_NAME

_response: ContextVar[tuple[int, list[tuple[int, int]]]] = ContextVar("_response")
"""Of the response that is being written: its prompt's tokens; of each attempt, the weights' version and its tokens."""


class _Attempts(LLMServerClient):
    """One attempt to write a response, or the rest of it."""

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], **options: Any
    ) -> TokenOutput:
        prompt_tokens, parts = _response.get()
        written = len(prompt_ids) - prompt_tokens
        params = dict(sampling_params)
        if written and params.get("seed") is not None:
            if self.config.actor_rollout_ref.rollout.name == ROLLOUT_NAME:
                params["used_draws"] = written
            else:
                params["seed"] = zlib.crc32(f"{params['seed']}/{written}".encode())
        output: TokenOutput = await super().generate(
            request_id, prompt_ids=prompt_ids, sampling_params=params, **options
        )
        version = output.extra_fields.get("global_steps")
        parts.append((-1 if version is None else int(version), len(output.token_ids)))
        return output


class ResumingClient(FullyAsyncLLMServerClient, _Attempts):
    """verl's asynchronous client; `extra_fields["parts"]` has the version and the number of tokens of each attempt."""

    async def generate(self, request_id: str, *, prompt_ids: Sequence[int], **options: Any) -> TokenOutput:
        """Write one response to its end, whatever happens to the weights meanwhile."""
        parts: list[tuple[int, int]] = []
        token = _response.set((len(prompt_ids), parts))
        try:
            output: TokenOutput = await super().generate(request_id, prompt_ids=prompt_ids, **options)
            output.extra_fields["parts"] = parts
        finally:
            _response.reset(token)
        return output


def token_versions(output: Any) -> list[int]:
    """Return the version of the weights that sampled each token of an output, -1 where it is not known.

    >>> from types import SimpleNamespace
    >>> token_versions(SimpleNamespace(token_ids=[5, 6, 7], extra_fields={"parts": [(1, 2), (2, 1)]}))
    [1, 1, 2]
    """
    count, fields = len(output.token_ids), output.extra_fields
    version = fields.get("global_steps")
    parts = fields.get("parts") or [(-1 if version is None else int(version), count)]
    return [version for version, tokens in parts for _ in range(tokens)][:count]


def row_versions(step_ids: Sequence[int], versions: Sequence[Sequence[int]]) -> list[int]:
    """Return the version of each response token of a row, -1 where it is not known or the policy did not write it.

    `step_ids` is the step that wrote each token, -1 for none, and `versions` are those of each step's tokens.

    >>> row_versions([0, 0, -1, 1], [[3, 4], [4]])
    [3, 4, -1, 4]
    """
    unread = {step: iter(tokens) for step, tokens in enumerate(versions)}
    return [next(unread[step], -1) if step in unread else -1 for step in step_ids]
