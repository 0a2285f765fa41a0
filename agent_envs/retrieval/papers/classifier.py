"""Scores papers with a served classifier: a vLLM pooling server, or another server with its `/classify`.

    POST /classify {"model": "...", "input": ["a text", ...]}
        -> {"data": [{"index": 0, "label": "...", "probs": [0.9, 0.1], "num_classes": 2}, ...]}

A text contains a query and a paper. As released, the score is 1 - probs[-1]: the last class, or the only one, means
that the paper does not fit. With `label=N` the score is the probability of class N.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent_envs.checks import integer
from agent_envs.errors import BackendReplyError, ConfigError, DataError
from agent_envs.files import read_text
from agent_envs.retrieval.http.pool import HTTPReply, short
from agent_envs.retrieval.papers.paper import Paper
from agent_envs.retrieval.papers.service import SERVICE_OPTIONS, Service, parse_options, read_json, take_options
from agent_envs.retrieval.retriever import Shared

__all__ = ["PROMPT_FIELDS", "ClassifierSelector", "classifier_selector", "fill_prompt", "read_prompt"]

PROMPT = """\
Does this paper answer the request for literature below? Judge by its title and abstract alone.

Request: {query}

Title: {title}
Abstract: {abstract}

The paper answers the request:"""
PROMPT_FIELDS = ("query", "title", "abstract")
_FIELD = re.compile(r"\{(query|title|abstract)\}")
_MAX_ABSTRACT = 400  # words, as the pool shows
_PATH = "/classify"
_OPTIONS = {**SERVICE_OPTIONS, "model": str, "label": int, "prompt": str, "batch": int}


class ClassifierSelector(Shared):
    """Scores papers with a classifier.

    Args:
        service: The server.
        model: The served model's name; "" for the server's default.
        label: The class whose probability is the score; None for 1 minus that of the last class.
        prompt: A text with {query}, {title} and {abstract}; use the one that the classifier was trained on.
        batch: Number of texts per request.
    """

    def __init__(
        self, service: Service, *, model: str = "", label: int | None = None, prompt: str = PROMPT, batch: int = 32
    ) -> None:
        self._service, self._model, self._label, self._prompt = service, model, label, prompt
        self._batch = integer("batch", batch, minimum=1)

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """Return the score of each paper."""
        texts = [fill_prompt(self._prompt, query, paper) for paper in papers]
        kept = [self._service.kept(_PATH, self._body([text]), self._reader(1)) for text in texts]
        scores = [None if found is None else found[0][1] for found in kept]
        missing = [i for i, score in enumerate(scores) if score is None]
        for begin in range(0, len(missing), self._batch):
            indices = missing[begin : begin + self._batch]
            body = self._body([texts[i] for i in indices])
            results = self._service.post(_PATH, body, self._reader(len(indices)), keep=False)
            for i, (item, score) in zip(indices, results, strict=True):
                self._service.keep(_PATH, self._body([texts[i]]), {"data": [{**item, "index": 0}]})
                scores[i] = score
        return [score for score in scores if score is not None]

    def _body(self, texts: list[str]) -> dict[str, Any]:
        return {"input": texts, **({"model": self._model} if self._model else {})}

    def _reader(self, count: int) -> Callable[[HTTPReply], list[tuple[dict[str, Any], float]]]:
        """Return a reader of the reply to `count` texts, which returns each text's result and score, in order."""

        def read(reply: HTTPReply) -> list[tuple[dict[str, Any], float]]:
            payload = read_json(reply, self._service.url)
            data = payload.get("data") if isinstance(payload, dict) else None
            if not isinstance(data, list) or len(data) != count:
                raise BackendReplyError(f"{self._service.url} sent {short(payload)} instead of {count} results")
            results: dict[int, tuple[dict[str, Any], float]] = {}
            for position, item in enumerate(data):
                index = item.get("index", position) if isinstance(item, dict) else None
                if not isinstance(index, int) or index not in range(count) or index in results:
                    raise BackendReplyError(f"{self._service.url} sent a result with a wrong index: {short(item)}")
                results[index] = (item, self._score(item))
            return [results[index] for index in range(count)]

        return read

    def _score(self, item: dict[str, Any]) -> float:
        probs = item.get("probs")
        try:
            if not isinstance(probs, list) or not all(type(p) in (int, float) and math.isfinite(p) for p in probs):
                raise ValueError("expected probabilities")
            score = 1.0 - probs[-1] if self._label is None else probs[self._label]
        except (IndexError, ValueError, OverflowError) as e:
            raise BackendReplyError(f"{self._service.url} sent a result without probabilities: {short(item)}") from e
        if not -1e-6 <= score <= 1 + 1e-6:
            raise BackendReplyError(
                f"{self._service.url} sent {score!r}, which is not a probability; serve the model with its activation"
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
    missing = [name for name in PROMPT_FIELDS[:2] if f"{{{name}}}" not in text]
    if missing:
        raise ConfigError(f"the prompt {path!r} lacks {{{missing[0]}}}; expected {{query}}, {{title}} and {{abstract}}")
    return text


def classifier_selector(address: str) -> ClassifierSelector:
    """Return the classifier at an address, with options behind a #: "http://localhost:8000#model=selector-qwen-8b".

    The options are `SERVICE_OPTIONS`, model, label, batch, and prompt: a file. Raises ConfigError if they or the
    address are invalid, DataError if the prompt cannot be read.
    """
    url, _, text = address.partition("#")
    options = parse_options(text, _OPTIONS, what=f"classify:{url}")
    own = take_options(options, "model", "label", "batch")
    if "prompt" in options:
        own["prompt"] = read_prompt(options.pop("prompt"))
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    url = url.removesuffix("/").removesuffix("/classify")
    service = Service.from_options(url, options, timeout=30.0, headers=headers)
    return ClassifierSelector(service, **own)
