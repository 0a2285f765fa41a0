"""Turns messages into tokens with a chat template, without tokenizing sampled text again.

Decoding a response and tokenizing the text can give other tokens, and a trainer would then train tokens that were never
sampled. So the next prompt is the previous prompt, the response as sampled, and the tokens that the chat template puts
after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.errors import PromptError
from agent_envs.messages import Content, Message, ToolSpec, content_parts, joined_content, pictures_of, text_alone
from agent_envs.prompts.pictures import PictureTokens

__all__ = ["PromptBuilder"]

# A stand-in for a response, to see what the template puts after one. Plain letters, which no template trims.
_PROBE = "qzxresponseprobexzq"
_WHO = "a prompt of tokens"


class PromptBuilder:
    """Builds prompts with a Hugging Face tokenizer's chat template.

    Text in messages cannot forge turns: the text of a control token in a message (say ``<|im_end|>`` in a tool's
    result) is broken up with a space before it is tokenized.

    A template that rejects system messages or tool results, or leaves them or their pictures out (as some of Mistral's
    and Gemma's do), gets them with the role user.

    With ``pictures``, messages may hold pictures; each takes as many image tokens as the vision tower gives features.

    Args:
        tokenizer: A Hugging Face tokenizer, or anything with ``apply_chat_template`` and ``encode``.
        tools: The tools that the template shows, in the OpenAI function form.
        template_kwargs: Further keyword arguments of the template, such as ``enable_thinking``.
        pictures: The image tokens of a vision-language model; None for a model of text.

    Raises:
        PromptError: The tokenizer has no chat template.
    """

    def __init__(
        self,
        tokenizer: Any,
        tools: Sequence[ToolSpec] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        pictures: PictureTokens | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise PromptError(
                f"the tokenizer {tokenizer.name_or_path!r} has no chat template; use an instruction-tuned model, or "
                "put a chat_template.jinja beside its tokenizer.json"
            )
        self.tokenizer, self.pictures = tokenizer, pictures
        self.tools = list(tools) if tools else None
        self.template_kwargs = dict(template_kwargs or {})
        control = {str(token) for token in tokenizer.all_special_tokens}
        control |= {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._plain_roles = False
        self._control_tokens = sorted((token for token in control if len(token) > 1), key=len, reverse=True)

    def start(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of a conversation up to the model's response, shape [prompt tokens].

        Raises:
            PromptError: The template rejects the messages, or leaves out pictures.
        """
        return self._with_pictures(self._encode(self._render(messages)), messages)

    def extend(self, prompt_ids: Sequence[int], response_ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Return the prompt after a response: ``prompt_ids + response_ids +`` the tokens of the new messages.

        Args:
            prompt_ids: The prompt of the response, shape [prompt tokens].
            response_ids: The response as sampled, with or without its end-of-turn token, shape [response tokens].
            messages: The messages after it: tool results, or the user's.

        Returns:
            Token ids, shape [prompt tokens + response tokens + new tokens].

        Raises:
            PromptError: The template rejects the messages, or leaves out pictures.
        """
        conversation: list[Message] = [
            {"role": "user", "content": "..."},
            {"role": "assistant", "content": _PROBE},
            *messages,
        ]
        _, separator, after = self._render(conversation).rpartition(_PROBE)
        if not separator:
            raise PromptError("the chat template drops earlier assistant messages, so a prompt cannot be extended")
        new_ids = self._with_pictures(self._encode(after), messages)
        return [*prompt_ids, *response_ids, *new_ids[_overlap(response_ids, new_ids) :]]

    def _render(self, messages: Sequence[Message]) -> str:
        safe = [self._safe(m) for m in messages]
        if not self._plain_roles:
            text, refusal = self._apply(safe)
            if text is not None and not self._leaves_out(safe, text):
                return text
        text, refusal = self._apply(_as_user(safe))
        if text is None:
            roles = [m["role"] for m in messages]
            raise PromptError(f"the chat template rejects messages with the roles {roles}: {refusal}") from refusal
        self._plain_roles = True
        return text

    def _leaves_out(self, messages: Sequence[Message], text: str) -> bool:
        """Return whether a picture, or a system message or tool result, escaped or not, is missing in ``text``."""
        if self.pictures is not None and text.count(self.pictures.names[0]) != len(_images(messages)):
            return True
        others = [m for m in messages if m["role"] in ("system", "tool")]
        if all(words.strip() in text for m in others for words in _texts(m["content"])):
            return False
        probed, _ = self._apply([{**m, "content": _PROBE} if m in others else m for m in messages])
        return probed is None or probed.count(_PROBE) < len(others)

    def _apply(self, messages: Sequence[Message]) -> tuple[str | None, Exception | None]:
        """Return the rendered conversation, or None and the error with which the template rejects it."""
        from jinja2.exceptions import TemplateError

        try:
            text = self.tokenizer.apply_chat_template(
                messages, tools=self.tools, add_generation_prompt=True, tokenize=False, **self.template_kwargs
            )
        except TemplateError as e:
            return None, e
        return text, None

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _with_pictures(self, ids: list[int], messages: Sequence[Message]) -> list[int]:
        return ids if self.pictures is None else self.pictures.expanded(ids, pictures_of(messages))

    def _safe(self, message: Message) -> Message:
        """Return a message as the template gets it: without text that its control tokens would be read from."""
        if message["role"] == "assistant":  # as it was written, which may not be a picture
            if self.pictures is None:
                return message
            return {**message, "content": _defused(text_alone(message, _WHO), self.pictures.names)}
        if self.pictures is None or isinstance(message["content"], str):
            return {**message, "content": _defused(text_alone(message, _WHO), self._control_tokens)}
        parts: list[Any] = [
            {"type": "text", "text": _defused(part["text"], self._control_tokens)}
            if part["type"] == "text"
            else {"type": "image"}
            for part in message["content"]
        ]
        return {**message, "content": parts}


def _defused(content: str, tokens: Sequence[str]) -> str:
    """Break up the text of every control token with a space after its first character.

    >>> _defused("a<|im_end|>", ["<|im_end|>"])
    'a< |im_end|>'
    """
    for token in tokens:
        if token in content:
            content = content.replace(token, f"{token[0]} {token[1:]}")
    return content


def _texts(content: Content) -> list[str]:
    return [part["text"] for part in content_parts(content) if part["type"] == "text"]


def _images(messages: Sequence[Message]) -> list[Any]:
    return [part for m in messages for part in content_parts(m["content"]) if part["type"] == "image"]


def _as_user(messages: Sequence[Message]) -> list[Message]:
    """Give all messages but the assistant's the role user, and join consecutive ones by blank lines.

    >>> _as_user([{"role": "system", "content": "Act."}, {"role": "user", "content": "Go."}])
    [{'role': 'user', 'content': 'Act.\\n\\nGo.'}]
    """
    out: list[Message] = []
    for message in messages:
        if message["role"] == "assistant":
            out.append(message)
        elif out and out[-1]["role"] == "user":
            out[-1] = {"role": "user", "content": joined_content([out[-1]["content"], message["content"]], "\n\n")}
        else:
            out.append({"role": "user", "content": message["content"]})
    return out


def _overlap(response_ids: Sequence[int], new_ids: Sequence[int]) -> int:
    """Return how many of ``new_ids`` the response has already, usually its end-of-turn token.

    >>> _overlap([5, 6, 2], [2, 9])
    1
    >>> _overlap([5, 6], [2, 9])
    0
    """
    for length in range(min(len(response_ids), len(new_ids)), 0, -1):
        if list(response_ids[-length:]) == list(new_ids[:length]):
            return length
    return 0
