"""Scores papers with a served classifier: a vLLM pooling server, or another server with its `/classify`.

    POST /classify {"model": "...", "input": ["a text", ...]}
        -> {"data": [{"index": 0, "label": "...", "probs": [0.9, 0.1], "num_classes": 2}, ...]}

A text contains a query and a paper. As released, the score is 1 - probs[-1]: the last class, or the only one, means
that the paper does not fit. With `label=N` the score is the probability of class N.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_envs.checks import integer
from agent_envs.errors import BackendReplyError, ConfigError, DataError
from agent_envs.files import read_text
from agent_envs.retrieval.http.pool import HTTPReply, short
from agent_envs.retrieval.papers.paper import Paper
from agent_envs.retrieval.papers.service import Service, json_body

__all__ = ["ClassifierSelector", "fill_prompt", "read_prompt"]

PROMPT = """\
Does this paper answer the request for literature below? Judge by its title and abstract alone.

Request: {query}

Title: {title}
Abstract: {abstract}

The paper answers the request:"""
_FIELD = re.compile(r"\{(query|title|abstract)\}")
_MAX_ABSTRACT = 400  # words, as the pool shows
_PATH = "/classify"


class ClassifierSelector(Service):
    """Scores papers with a classifier.

    Args:
        url: The server's address.
        model: The served model's name; "" for the server's default.
        label: The class whose probability is the score; None for 1 minus that of the last class.
        prompt: A file with another prompt, with {query}, {title} and {abstract}: the one that the classifier was
            trained on.
        batch: Number of texts per request.
        **service: Arguments of `Service` and `HTTPPool`.
    """

    def __init__(
        self, url: str, *, model: str = "", label: int | None = None, prompt: str = "", batch: int = 32, **service: Any
    ) -> None:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        super().__init__(url.removesuffix("/").removesuffix(_PATH), **{"headers": headers, **service})
        self._model, self._label = model, label
        self._prompt = read_prompt(prompt) if prompt else PROMPT
        self._batch = integer("batch", batch, minimum=1)

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """Return the score of each paper. Each is cached by itself, whatever it was requested with."""
        texts = [fill_prompt(self._prompt, query, paper) for paper in papers]
        scores: dict[int, float] = {}
        for i, text in enumerate(texts):
            if cached := self.recall("POST", _PATH, self._body([text]), self._one):
                scores[i] = cached[0][1]
        missing = [i for i in range(len(texts)) if i not in scores]
        for begin in range(0, len(missing), self._batch):
            indices = missing[begin : begin + self._batch]
            reply = self.request("POST", _PATH, self._body([texts[i] for i in indices]))
            for i, (item, score) in zip(indices, self._results(reply, len(indices)), strict=True):
                alone = HTTPReply(200, json_body({"data": [{**item, "index": 0}]}))
                self.keep("POST", _PATH, self._body([texts[i]]), alone)
                scores[i] = score
        return [scores[i] for i in range(len(texts))]

    def _body(self, texts: list[str]) -> bytes:
        return json_body({"input": texts, **({"model": self._model} if self._model else {})})

    def _one(self, reply: HTTPReply) -> list[tuple[dict[str, Any], float]]:
        return self._results(reply, 1)

    def _results(self, reply: HTTPReply, count: int) -> list[tuple[dict[str, Any], float]]:
        """Return each text's result and score, in order, from the reply to `count` texts."""
        payload = reply.json(self.url)
        data = payload.get("data") if isinstance(payload, dict) else None
        if not isinstance(data, list) or len(data) != count:
            raise BackendReplyError(f"{self.url} sent {short(payload)} instead of {count} results")
        results: dict[int, tuple[dict[str, Any], float]] = {}
        for position, item in enumerate(data):
            index = item.get("index", position) if isinstance(item, dict) else None
            if not isinstance(index, int) or index not in range(count) or index in results:
                raise BackendReplyError(f"{self.url} sent a result with a wrong index: {short(item)}")
            results[index] = (item, self._score(item))
        return [results[index] for index in range(count)]

    def _score(self, item: dict[str, Any]) -> float:
        probs = item.get("probs")
        try:
            if not isinstance(probs, list) or not all(type(p) in (int, float) and math.isfinite(p) for p in probs):
                raise ValueError("expected probabilities")
            score = 1.0 - probs[-1] if self._label is None else probs[self._label]
        except (IndexError, ValueError, OverflowError) as e:
            raise BackendReplyError(f"{self.url} sent a result without probabilities: {short(item)}") from e
        if not -1e-6 <= score <= 1 + 1e-6:
            raise BackendReplyError(
                f"{self.url} sent {score!r}, which is not a probability; serve the model with its activation"
            )
        return min(max(float(score), 0.0), 1.0)


def fill_prompt(prompt: str, query: str, paper: Paper) -> str:
    """Fill in a prompt. Braces in the query and the paper stay as they are.

    >>> fill_prompt("{query}|{title}|{abstract}|{x}", "{title}", Paper("1", "A"))
    '{title}|A|(none)|{x}'
    """
    words = paper.abstract.split()
    abstract = " ".join(words[:_MAX_ABSTRACT]) + ("..." if len(words) > _MAX_ABSTRACT else "")
    values = {"query": " ".join(query.split()), "title": paper.title, "abstract": abstract or "(none)"}
    text = _FIELD.sub(lambda match: values[match[1]], prompt)
    return text.encode("utf-8", "replace").decode()


def read_prompt(path: str) -> str:
    """Read a prompt from a file. Raises DataError if that is impossible, ConfigError if it lacks {query} or {title}."""
    try:
        text = read_text(Path(path).expanduser())
    except (OSError, RuntimeError, UnicodeDecodeError) as e:
        raise DataError(f"the prompt {path!r} cannot be read: {e}") from e
    missing = [name for name in ("query", "title") if f"{{{name}}}" not in text]
    if missing:
        raise ConfigError(f"the prompt {path!r} lacks {{{missing[0]}}}; expected {{query}}, {{title}} and {{abstract}}")
    return text
