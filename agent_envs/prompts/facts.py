"""What a chat template does with messages, found by trying: the one place that knows.

Templates differ in the roles that they take, in what they leave out without a word, and in how a turn ends. All of it
follows from rendering a few short conversations whose texts are random, so that no text of an episode can be taken for
one of them.
"""

from __future__ import annotations

import itertools
import json
import secrets
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_envs.errors import PromptError
from agent_envs.messages import Message, ToolSpec

__all__ = ["ChatTemplate", "Ending", "TemplateFacts"]

_MESSAGE_END = "<|eom_id|>"  # with which Llama ends a call, though its template writes it for built-in tools alone
_REFUSALS = (AttributeError, KeyError, TypeError, ValueError)  # of expressions in a template, beside Jinja's own errors


@dataclass(frozen=True, slots=True)
class Ending:
    """How a response ends, and what the template puts between it and the next message."""

    end: tuple[int, ...]
    """The tokens with which the model ends it; without one in the template, the end of the text."""
    closing: tuple[int, ...]
    """The tokens that close it in the template's history; none if the next message begins at once."""
    skip: int = 0
    """Tokens between a probe in a response and its end."""


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """What a template does with messages and tools."""

    parts: bool
    """Whether it takes a content only as a list of parts."""
    system: bool
    """Whether it shows a system message."""
    joined: bool
    """Whether it takes no two messages of the user in a row."""
    results: str
    """How it shows tool results: "plain" after any response, "id" if they have a `tool_call_id`, "call" or "call-json"
    after a response with `tool_calls` (with arguments as an object or as JSON), "" not at all."""
    tools: bool
    """Whether it shows the tools."""
    user: Ending
    """The end of a response that the user's message follows."""
    tool: Ending
    """The end of a response that tool results follow."""
    ends: frozenset[int]
    """The tokens that end a response."""
    control: tuple[str, ...]
    """The texts of the control tokens, the longest first."""


class ChatTemplate:
    """A tokenizer's chat template with tools and further arguments.

    Args:
        tokenizer, tools, template_kwargs: See `PromptBuilder`.
        picture: The text of the token that stands for a picture; "" for a model of text.
    """

    def __init__(
        self, tokenizer: Any, tools: Sequence[ToolSpec] | None, template_kwargs: Mapping[str, Any], picture: str
    ) -> None:
        self.tokenizer, self.tools, self.kwargs, self.picture = tokenizer, tools, template_kwargs, picture

    def facts(self) -> TemplateFacts:
        """Return what the template does, found once for a tokenizer, its template, the tools and the arguments."""
        known = _known.setdefault(self.tokenizer, {})
        key = json.dumps([self.tokenizer.chat_template, self.tools, self.kwargs, self.picture], sort_keys=True)
        if key not in known:
            known[key] = _found(self)
        return known[key]

    def render(self, messages: Sequence[Any], *, parts: bool = False, generate: bool = True) -> str:
        """Return messages as the model reads them; a PromptError if the template rejects them.

        Args:
            messages: The messages.
            parts: Whether contents are lists of parts.
            generate: Whether the model's response follows.
        """
        from jinja2.exceptions import TemplateError

        if parts:
            messages = [
                {**m, "content": [{"type": "text", "text": m["content"]}]} if isinstance(m["content"], str) else m
                for m in messages
            ]
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages, tools=self.tools, add_generation_prompt=generate, tokenize=False, **self.kwargs
                )
            )
        except (TemplateError, *_REFUSALS) as e:
            roles = [m["role"] for m in messages]
            raise PromptError(f"the chat template rejects messages with the roles {roles}: {e}") from e

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))


_known: weakref.WeakKeyDictionary[Any, dict[str, TemplateFacts]] = weakref.WeakKeyDictionary()


def probe() -> str:
    """Return a random text of letters, which no template trims and nobody can guess."""
    return "q" + "".join(secrets.choice("bcdfghjklmnpqrstvwxz") for _ in range(23))


def answered(form: str, said: str, messages: Sequence[Message]) -> list[Any]:
    """Return a response and the messages after it, as the template takes them.

    Args:
        form: See `TemplateFacts.results`.
        said: The text of the response, or where tool results need calls before them, of an argument of each call.
        messages: What follows it.
    """
    arguments: Any = json.dumps({"text": said}) if form == "call-json" else {"text": said}
    calls: list[Any] = []
    after: list[Any] = []
    for message in messages:
        if message["role"] == "tool" and form != "plain":
            message = {**message, "tool_call_id": f"call{len(calls):05}"}  # nine characters, as Mistral's wants
            function = {"name": message.get("name", ""), "arguments": arguments}
            calls.append({"id": message["tool_call_id"], "type": "function", "function": function})
        after.append(message)
    if calls and form != "id":
        return [{"role": "assistant", "content": "", "tool_calls": calls}, *after]
    return [{"role": "assistant", "content": said}, *after]


