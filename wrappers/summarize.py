"""Long episodes in short prompts: a summary replaces earlier exchanges."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import AgentEnvsError, BackendError, BackendReplyError, ConfigError
from agent_envs.messages import Message, copied
from agent_envs.per_process import PerProcess
from agent_envs.text import clean_text
from agent_envs.wrappers.context import SUMMARY, ContextWrapper, add_to_task, split_exchanges

__all__ = ["Summarize"]

_OPENAI = "agent_envs.wrappers.openai_summary:OpenAISummary"
_loaded: PerProcess[Callable[[list[Message]], str]] = PerProcess()
_LONGEST = 20_000  # characters of a summary


class Summarize(ContextWrapper):
    """Show a summary in place of earlier exchanges, and the last ``keep`` exchanges in full.

    When a prompt has more than ``after`` exchanges, ``fn`` summarises all but the last ``keep``, and their place is
    taken by the summary, which follows the task. The next summary covers the earlier one. Each exchange is summarised
    once, so that an episode costs one call of ``fn`` per ``after - keep + 1`` steps; the end of a task costs none.

    ``fn`` gets messages: the opening with the earlier summary, then the exchanges to summarise. It returns a string.

    Args:
        env: An environment over messages: ``ChatMessages`` beneath.
        fn: A function from messages to a string; its name, ``"module:function"``; or ``"openai"``, an OpenAI-compatible
            server (`agent_envs.wrappers.openai_summary`).
        arguments: If ``fn`` is a name, it is called with these arguments and returns the function, as in
            ``Summarize(fn="openai", arguments={"model": "qwen3", "base_url": "http://localhost:8000/v1"})``.
        keep: Number of exchanges shown in full, at least 0.
        after: Number of exchanges that a prompt may have, at least ``keep``.
        on_error: What happens if ``fn`` fails or returns no text: ``"raise"`` a ``BackendError``, with which rollouts
            end the episode; ``"keep"`` the exchanges and try again at the next step; or ``"drop"`` them, with a note in
            place of the summary.

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

    selects_history = True

    def __init__(
        self,
        env: gym.Env[list[Message], str],
        fn: str | Callable[[list[Message]], str],
        arguments: Mapping[str, Any] | None = None,
        keep: int = 2,
        after: int = 4,
        on_error: str = "raise",
    ) -> None:
        self.keep = checks.integer("keep", keep, minimum=0)
        self.after = checks.integer("after", after, minimum=keep)
        self.on_error = checks.choice("on_error", on_error, ("raise", "keep", "drop"))
        if arguments is not None and not isinstance(fn, str):
            raise ConfigError("arguments= goes with the name of a function; give them to fn itself")
        if not (arguments is None or isinstance(arguments, Mapping)):
            raise ConfigError(f"arguments must be a dictionary, got {checks.shown(arguments)}")
        super().__init__(env, fn=fn, arguments=arguments, keep=keep, after=after, on_error=on_error)
        self._shared = _load(fn, arguments)
        self._begin()

    def _begin(self) -> None:
        self._summary = ""
        self._opening: list[Message] = []
        self._covered: list[list[Message]] = []  # the exchanges that the summary replaces
        self._failures = 0

    def _choose(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        opening, exchanges = split_exchanges(messages)
        covered = len(self._covered)
        if opening != self._opening or exchanges[:covered] != self._covered:  # another conversation
            self._summary, self._covered, covered = "", [], 0
            self._opening = copied(opening)
        if len(exchanges) - covered > self.after and not self._over:
            old = exchanges[covered : len(exchanges) - self.keep]
            if self._summarise(opening, old):
                self._covered += [copied(exchange) for exchange in old]
        about = {"summarised_exchanges": len(self._covered), "summary_failures": self._failures}
        return [*self._with_summary(opening), *chain.from_iterable(exchanges[len(self._covered) :])], about

    def _summarise(self, opening: list[Message], old: list[list[Message]]) -> bool:
        """Summarise exchanges, and return whether they are left out from now on."""
        messages = copied([*self._with_summary(opening), *chain.from_iterable(old)])
        try:
            summary = self._shared(messages)
            if not isinstance(summary, str) or not summary.strip():
                raise BackendReplyError(f"expected a summary as a text, got {summary!r:.100}")
        except Exception as e:
            self._failures += 1
            if self.on_error == "keep":
                return False
            if self.on_error == "raise":
                if isinstance(e, AgentEnvsError):
                    raise
                raise BackendError(f"the summary failed: {type(e).__name__}: {e}") from e
            steps = len(self._covered) + len(old)
            summary = f"{self._summary}\n({steps} steps; there is no summary of the last {len(old)})".strip()
        self._summary = clean_text(summary.strip())[:_LONGEST]
        return True

    def _with_summary(self, opening: list[Message]) -> list[Message]:
        return add_to_task(opening, SUMMARY + self._summary) if self._summary else opening


def _load(fn: str | Callable[[list[Message]], str], arguments: Mapping[str, Any] | None) -> Callable[..., str]:
    if fn == "openai" and arguments is None:
        raise ConfigError("fn='openai' needs arguments={'model': ...}, and 'base_url' for your own server")
    if not isinstance(fn, str) or arguments is None:
        return checks.load_function(fn, what="fn")
    name, encoded = _OPENAI if fn == "openai" else fn, json.dumps(dict(arguments))

    def make() -> Callable[..., str]:
        function = checks.load_function(name, what="fn")
        try:
            made = function(**arguments)
        except TypeError as e:
            raise ConfigError(f"{name} does not take the arguments {encoded}: {e}") from e
        if not callable(made):
            raise ConfigError(f"{name}(...) must return a function of messages, got {type(made).__name__}")
        return made

    return _loaded.get((name, encoded), make)  # all environments share its client
