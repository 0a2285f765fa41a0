"""Scores papers with a served classifier: a vLLM pooling server, or another server with its `/classify`.

    POST /classify {"model": "...", "input": ["a text"]}
        -> {"data": [{"index": 0, "label": "...", "probs": [0.9, 0.1], "num_classes": 2}]}

A text contains a query and a paper. As released, the score is 1 - probs[-1]: the last class, or the only one, means
that the paper does not fit. With `label=N` the score is the probability of class N. The released request is that of
`activation=0`, {"model": "...", "input": "a text", "activation": false}, with `whole=1` and `on_error=0`.
"""

from __future__ import annotations

import math
from typing import Any

from agent_envs.errors import BackendReplyError
from agent_envs.retrieval.http.pool import HTTPReply, short
from agent_envs.retrieval.papers.prompted import PromptedSelector

__all__ = ["ClassifierSelector"]

PROMPT = """\
Does this paper answer the request for literature below? Judge by its title and abstract alone.

Request: {query}

Title: {title}
Abstract: {abstract}

The paper answers the request:"""


class ClassifierSelector(PromptedSelector):
    """Scores papers with a classifier; `prompt` is the one that it was trained on.

    Args:
        url: The server's address.
        model: The served model's name; "" for the server's default.
        label: The class whose probability is the score; None for 1 minus that of the last class.
        activation: Whether the server applies the model's activation. Without it, the score is read off values that
            need not be probabilities, and may be any finite number.
        **options: Arguments of `PromptedSelector`, `Service` and `HTTPPool`.
    """

    path = "/classify"
    default_prompt = PROMPT

    def __init__(
        self, url: str, *, model: str = "", label: int | None = None, activation: bool = True, **options: Any
    ) -> None:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        super().__init__(url, **{"headers": headers, **options})
        self._model, self._label, self._activation = model, label, activation

    def body(self, text: str) -> dict[str, Any]:
        """Return the body of the request about a filled prompt."""
        texts = {"input": [text]} if self._activation else {"input": text, "activation": False}
        return {**texts, **({"model": self._model} if self._model else {})}

    def read(self, reply: HTTPReply) -> float:
        """Return the score in a reply. Raises BackendReplyError if there is none."""
        payload = reply.json(self.url)
        try:
            (item,) = payload["data"]
            probs = item["probs"]
            if item.get("index", 0) != 0 or not all(type(p) in (int, float) and math.isfinite(p) for p in probs):
                raise ValueError("expected one result with probabilities")
            score = 1.0 - probs[-1] if self._label is None else float(probs[self._label])
        except (IndexError, KeyError, TypeError, ValueError, OverflowError) as e:
            raise BackendReplyError(
                f"{self.url} sent {short(payload)} instead of a result with probabilities ({e})"
            ) from e
        if not self._activation:
            return score
        if not -1e-6 <= score <= 1 + 1e-6:
            raise BackendReplyError(
                f"{self.url} sent {score!r}, which is not a probability; serve the model with its activation"
            )
        return min(max(score, 0.0), 1.0)
