"""A selector that puts a query and a paper into a prompt, and asks a server about it: a request for each paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from agent_envs.checks import integer
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import read_text
from agent_envs.retrieval.http.pool import HTTPReply
from agent_envs.retrieval.papers.paper import Paper
from agent_envs.retrieval.papers.service import Service

__all__ = ["PromptedSelector", "fill_prompt", "read_prompt"]

_FIELD = re.compile(r"\{(query|title|abstract)\}")
_MAX_ABSTRACT = 400  # words, as the pool shows


class PromptedSelector(Service):
    """Asks a server for scores.

    Args:
        url: The server's address.
        prompt: A file with another prompt, with {query}, {title} and {abstract}.
        parallel: Number of parallel requests.
        **service: Arguments of `Service` and `HTTPPool`.
    """

    path: ClassVar[str]
    """The path of a request; an address that ends in it is that of the server, too."""
    default_prompt: ClassVar[str]

    def __init__(self, url: str, *, prompt: str = "", parallel: int = 8, **service: Any) -> None:
        super().__init__(url.removesuffix("/").removesuffix(self.path), **service)
        self._prompt = read_prompt(prompt) if prompt else self.default_prompt
        self._parallel = integer("parallel", parallel, minimum=1)

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """Return the score of each paper."""
        texts = [fill_prompt(self._prompt, query, paper) for paper in papers]
        with ThreadPoolExecutor(min(self._parallel, max(len(texts), 1)), "selector") as threads:
            return list(threads.map(self._score, texts))

    def _score(self, text: str) -> float:
        return self.post(self.path, self.body(text), self.read)

    def body(self, text: str) -> dict[str, Any]:
        """Return the body of the request about a filled prompt."""
        raise NotImplementedError

    def read(self, reply: HTTPReply) -> float:
        """Return the score in a reply. Raises BackendReplyError if there is none."""
        raise NotImplementedError


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