def _found(template: ChatTemplate) -> TemplateFacts:
    tokenizer = template.tokenizer
    said, asked, more, first, second = (probe() for _ in range(5))
    user: Any = {"role": "user", "content": asked}
    spoken: Any = {"role": "assistant", "content": said}
    following: Any = {"role": "user", "content": more}
    parts = False

    def shown(messages: list[Any], *texts: str, generate: bool = True, pictures: int = 0) -> str:
        """Return the rendered messages if they show the texts and pictures, else ""."""
        try:
            text = template.render(messages, parts=parts, generate=generate)
        except PromptError:
            return ""
        complete = all(each in text for each in texts)
        return text if complete and (not pictures or text.count(template.picture) == pictures) else ""

    if not shown([user, spoken, following], asked, said, more):
        parts = True
        parts = bool(shown([user, spoken, following], asked, said, more))
    system: Any = {"role": "system", "content": first}
    has_system = bool(shown([system, user], first, asked))
    name = template.tools[0]["function"]["name"] if template.tools else "f"
    picture: list[Any] = [{"type": "image"}] if template.picture else []
    results: list[Any] = [
        {"role": "tool", "name": name, "content": [{"type": "text", "text": text}, *picture] if picture else text}
        for text in (first, second)
    ]
    forms = [
        form
        for form in ("plain", "id", "call", "call-json")
        if shown([user, *answered(form, said, results)], said, first, second, pictures=2 * len(picture))
    ]
    control = {str(token) for token in tokenizer.all_special_tokens}
    control |= {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    ids = {*tokenizer.all_special_ids, *(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)}

    prompt: list[int] = []  # of a template that puts it behind every conversation; the user's turn ends with one token
    if (opening := shown([user])) == shown([user], generate=False):
        prompt = template.encode(opening.partition(asked)[2])[1:]

    def ending(response: Any, *following: Any, before: str) -> Ending:
        """Return how a response ends: compare what comes after it alone and with other messages."""
        _, found, alone = shown([user, response], said, generate=False).rpartition(said)
        _, also, then = shown([user, response, *following], said, before).partition(before)[0].rpartition(said)
        if not found or not also:
            return Ending((), ())
        last, next_ = template.encode(alone), template.encode(then)
        if prompt and last[-len(prompt) :] == prompt:
            last = last[: -len(prompt)]
        common = [a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(last, next_, strict=False))]
        closed = max((i + 1 for i, token in enumerate(common) if token in ids), default=0)
        if closed:
            skip = closed - 1 if "tool_calls" in response else 0
            return Ending(tuple(common[skip:closed]), tuple(common[skip:closed]), skip)
        skip = len(common) if "tool_calls" in response else 0
        last, next_ = last[skip:], next_[skip:]
        _, _, turn = shown([user, spoken], asked, said).partition(asked)
        if last and last[0] in ids and next_ and next_[:1] == template.encode(turn)[:1]:  # Harmony closes in two ways
            return Ending((last[0],), (next_[0],), skip)
        return Ending(tuple(next_[:1]) if next_ and next_[0] in ids else (), (), skip)

    after_user = ending(spoken, following, before=more)
    after_calls = [ending(*answered(form, said, results), before=first) for form in forms]
    eos = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    after_user = replace(after_user, end=after_user.end or eos)
    # as the model ends a call, even where the template shows results after any response
    call_end = next((each.end for each in reversed(after_calls) if each.end), after_user.end)
    after_tool = replace(after_calls[0] if forms else after_user, end=call_end)
    ends = {each.end[-1] for each in (after_user, after_tool) if each.end}
    ends |= {i for i, token in tokenizer.added_tokens_decoder.items() if str(token) == _MESSAGE_END}
    return TemplateFacts(
        parts=parts,
        system=has_system,
        joined=not shown([user, following], asked, more),
        results=forms[0] if forms else "",
        tools=_shows_tools(template, [system, user] if has_system else [user], parts),
        user=after_user,
        tool=after_tool,
        ends=frozenset(ends),
        control=tuple(sorted((token for token in control if len(token) > 1), key=len, reverse=True)),
    )


def _shows_tools(template: ChatTemplate, messages: list[Any], parts: bool) -> bool:
    names = [probe() for _ in template.tools or ()]
    tools: Any = [
        {**tool, "function": {**tool["function"], "name": name}}
        for tool, name in zip(template.tools or (), names, strict=True)
    ]
    renamed = ChatTemplate(template.tokenizer, tools, template.kwargs, template.picture)
    try:
        text = renamed.render(messages, parts=parts)
    except PromptError:
        return False
    return all(name in text for name in names)
