"""Long episodes in short prompts: earlier exchanges are replaced by a summary of them."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import gymnasium as gym

from agent_envs.checks import load_function
from agent_envs.errors import AgentEnvsError, BackendError, BackendReplyError, ConfigError
from agent_envs.messages import Message
from agent_envs.text import clean_text
from agent_envs.wrappers.context import SUMMARY, ContextWrapper, check_count, copied, split_exchanges

__all__ = ["Summarize"]

_OPENAI = "agent_envs.wrappers.openai_summary:OpenAISummary"
_LONGEST = 20_000  # characters of a summary
_ON_ERROR = ("raise", "keep", "drop")


class Summarize(ContextWrapper):
    """Shows a summary in place of earlier exchanges, and the last ``keep`` exchanges in full.

    When a prompt has more than ``after`` exchanges, all but the last ``keep`` are summarised by ``fn`` and left out;
    the summary follows the task. The next time, the earlier summary is part of what is summarised. Each exchange is
    summarised once, so that an episode costs one call of ``fn`` per ``after - keep + 1`` steps; one that is won or lost
    needs no other prompt, and none for its last step.

    ``fn`` is given messages: the opening with the earlier summary, then the exchanges to summarise. It returns a text.

    Args:
        env: An environment over messages: ``ChatMessages`` beneath.
        fn: A function from messages to text; its name, ``"module:function"``; or ``"openai"``, an OpenAI-compatible
            server (`agent_envs.wrappers.openai_summary`).
        arguments: Where ``fn`` is a name: it is called with these and returns the function, as in
            ``Summarize(fn="openai", arguments={"model": "qwen3", "base_url": "http://localhost:8000/v1"})``.
        keep: Exchanges shown in full, at least 0.
        after: Exchanges a prompt may have, at least ``keep``.
        on_error: What happens where ``fn`` fails or returns no text: ``"raise"`` a ``BackendError``, with which
            rollouts end the episode; ``"keep"`` the exchanges, and try again at the next step; or ``"drop"`` them, with
            a note in place of the summary.

    ``info["summarised_exchanges"]`` counts the exchanges that are left out, ``info["summary_failures"]`` the failures.

    >>> import agent_envs
    >>> from agent_envs.wrappers import ChatMessages
    >>> def names(messages):
    ...     return f"There were {len(messages)} messages."
    >>> env = Summarize(ChatMessages(gym.make("AgentR1/GSM8KTool-v0")), fn=names, keep=0, after=0)
    >>> _ = env.reset(seed=0)
    >>> messages, *_ = env.step(env.unwrapped.format_call("calculator", {"expression": "1+1"}))
    >>> print(messages[-1]["content"].splitlines()[-1])
    There were 4 messages.
    """

    def __init__(
        self,
        env: gym.Env[list[Message], str],
        fn: str | Callable[[list[Message]], str],
        arguments: Mapping[str, Any] | None = None,
        keep: int = 2,
        after: int = 4,
        on_error: str = "raise",
    ) -> None:
        check_count("Summarize", "keep", keep, 0)
        check_count("Summarize", "after", after, keep)
        if on_error not in _ON_ERROR:
            raise ConfigError(f"Summarize: on_error must be one of {', '.join(map(repr, _ON_ERROR))}, got {on_error!r}")
        if not (isinstance(fn, str) or callable(fn)):
            raise ConfigError(f"Summarize: fn must be a function of messages or its name, got {fn!r:.100}")
        if arguments is not None and not isinstance(fn, str):
            raise ConfigError("Summarize: arguments= goes with the name of a function; give them to fn itself")
        if not (arguments is None or isinstance(arguments, Mapping)):
            raise ConfigError(f"Summarize: arguments must be a dictionary, got {arguments!r:.100}")
        super().__init__(env, fn=fn, arguments=arguments, keep=keep, after=after, on_error=on_error)
        self.keep = keep
        self.after = after
        self.on_error = on_error
        self._shared = _function(fn, arguments)
        self._begin()

    def _begin(self) -> None:
        self._summary = ""
        self._opening: list[Message] = []
        self._covered: list[list[Message]] = []  # the exchanges that the summary stands for
        self._failures = 0

    def _choose(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        opening, exchanges = split_exchanges(messages)
        covered = len(self._covered)
        if opening != self._opening or exchanges[:covered] != self._covered:  # another conversation
            self._summary, self._covered, covered = "", [], 0
            self._opening = copied(opening)
        left = len(exchanges) - covered
        if left > self.after and not self._over:
            old = exchanges[covered : len(exchanges) - self.keep]
            if self._summarise(opening, old):
                self._covered += [copied(exchange) for exchange in old]
        about = {"summarised_exchanges": len(self._covered), "summary_failures": self._failures}
        shown = _with_summary(opening, self._summary)
        return [*shown, *chain.from_iterable(exchanges[len(self._covered) :])], about

    def _summarise(self, opening: list[Message], old: list[list[Message]]) -> bool:
        """Whether the exchanges are left out from now on."""
        given = copied([*_with_summary(opening, self._summary), *chain.from_iterable(old)])
        try:
            summary = self._shared(given)
            if not isinstance(summary, str) or not summary.strip():
                raise BackendReplyError(f"expected a summary as a text, got {summary!r:.100}")
        except Exception as e:
            self._failures += 1
            if self.on_error == "keep":
                return False
            if self.on_error == "raise":
                if isinstance(e, AgentEnvsError):
                    raise
                raise BackendError(f"Summarize: the summary failed: {type(e).__name__}: {e}") from e
            steps = len(self._covered) + len(old)
            summary = f"{self._summary}\n({steps} steps; there is no summary of the last {len(old)})".strip()
        self._summary = clean_text(summary.strip())[:_LONGEST]
        return True


def _with_summary(opening: list[Message], summary: str) -> list[Message]:
    """The opening with the summary at the end of the task, so that roles still take turns."""
    if not summary:
        return opening
    note = SUMMARY + summary
    if not opening or opening[-1]["role"] != "user":
        return [*opening, {"role": "user", "content": note.lstrip()}]
    last = opening[-1]
    return [*opening[:-1], {**last, "content": last["content"] + note}]


def _function(fn: str | Callable[[list[Message]], str], arguments: Mapping[str, Any] | None) -> Callable[..., Any]:
    if not isinstance(fn, str):
        return fn
    name = _OPENAI if fn == "openai" else fn
    return _named(name, None if arguments is None else json.dumps(dict(arguments)), os.getpid())


@functools.lru_cache(maxsize=32)
def _named(name: str, arguments: str | None, process: int) -> Callable[[list[Message]], str]:
    """The function of a name, once per process: a client is shared by all environments."""
    found = load_function(name, what="Summarize: fn")
    if name == _OPENAI and arguments is None:
        raise ConfigError("Summarize: fn='openai' needs arguments={'model': ...}, and 'base_url' for your own server")
    if arguments is None:
        return found
    try:
        made = found(**json.loads(arguments))
    except TypeError as e:
        raise ConfigError(f"Summarize: {name} does not take the arguments {arguments}: {e}") from e
    if not callable(made):
        raise ConfigError(f"Summarize: {name}(...) must return a function of messages, got {type(made).__name__}")
    return made
