"""A model behind a server as teacher: on-policy distillation.

The server says how likely it finds each token that the policy wrote, given what came before, and the advantage of a
token is what it adds to minus the KL from the policy to the teacher (Agarwal and others 2023, arXiv 2306.13649, with
the policy gradient's single sample in place of the sum over the vocabulary; discount 0):

    A_t = w_s (log p_teacher(token_t | before) - log p_old(token_t | before))

It takes the place of the estimator's advantage, or is added to it. The policy's log-probabilities are at the sampling
temperature, the teacher's as the server gives them (vLLM: at 1).

The protocol is that of vLLM's ``/v1/completions``: the prompt is token ids, and with ``prompt_logprobs`` 0 a choice has
``{id: {"logprob": ..., "decoded_token": ...}}`` for each of its tokens but the first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from agent_envs.adapters.run import Record
from agent_envs.adapters.teacher import Labels, Teacher
from agent_envs.adapters.torch.batch import Batch
from agent_envs.errors import BackendReplyError, ConfigError
from agent_envs.http.pool import HTTPPool, short

_LEAST = -50.0  # vLLM writes -9999 for a token that the teacher cannot write, which one update would not survive
_ROUNDING = 1e-3  # above 0, the log-probability of what is certain
_PROBED = 64  # tokens of the vocabulary that are compared


class TeacherServer:
    """A teacher model behind a server, which gets so many requests at the same time.

    Raises:
        ConfigError: The teacher's tokens are others, or the server gives no log-probabilities of a prompt.
        BackendError: The server does not answer, or refuses.
    """

    def __init__(self, teacher: Teacher, tokenizer: Any, concurrency: int = 64) -> None:
        assert teacher.server is not None
        self.teacher, self.concurrency = teacher, concurrency
        self.model, url = teacher.server
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        self._pool = HTTPPool(url, timeout=600.0, retries=5, headers=headers)
        ids = np.linspace(0, len(tokenizer) - 1, min(_PROBED, len(tokenizer)), dtype=int).tolist()  # the last one too
        try:
            entries = self._ask(ids)
        except BackendReplyError as e:
            raise ConfigError(f"{e}; a teacher needs a server like vLLM's, and the policy's tokenizer") from e
        for token, entry in zip(ids[1:], entries, strict=True):
            ours, theirs = tokenizer.decode([token]), str(entry.get("decoded_token"))
            if ours.strip() != theirs.strip() and "\ufffd" not in ours + theirs:  # a part of a character
                raise ConfigError(
                    f"the teacher {teacher.spec} has another tokenizer: token {token} is {theirs!r}, and {ours!r} for "
                    "the policy; distillation needs a teacher with the policy's"
                )

    def log_probs(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the log-probability of each token given those before it in its row, 0 for a first one; [tokens]."""
        with ThreadPoolExecutor(max(1, min(len(rows), self.concurrency))) as pool:
            scored = pool.map(self._ask, rows)
            return torch.tensor([x for row in scored for x in (0.0, *(max(e["logprob"], _LEAST) for e in row))])

    def credit(
        self, batch: Batch, old: torch.Tensor, advantages: torch.Tensor, number: int
    ) -> tuple[torch.Tensor, Record]:
        """Return the advantages of an iteration with the teacher's, shape [tokens], and metrics.

        ``old`` is the log-probability of each token under the policy that played, ``advantages`` are the estimator's.
        """
        weight, mode, taught = self.teacher.weight_at(number), self.teacher.mode, batch.step >= 0
        if not weight:
            return advantages, {}
        rows = [row.tolist() for row in batch.ids.split(torch.bincount(batch.row).tolist())]
        gap = (self.log_probs(rows).to(old.dtype) - old).where(taught, 0.0)
        metrics = {"teacher/kl": -float(gap[taught].mean()), "teacher/weight": weight}
        if mode == "silent":
            taught = Labels(batch.step, weight).without_signal(batch.steps.group, batch.step, advantages).step >= 0
        own = torch.zeros_like(advantages) if mode == "alone" else advantages
        return own + weight * gap.where(taught, 0.0), metrics

    def _ask(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        """Return what the server says of each token but the first."""
        asked = {"model": self.model, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        service = f"the teacher {self.teacher.spec}"
        reply = self._pool.request("POST", "/completions", json.dumps(asked).encode()).json(service)
        try:
            told = reply["choices"][0]["prompt_logprobs"]
            entries = [entry[str(token)] for entry, token in zip(told, ids, strict=True) if entry is not None]
            if len(entries) != len(ids) - 1 or not all(entry["logprob"] < _ROUNDING for entry in entries):  # nor NaN
                raise ValueError("not a number of at most 0 for each token but the first")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
            raise BackendReplyError(
                f"{service} gives no prompt_logprobs of the tokens sent ({type(e).__name__}: {e}): {short(reply)}"
            ) from e
        return entries
