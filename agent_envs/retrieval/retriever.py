"""The interface of all retrievers, and one for tests with fixed answers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from agent_envs.checks import integer
from agent_envs.errors import ConfigError
from agent_envs.retrieval.corpus import row_id

K = TypeVar("K")
V = TypeVar("V")

Hit = tuple[str, float]
"""A document's id and its score."""


@runtime_checkable
class Retriever(Protocol):
    """Finds documents for queries. Threads may share one.

    Any string is a query; without an indexed word it finds nothing. Failures of the engine raise BackendError.
    """

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return at most k documents, best first, ties by id. Raises ConfigError if k is below 1."""

    def search_many(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Return the results of each query."""
        return [self.search(query, k) for query in queries]

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id. Raises ConfigError if there is none."""


def check_request(query: object, k: object) -> None:
    """Raise ConfigError unless `query` is a string and `k` an int of at least 1."""
    if not isinstance(query, str):
        raise ConfigError(f"a query must be a string, got {type(query).__name__}")
    if type(k) is not int or k < 1:
        integer("k", k, minimum=1)


class Recent(Generic[K, V]):
    """The most recently used values by key, at most `size`. Threads may share it; a pickle takes none along."""

    def __init__(self, size: int) -> None:
        self.size = integer("size", size, minimum=1)
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, keys: Iterable[K]) -> dict[K, V]:
        """Return those of the values that are there."""
        with self._lock:
            values = {key: self._values[key] for key in keys if key in self._values}
            for key in values:
                self._values.move_to_end(key)
        return values

    def keep(self, values: Mapping[K, V]) -> None:
        """Add values, or replace them."""
        with self._lock:
            for key, value in values.items():
                self._values[key] = value
                self._values.move_to_end(key)
            while len(self._values) > self.size:
                self._values.popitem(last=False)

    def __reduce__(self) -> tuple[type[Recent[K, V]], tuple[int]]:
        return type(self), (self.size,)


class StaticRetriever(Retriever):
    """Answers from a table, for tests.

    Args:
        answers: Query -> ids, best first, or (id, score) pairs; bare ids get the scores n, n - 1, ..., 1.
        documents: Rows with an id.
        default: The answer to all other queries.

    >>> documents = [{"id": "p1", "title": "Paris", "text": "A city."}]
    >>> retriever = StaticRetriever({"capital of France": ["p1", "p2"]}, documents)
    >>> retriever.search("capital of France", k=1)
    [('p1', 2.0)]
    >>> retriever.document("p1")["title"]
    'Paris'
    """

    def __init__(
        self,
        answers: Mapping[str, Sequence[str | Hit]],
        documents: Iterable[Mapping[str, Any]] = (),
        *,
        default: Sequence[str | Hit] = (),
    ) -> None:
        self._answers = {query: _hits(answer) for query, answer in answers.items()}
        self._documents = {row_id(row, f"document {n}", n): dict(row) for n, row in enumerate(documents)}
        self._default = _hits(default)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the first k of the answer."""
        check_request(query, k)
        return self._answers.get(query, self._default)[:k]

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id."""
        try:
            return dict(self._documents[doc_id])
        except KeyError as e:
            raise ConfigError(f"no document has the id {doc_id!r}") from e


def _hits(answer: Sequence[str | Hit]) -> list[Hit]:
    return [(x, float(len(answer) - n)) if isinstance(x, str) else (x[0], float(x[1])) for n, x in enumerate(answer)]
