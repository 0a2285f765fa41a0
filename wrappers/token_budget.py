"""Prompts that fit a number of tokens, counted with the model's own chat template."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs.episodes.record import StopReason
from agent_envs.errors import ConfigError, ContextLengthExceeded, MissingExtraError, PromptError
from agent_envs.messages import Message
from agent_envs.policies.base import Response
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.wrappers.context import SUMMARY, ContextWrapper, check_count, copied, split_exchanges
from agent_envs.wrappers.shortening import shorten, split_summary
from agent_envs.wrapping.order import stack_names

__all__ = ["TokenBudget"]

_TOKEN_CHARS = 64  # no token stands for more characters, runs of blanks aside: longer texts need not be counted


class TokenBudget(ContextWrapper):
    """Keeps prompts within ``n`` tokens: drops the oldest exchanges, then shortens what the last one says.

    A prompt that grows and fits is shown as it is. One that does not loses its oldest exchanges, as few as possible and
    never the last; if that is not enough, the longest texts of what is left are cut, a summary (``Summarize``)
    included. The instructions, the task and the generation prompt always stay. The opening says how many steps are left
    out, a cut text how long it was, and info counts both: ``dropped_exchanges``, ``shortened_messages`` and
    ``prompt_tokens``.

    Tokens are those of the chat template with the environment's tools. Where prompts grow, they hold the policy's texts
    as they were sampled: a rollout tells which tokens (``note_response``); from a loop that does not, they are those
    that the tokenizer gives the texts, of which a model may sample a few more. A template that shows no tools does not
    count them either: put ``ChatMessages(tools="text")`` beneath.

    Args:
        env: An environment over messages: ``ChatMessages`` beneath.
        n: Tokens of the longest prompt, the generation prompt included.
        tokenizer: Name or folder of a Hugging Face tokenizer, or one that is loaded.
        template_kwargs: Further arguments of the chat template, such as ``{"enable_thinking": False}``.

    Raises:
        ConfigError: The tokenizer cannot be loaded or has no chat template.

    An opening of more than ``n`` tokens raises ``ContextLengthExceeded`` at the reset, with which rollouts end the
    episode as ``StopReason.CONTEXT_LENGTH``; a step of which nothing fits behind the opening truncates the episode.

    >>> import agent_envs
    >>> from agent_envs.wrappers import ChatMessages
    >>> env = ChatMessages(gym.make("AgentR1/GSM8KTool-v0"))
    >>> TokenBudget(env, n=512, tokenizer="./no_such_folder")
    Traceback (most recent call last):
    ...
    agent_envs.errors.ConfigError: TokenBudget: there is no folder './no_such_folder' with a tokenizer
    """

    def __init__(
        self,
        env: gym.Env[list[Message], str],
        n: int,
        tokenizer: Any,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        check_count("TokenBudget", "n", n, 1)
        if not (template_kwargs is None or isinstance(template_kwargs, Mapping)):
            raise ConfigError(f"TokenBudget: template_kwargs must be a dictionary, got {template_kwargs!r:.100}")
        kwargs = dict(template_kwargs or {})
        super().__init__(env, n=n, tokenizer=tokenizer, template_kwargs=kwargs or None)
        self.n = n
        self.template_kwargs = kwargs
        self._shared = self._builder(tokenizer)
        self._given: list[Message] = []
        self._shown_last: list[Message] = []
        self._prompt_ids: list[int] = []
        self._sampled: tuple[str, list[int]] = ("", [])  # the last response's text and tokens, where they are known
        self._dropped = self._shortened = self._beneath = 0
        self._summary = SUMMARY if "Summarize" in stack_names(env) else ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Reset, and show the task.

        Raises:
            ContextLengthExceeded: It does not fit.
        """
        messages, info = super().reset(seed=seed, options=options)
        if info["prompt_tokens"] > self.n:
            raise ContextLengthExceeded(
                f"TokenBudget: the instructions, the task and the tools take {info['prompt_tokens']} tokens, which "
                f"leaves no room for a step within n={self.n}"
            )
        return messages, info

    def step(self, action: str) -> tuple[list[Message], SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and show what fits; where nothing does there is no next step."""
        messages, reward, terminated, truncated, info = super().step(action)
        return messages, reward, terminated, truncated or (info["prompt_tokens"] > self.n and not terminated), info

    def note_response(self, response: Response) -> None:
        """What the policy answered, whose tokens the next prompt holds; a rollout calls it."""
        self._sampled = response.text, list(response.response_ids or ())

    def note_end(self, reason: StopReason, error: str | None) -> None:
        """The episode has ended: nothing to do."""

    def _builder(self, tokenizer: Any) -> PromptBuilder:
        if isinstance(tokenizer, str):
            tokenizer = _load_tokenizer(tokenizer)
        elif not callable(tokenizer):  # all of Hugging Face's can be called
            raise ConfigError(f"TokenBudget: tokenizer must be a name, a folder or a tokenizer, got {tokenizer!r:.100}")
        try:
            return PromptBuilder(tokenizer, self.env.get_wrapper_attr("tools"), self.template_kwargs)
        except PromptError as e:
            raise ConfigError(f"TokenBudget: {e}") from e

    def _begin(self) -> None:
        self._given, self._shown_last, self._prompt_ids = [], [], []
        self._sampled = "", []
        self._dropped = self._shortened = 0

    def _choose(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        builder = self._shared
        self._beneath = int(info.get("dropped_exchanges", 0))  # by a window
        before = len(self._given)
        if before and messages[:before] == self._given and messages[before:][:1]:
            candidate = [*self._shown_last, *messages[before:]]
        else:
            self._given, self._dropped, self._shortened = [], 0, 0
            candidate = list(messages)
        ids = self._fits(builder, candidate)
        if ids is None:
            candidate, ids = self._fitted(builder, candidate)
        self._given, self._shown_last, self._prompt_ids = copied(messages), copied(candidate), ids
        about = {
            "dropped_exchanges": self._dropped + self._beneath,
            "shortened_messages": self._shortened,
            "prompt_tokens": len(ids),
        }
        return candidate, about

    def _fits(self, builder: PromptBuilder, messages: list[Message]) -> list[int] | None:
        """The prompt's tokens, None where they are too many."""
        if sum(len(message["content"]) for message in messages) > _TOKEN_CHARS * self.n:
            return None
        ids = self._prompt(builder, messages)
        return ids if len(ids) <= self.n else None

    def _prompt(self, builder: PromptBuilder, messages: list[Message]) -> list[int]:
        """The prompt as an actor makes it: grown where it begins with what was shown and said, else rendered anew."""
        before = len(self._shown_last)
        said, after = messages[before : before + 1], messages[before + 1 :]
        if (
            not before
            or said != [{"role": "assistant", "content": self._said}]
            or messages[:before] != self._shown_last
            or any(message["role"] == "assistant" for message in after)
        ):
            return builder.start(messages)
        try:
            return builder.extend(self._prompt_ids, self._response(builder.tokenizer), after)
        except PromptError:  # the template drops earlier responses: prompts are rendered anew
            return builder.start(messages)

    def _response(self, tokenizer: Any) -> list[int]:
        """The tokens of the policy's last text."""
        text, sampled = self._sampled
        if sampled and text == self._said:
            return sampled
        end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        return [*tokenizer.encode(self._said, add_special_tokens=False), *end]

    def _fitted(self, builder: PromptBuilder, messages: list[Message]) -> tuple[list[Message], list[int]]:
        opening, exchanges = split_exchanges(messages)
        # Without the notes of earlier prompts; this one gets its own.
        opening = copied(self._given_opening(opening))

        def prompt(dropped: int) -> list[Message]:
            return [
                *self._noted(opening, self._dropped + self._beneath + dropped),
                *chain.from_iterable(exchanges[dropped:]),
            ]

        # The fewest exchanges to drop: more of them never makes a prompt longer.
        low, high = (0, max(0, len(exchanges) - 1))
        while low < high:
            middle = (low + high) // 2
            if self._fits(builder, prompt(middle)) is not None:
                high = middle
            else:
                low = middle + 1
        chosen = prompt(low)
        self._dropped += low
        ids = self._fits(builder, chosen)
        if ids is not None:
            return chosen, ids
        cut, count = shorten(
            chosen, len(opening), fits=lambda told: self._fits(builder, told) is not None, summary=self._summary
        )
        self._shortened += count
        return cut, self._prompt(builder, cut)

    def _given_opening(self, shown: list[Message]) -> list[Message]:
        if not self._given:
            return shown
        return split_exchanges(self._given)[0]

    def _noted(self, opening: list[Message], dropped: int) -> list[Message]:
        """The opening with a note of what is left out, at the end of the task so that roles still take turns."""
        if not dropped:
            return opening
        note = f"[{dropped} earlier step{'s are' if dropped > 1 else ' is'} left out here]"
        if not opening or opening[-1]["role"] != "user":
            return [*opening, {"role": "user", "content": note}]
        last = opening[-1]
        task, summary = split_summary(last["content"], self._summary)
        return [*opening[:-1], {**last, "content": f"{task}\n\n{note}{summary}"}]


_loading = threading.Lock()  # transformers' lazy imports are not safe in threads


def _load_tokenizer(name: str) -> Any:
    with _loading:
        return _loaded_tokenizer(name)


@functools.lru_cache(maxsize=16)
def _loaded_tokenizer(name: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as e:
        raise MissingExtraError("transformers", extra="hf") from e
    if name.startswith((".", "/", "~")) and not Path(name).expanduser().is_dir():
        raise ConfigError(f"TokenBudget: there is no folder {name!r} with a tokenizer")
    try:
        return AutoTokenizer.from_pretrained(Path(name).expanduser() if name.startswith("~") else name)
    except (OSError, ValueError) as e:
        raise ConfigError(f"TokenBudget: there is no tokenizer {name!r}: {str(e)[:300]}") from e
