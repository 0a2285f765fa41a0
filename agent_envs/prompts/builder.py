"""Turns messages into tokens with a chat template, without tokenizing sampled text again.

Decoding a response and tokenizing the text can give other tokens, and a trainer would then train tokens that were never
sampled. So the next prompt is the previous prompt, the response as sampled, and the tokens that the chat template puts
after it. Policies, trainers and demonstrations all make their prompts here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import gymnasium as gym

from agent_envs.errors import PromptError
from agent_envs.messages import Message, ToolSpec, content_text, joined_content, pictures_of, text_alone
from agent_envs.prompts.facts import ChatTemplate, Ending, answered, probe
from agent_envs.prompts.pictures import PictureTokens

_WHO = "a prompt of tokens"


class PromptBuilder:
    """Builds prompts with a Hugging Face tokenizer's chat template.

    No text can forge turns: that of a control token in a message (say ``<|im_end|>`` in a tool's result) or in a tool's
    description is broken up with a space before it is tokenized, and none can be taken for the model's own words.

    What a template rejects or leaves out (`TemplateFacts`) is said otherwise: a system message (for many, a second)
    and tool results by the user, the tools in words at the end of the system message, and then their results by the
    user too.

    With ``pictures``, messages may hold pictures; each takes as many image tokens as the vision tower gives features.

    Args:
        tokenizer: A Hugging Face tokenizer, or anything with ``apply_chat_template`` and ``encode``.
        tools: The tools that the template shows, in the OpenAI function form.
        template_kwargs: Further keyword arguments of the template, such as ``enable_thinking``.
        pictures: The image tokens of a vision-language model; None for a model of text.
        tool_instructions: The tools in words, for a template that does not show them.
        tool_mode: ``"native"``: the template shows the tools. ``"text"``: the system message shows them in words. None:
            in words if the template does not show them.
        stop_token_ids: Tokens that end a response, besides the template's and the tokenizer's.

    Raises:
        PromptError: The tokenizer has no chat template.
    """

    def __init__(
        self,
        tokenizer: Any,
        tools: Sequence[ToolSpec] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        pictures: PictureTokens | None = None,
        *,
        tool_instructions: str = "",
        tool_mode: Literal["native", "text"] | None = None,
        stop_token_ids: Collection[int | None] = (),
    ) -> None:
        if not tokenizer.chat_template:
            raise PromptError(
                f"the tokenizer {tokenizer.name_or_path!r} has no chat template; use an instruction-tuned model, or "
                "put a chat_template.jinja beside its tokenizer.json"
            )
        self.tokenizer, self.pictures = tokenizer, pictures
        picture, kwargs = pictures.names[0] if pictures else "", dict(template_kwargs or {})
        bare = ChatTemplate(tokenizer, None, kwargs, picture)
        with_tools = replace(bare, tools=_defused(tools or (), bare.facts().control) or None)
        in_words = tool_mode == "text" if tool_mode else bool(tool_instructions) and not with_tools.facts().tools
        self._template = bare if in_words else with_tools
        self.facts = self._template.facts()
        self._told, self._results = (tool_instructions, "") if in_words else ("", self.facts.results)
        self._probe = probe()
        self.ends = self.facts.ends | ({tokenizer.eos_token_id, *stop_token_ids} - {None})
        """The tokens that end a response: the template's, the tokenizer's and the given ones."""

    @classmethod
    def of_env(cls, env: gym.Env[Any, str], tokenizer: Any, **settings: Any) -> Self:
        """Return the builder for the tools of an environment; ``settings`` are the other arguments."""
        tools = env.get_wrapper_attr("tools")
        words = env.get_wrapper_attr("tool_instructions") if tools else ""
        return cls(tokenizer, tools, tool_instructions=words, **settings)

    def start(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of a conversation up to the model's response, shape [prompt tokens]; see `extend`."""
        if self._results not in ("", "plain") and any(m["role"] == "assistant" for m in messages):
            return self.conversation(messages)[0]  # the template takes no results after a call as the model wrote it
        fitted = self._fitted(with_instructions(messages, self._told), self.facts.system)
        return self._encode(self._template.render(fitted, parts=self.facts.parts), messages)

    def extend(self, prompt_ids: Sequence[int], response_ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Return the prompt after a response: ``prompt_ids + response_ids +`` the tokens of the new messages.

        Args:
            prompt_ids: The prompt of the response, shape [prompt tokens].
            response_ids: The response as sampled, with or without its end-of-turn tokens, shape [response tokens].
            messages: The messages after it: tool results, or the user's.

        Raises:
            PromptError: The template rejects the messages, or leaves out pictures.
        """
        ending, fitted = self._ending(messages), self._fitted(messages, self.facts.later)
        turn = answered(self._results, self._probe, fitted)
        text = self._template.render([{"role": "user", "content": "..."}, *turn], parts=self.facts.parts)
        _, separator, after = text.rpartition(self._probe)
        if not separator:
            raise PromptError("the chat template drops earlier assistant messages, so a prompt cannot be extended")
        new_ids = self._encode(after, messages)[ending.skip :]
        return [*prompt_ids, *response_ids, *new_ids[self._closed(response_ids, new_ids, ending) :]]

    def response(self, text: str, after: Sequence[Message] = ()) -> list[int]:
        """Return the tokens of a text as the model would write it before other messages, with the end of its turn."""
        ids = self._template.encode(text)
        return ids if ids and ids[-1] in self.ends else [*ids, *self._ending(after).end]

    def conversation(
        self, messages: Sequence[Message], opening: int | None = None
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a conversation as a rollout makes them, and the first and the end of each response.

        Args:
            messages: The conversation, from `start` and `extend`.
            opening: Number of messages before the first response; None for all before the first of the assistant.
        """
        said = [i for i, message in enumerate(messages) if message["role"] == "assistant" and i >= (opening or 0)]
        ids, spans = self.start(messages[: said[0]]), []
        for i, following in zip(said, [*said[1:], len(messages)], strict=True):
            new = messages[i + 1 : following]
            response = self.response(text_alone(messages[i], _WHO), new)
            spans.append((len(ids), len(ids) + len(response)))
            ids = self.extend(ids, response, new) if new else [*ids, *response]
        return ids, spans

    def _ending(self, after: Sequence[Message]) -> Ending:
        """Return how a response before other messages ends."""
        return self.facts.tool if self._results and any(m["role"] == "tool" for m in after) else self.facts.user

    def _encode(self, text: str, messages: Sequence[Message]) -> list[int]:
        ids = self._template.encode(text)
        return ids if self.pictures is None else self.pictures.expanded(ids, pictures_of(messages))

    def _fitted(self, messages: Sequence[Message], system: bool) -> list[Message]:
        """Return messages in roles that are shown, the first as the system's if `system`, without control tokens."""
        fitted: list[Message] = []
        before = ""  # the role of the last message
        for message in messages:
            role, safe = message["role"], self._safe(message)
            shown = {"system": self.facts.later if fitted else system, "tool": self._results}
            if not shown.get(role, True):
                safe = {"role": "user", "content": safe["content"]}
            joins = self.facts.joined or (role, before) != ("user", "user")
            if fitted and fitted[-1]["role"] == safe["role"] == "user" and joins:
                separator = "\n" if role == before == "tool" else "\n\n"
                content = joined_content([fitted[-1]["content"], safe["content"]], separator)
                fitted[-1] = {"role": "user", "content": content}
            else:
                fitted.append(safe)
            before = role
        return fitted

    def _safe(self, message: Message) -> Message:
        """Return a message as the template gets it: without text that its control tokens would be read from."""
        if message["role"] == "assistant":  # as it was written, which may not be a picture
            if self.pictures is None:
                return message
            return {**message, "content": _defused(text_alone(message, _WHO), self.pictures.names)}
        content: Any = message["content"]
        if self.pictures is None:
            content = text_alone(message, _WHO)
        elif not isinstance(content, str):
            content = [part if part["type"] == "text" else {"type": "image"} for part in content]
        return _defused({**message, "content": content}, self.facts.control)

    def _closed(self, response_ids: Sequence[int], new_ids: Sequence[int], ending: Ending) -> int:
        """Return how many of the new tokens the response has already, or has others for: those that close its turn."""
        closing = list(ending.closing) if tuple(new_ids[: len(ending.closing)]) == ending.closing else []
        if response_ids and response_ids[-1] in self.ends:
            return len(closing) or int(list(new_ids[:1]) == [response_ids[-1]])
        lengths = range(min(len(response_ids), len(closing)), 0, -1)  # it was cut within its end
        return next((n for n in lengths if list(response_ids[-n:]) == closing[:n]), 0)


def with_instructions(messages: Sequence[Message], instructions: str) -> list[Message]:
    """Return a prompt whose system message has the instructions."""
    first = messages[0] if messages and messages[0]["role"] == "system" else None
    if first is None:
        return [{"role": "system", "content": instructions}, *messages] if instructions else [*messages]
    if instructions in content_text(first["content"]):
        return [*messages]
    return [{**first, "content": joined_content([first["content"], instructions], "\n\n")}, *messages[1:]]


def _defused(value: Any, tokens: Sequence[str]) -> Any:
    """Break up the text of every control token with a space after its first character, in lists and names too.

    >>> _defused({"content": "a<|im_end|>"}, ["<|im_end|>"])
    {'content': 'a< |im_end|>'}
    """
    if isinstance(value, dict):
        return {_defused(name, tokens): _defused(item, tokens) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_defused(item, tokens) for item in value]
    for token in tokens if isinstance(value, str) else ():
        if token in value:
            value = value.replace(token, f"{token[0]} {token[1:]}")
    return value
