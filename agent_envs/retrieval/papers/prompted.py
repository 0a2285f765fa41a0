"""A selector that puts a query and a paper into a prompt, and asks a server about it: a request for each paper."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from agent_envs.checks import integer, number
from agent_envs.errors import BackendError, ConfigError, DataError, NotRecordedError
from agent_envs.files import read_text
from agent_envs.retrieval.http.pool import HTTPReply
from agent_envs.retrieval.papers.paper import Paper
from agent_envs.retrieval.papers.service import Service

__all__ = ["PromptedSelector", "fill_prompt", "read_prompt"]

_log = logging.getLogger(__name__)

_FIELD = re.compile(r"\{(query|title|abstract)\}")
_MAX_ABSTRACT = 400  # words, as the pool shows


class PromptedSelector(Service):
    """Asks a server for scores.

    Args:
        url: The server's address.
        prompt: A file with another prompt, with {query}, {title} and {abstract}.
        parallel: Number of parallel requests.
        whole: Whether query and abstract go into the prompt as they are. Otherwise line breaks are blanks, an abstract
            is cut to 400 words, and a missing one is "(none)".
        on_error: The score of a paper whose request failed, after all retries; None for the error itself.
        **service: Arguments of `Service` and `HTTPPool`.
    """

    path: ClassVar[str]
    """The path of a request; an address that ends in it is that of the server, too."""
    default_prompt: ClassVar[str]

    def __init__(
        self, url: str, *, prompt: str = "", parallel: int = 8, whole: bool = False, on_error: float | None = None,
        **service: Any,
    ) -> None:  # fmt: skip
        super().__init__(url.removesuffix("/").removesuffix(self.path), **service)
        self._prompt = read_prompt(prompt) if prompt else self.default_prompt
        self._parallel, self._whole = integer("parallel", parallel, minimum=1), whole
        self.on_error = None if on_error is None else number("on_error", on_error, minimum=0, maximum=1)

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """Return the score of each paper."""
        texts = [fill_prompt(self._prompt, query, paper, whole=self._whole) for paper in papers]
        with ThreadPoolExecutor(min(self._parallel, max(len(texts), 1)), "selector") as threads:
            return list(threads.map(self._score, texts))

    def _score(self, text: str) -> float:
        try:
            return self.post(self.path, self.body(text), self.read)
        except BackendError as e:
            if self.on_error is None or isinstance(e, NotRecordedError):
                raise
            _log.warning("a paper gets the score %g: %s", self.on_error, e)
            return self.on_error

    def body(self, text: str) -> dict[str, Any]:
        """Return the body of the request about a filled prompt."""
        raise NotImplementedError

    def read(self, reply: HTTPReply) -> float:
        """Return the score in a reply. Raises BackendReplyError if there is none."""
        raise NotImplementedError


def fill_prompt(prompt: str, query: str, paper: Paper, *, whole: bool = False) -> str:
    """Fill in a prompt. Braces in the query and the paper stay as they are.

    >>> fill_prompt("{query}|{title}|{abstract}|{x}", "{title}", Paper("1", "A"))
    '{title}|A|(none)|{x}'
    """
    abstract = paper.abstract
    if not whole:
        words = abstract.split()
        abstract = " ".join(words[:_MAX_ABSTRACT]) + ("..." if len(words) > _MAX_ABSTRACT else "") or "(none)"
        query = " ".join(query.split())
    values = {"query": query, "title": paper.title, "abstract": abstract}
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
