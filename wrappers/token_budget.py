"""Keeps prompts within a number of tokens, counted with the model's own chat template."""

from __future__ import annotations

import functools
from bisect import bisect
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError, ContextLengthExceeded, PromptError
from agent_envs.messages import Message, content_text, copied, cut_content, joined_content
from agent_envs.policies.policy import Response
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.pictures import PictureTokens, load_picture_tokens
from agent_envs.spaces import shows_pictures
from agent_envs.wrappers.context import ContextWrapper, add_to_task, split_exchanges
from agent_envs.wrapping.order import Place

_TOKEN_CHARS = 64  # except for runs of blanks no token is longer, so that longer texts need not be counted


class TokenBudget(ContextWrapper):
    """Keep prompts within ``n`` tokens: drop the oldest exchanges, then shorten the texts of the last one.

    A prompt that grows and fits stays unchanged. One that does not fit loses its oldest exchanges, as few as possible
    and never the last; if that is not enough, the longest remaining texts are cut.
    The instructions, the task and the generation prompt always stay. The opening says how many steps are left out, a
    cut text how long it was, and info has ``dropped_exchanges``, ``shortened_messages`` and ``prompt_tokens``.

    Tokens are counted with the chat template and the environment's tools. Prompts that grow hold the responses as they
    were sampled, if a rollout reports their tokens (``note_response``); otherwise the tokenizer's own encoding is
    counted, which can be a few tokens shorter than what a model samples. Tools that the template does not show
    are counted in words, as policies show them. A picture takes as many tokens as the model's image processor
    says; a text that is cut loses the pictures behind the cut.

    Args:
        env: An environment over messages: ``ChatMessages`` beneath.
        n: Maximum length of a prompt in tokens, including the generation prompt.
        tokenizer: Name or folder of a Hugging Face tokenizer, or a loaded one. Where the environment shows pictures,
            the name or folder of a vision-language model.
        template_kwargs: Further arguments of the chat template, such as ``{"enable_thinking": False}``.

    Raises:
        ConfigError: The tokenizer cannot be loaded, has no chat template, or is that of a model of text and the
            environment shows pictures.

    An opening of more than ``n`` tokens raises ``ContextLengthExceeded`` at the reset, which rollouts record as
    ``StopReason.CONTEXT_LENGTH``. A step of which nothing fits after the opening truncates the episode.

    >>> import agent_envs
    >>> from agent_envs.wrappers import ChatMessages
    >>> env = ChatMessages(gym.make("AgentR1/GSM8KTool-v0"))
    >>> TokenBudget(env, n=512, tokenizer="./no_such_folder")
    Traceback (most recent call last):
    ...
    agent_envs.errors.ConfigError: there is no tokenizer folder './no_such_folder'
    """

    place = Place.BUDGET

    def __init__(
        self, env: gym.Env[list[Message], str], n: int, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.n = checks.integer("n", n, minimum=1)
        if not (template_kwargs is None or isinstance(template_kwargs, Mapping)):
            raise ConfigError(f"template_kwargs must be a dictionary, got {checks.shown(template_kwargs)}")
        self.template_kwargs = dict(template_kwargs or {})
        super().__init__(env, n=n, tokenizer=tokenizer, template_kwargs=self.template_kwargs or None)
        self._shared = self._builder(tokenizer)
        self._begin()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Reset the environment and show the task; raises a ContextLengthExceeded if it does not fit."""
        messages, info = super().reset(seed=seed, options=options)
        if info["prompt_tokens"] > self.n:
            raise ContextLengthExceeded(
                f"TokenBudget: the instructions, the task and the tools take {info['prompt_tokens']} tokens, which "
                f"leaves no room for a step within n={self.n}"
            )
        return messages, info

    def note_response(self, response: Response) -> None:
        """Take note of the policy's response, whose tokens the next prompt holds; rollouts call this."""
        self._response = response

    def note_end(self, reason: object, error: str | None) -> None:
        """Do nothing at the end of an episode; rollouts call this."""

    def _builder(self, tokenizer: Any) -> PromptBuilder:
        name, pictures = tokenizer, None
        if isinstance(tokenizer, str):
            tokenizer, pictures = _loaded(tokenizer)
        elif not callable(tokenizer):  # all of Hugging Face's can be called
            raise ConfigError(f"tokenizer must be a name, a folder or a tokenizer, got {checks.shown(tokenizer)}")
        if pictures is None and shows_pictures(self.env.observation_space):
            raise ConfigError(
                f"TokenBudget needs the folder or name of a vision-language model to count pictures, got "
                f"{checks.shown(name)}"
            )
        try:
            return PromptBuilder.of_env(self.env, tokenizer, template_kwargs=self.template_kwargs, pictures=pictures)
        except PromptError as e:
            raise ConfigError(str(e)) from e

    def _begin(self) -> None:
        self._whole: list[Message] = []  # the last prompt as it came
        self._kept: list[Message] = []  # and as it was shown
        self._prompt_ids: list[int] = []
        self._response = Response("")  # the last one, if it is known
        self._dropped = self._shortened = self._beneath = 0

    def _choose(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        self._beneath = int(info.get("dropped_exchanges", 0))  # by a window
        before = len(self._whole)
        if 0 < before < len(messages) and messages[:before] == self._whole:
            candidate = [*self._kept, *messages[before:]]
        else:
            self._whole, self._dropped, self._shortened = [], 0, 0
            candidate = list(messages)
        ids = self._fitting(candidate)
        if ids is None:
            candidate, ids = self._cut_down(candidate)
        self._whole, self._kept, self._prompt_ids = copied(messages), copied(candidate), ids
        self._full = len(ids) > self.n
        return candidate, {
            "dropped_exchanges": self._dropped + self._beneath,
            "shortened_messages": self._shortened,
            "prompt_tokens": len(ids),
        }

    def _fitting(self, messages: list[Message]) -> list[int] | None:
        """Return the prompt's tokens, None if they are too many."""
        if sum(len(content_text(message["content"])) for message in messages) > _TOKEN_CHARS * self.n:
            return None
        ids = self._tokens(messages)
        return ids if len(ids) <= self.n else None

    def _tokens(self, messages: list[Message]) -> list[int]:
        """Return the tokens of a prompt as an actor makes it: the last prompt extended if possible, else a new one."""
        before = len(self._kept)
        response, after = messages[before : before + 1], messages[before + 1 :]
        if (
            not before
            or response != [{"role": "assistant", "content": self._action}]
            or messages[:before] != self._kept
            or any(message["role"] == "assistant" for message in after)
        ):
            return self._shared.start(messages)
        last = self._response
        try:
            sampled = list(last.response_ids) if last.response_ids and last.text == self._action else None
            ids = self._shared.response(self._action, after) if sampled is None else sampled
            return self._shared.extend(self._prompt_ids, ids, after)
        except PromptError:  # the template drops earlier responses, so that actors render every prompt from scratch
            return self._shared.start(messages)

    def _cut_down(self, messages: list[Message]) -> tuple[list[Message], list[int]]:
        """Return a prompt that fits and its tokens; at its shortest it may still be too long."""
        opening, exchanges = split_exchanges(messages)
        # Without the notes of earlier prompts; this one gets its own.
        opening = copied(split_exchanges(self._whole)[0] if self._whole else opening)

        def prompt(dropped: int) -> list[Message]:
            total = self._dropped + self._beneath + dropped
            note = f"\n\n[{total} earlier step{'s are' if total > 1 else ' is'} left out here]"
            return [*(add_to_task(opening, note) if total else opening), *chain.from_iterable(exchanges[dropped:])]

        # Binary search for the fewest exchanges to drop: dropping more never makes a prompt longer.
        few = bisect(range(len(exchanges) - 1), False, key=lambda dropped: self._fitting(prompt(dropped)) is not None)
        chosen = prompt(few)
        self._dropped += few
        ids = self._fitting(chosen)
        if ids is not None:
            return chosen, ids
        shortened, count = shorten(chosen, len(opening), fits=lambda tried: self._fitting(tried) is not None)
        self._shortened += count
        return shortened, self._tokens(shortened)


@functools.lru_cache(maxsize=16)
def _loaded(name: str) -> tuple[Any, PictureTokens | None]:
    tokenizer = load_tokenizer(name)
    return tokenizer, load_picture_tokens(name, tokenizer)


_LEAST_SHOWN = 16  # characters of a shortened message


def shorten(
    messages: list[Message], protected: int, *, fits: Callable[[list[Message]], bool]
) -> tuple[list[Message], int]:
    """Cut every text to the largest number of characters with which the prompt fits.

    If all texts at their shortest are still too long, the last results are left out, as few as possible.

    Args:
        messages: The prompt: the part that stays, then one action and the answers to it.
        protected: Number of messages at the beginning that stay unchanged.
        fits: Whether a prompt is short enough.

    Returns:
        The prompt, and how many of its texts were cut or left out. At its shortest it may still not fit.

    >>> messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "a" * 100}]
    >>> shorten(messages, 1, fits=lambda tried: sum(len(m["content"]) for m in tried) < 70)[0][-1]["content"]
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\n[cut: 100 characters]'
    """
    low = 0  # fits or is the minimum
    high = max(len(content_text(m["content"])) for m in messages)  # does not fit
    best = None
    while True:
        middle = (low + high) // 2
        cut = _cut_texts(messages, protected, max(middle, _LEAST_SHOWN))
        if fits(cut[0]):
            best, low = cut, middle
        else:
            high = middle
        if high - low <= max(1, low // 64) or middle <= _LEAST_SHOWN:
            break
    shortest, count = _cut_texts(messages, protected, _LEAST_SHOWN)
    return best or _first_results(messages, shortest, protected, fits) or (shortest, count)


def _cut_texts(messages: list[Message], protected: int, limit: int) -> tuple[list[Message], int]:
    """Return the messages with all texts but the protected ones cut to ``limit`` characters, and how many are."""
    out = list(messages[:protected])
    for message in messages[protected:]:
        length = len(content_text(message["content"]))
        note = f"\n[cut: {length} characters]"
        if length > limit + len(note):
            message = {**message, "content": cut_content(message["content"], limit, note)}
        out.append(message)
    return out, sum(a is not b for a, b in zip(out, messages, strict=True))


def _first_results(
    messages: list[Message], cut: list[Message], protected: int, fits: Callable[[list[Message]], bool]
) -> tuple[list[Message], int] | None:
    """Keep as many results of an action with many calls as fit, with a note of the others; None if none fits."""

    def chosen(kept: int) -> list[Message]:
        last, left_out = cut[protected + kept], len(cut) - protected - kept - 1
        note = f"[{left_out} more results are left out]"
        noted: Message = {**last, "content": joined_content([last["content"], note], "\n")}
        return [*cut[: protected + kept], noted]

    # Messages kept after the protected ones, the action first: more of them never make a prompt shorter.
    most = bisect(range(1, len(cut) - protected), False, key=lambda kept: not fits(chosen(kept)))
    if not most:
        return None
    changed = sum(a is not b for a, b in zip(cut[: protected + most], messages, strict=False))
    return chosen(most), changed + len(cut) - protected - most
