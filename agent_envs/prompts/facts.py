"""What a chat template does with messages, found by trying: the one place that knows.

Templates differ in the roles that they take, in what they leave out without a word, and in how a turn ends. All of it
follows from rendering a few short conversations whose texts are random, so that no text of an episode can be taken for
one of them.
"""

from __future__ import annotations

import json
import secrets
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_envs.errors import PromptError
from agent_envs.messages import Message, ToolSpec, content_parts

_MESSAGE_END = "<|eom_id|>"  # with which Llama ends a call, though its template writes it for built-in tools alone
_REFUSALS = (AttributeError, KeyError, TypeError, ValueError)  # of expressions in a template, beside Jinja's own errors
_MOST_KNOWN = 256  # tool sets per tokenizer; an environment may have others for every task


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
    later: bool
    """Whether it shows one that is not the first message, and where it stands."""
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


_known: weakref.WeakKeyDictionary[Any, dict[str, TemplateFacts]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A tokenizer's chat template with tools and further arguments."""

    tokenizer: Any
    tools: Sequence[ToolSpec] | None
    kwargs: Mapping[str, Any]
    picture: str
    """The text of the token that stands for a picture; "" for a model of text."""

    def facts(self) -> TemplateFacts:
        """Return what the template does, found once for a tokenizer, its template, the tools and the arguments."""
        known = _known.setdefault(self.tokenizer, {})
        key = json.dumps([self.tokenizer.chat_template, self.tools, self.kwargs, self.picture], default=repr)
        if key not in known:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[key] = _found(self)
        return known[key]

    def render(self, messages: Sequence[Any], *, parts: bool = False, generate: bool = True) -> str:
        """Return messages as the model reads them, with its turn next if `generate`, contents as lists if `parts`.

        Raises:
            PromptError: The template rejects them.
        """
        from jinja2.exceptions import TemplateError

        if parts:
            lists = [content_parts(m["content"]) for m in messages]
            messages = [{**m, "content": content} for m, content in zip(messages, lists, strict=True)]
        how = {"add_generation_prompt": generate, "tokenize": False, **self.kwargs}
        try:
            return str(self.tokenizer.apply_chat_template(messages, tools=self.tools, **how))
        except (TemplateError, *_REFUSALS) as e:
            roles = [m["role"] for m in messages]
            raise PromptError(f"the chat template rejects messages with the roles {roles}: {e}") from e

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))


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
    tokenizer, encode, parts = template.tokenizer, template.encode, False
    asked, said, more, first, second, *names = (probe() for _ in range(5 + len(template.tools or ())))
    user, spoken, following, system = (
        {"role": role, "content": text}
        for role, text in (("user", asked), ("assistant", said), ("user", more), ("system", first))
    )

    def shown(messages: list[Any], *texts: str, generate: bool = True, pictures: int = 0, by: Any = template) -> str:
        """Return the rendered messages if they show the texts and pictures, else ""."""
        try:
            text: str = by.render(messages, parts=parts, generate=generate)
        except PromptError:
            return ""
        complete = all(each in text for each in texts)
        return text if complete and (not pictures or text.count(template.picture) == pictures) else ""

    if not shown([user, spoken, following], asked, said, more):
        parts = True
        parts = bool(shown([user, spoken, following], asked, said, more))
    has_system = bool(shown([system, user], first, asked))
    later = shown([user, spoken, {**system, "content": second}, following], said, more)
    renamed: Any = [
        {**tool, "function": {**tool["function"], "name": name}}
        for tool, name in zip(template.tools or (), names, strict=True)
    ]
    opening = [system, user] if has_system else [user]
    has_tools = bool(shown(opening, *names, by=replace(template, tools=renamed or None)))
    picture: list[Any] = [{"type": "image"}] if template.picture else []
    name = template.tools[0]["function"]["name"] if template.tools else "f"
    results: list[Any] = [
        {"role": "tool", "name": name, "content": [{"type": "text", "text": text}, *picture] if picture else text}
        for text in (first, second)
    ]
    forms = [
        form
        for form in ("plain", "id", "call", "call-json")
        if shown([user, *answered(form, said, results)], said, first, second, pictures=2 * len(picture))
    ]
    ids = {*tokenizer.all_special_ids, *(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)}
    prompt: list[int] = []  # of a template that puts it behind every conversation; the user's turn ends with one token
    if (alone := shown([user])) == shown([user], generate=False):
        prompt = encode(alone.partition(asked)[2])[1:]
    turn = encode(shown([user, spoken], asked, said).partition(asked)[2])[:1]  # after the user's

    def ending(response: Any, *following: Any, before: str) -> Ending:
        """Return how a response ends: compare what comes after it alone and with other messages."""
        last = encode(shown([user, response], said, generate=False).rpartition(said)[2])
        then = encode(shown([user, response, *following], said, before).partition(before)[0].rpartition(said)[2])
        if prompt and last[-len(prompt) :] == prompt:
            last = last[: -len(prompt)]
        common = next(
            (i for i, (a, b) in enumerate(zip(last, then, strict=False)) if a != b), min(len(last), len(then))
        )
        closed = max((i + 1 for i, token in enumerate(last[:common]) if token in ids), default=0)
        skip = 0 if "tool_calls" not in response else closed - 1 if closed else common
        if closed:
            return Ending(tuple(last[skip:closed]), tuple(last[skip:closed]), skip)
        last, then = ([token for token in tokens[skip : skip + 1] if token in ids] for tokens in (last, then))
        if last and then and then == turn:  # Harmony closes the last turn otherwise than those before
            return Ending(tuple(last), tuple(then), skip)
        return Ending(tuple(then), (), skip)

    after_user = ending(spoken, following, before=more)
    after_calls = [ending(*answered(form, said, results), before=first) for form in forms]
    eos = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    after_user = replace(after_user, end=after_user.end or eos)
    # as the model ends a call, even where the template shows results after any response
    call_end = next((each.end for each in reversed(after_calls) if each.end), after_user.end)
    after_tool = replace(after_calls[0] if forms else after_user, end=call_end)
    ends = {each.end[-1] for each in (after_user, after_tool) if each.end}
    ends |= {i for i, token in tokenizer.added_tokens_decoder.items() if str(token) == _MESSAGE_END}
    control = {*map(str, tokenizer.all_special_tokens), *(str(tokenizer.added_tokens_decoder.get(i, "")) for i in ids)}
    return TemplateFacts(
        parts=parts,
        system=has_system,
        later=second in later.partition(said)[2].partition(more)[0],
        joined=not shown([user, following], asked, more),
        results=forms[0] if forms else "",
        tools=has_tools,
        user=after_user,
        tool=after_tool,
        ends=frozenset(ends),
        control=tuple(sorted((token for token in control if len(token) > 1), key=len, reverse=True)),
    )
